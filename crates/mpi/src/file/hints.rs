//! Info hints of files (MPI 5.0 §14.2.8, and those that ROMIO's users know).

use super::File;
use crate::{Info, Result, err};
use ferry_io::hints::*;
use ferry_io::store::FileSystem;
use ferry_io::transfer::{Access, Choice};

/// Bytes that an aggregator reads or writes at a time, unless a hint says otherwise, where pages of
/// the file are in this node's memory. While one aggregator writes, others exchange: windows should
/// be many, and stay in a core's caches.
const LOCAL_CB_BUFFER_BYTES: u64 = 1 << 20;
/// The same where a server has to be asked.
const REMOTE_CB_BUFFER_BYTES: u64 = 4 << 20;
/// Bytes of a window at least where a server has to be asked: a page, which the client asks for
/// anyway. Each window there is messages, for its lock and for its data.
const REMOTE_WINDOW_MIN_BYTES: u64 = 4 << 10;
/// Bytes of a sieving read, unless a hint says otherwise. Such a window stays in a core's cache.
const READ_BUFFER_BYTES: u64 = 512 << 10;
/// Bytes of a sieving write, unless a hint says otherwise.
const WRITE_BUFFER_BYTES: u64 = 512 << 10;

/// The hints in force.
#[derive(Clone, Debug)]
pub(super) struct Hints {
    /// Aggregators; 0: chosen.
    pub cb_nodes: u64,
    /// Bytes that an aggregator handles at a time; 0: chosen.
    cb_buffer_bytes: u64,
    /// Two phases in collective reads.
    pub cb_read: Choice,
    /// Two phases in collective writes.
    pub cb_write: Choice,
    ds_read: Choice,
    ds_write: Choice,
    read_buffer_bytes: u64,
    write_buffer_bytes: u64,
    striping_factor: u64,
    /// Permissions of a file that is created.
    pub permissions: u32,
    /// Bytes at whose multiples aggregators' ranges begin; 0: none given.
    pub striping_bytes: u64,
}

impl Hints {
    /// The hints of `info`, and defaults for the others.
    ///
    /// Errors: InfoValue if a value is of no use.
    pub fn new(info: Option<&Info>) -> Result<Hints> {
        let mut hints = Hints {
            cb_nodes: 0,
            cb_buffer_bytes: 0,
            cb_read: Choice::Automatic,
            cb_write: Choice::Automatic,
            ds_read: Choice::Automatic,
            ds_write: Choice::Automatic,
            read_buffer_bytes: READ_BUFFER_BYTES,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            striping_factor: 0,
            permissions: 0o666,
            striping_bytes: 0,
        };
        hints.set(info)?;
        Ok(hints)
    }

    /// Takes those that Ferry knows.
    ///
    /// Errors: InfoValue; then none is taken.
    pub fn set(&mut self, info: Option<&Info>) -> Result<()> {
        let Some(info) = info else { return Ok(()) };
        let mut new = self.clone();
        let given = |key: &str| info.text(key).map(|v| v.trim().to_ascii_lowercase());
        if let Some(value) = given(COLLECTIVE_BUFFERING) {
            let choice = choice(COLLECTIVE_BUFFERING, &value)?;
            (new.cb_read, new.cb_write) = (choice, choice);
        }
        for (key, place) in [
            (CB_READ, &mut new.cb_read),
            (CB_WRITE, &mut new.cb_write),
            (DS_READ, &mut new.ds_read),
            (DS_WRITE, &mut new.ds_write),
        ] {
            if let Some(value) = given(key) {
                *place = choice(key, &value)?;
            }
        }
        for (key, place, least) in [
            (CB_NODES, &mut new.cb_nodes, 0),
            (CB_BUFFER_SIZE, &mut new.cb_buffer_bytes, 1),
            (READ_BUFFER, &mut new.read_buffer_bytes, 1),
            (WRITE_BUFFER, &mut new.write_buffer_bytes, 1),
            (STRIPING_FACTOR, &mut new.striping_factor, 0),
            (STRIPING_UNIT, &mut new.striping_bytes, 0),
        ] {
            if let Some(value) = given(key) {
                *place = number(key, &value, least)?;
            }
        }
        if let Some(value) = given(FILE_PERM) {
            let permissions = u32::from_str_radix(value.trim_start_matches("0o"), 8);
            new.permissions = permissions.ok().filter(|p| *p <= 0o777).ok_or_else(|| {
                err!(
                    InfoValue,
                    "the info key {FILE_PERM} is {value:?}, but has to be an octal number as in \
                     chmod"
                )
            })?;
        }
        *self = new;
        Ok(())
    }

    /// Are writes to be sieved wherever they can be?
    pub fn asks_for_sieving_writes(&self) -> bool {
        self.ds_write == Choice::Always
    }

    /// How independent transfers are made.
    pub fn access(&self, atomic: bool, file_system: FileSystem) -> Access {
        Access {
            sieve_reads: self.ds_read,
            sieve_writes: self.ds_write,
            lock_writes: false,
            read_buffer_bytes: window_bytes(self.read_buffer_bytes, file_system) as usize,
            write_buffer_bytes: window_bytes(self.write_buffer_bytes, file_system) as usize,
            atomic,
            locked: false,
        }
    }

    /// Bytes that an aggregator handles at a time.
    pub fn cb_buffer_bytes(&self, file_system: FileSystem) -> u64 {
        match self.cb_buffer_bytes {
            0 if file_system.is_remote() => REMOTE_CB_BUFFER_BYTES,
            0 => LOCAL_CB_BUFFER_BYTES,
            asked => window_bytes(asked, file_system),
        }
    }

    fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut add = |key: &str, value: String| pairs.push((key.to_owned(), value));
        for (key, choice) in [
            (CB_READ, self.cb_read),
            (CB_WRITE, self.cb_write),
            (DS_READ, self.ds_read),
            (DS_WRITE, self.ds_write),
        ] {
            add(key, word(choice).to_owned());
        }
        add(FILE_PERM, format!("{:o}", self.permissions));
        for (key, value, always) in [
            (CB_NODES, self.cb_nodes, false),
            (CB_BUFFER_SIZE, self.cb_buffer_bytes, false),
            (READ_BUFFER, self.read_buffer_bytes, true),
            (WRITE_BUFFER, self.write_buffer_bytes, true),
            (STRIPING_FACTOR, self.striping_factor, false),
            (STRIPING_UNIT, self.striping_bytes, false),
        ] {
            if always || value > 0 {
                add(key, value.to_string());
            }
        }
        pairs
    }
}

/// Bytes of a window for which so many were asked.
fn window_bytes(asked: u64, file_system: FileSystem) -> u64 {
    match file_system.is_remote() {
        true => asked.max(REMOTE_WINDOW_MIN_BYTES),
        false => asked,
    }
}

fn choice(key: &str, value: &str) -> Result<Choice> {
    match value {
        "automatic" => Ok(Choice::Automatic),
        "enable" | "true" => Ok(Choice::Always),
        "disable" | "false" => Ok(Choice::Never),
        _ => Err(err!(
            InfoValue,
            "the info key {key} is {value:?}, but has to be \"automatic\", \"enable\" or \
             \"disable\""
        )),
    }
}

fn word(choice: Choice) -> &'static str {
    match choice {
        Choice::Automatic => "automatic",
        Choice::Always => "enable",
        Choice::Never => "disable",
    }
}

fn number(key: &str, value: &str, least: u64) -> Result<u64> {
    match value.parse::<u64>() {
        Ok(number) if number >= least && number <= i64::MAX as u64 => Ok(number),
        _ => Err(err!(
            InfoValue,
            "the info key {key} is {value:?}, but has to be a number that is at least {least}"
        )),
    }
}

impl File {
    /// The hints in force (MPI_File_get_info).
    pub fn info(&self) -> Vec<(String, String)> {
        let hints = self.hints().clone();
        let mut pairs = hints.pairs();
        if hints.cb_buffer_bytes == 0 {
            let chosen = hints.cb_buffer_bytes(self.stored.file_system());
            pairs.push((CB_BUFFER_SIZE.to_owned(), chosen.to_string()));
        }
        if hints.cb_nodes == 0 {
            let chosen = self.aggregator_count();
            pairs.push((CB_NODES.to_owned(), chosen.to_string()));
        }
        pairs
    }

    /// Sets hints (MPI_File_set_info). Those that Ferry does not know are ignored. Collective;
    /// blocks until all ranks have called it.
    ///
    /// Errors: that of `info`, InfoValue, on all ranks; then none is set.
    pub fn set_info(&self, info: Result<Option<&Info>>) -> Result<()> {
        let mut new = self.hints().clone();
        super::agree::on_success(&self.comm, info.and_then(|info| new.set(info)))?;
        self.set_hints(new);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_reported_as_they_were_given() {
        let info = Info::of([
            (CB_NODES, "3"),
            (CB_BUFFER_SIZE, "1048576"),
            (CB_WRITE, "ENABLE"),
            (DS_READ, "disable"),
            ("no such hint", "x"),
        ]);
        let pairs = Hints::new(Some(&info)).unwrap().pairs();
        let value = |key: &str| pairs.iter().find(|p| p.0 == key).map(|p| p.1.as_str());
        assert_eq!(value(CB_NODES), Some("3"));
        assert_eq!(value(CB_BUFFER_SIZE), Some("1048576"));
        assert_eq!(value(CB_WRITE), Some("enable"));
        assert_eq!(value(DS_READ), Some("disable"));
        assert_eq!(value(CB_READ), Some("automatic"));
        assert_eq!(value("no such hint"), None);
    }

    #[test]
    fn windows_on_a_server_are_pages_at_least() {
        let info = Info::of([
            (CB_BUFFER_SIZE, "1"),
            (READ_BUFFER, "16"),
            (WRITE_BUFFER, "100"),
        ]);
        let hints = Hints::new(Some(&info)).unwrap();
        let of = |system| {
            let access = hints.access(false, system);
            let cb = hints.cb_buffer_bytes(system) as usize;
            (cb, access.read_buffer_bytes, access.write_buffer_bytes)
        };
        assert_eq!(of(FileSystem::Nfs), (4096, 4096, 4096));
        assert_eq!(of(FileSystem::Local), (1, 16, 100));
    }

    #[test]
    fn a_bad_hint_changes_nothing() {
        let mut hints = Hints::new(None).unwrap();
        let info = Info::of([(CB_NODES, "2"), (CB_BUFFER_SIZE, "0")]);
        let e = hints.set(Some(&info)).unwrap_err();
        assert!(e.text().contains("cb_buffer_size"), "{e}");
        assert_eq!(hints.cb_nodes, 0);
    }
}
