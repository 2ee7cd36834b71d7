//! What failed at a file: the call, the path, where, and the system's words.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The sort of a failure. Each is one error class of MPI (MPI 5.0 §14.7, Table 14.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// There is no such file.
    NoSuchFile,
    /// The file exists, but must not.
    FileExists,
    /// The permissions do not allow it.
    Access,
    /// The name cannot be one of a file: a folder, too long, a loop of links.
    BadFile,
    /// The file system is full.
    NoSpace,
    /// The user's quota is exhausted.
    Quota,
    /// The file or its file system may only be read.
    ReadOnly,
    /// Somebody else uses the file.
    FileInUse,
    /// The file system does not offer the operation.
    Unsupported,
    /// Any other failure of input or output.
    Io,
}

impl Kind {
    /// The sort of a system call's failure.
    pub fn of(error: &io::Error) -> Kind {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT) => Kind::NoSuchFile,
            Some(Errno::EXIST) => Kind::FileExists,
            Some(Errno::ACCESS | Errno::PERM) => Kind::Access,
            Some(Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::NXIO) => {
                Kind::BadFile
            }
            Some(Errno::NOSPC) => Kind::NoSpace,
            Some(Errno::DQUOT) => Kind::Quota,
            Some(Errno::ROFS) => Kind::ReadOnly,
            Some(Errno::TXTBSY | Errno::BUSY) => Kind::FileInUse,
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => Kind::Unsupported,
            _ => Kind::Io,
        }
    }

    /// What may help, in a few words.
    fn advice(self) -> Option<&'static str> {
        match self {
            Kind::NoSpace => Some("free some space, or write elsewhere; what was written stands"),
            Kind::Quota => Some("`quota -s` shows the limits; what was written stands"),
            Kind::BadFile => Some("the path must name a regular file"),
            _ => None,
        }
    }
}

/// A failed operation on a file.
#[derive(Debug)]
pub struct Error {
    /// The sort of the failure.
    pub kind: Kind,
    /// The system call that failed, such as "pwrite".
    pub call: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Where in the file the call began, bytes. `None` if the call has no place.
    pub offset: Option<u64>,
    /// Bytes that the call was to transfer, lock or allocate.
    pub len: Option<u64>,
    /// The system's error.
    pub source: io::Error,
}

impl Error {
    /// A failure of a call on the whole file.
    pub fn of_file(call: &'static str, path: &Path, source: io::Error) -> Error {
        Error {
            kind: Kind::of(&source),
            call,
            path: path.to_owned(),
            offset: None,
            len: None,
            source,
        }
    }

    /// A failure of a call on `len` bytes at `offset`.
    pub fn at(call: &'static str, path: &Path, offset: u64, len: u64, source: io::Error) -> Error {
        Error {
            offset: Some(offset),
            len: Some(len),
            ..Error::of_file(call, path, source)
        }
    }

    /// The lock that the operation needs cannot be had.
    pub(crate) fn is_no_lock(&self) -> bool {
        self.call == "lock" && self.kind == Kind::Unsupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        if let Some(len) = self.len {
            write!(f, " of {len} bytes")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, " of {}: {}", self.path.display(), self.source)?;
        let errno = Errno::from_io_error(&self.source);
        let advice = match errno {
            _ if self.is_no_lock() => Some(
                "mount the file system with locks, or set romio_ds_write=disable and leave \
                 atomic mode off, which need none",
            ),
            Some(Errno::FBIG) => Some("see `ulimit -f` and the file system's longest file"),
            Some(Errno::MFILE | Errno::NFILE) => Some("see `ulimit -n`"),
            Some(Errno::STALE) => Some("the server has lost the file: was it deleted?"),
            _ => self.kind.advice(),
        };
        match advice {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// What an operation on a file returns.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_call_place_path_and_cause() {
        let full = io::Error::from(Errno::NOSPC);
        let error = Error::at("pwrite", Path::new("/data/x"), 4096, 512, full);
        assert_eq!(error.kind, Kind::NoSpace);
        let text = error.to_string();
        for part in [
            "pwrite of 512 bytes at offset 4096 of /data/x",
            "No space left",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn each_cause_has_its_kind() {
        let kind = |errno: Errno| Kind::of(&errno.into());
        assert_eq!(kind(Errno::ISDIR), Kind::BadFile);
        assert_eq!(kind(Errno::DQUOT), Kind::Quota);
        assert_eq!(kind(Errno::ROFS), Kind::ReadOnly);
        assert_eq!(kind(Errno::IO), Kind::Io);
        assert_eq!(Kind::of(&io::Error::other("not the system's")), Kind::Io);
    }
}
