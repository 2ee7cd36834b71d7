//! Objects that the program has not freed when it calls MPI_Finalize, for who asks by
//! FERRY_SHOW_HANDLE_LEAKS (Open MPI: mpi_show_handle_leaks).

use crate::calls::request::sent;
use crate::handle::{self, Object};
use crate::raise;
use ferry_job::settings::SHOW_HANDLE_LEAKS;
use ferry_mpi::Request;
use ferry_mpi::pt2pt::Message;

/// Objects of a kind that are named. A choice: a line has room for as many.
const NAMED_MAX: usize = 3;

/// The line about such objects. `None`: there are none, or nobody asks.
pub fn report() -> Option<String> {
    if !SHOW_HANDLE_LEAKS.is("1") {
        return None;
    }
    let kinds = [
        named("window", "MPI_Win_free", raise::win_text),
        named("file", "MPI_File_close", raise::file_text),
        named("communicator", "MPI_Comm_free", raise::comm_text),
        counted::<Request>("request", "MPI_Wait, or MPI_Request_free"),
        counted::<Message>("matched message", "MPI_Mrecv"),
    ];
    let found: Vec<String> = kinds.into_iter().flatten().collect();
    (!found.is_empty()).then(|| format!("MPI_Finalize: this rank has left {}", found.join("; ")))
}

/// Objects of a kind, the first of them by `text`, which begins with " on ".
fn named<T: Object>(kind: &str, free: &str, text: fn(&T) -> String) -> Option<String> {
    let all = handle::all::<T>();
    let names = all.iter().take(NAMED_MAX).map(|object| {
        let text = text(object);
        text.strip_prefix(" on ").map(str::to_owned).unwrap_or(text)
    });
    let mut names: Vec<String> = names.collect();
    if all.len() > NAMED_MAX {
        names.push("…".into());
    }
    in_words(all.len(), kind, free, &names.join(", "))
}

fn counted<T: Object>(kind: &str, free: &str) -> Option<String> {
    // Sends that were complete at once share one handle, which stays.
    let shared = T::KIND == Request::KIND && handle::get::<Request>(sent()).is_some();
    let count = T::table().handles().len() - usize::from(shared);
    in_words(count, kind, free, "")
}

fn in_words(count: usize, kind: &str, free: &str, names: &str) -> Option<String> {
    let names = match names {
        "" => String::new(),
        names => format!(": {names}"),
    };
    match count {
        0 => None,
        1 => Some(format!("1 {kind} ({free}){names}")),
        _ => Some(format!("{count} {kind}s ({free}){names}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_and_named() {
        let text = |count, names| in_words(count, "file", "MPI_File_close", names);
        assert_eq!(text(0, ""), None);
        assert_eq!(
            text(1, "file a"),
            Some("1 file (MPI_File_close): file a".into())
        );
        assert_eq!(text(2, ""), Some("2 files (MPI_File_close)".into()));
    }
}
