//! Names that MPI has removed, in files that a compiler has refused.
//!
//! The compiler does not know them, and its guess misleads: for `MPI_Type_hvector`, whose stride
//! is in bytes, it proposes `MPI_Type_vector`, whose stride is in elements. So the wrapper says
//! what to write instead (MPI 5.0 §17.1).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Larger files are not read: archives of whole applications would cost more than they tell.
const READ_MAX_BYTES: u64 = 16 << 20;

/// What is read: sources, and objects, which have the names as their undefined symbols.
const EXTENSIONS: [&str; 15] = [
    "c", "cc", "cpp", "cxx", "C", "f", "F", "for", "f77", "f90", "F90", "f03", "f08", "o", "a",
];

/// Removed by MPI 3.0, and what has its place.
const REMOVED: [(&str, &str); 20] = [
    ("MPI_Address", "MPI_Get_address"),
    ("MPI_COMBINER_HINDEXED_INTEGER", "MPI_COMBINER_HINDEXED"),
    ("MPI_COMBINER_HVECTOR_INTEGER", "MPI_COMBINER_HVECTOR"),
    ("MPI_COMBINER_STRUCT_INTEGER", "MPI_COMBINER_STRUCT"),
    ("MPI_Errhandler_create", "MPI_Comm_create_errhandler"),
    ("MPI_Errhandler_get", "MPI_Comm_get_errhandler"),
    ("MPI_Errhandler_set", "MPI_Comm_set_errhandler"),
    ("MPI_Handler_function", "MPI_Comm_errhandler_function"),
    ("MPI_LB", "MPI_Type_create_resized"),
    ("MPI_Type_extent", "MPI_Type_get_extent"),
    ("MPI_Type_hindexed", "MPI_Type_create_hindexed"),
    ("MPI_Type_hvector", "MPI_Type_create_hvector"),
    ("MPI_Type_lb", "MPI_Type_get_extent"),
    ("MPI_Type_struct", "MPI_Type_create_struct"),
    ("MPI_Type_ub", "MPI_Type_get_extent"),
    ("MPI_UB", "MPI_Type_create_resized"),
    ("MPI::COMM_WORLD", CXX),
    ("MPI::Finalize", CXX),
    ("MPI::Init", CXX),
    ("MPI::Init_thread", CXX),
];

const CXX: &str = "the functions of C: the C++ bindings are gone";

/// What to say of a command line that the compiler has refused.
pub fn hints(words: &[OsString]) -> Vec<String> {
    let mut hints = Vec::new();
    for file in inputs(words) {
        let path = Path::new(file);
        let small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= READ_MAX_BYTES);
        let Some(bytes) = small.then(|| fs::read(path).ok()).flatten() else {
            continue;
        };
        for (name, instead) in names(&bytes) {
            hints.push(format!(
                "{}: {name} was removed by MPI 3.0; use {instead}",
                path.display()
            ));
        }
    }
    hints
}

fn inputs(words: &[OsString]) -> impl Iterator<Item = &OsStr> {
    let mut before = OsStr::new("");
    words.iter().map(OsString::as_os_str).filter(move |word| {
        let output = before == "-o";
        before = word;
        let extension = Path::new(word).extension().and_then(OsStr::to_str);
        !output
            && !word.as_bytes().starts_with(b"-")
            && extension.is_some_and(|e| EXTENSIONS.contains(&e))
    })
}

/// The removed names among the words of a file. Fortran writes them in any case, and its symbols
/// end in underscores.
fn names(bytes: &[u8]) -> Vec<(&'static str, &'static str)> {
    let of_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b':';
    let mut found: Vec<_> = bytes
        .split(|b| !of_name(b))
        .filter(|word| word.len() > 5 && word[..3].eq_ignore_ascii_case(b"MPI"))
        .filter_map(|word| {
            let end = word.iter().rposition(|b| *b != b'_').map_or(0, |at| at + 1);
            REMOVED
                .iter()
                .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(&word[..end]))
                .copied()
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&'static str> {
        names(text.as_bytes()).into_iter().map(|f| f.0).collect()
    }

    #[test]
    fn sees_whole_names_in_c_fortran_and_symbols() {
        assert_eq!(
            found("MPI_Address(x,&a); MPI_Get_address(x);"),
            ["MPI_Address"]
        );
        assert_eq!(
            found("\0mpi_type_struct_\0MPI_Type_lb\0"),
            ["MPI_Type_lb", "MPI_Type_struct"]
        );
        assert_eq!(
            found("call mpi_type_extent(t,e,i)\ntypes(2)=MPI_UB"),
            ["MPI_Type_extent", "MPI_UB"]
        );
        assert_eq!(
            found("MPI_Type_struct_own MY_MPI_UB MPI_UBOUND my::MPI_LB"),
            [""; 0]
        );
    }

    #[test]
    fn sees_the_bindings_of_cxx() {
        assert_eq!(
            found("MPI::Init(c,v); r=MPI::COMM_WORLD.Get_rank();"),
            ["MPI::COMM_WORLD", "MPI::Init"]
        );
        assert_eq!(found("namespace MPI { MPI::own(); }"), [""; 0]);
    }

    #[test]
    fn reads_sources_and_objects_only() {
        let words = [
            "cc", "-I.", "a.c", "-o", "b.o", "c.o", "-lm", "d.so", "e.F90",
        ];
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        assert_eq!(inputs(&words).collect::<Vec<_>>(), ["a.c", "c.o", "e.F90"]);
    }
}
