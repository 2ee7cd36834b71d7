//! Background operations of a process: reads and writes that go on while the program computes.
//!
//! Reads and writes of files with a descriptor go to one io_uring. Everything else, and everything
//! where the kernel refuses io_uring, goes to a small pool of threads. Neither is started before it
//! is first used.

mod pool;
mod ring;

use crate::store::StoredFile;
use crate::{Error, Result, transfer};
use pool::Pool;
use ring::Ring;
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// Stack of the engine's threads, bytes.
const STACK_BYTES: usize = 512 << 10;

/// How an engine works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// io_uring is used if the kernel has it.
    pub io_uring: bool,
    /// Threads of the pool, at most; at least 1.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            io_uring: true,
            threads: 4,
        }
    }
}

/// What an operation calls at its end, with the bytes transferred: fewer than asked for only at the
/// end of the file. It runs on a thread of the engine, or on the caller's, and must not block.
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
    ring: OnceLock<Option<Ring>>,
    pool: Pool,
    under_way: Arc<UnderWay>,
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
        let ring = match self.options.io_uring && transfer.file.fd().is_some() {
            true => running.ring.get_or_init(Ring::start).as_ref(),
            false => None,
        };
        match ring {
            Some(ring) => ring.start_transfer(transfer),
            None => running.pool.run(Box::new(move || transfer.run())),
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
                ring: OnceLock::new(),
                pool: Pool::new(self.options.threads.max(1)),
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
        if let Some(Some(ring)) = ring.into_inner() {
            ring.stop();
        }
        pool.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, OpenMode, PosixStore, Store};
    use std::path::Path;
    use std::sync::mpsc::channel;

    fn engines() -> [Engine; 2] {
        [true, false].map(|io_uring| {
            Engine::new(Options {
                io_uring,
                threads: 2,
            })
        })
    }

    fn posix(name: &str) -> Arc<dyn StoredFile> {
        let name = format!("ferry-io-engine-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = PosixStore.open(&path, &OpenMode::CREATE).unwrap();
        PosixStore.delete(&path).unwrap();
        file
    }

    #[test]
    fn writes_then_reads_in_the_background() {
        const PARTS: usize = 300;
        const PART_BYTES: usize = 5000;
        for engine in engines() {
            let memory = MemoryStore::default().open(Path::new("f"), &OpenMode::CREATE);
            for file in [posix("many"), memory.unwrap()] {
                let data: Vec<u8> = (0..PARTS * PART_BYTES).map(|i| (i % 251) as u8).collect();
                let mut back = vec![0; data.len()];
                for part in data.chunks(PART_BYTES).enumerate() {
                    let offset = (part.0 * PART_BYTES) as u64;
                    let on_end = Box::new(|n: Result<usize>| assert_eq!(n.unwrap(), PART_BYTES));
                    let (at, len) = (part.1.as_ptr(), part.1.len());
                    // SAFETY: `data` lives until the engine has waited.
                    unsafe { engine.write(file.clone(), at, len, offset, on_end) };
                }
                engine.wait();
                for (i, part) in back.chunks_mut(PART_BYTES).enumerate() {
                    let offset = (i * PART_BYTES) as u64;
                    let on_end = Box::new(|n: Result<usize>| assert_eq!(n.unwrap(), PART_BYTES));
                    let (at, len) = (part.as_mut_ptr(), part.len());
                    // SAFETY: `back` lives until the engine has waited, and nobody else uses it.
                    unsafe { engine.read(file.clone(), at, len, offset, on_end) };
                }
                engine.wait();
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn a_read_ends_with_the_file_and_an_error_is_told() {
        for engine in engines() {
            let file = posix("short");
            transfer::write_all(&*file, b"abc", 0).unwrap();
            let (tell, told) = channel();
            let mut buf = [0; 10];
            let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
            // SAFETY: `buf` lives until the result has come.
            unsafe { engine.read(file, buf.as_mut_ptr(), 10, 1, on_end) };
            assert_eq!(told.recv().unwrap().unwrap(), 2);
            assert_eq!(&buf[..2], b"bc");
            let full = PosixStore
                .open(Path::new("/dev/full"), &OpenMode::CREATE)
                .unwrap();
            let (tell, told) = channel();
            let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
            // SAFETY: `buf` lives until the result has come.
            unsafe { engine.write(full, buf.as_ptr(), 10, 0, on_end) };
            let error = told.recv().unwrap().unwrap_err();
            assert_eq!(error.kind, crate::Kind::NoSpace);
        }
    }

    #[test]
    fn operations_outlive_the_thread_that_starts_them() {
        for engine in engines() {
            let file = posix("thread");
            let data = vec![7u8; 64 << 20];
            let (tell, told) = channel();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
                    // SAFETY: `data` lives until the result has come.
                    unsafe { engine.write(file.clone(), data.as_ptr(), data.len(), 0, on_end) };
                });
            });
            assert_eq!(told.recv().unwrap().unwrap(), data.len());
            assert_eq!(transfer::len(&*file).unwrap(), data.len() as u64);
        }
    }

    #[test]
    fn a_short_transfer_goes_on_behind_what_is_done() {
        let file = MemoryStore::default()
            .open(Path::new("f"), &OpenMode::CREATE)
            .unwrap();
        let data = *b"abcdefgh";
        let (tell, told) = channel();
        let transfer = Transfer {
            direction: Direction::Write,
            file: file.clone(),
            buf: data.as_ptr().cast_mut(),
            len: data.len(),
            offset: 10,
            done: 0,
            on_end: Box::new(move |n| tell.send(n.unwrap()).unwrap()),
            operation: Arc::new(UnderWay::default()).begin(),
        };
        let transfer = transfer.advance(Ok(2)).unwrap();
        let interrupted = io::Error::from_raw_os_error(libc::EINTR);
        let transfer = transfer.advance(Err(interrupted)).unwrap();
        let transfer = transfer.advance(Ok(3)).unwrap();
        assert_eq!(transfer.done, 5);
        transfer.run();
        assert_eq!(told.recv(), Ok(8));
        let mut found = [0; 9];
        assert_eq!(
            transfer::read_exact_or_end(&*file, &mut found, 15).unwrap(),
            3
        );
        assert_eq!(&found[..3], b"fgh");
    }

    #[test]
    fn dropping_waits_for_jobs() {
        let (tell, told) = channel();
        let engine = Engine::new(Options::default());
        for i in 0..20 {
            let tell = tell.clone();
            engine.run(Box::new(move || tell.send(i).unwrap()));
        }
        drop((engine, tell));
        assert_eq!(told.iter().sum::<i32>(), 190);
    }

    #[test]
    fn a_child_has_an_engine_of_its_own() {
        let engine = Engine::new(Options::default());
        let file = posix("fork");
        let write = |byte: u8| {
            let data = [byte; 100];
            let (tell, told) = channel();
            let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
            // SAFETY: `data` lives until the result has come.
            unsafe { engine.write(file.clone(), data.as_ptr(), 100, byte.into(), on_end) };
            told.recv().unwrap().unwrap()
        };
        assert_eq!(write(1), 100);
        // SAFETY: the child uses memory and threads of its own, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(write(200) != 100);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(transfer::len(&*file).unwrap(), 300);
        assert_eq!(write(2), 100);
    }
}
