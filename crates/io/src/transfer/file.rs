//! The calls of a file with the loops around them: interrupted calls are made again, short ones go
//! on. Errors get the path and the place.

use crate::error::{Error, Result};
use crate::store::{FileSystem, LOCKS_END, RangeLock, StoredFile};
use std::io;
use std::ops::Range;

/// Makes a call again as long as signals interrupt it (`EINTR`).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads until `buf` is full or the file ends. Returns the number of bytes. Blocks until they are
/// there.
///
/// One call is the common case, and inlined: on processors where system calls spoil the prediction
/// of returns, each function to return from costs as much as the call's own work.
///
/// # Errors
/// What the system says, with the place where the call that failed began.
#[inline]
pub fn read_exact_or_end(file: &dyn StoredFile, buf: &mut [u8], offset: u64) -> Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    match file.read_at(buf, offset) {
        Ok(n) if n == buf.len() => Ok(n),
        first => read_on(file, buf, offset, first),
    }
}

/// Goes on after a first call that has not filled `buf`.
#[cold]
fn read_on(
    file: &dyn StoredFile,
    buf: &mut [u8],
    offset: u64,
    first: io::Result<usize>,
) -> Result<usize> {
    let (mut done, mut first) = (0, Some(first));
    while done < buf.len() {
        let at = offset.saturating_add(done as u64);
        let call = || {
            first
                .take()
                .unwrap_or_else(|| file.read_at(&mut buf[done..], at))
        };
        match uninterrupted(call) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) => {
                let rest = (buf.len() - done) as u64;
                return Err(Error::at("pread", file.path(), at, rest, error));
            }
        }
    }
    Ok(done)
}

/// Writes all of `buf`. Blocks until the system has it. One call is inlined, as for
/// [`read_exact_or_end`].
///
/// # Errors
/// What the system says, with the place where the call that failed began. What was written before
/// stands.
#[inline]
pub fn write_all(file: &dyn StoredFile, buf: &[u8], offset: u64) -> Result<()> {
    if buf.is_empty() {
        return Ok(());
    }
    match file.write_at(buf, offset) {
        Ok(n) if n == buf.len() => Ok(()),
        first => write_on(file, buf, offset, first),
    }
}

/// Goes on after a first call that has not written all.
#[cold]
fn write_on(
    file: &dyn StoredFile,
    buf: &[u8],
    offset: u64,
    first: io::Result<usize>,
) -> Result<()> {
    let (mut done, mut first) = (0, Some(first));
    while done < buf.len() {
        let at = offset.saturating_add(done as u64);
        let call = || {
            first
                .take()
                .unwrap_or_else(|| file.write_at(&buf[done..], at))
        };
        let written = match uninterrupted(call) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        match written {
            Ok(n) => done += n,
            Err(error) => {
                let rest = (buf.len() - done) as u64;
                return Err(Error::at("pwrite", file.path(), at, rest, error));
            }
        }
    }
    Ok(())
}

/// Length of the file, bytes (MPI_File_get_size).
///
/// # Errors
/// What the system says.
pub fn len(file: &dyn StoredFile) -> Result<u64> {
    uninterrupted(|| file.len()).map_err(|error| Error::of_file("fstat", file.path(), error))
}

/// Sets the length of the file, bytes (MPI_File_set_size).
///
/// # Errors
/// What the system says.
pub fn set_len(file: &dyn StoredFile, len: u64) -> Result<()> {
    uninterrupted(|| file.set_len(len))
        .map_err(|error| Error::at("ftruncate", file.path(), 0, len, error))
}

/// Gives the first `len` bytes of the file their space (MPI_File_preallocate). The file is at least
/// as long then.
///
/// # Errors
/// What the system says.
pub fn allocate(file: &dyn StoredFile, len: u64) -> Result<()> {
    uninterrupted(|| file.allocate(len))
        .map_err(|error| Error::at("fallocate", file.path(), 0, len, error))
}

/// Brings what was written to the device (MPI_File_sync). On NFS, what other hosts have synced is
/// read anew from then on.
///
/// # Errors
/// What the system says. A file system without locks is no error.
pub fn sync(file: &dyn StoredFile) -> Result<()> {
    uninterrupted(|| file.sync()).map_err(|error| Error::of_file("fsync", file.path(), error))?;
    refresh(file);
    Ok(())
}

/// Forgets what this host has cached of the file, so that what others have changed is seen. On NFS:
/// a lock makes its client do so. Elsewhere the system sees to that, and nothing is done.
pub fn refresh(file: &dyn StoredFile) {
    if file.file_system() == FileSystem::Nfs && file.can_read() {
        drop(uninterrupted(|| file.lock(0..LOCKS_END, false)).ok());
    }
}

/// Locks a range of the file until the lock is dropped. Blocks until it is free. An empty range
/// gets no lock.
///
/// # Errors
/// What the system says, such as `ENOLCK` where the file system has no locks.
pub fn lock(file: &dyn StoredFile, range: Range<u64>, exclusive: bool) -> Result<RangeLock<'_>> {
    let (start, len) = (range.start, range.end.saturating_sub(range.start));
    uninterrupted(|| file.lock(range.clone(), exclusive))
        .map_err(|error| Error::at("lock", file.path(), start, len, error))
}

/// Locks what is written beside those who sieve. `None`: there are no locks, and so nobody sieves.
///
/// # Errors
/// As for [`lock`].
pub fn lock_write(file: &dyn StoredFile, range: Range<u64>) -> Result<Option<RangeLock<'_>>> {
    match lock(file, range, true) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.is_no_lock() => Ok(None),
        Err(error) => Err(error),
    }
}
