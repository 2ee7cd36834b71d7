//! A store that fails on purpose: the n-th call of a sort fails, is short, or is interrupted.

use super::{FileSystem, OpenMode, RangeLock, Store, StoredFile};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A sort of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Opening.
    Open,
    /// Deleting.
    Delete,
    /// Reading, also into several buffers.
    Read,
    /// Writing, also from several buffers.
    Write,
    /// The length.
    Len,
    /// Setting the length.
    SetLen,
    /// Giving space.
    Allocate,
    /// Bringing to the device.
    Sync,
    /// Locking.
    Lock,
}

/// What a call does in place of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// It fails with this error number, and has done nothing.
    Fail(i32),
    /// It transfers at most so many bytes. Of no effect on other calls.
    Short(usize),
}

/// A fault: which call, and what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The sort of calls that are counted.
    pub call: Call,
    /// The first call with the fault, from 0.
    pub first: u64,
    /// How many calls have it from then on.
    pub count: u64,
    /// What they do.
    pub reaction: Reaction,
}

impl Fault {
    /// The n-th call of a sort, from 0, has the fault.
    pub fn nth(call: Call, n: u64, reaction: Reaction) -> Fault {
        Fault {
            call,
            first: n,
            count: 1,
            reaction,
        }
    }

    /// Each call of a sort from the n-th on, from 0, has the fault.
    pub fn from(call: Call, n: u64, reaction: Reaction) -> Fault {
        Fault {
            count: u64::MAX,
            ..Fault::nth(call, n, reaction)
        }
    }
}

/// Faults, and the calls so far.
#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    /// By the sort of call.
    calls: [u64; Call::Lock as usize + 1],
}

/// A store with faults. A copy shares faults and counts.
#[derive(Clone)]
pub struct FaultStore {
    store: Arc<dyn Store>,
    state: Arc<Mutex<State>>,
}

impl FaultStore {
    /// The store, with these faults.
    pub fn new(store: Arc<dyn Store>, faults: &[Fault]) -> FaultStore {
        let state = State {
            faults: faults.to_vec(),
            ..State::default()
        };
        FaultStore {
            store,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// How many calls of a sort there were.
    pub fn calls(&self, call: Call) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls[call as usize]
    }

    /// Counts from 0 again, with these faults.
    pub fn restart(&self, faults: &[Fault]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls = Default::default();
        state.faults = faults.to_vec();
    }
}

/// Counts a call. Returns how many bytes it may transfer.
fn count(state: &Mutex<State>, call: Call) -> io::Result<usize> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let n = state.calls[call as usize];
    state.calls[call as usize] += 1;
    let fault = state
        .faults
        .iter()
        .find(|f| f.call == call && n >= f.first && n - f.first < f.count);
    match fault.map(|f| f.reaction) {
        None => Ok(usize::MAX),
        Some(Reaction::Short(len)) => Ok(len),
        Some(Reaction::Fail(errno)) => Err(Errno::from_raw_os_error(errno).into()),
    }
}

impl Store for FaultStore {
    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn StoredFile>> {
        count(&self.state, Call::Open).map_err(|error| Error::of_file("open", path, error))?;
        Ok(Arc::new(FaultFile {
            file: self.store.open(path, mode)?,
            state: self.state.clone(),
        }))
    }

    fn delete(&self, path: &Path) -> Result<()> {
        count(&self.state, Call::Delete).map_err(|error| Error::of_file("unlink", path, error))?;
        self.store.delete(path)
    }
}

/// A file with faults. It shows no descriptor, so that all its calls come through here.
struct FaultFile {
    file: Arc<dyn StoredFile>,
    state: Arc<Mutex<State>>,
}

impl StoredFile for FaultFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn can_read(&self) -> bool {
        self.file.can_read()
    }

    fn can_write(&self) -> bool {
        self.file.can_write()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = count(&self.state, Call::Read)?.min(buf.len());
        self.file.read_at(&mut buf[..len], offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let len = count(&self.state, Call::Write)?.min(buf.len());
        self.file.write_at(&buf[..len], offset)
    }

    fn len(&self) -> io::Result<u64> {
        count(&self.state, Call::Len)?;
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        count(&self.state, Call::SetLen)?;
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        count(&self.state, Call::Allocate)?;
        self.file.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        count(&self.state, Call::Sync)?;
        self.file.sync()
    }

    fn lock(&self, range: Range<u64>, exclusive: bool) -> io::Result<RangeLock<'_>> {
        count(&self.state, Call::Lock)?;
        self.file.lock(range, exclusive)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn file_system(&self) -> FileSystem {
        self.file.file_system()
    }
}
