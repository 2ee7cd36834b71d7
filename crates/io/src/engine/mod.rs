//! Background operations of a process: reads and writes that go on while the program computes.
//!
//! | operation | done by |
//! |---|---|
//! | small, between the caller's memory and the system's cache | the caller, at once |
//! | larger, but for what follows; all other work | a small pool of threads |
//! | a read that must wait for the device; a write to a server | io_uring |
//!
//! Copying between memory and the system's cache is work for a processor, and a thread does it
//! best. Waiting is no work: io_uring has many operations wait at once, more than the pool has
//! threads. A read finds out which it is: it takes what is cached (`RWF_NOWAIT`), and leaves the
//! rest to io_uring. Where the kernel refuses io_uring, at first or later, the pool does it all.
//! Neither is started before it is first used.

mod placement;
mod pool;
mod ring;

use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::store::{FileSystem, StoredFile};
use crate::transfer;
use pool::Pool;
use ring::Ring;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::thread::CpuSet;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// Stack of the engine's threads, bytes.
const STACK_BYTES: usize = 512 << 10;

/// An operation that costs less is done by the caller at once: handing it to another thread costs
/// about as much, nanoseconds.
const INLINE_MAX_NS: f64 = 5_000.0;

/// How an engine works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// io_uring is used if the kernel has it.
    pub io_uring: bool,
    /// Threads of the pool, at most; at least 1.
    pub threads: usize,
    /// Cores for the pool's threads if the program is bound to one. `None`: there are none.
    pub spare_cores: Option<CpuSet>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            io_uring: true,
            threads: 4,
            spare_cores: None,
        }
    }
}

/// What an operation calls at its end, with the bytes transferred: fewer than asked for only at the
/// end of the file. It runs on a thread of the engine, or on the caller's before the call that
/// starts the operation returns. It must not block, and must not drop the engine.
pub type OnEnd = Box<dyn FnOnce(Result<usize>) + Send>;

/// Work for the pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// Background operations. Order among them is not kept.
///
/// Dropping the engine blocks until all operations have ended. A child that was made by fork(2) has
/// none of its parent's operations: its first one starts an engine of its own.
pub struct Engine {
    options: Options,
    /// The machinery of this process, made at first use.
    ///
    /// A pointer and no lock: another thread might hold the lock while the process forks.
    running: AtomicPtr<Running>,
}

/// Threads and ring of one process.
struct Running {
    process: u32,
    ring: Arc<LazyRing>,
    pool: Pool,
    under_way: Arc<UnderWay>,
}

/// The ring, once it is needed. `None` if the kernel refuses it, or it is not wanted.
struct LazyRing {
    wanted: bool,
    ring: OnceLock<Option<Ring>>,
}

impl LazyRing {
    /// Gives the transfer to io_uring, or back if there is none or it has failed.
    fn start_transfer(&self, transfer: Transfer) -> Option<Transfer> {
        if !self.wanted || transfer.file.fd().is_none() {
            return Some(transfer);
        }
        match self.ring.get_or_init(Ring::start) {
            Some(ring) => ring.start_transfer(transfer),
            None => Some(transfer),
        }
    }
}

/// The number of operations that have not ended.
#[derive(Default)]
struct UnderWay {
    count: Mutex<usize>,
    none: Condvar,
}

impl UnderWay {
    fn begin(self: &Arc<UnderWay>) -> Operation {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Operation(self.clone())
    }

    fn wait(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self
                .none
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An operation that has not ended. Dropping it says that it has.
struct Operation(Arc<UnderWay>);

impl Drop for Operation {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

/// A read or a write of one run of a file.
struct Transfer {
    direction: Direction,
    file: Arc<dyn StoredFile>,
    /// The caller's memory. It is only read from for a write.
    buf: *mut u8,
    len: usize,
    offset: u64,
    /// Bytes transferred so far.
    done: usize,
    on_end: OnEnd,
    operation: Operation,
}

// SAFETY: the caller of `Engine::read` or `Engine::write` leaves the memory to the operation until
// it has ended, on whatever thread. All other fields may be sent.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Does the rest on the calling thread, and ends.
    fn run(mut self) {
        let at = self.offset.saturating_add(self.done as u64);
        let rest = self.len - self.done;
        let result = match self.direction {
            Direction::Read => {
                // SAFETY: the caller's promise: so many bytes are writable until the end.
                let buf = unsafe { std::slice::from_raw_parts_mut(self.buf.add(self.done), rest) };
                transfer::read_exact_or_end(&*self.file, buf, at)
            }
            Direction::Write => {
                // SAFETY: the caller's promise: so many bytes are readable until the end.
                let buf = unsafe { std::slice::from_raw_parts(self.buf.add(self.done), rest) };
                transfer::write_all(&*self.file, buf, at).map(|()| rest)
            }
        };
        if let Ok(n) = result {
            self.done += n;
        }
        self.end(result.map(|_| ()));
    }

    /// Returns whether the caller should do it at once.
    fn is_small(&self) -> bool {
        let cost = Cost::of(self.file.file_system());
        let call_ns = match self.direction {
            Direction::Read => cost.read_call_ns,
            Direction::Write => cost.write_call_ns,
        };
        call_ns + self.len as f64 * cost.byte_ns <= INLINE_MAX_NS
    }

    /// Reads what the system has in its cache. Returns the transfer if bytes are left.
    fn read_cached(mut self) -> Option<Transfer> {
        if self.file.file_system() == FileSystem::Tmpfs {
            self.run();
            return None;
        }
        loop {
            let Some(fd) = self.file.fd() else {
                return Some(self);
            };
            let at = self.offset.saturating_add(self.done as u64);
            // SAFETY: the caller's promise: so many bytes are writable until the end.
            let buf = unsafe {
                std::slice::from_raw_parts_mut(self.buf.add(self.done), self.len - self.done)
            };
            let flags = ReadWriteFlags::NOWAIT;
            match rustix::io::preadv2(fd, &mut [IoSliceMut::new(buf)], at, flags) {
                // The file system cannot tell, or the device must be waited for.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => return Some(self),
                result => self = self.advance(result.map_err(io::Error::from))?,
            }
        }
    }

    /// Takes note of a system call's result. Returns the transfer if it must go on.
    fn advance(mut self, result: io::Result<usize>) -> Option<Transfer> {
        let error = match result {
            Ok(0) if self.direction == Direction::Read => return self.end(Ok(())),
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(n) => {
                self.done += n;
                if self.done >= self.len {
                    return self.end(Ok(()));
                }
                return Some(self);
            }
            // Interrupted by a signal; its thread has ended; try again.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ECANCELED | libc::EAGAIN)
                ) =>
            {
                return Some(self);
            }
            Err(error) => error,
        };
        let call = match self.direction {
            Direction::Read => "pread",
            Direction::Write => "pwrite",
        };
        let at = self.offset.saturating_add(self.done as u64);
        let rest = (self.len - self.done) as u64;
        let error = Error::at(call, self.file.path(), at, rest, error);
        self.end(Err(error))
    }

    fn end(self, result: Result<()>) -> Option<Transfer> {
        let Transfer {
            done,
            on_end,
            operation,
            ..
        } = self;
        on_end(result.map(|()| done));
        drop(operation);
        None
    }
}

impl Engine {
    /// An engine. Nothing is started before the first operation.
    pub fn new(options: Options) -> Engine {
        Engine {
            options,
            running: AtomicPtr::default(),
        }
    }

    /// Reads into `buf` in the background, until it is full or the file ends.
    ///
    /// # Safety
    /// `len` bytes at `buf` are writable and used by nobody else until `on_end` is called.
    pub unsafe fn read(
        &self,
        file: Arc<dyn StoredFile>,
        buf: *mut u8,
        len: usize,
        offset: u64,
        on_end: OnEnd,
    ) {
        self.start(Direction::Read, file, buf, len, offset, on_end);
    }

    /// Writes all of `buf` in the background.
    ///
    /// # Safety
    /// `len` bytes at `buf` are readable and not changed until `on_end` is called.
    pub unsafe fn write(
        &self,
        file: Arc<dyn StoredFile>,
        buf: *const u8,
        len: usize,
        offset: u64,
        on_end: OnEnd,
    ) {
        self.start(Direction::Write, file, buf.cast_mut(), len, offset, on_end);
    }

    /// Does other work on a thread of the pool: strided access, phases of collective access. A job
    /// may block on the file, but not on another job: the pool may have no thread for that one.
    pub fn run(&self, job: Job) {
        let running = self.running();
        let operation = running.under_way.begin();
        running.pool.run(Box::new(move || {
            job();
            drop(operation);
        }));
    }

    /// Blocks until all operations have ended that were started before.
    pub fn wait(&self) {
        self.running().under_way.wait();
    }

    fn start(
        &self,
        direction: Direction,
        file: Arc<dyn StoredFile>,
        buf: *mut u8,
        len: usize,
        offset: u64,
        on_end: OnEnd,
    ) {
        let running = self.running();
        let transfer = Transfer {
            direction,
            file,
            buf,
            len,
            offset,
            done: 0,
            on_end,
            operation: running.under_way.begin(),
        };
        if len == 0 {
            transfer.end(Ok(()));
            return;
        }
        let small = transfer.is_small();
        let rest = match direction {
            Direction::Write if small => return transfer.run(),
            Direction::Write if transfer.file.file_system().is_remote() => {
                running.ring.start_transfer(transfer)
            }
            Direction::Write => Some(transfer),
            Direction::Read if small => transfer
                .read_cached()
                .and_then(|rest| running.ring.start_transfer(rest)),
            Direction::Read => {
                let ring = running.ring.clone();
                running.pool.run(Box::new(move || {
                    let rest = transfer
                        .read_cached()
                        .and_then(|rest| ring.start_transfer(rest));
                    if let Some(rest) = rest {
                        rest.run();
                    }
                }));
                None
            }
        };
        if let Some(rest) = rest {
            running.pool.run(Box::new(move || rest.run()));
        }
    }

    /// Threads and ring of this process.
    fn running(&self) -> &Running {
        let process = std::process::id();
        let mut current = self.running.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or made by `Box::into_raw` below and freed only when the engine is
            // dropped.
            if let Some(running) = unsafe { current.as_ref() }
                && running.process == process
            {
                return running;
            }
            // The parent's is left as it is: its threads and its ring are not here.
            let new = Box::into_raw(Box::new(Running {
                process,
                ring: Arc::new(LazyRing {
                    wanted: self.options.io_uring,
                    ring: OnceLock::new(),
                }),
                pool: Pool::new(self.options.threads.max(1), self.options.spare_cores),
                under_way: Arc::default(),
            }));
            let swapped =
                self.running
                    .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
            match swapped {
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let running = *self.running.get_mut();
        if running.is_null() {
            return;
        }
        // SAFETY: made by `Box::into_raw` in `running`, and nobody else has the engine now.
        let running = unsafe { Box::from_raw(running) };
        if running.process != std::process::id() {
            // The parent's threads and ring: a child must not touch them.
            std::mem::forget(running);
            return;
        }
        running.under_way.wait();
        let Running { ring, pool, .. } = *running;
        pool.stop();
        // The pool's jobs had the other references.
        if let Some(Some(ring)) = Arc::into_inner(ring).and_then(|lazy| lazy.ring.into_inner()) {
            ring.stop();
        }
    }
}

#[cfg(test)]
mod tests;
