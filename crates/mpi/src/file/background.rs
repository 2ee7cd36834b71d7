//! Non-blocking reads and writes (MPI 5.0 §14.4.2 to §14.4.4): operations that the system or a
//! thread carries out, beside the program.

use super::access::{Direction, Transfer};
use super::{File, Position};
use crate::device::{self, Device};
use crate::process::process;
use crate::pt2pt::Buffer;
use crate::request::{Outcome, Work};
use crate::{Error, Request, Result};
use ferry_io::engine::{Engine, Options};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The engine of this process. Starts nothing before it is first used.
pub(super) fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        Engine::new(Options {
            spare_cores: spare_cores(),
            ..Options::default()
        })
    })
}

/// The cores of the node's launcher, if it has more than ranks: a rank that is bound to one of them
/// may have others write for it.
fn spare_cores() -> Option<CpuSet> {
    let info = &process().rank_info;
    let launcher = rustix::process::getppid()?;
    (info.cores as usize > info.local_ranks.len())
        .then(|| sched_getaffinity(Some(launcher)).ok())
        .flatten()
}

/// A transfer that goes on after its call.
pub(super) struct PendingTransfer {
    file: Arc<File>,
    transfer: Transfer,
    done: AtomicBool,
    outcome: OnceLock<Outcome>,
}

// SAFETY: the buffer's address is the program's, which leaves the buffer alone until completion.
// One thread uses it.
unsafe impl Sync for PendingTransfer {}

impl PendingTransfer {
    /// The transfer has ended. Wakes threads that wait for it. Called from a thread that is not
    /// the program's.
    fn end(&self, result: Result<Outcome>) {
        let outcome = result.unwrap_or_else(|e| Outcome {
            error: Some(e.on_file(&self.file)),
            ..Outcome::EMPTY
        });
        let _ = self.outcome.set(outcome);
        self.done.store(true, Ordering::Release);
        device::end_outside_work();
    }

    fn moved(&self, result: ferry_io::Result<usize>) -> Result<Outcome> {
        Ok(Outcome {
            bytes: result.map_err(Error::from)? as u64,
            ..Outcome::EMPTY
        })
    }
}

impl Work for PendingTransfer {
    fn is_done(&self, _d: &mut Device) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn outcome(&self) -> Outcome {
        self.outcome.get().cloned().unwrap_or(Outcome::EMPTY)
    }
}

impl File {
    /// Starts a read (MPI_File_iread and others).
    ///
    /// Errors: as [`File::read`]'s for bad arguments; others when the request completes.
    ///
    /// # Safety
    /// The buffer stays writable, and untouched, until completion.
    pub unsafe fn iread(
        self: &Arc<File>,
        position: Position,
        buffer: Buffer<'_>,
    ) -> Result<Arc<Request>> {
        let transfer = self.transfer(Direction::Read, position, buffer)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.start(transfer) })
    }

    /// Starts a write (MPI_File_iwrite and others).
    ///
    /// Errors: as [`File::write`]'s for bad arguments; others when the request completes.
    ///
    /// # Safety
    /// The buffer stays readable and unchanged until completion.
    pub unsafe fn iwrite(
        self: &Arc<File>,
        position: Position,
        buffer: Buffer<'_>,
    ) -> Result<Arc<Request>> {
        let transfer = self.transfer(Direction::Write, position, buffer)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.start(transfer) })
    }

    /// # Safety
    /// The transfer's buffer is readable or writable until completion.
    pub(super) unsafe fn start(self: &Arc<File>, transfer: Transfer) -> Arc<Request> {
        // The program's conversion functions run in its own thread. In virtual time no thread
        // runs beside it, and a transfer takes no time.
        let at_once = !transfer.view.representation.is_native()
            || transfer.bytes == 0
            || device::device().is_virtual();
        if at_once {
            // SAFETY: the caller's promise.
            let result = unsafe { transfer.run() };
            return Request::ended(result.unwrap_or_else(|e| Outcome {
                error: Some(e.on_file(self)),
                ..Outcome::EMPTY
            }));
        }
        let pending = Arc::new(PendingTransfer {
            file: self.clone(),
            transfer,
            done: AtomicBool::new(false),
            outcome: OnceLock::new(),
        });
        device::begin_outside_work();
        let ended = pending.clone();
        let t = &pending.transfer;
        let one_run = t.view.layout.is_contiguous() && !t.access.atomic;
        let unlocked_write = match t.direction {
            Direction::Read => Some(None),
            Direction::Write if one_run => t.sieve_exclusion.begin(&*t.stored, false).map(Some),
            Direction::Write => None,
        };
        match (t.contiguous().filter(|_| one_run), unlocked_write) {
            (Some(at), Some(unlocked_write)) => {
                let offset = t.view.layout.offset_of(t.position);
                let on_end = Box::new(move |result| {
                    drop(unlocked_write);
                    ended.end(ended.moved(result));
                });
                let (stored, len) = (t.stored.clone(), t.bytes as usize);
                // SAFETY: the caller's promise: the buffer stays as it is until completion.
                unsafe {
                    match t.direction {
                        Direction::Read => engine().read(stored, at, len, offset, on_end),
                        Direction::Write => engine().write(stored, at, len, offset, on_end),
                    }
                }
            }
            _ => engine().run(Box::new(move || {
                // SAFETY: the caller's promise.
                let result = unsafe { ended.transfer.run() };
                ended.end(result);
            })),
        }
        Request::work(Some(self.comm.clone()), pending)
    }
}
