//! Files in the memory of this process, for tests.

use super::range_lock::RangeTable;
use super::{FileSystem, OpenMode, RangeLock, Store, StoredFile};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files in memory. A copy shares the files.
#[derive(Clone, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<HashMap<PathBuf, Arc<Contents>>>>,
}

/// What all who have opened a file share.
#[derive(Default)]
struct Contents {
    bytes: Mutex<Vec<u8>>,
    locks: RangeTable,
}

impl Contents {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// The bytes of a file, if it exists.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.files().get(path).map(|file| file.bytes().clone())
    }

    fn files(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Contents>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn StoredFile>> {
        let failed = |errno: Errno| Err(Error::of_file("open", path, errno.into()));
        let mut files = self.files();
        let contents = match files.get(path) {
            Some(_) if mode.create && mode.exclusive => return failed(Errno::EXIST),
            Some(contents) => contents.clone(),
            None if mode.create => files.entry(path.to_owned()).or_default().clone(),
            None => return failed(Errno::NOENT),
        };
        Ok(Arc::new(MemoryFile {
            path: path.to_owned(),
            contents,
            can_write: mode.write,
        }))
    }

    fn delete(&self, path: &Path) -> Result<()> {
        match self.files().remove(path) {
            Some(_) => Ok(()),
            None => Err(Error::of_file("unlink", path, Errno::NOENT.into())),
        }
    }
}

/// An open file in memory.
struct MemoryFile {
    path: PathBuf,
    contents: Arc<Contents>,
    can_write: bool,
}

impl MemoryFile {
    /// The place of an offset in memory.
    fn place(offset: u64, len: usize) -> io::Result<usize> {
        let start = usize::try_from(offset).ok();
        match start.filter(|start| start.checked_add(len).is_some()) {
            Some(start) => Ok(start),
            None => Err(Errno::FBIG.into()),
        }
    }

    fn check_write(&self) -> io::Result<()> {
        match self.can_write {
            true => Ok(()),
            false => Err(Errno::BADF.into()),
        }
    }
}

impl StoredFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn can_read(&self) -> bool {
        true
    }

    fn can_write(&self) -> bool {
        self.can_write
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = MemoryFile::place(offset, buf.len())?;
        let bytes = self.contents.bytes();
        let found = bytes.get(start..).unwrap_or_default();
        let n = found.len().min(buf.len());
        buf[..n].copy_from_slice(&found[..n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.check_write()?;
        let start = MemoryFile::place(offset, buf.len())?;
        let end = start + buf.len();
        let mut bytes = self.contents.bytes();
        if !buf.is_empty() && bytes.len() < end {
            bytes.resize(end, 0);
        }
        if !buf.is_empty() {
            bytes[start..end].copy_from_slice(buf);
        }
        Ok(buf.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.contents.bytes().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_write()?;
        let len = MemoryFile::place(len, 0)?;
        self.contents.bytes().resize(len, 0);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_write()?;
        let len = MemoryFile::place(len, 0)?;
        let mut bytes = self.contents.bytes();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, range: Range<u64>, _exclusive: bool) -> io::Result<RangeLock<'_>> {
        if !range.is_empty() {
            self.contents.locks.take(&range);
        }
        Ok(RangeLock::new(&self.contents.locks, range))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn file_system(&self) -> FileSystem {
        FileSystem::Tmpfs
    }
}
