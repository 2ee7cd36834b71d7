//! Files of the system, by POSIX calls.

use super::mapped::{Candidate, Mapped};
use super::range_lock::{RangeTable, Unlock};
use super::{
    Entry, FileSystem, LOCKS_END, OpenMode, RangeLock, Store, StoredFile, VECTORED_MAX, opens,
};
use crate::error::{Error, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that one call transfers at most: what Linux cuts longer ones to (`MAX_RW_COUNT`).
const CALL_MAX_BYTES: usize = 0x7fff_f000;
/// Bytes of zeros that one call writes where a file system has no fallocate(2).
const ZEROS_BYTES: usize = 1 << 20;

/// The files of the system.
#[derive(Clone, Copy, Default, Debug)]
pub struct PosixStore;

impl Store for PosixStore {
    /// A file for writing only is opened for reading, too, if its permissions allow it: sieving
    /// writes read what lies between the data.
    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn StoredFile>> {
        let mut flags = OFlags::CLOEXEC;
        if mode.create {
            flags |= OFlags::CREATE;
        }
        if mode.exclusive {
            flags |= OFlags::EXCL;
        }
        let permissions = Mode::from_raw_mode(mode.permissions);
        let open = |access: OFlags| {
            rustix::io::retry_on_intr(|| rustix::fs::open(path, flags | access, permissions))
        };
        let (opened, can_read) = match (mode.read, mode.write) {
            (_, false) => (open(OFlags::RDONLY), true),
            (true, true) => (open(OFlags::RDWR), true),
            (false, true) => match open(OFlags::RDWR) {
                Err(Errno::ACCESS) => (open(OFlags::WRONLY), false),
                both => (both, true),
            },
        };
        let failed = |error: Errno| Error::of_file("open", path, error.into());
        let fd = opened.map_err(failed)?;
        let kind = rustix::fs::fstat(&fd).map_err(failed)?.st_mode;
        if rustix::fs::FileType::from_raw_mode(kind) == rustix::fs::FileType::Directory {
            return Err(failed(Errno::ISDIR));
        }
        let file_system = rustix::fs::fstatfs(&fd).map_or(FileSystem::Other(0), |s| {
            FileSystem::of_magic(s.f_type as u64)
        });
        let file = PosixFile {
            fd,
            path: path.to_owned(),
            can_read,
            can_write: mode.write,
            file_system,
            mapped: Mapped::new(),
            locks: RangeTable::default(),
            process_locks: AtomicBool::new(false),
            places: Mutex::new(Places::None),
        };
        if file_system == FileSystem::Nfs && can_read && mode.write {
            file.keep_writes_to_their_bytes();
        }
        Ok(Arc::new(file))
    }

    fn delete(&self, path: &Path) -> Result<()> {
        rustix::fs::unlink(path).map_err(|error| Error::of_file("unlink", path, error.into()))
    }
}

/// An open file.
struct PosixFile {
    fd: OwnedFd,
    path: PathBuf,
    can_read: bool,
    can_write: bool,
    file_system: FileSystem,
    mapped: Mapped,
    /// Ranges that threads of this process have locked.
    locks: RangeTable,
    /// Locks belong to the process: the system refuses those of the open file.
    process_locks: AtomicBool,
    /// Which places among the file's opens it has locked.
    places: Mutex<Places>,
}

/// Locked places of [`opens`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    None,
    /// Its own.
    One,
    /// All but that of those who opened the file with it.
    All,
}

impl PosixFile {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            fd: self.fd.as_fd(),
            can_read: self.can_read,
            can_write: self.can_write,
            file_system: self.file_system,
        }
    }

    /// Sets the lock of a range: `F_RDLCK`, `F_WRLCK` or `F_UNLCK`. Blocks until it is free.
    ///
    /// Locks of the open file (`F_OFD_SETLKW`) outlive the closing of another descriptor of the
    /// same file, which would end a process's locks.
    fn set_lock(&self, kind: i32, range: &Range<u64>) -> io::Result<()> {
        i64::try_from(range.start).map_err(|_| Errno::OVERFLOW)?;
        // All behind is one byte, for places that only sparse files in memory have.
        let start = range.start.min(LOCKS_END - 1);
        let len = range.end.clamp(start + 1, LOCKS_END) - start;
        let (start, len) = (start as i64, len as i64);
        let process_locks = self.process_locks.load(Ordering::Relaxed);
        let commands: &[i32] = match process_locks {
            false => &[libc::F_OFD_SETLKW, libc::F_SETLKW],
            true => &[libc::F_SETLKW],
        };
        for command in commands {
            // SAFETY: all fields are numbers, and zeros are a value of each.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            lock.l_type = kind as libc::c_short;
            lock.l_whence = libc::SEEK_SET as libc::c_short;
            (lock.l_start, lock.l_len) = (start, len);
            // SAFETY: the descriptor is open, and the call only reads the structure.
            if unsafe { libc::fcntl(self.fd.as_raw_fd(), *command, &raw const lock) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || *command != libc::F_OFD_SETLKW {
                return Err(error);
            }
            self.process_locks.store(true, Ordering::Relaxed);
        }
        Err(Errno::INVAL.into())
    }

    /// On NFS, what was written becomes a page of the server's file, with the bytes beside it as
    /// this client has them, and what another client has written there is lost. The client writes
    /// those bytes alone while anybody on it holds a lock in the file, be it anywhere (Linux,
    /// fs/nfs/write.c, `nfs_can_extend_write`). This one is shared, and beyond all data.
    fn keep_writes_to_their_bytes(&self) {
        // SAFETY: all fields are numbers, and zeros are a value of each.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_RDLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        (lock.l_start, lock.l_len) = (i64::MAX - 1, 1);
        // SAFETY: the descriptor is open, and the call only reads the structure. Where there are no
        // locks, or another program has locked all of the file, it is as it was.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    }

    /// Makes a shorter file `len` bytes long by writing zeros.
    fn write_zeros(&self, len: u64) -> io::Result<()> {
        let mut offset = self.len()?;
        if offset >= len {
            return Ok(());
        }
        let zeros = vec![0; ZEROS_BYTES.min((len - offset) as usize)];
        while offset < len {
            let part = (len - offset).min(zeros.len() as u64) as usize;
            match rustix::io::pwrite(&self.fd, &zeros[..part], offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => offset += n as u64,
            }
        }
        Ok(())
    }
}

impl Unlock for PosixFile {
    fn unlock(&self, range: &Range<u64>) {
        // Unlocking what is locked cannot fail, but for a server that is gone.
        let _ = self.set_lock(libc::F_UNLCK, range);
        self.locks.release(range);
    }
}

impl StoredFile for PosixFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn can_read(&self) -> bool {
        self.can_read
    }

    fn can_write(&self) -> bool {
        self.can_write
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.mapped.read(&self.candidate(), buf, offset) {
            return Ok(buf.len());
        }
        let part = buf.len().min(CALL_MAX_BYTES);
        Ok(rustix::io::pread(&self.fd, &mut buf[..part], offset)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        if self.mapped.write(&self.candidate(), buf, offset) {
            return Ok(buf.len());
        }
        let part = buf.len().min(CALL_MAX_BYTES);
        Ok(rustix::io::pwrite(&self.fd, &buf[..part], offset)?)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let part = bufs.len().min(VECTORED_MAX);
        Ok(rustix::io::preadv(&self.fd, &mut bufs[..part], offset)?)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let part = bufs.len().min(VECTORED_MAX);
        Ok(rustix::io::pwritev(&self.fd, &bufs[..part], offset)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.fd, len)?)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::empty();
        match rustix::fs::fallocate(&self.fd, flags, 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(len),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn lock(&self, range: Range<u64>, exclusive: bool) -> io::Result<RangeLock<'_>> {
        if !range.is_empty() {
            self.locks.take(&range);
            let kind = match exclusive {
                true => libc::F_WRLCK,
                false => libc::F_RDLCK,
            };
            if let Err(error) = self.set_lock(kind, &range) {
                self.locks.release(&range);
                return Err(error);
            }
        }
        Ok(RangeLock::new(self, range))
    }

    fn enter(&self) -> io::Result<Entry> {
        let mut places = self.places();
        let entry = opens::enter(self.fd.as_fd())?;
        if entry != Entry::Late {
            *places = Places::One;
        }
        Ok(entry)
    }

    fn claim(&self, place: u64) -> io::Result<bool> {
        let mut places = self.places();
        if *places != Places::All && opens::claim(self.fd.as_fd(), place)? {
            *places = Places::All;
        }
        Ok(*places == Places::All)
    }

    fn leave(&self) {
        let mut places = self.places();
        if *places != Places::None {
            opens::leave(self.fd.as_fd());
            *places = Places::None;
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn file_system(&self) -> FileSystem {
        self.file_system
    }
}
