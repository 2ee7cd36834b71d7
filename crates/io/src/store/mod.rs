//! Stores: what keeps files. One trait, a file each: POSIX, memory, and one that fails on purpose.

mod fault;
mod file_system;
mod guarded_copy;
mod mapped;
mod memory;
mod opens;
mod posix;
mod range_lock;

pub use fault::{Call, Fault, FaultStore, Reaction};
pub use file_system::FileSystem;
pub use memory::MemoryStore;
pub use opens::Entry;
pub use posix::PosixStore;
pub use range_lock::RangeLock;

use crate::error::Result;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMode {
    /// It will be read.
    pub read: bool,
    /// It will be written.
    pub write: bool,
    /// It is made if it does not exist.
    pub create: bool,
    /// It must not exist before: with `create` only (MPI_MODE_EXCL).
    pub exclusive: bool,
    /// Permission bits of a file that is made; the process's umask is taken off.
    pub permissions: u32,
}

impl OpenMode {
    /// For reading a file that exists.
    pub const READ: OpenMode = OpenMode {
        read: true,
        write: false,
        create: false,
        exclusive: false,
        permissions: 0o666,
    };
    /// For reading and writing a file, which is made if it does not exist.
    pub const CREATE: OpenMode = OpenMode {
        write: true,
        create: true,
        ..OpenMode::READ
    };
}

/// Keeps files under paths.
pub trait Store: Send + Sync {
    /// Opens a file. Blocks as long as the file system does.
    ///
    /// # Errors
    /// What the system says, with the path.
    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn StoredFile>>;

    /// Deletes a file.
    ///
    /// # Errors
    /// What the system says, with the path.
    fn delete(&self, path: &Path) -> Result<()>;
}

/// An open file. Its calls are those of the system, one each: they may be short or interrupted
/// (`EINTR`), and [`crate::transfer`] has the loops around them. All block until the system is
/// done. Offsets and lengths are bytes.
#[allow(clippy::len_without_is_empty)] // The length is a call that may fail.
pub trait StoredFile: Send + Sync {
    /// The path under which it was opened.
    fn path(&self) -> &Path;

    /// Returns whether bytes can be read. A file that was opened for writing may be readable all
    /// the same, which sieving writes need.
    fn can_read(&self) -> bool;

    /// Returns whether bytes can be written.
    fn can_write(&self) -> bool;

    /// Reads some bytes at an offset. 0 at the end of the file.
    ///
    /// # Errors
    /// Those of pread(2).
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes at an offset.
    ///
    /// # Errors
    /// Those of pwrite(2).
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Reads neighbouring bytes of the file into several buffers. At most [`VECTORED_MAX`] are
    /// used.
    ///
    /// # Errors
    /// Those of preadv(2).
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            match self.read_at(buf, offset.saturating_add(done as u64)) {
                Ok(n) if n == buf.len() => done += n,
                Ok(n) => return Ok(done + n),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes several buffers to neighbouring bytes of the file. At most [`VECTORED_MAX`] are
    /// used.
    ///
    /// # Errors
    /// Those of pwritev(2).
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            match self.write_at(buf, offset.saturating_add(done as u64)) {
                Ok(n) if n == buf.len() => done += n,
                Ok(n) => return Ok(done + n),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Length of the file.
    ///
    /// # Errors
    /// Those of fstat(2).
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or makes it longer with zeros.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Gives the first `len` bytes their space on the device, and makes the file that long if it is
    /// shorter. Bytes that exist are not changed. Where the file system refuses, zeros are written
    /// behind the end, and holes before it stay holes.
    ///
    /// # Errors
    /// Those of fallocate(2) and pwrite(2), `ENOSPC` first of all.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Brings what was written to the device.
    ///
    /// # Errors
    /// Those of fsync(2).
    fn sync(&self) -> io::Result<()>;

    /// Locks a range against other processes, and against other threads of this one. Blocks until
    /// it is free. The lock ends when it is dropped. A thread must not take a second lock that
    /// overlaps one of its own. An empty range needs no lock, and gets none.
    ///
    /// Locks of processes bind only those who take locks, too. Shared locks of one process exclude
    /// each other like exclusive ones.
    ///
    /// # Errors
    /// Those of fcntl(2): `ENOLCK` and the like where the file system has no locks.
    fn lock(&self, range: Range<u64>, exclusive: bool) -> io::Result<RangeLock<'_>>;

    /// Announces to other opens of the file, of any process, that this one may write without locks.
    /// It does not block.
    ///
    /// # Errors
    /// Those of fcntl(2): opens cannot tell each other anything there.
    fn enter(&self) -> io::Result<Entry> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the file for those who have entered at `place`, until [`StoredFile::leave`]. Returns
    /// whether that went: false while others have entered, or one has the file. It does not block.
    ///
    /// # Errors
    /// Those of fcntl(2).
    fn claim(&self, place: u64) -> io::Result<bool> {
        let _ = place;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes back what this open has announced, if anything.
    fn leave(&self) {}

    /// The file's descriptor, if it has one that may be read and written directly (io_uring).
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The file system that holds it.
    fn file_system(&self) -> FileSystem;
}

/// Locks of data end here, bytes: what lies behind has meanings of its own (`opens`, and on NFS).
pub(crate) const LOCKS_END: u64 = opens::PLACES.start;

/// Buffers that one vectored call takes at most (`IOV_MAX`).
pub const VECTORED_MAX: usize = 1024;
