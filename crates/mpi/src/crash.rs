//! The signal handler that prints a backtrace on standard error when a signal such as SIGSEGV ends
//! the process.
//!
//! The handler runs while the process is in an unknown state. It allocates nothing and takes no
//! lock of Ferry's. It formats into its own stack frame and writes by `write`. The frames come
//! from glibc's `backtrace` and `backtrace_symbols_fd`. `backtrace` loads a library at its first
//! call, so it is called once when the handler is installed, for no frames: unwinding there would
//! bring the unwind tables of every rank's libraries into memory. Afterwards the signal takes its
//! default action. Exit status and core dump are as without the handler.
//!
//! The handler is not installed for a signal that has a handler already (of a sanitizer, Python's
//! faulthandler, a Rust program). A handler that is installed later replaces this one, or calls it.

use crate::process::ThreadLevel;
use std::cell::UnsafeCell;
use std::fmt::{self, Write};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The handled signals, with their names and meanings.
const SIGNALS: [(i32, &str, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV", "invalid memory access"),
    (libc::SIGBUS, "SIGBUS", "memory that cannot be reached"),
    (libc::SIGFPE, "SIGFPE", "arithmetic error"),
    (libc::SIGILL, "SIGILL", "invalid instruction"),
    (libc::SIGABRT, "SIGABRT", "abort"),
];

/// Most frames that are printed. Deeper recursion is cut off.
const FRAMES_MAX: usize = 64;
/// Size of the handler's stack. Unwinding takes about 8 KiB of it.
const STACK_BYTES: usize = 64 << 10;
/// Most bytes of a line of text. The longest has about half of them.
const LINE_BYTES: usize = 512;

/// The handler's own stack. A thread that has overflowed its stack has no room for the handler.
struct AlternateStack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: only the kernel uses the memory, for the one thread that has registered it.
unsafe impl Sync for AlternateStack {}

static STACK: AlternateStack = AlternateStack(UnsafeCell::new([0; STACK_BYTES]));
/// This process's rank and the number of ranks.
static RANK: AtomicU32 = AtomicU32::new(0);
static RANKS: AtomicU32 = AtomicU32::new(1);
/// Its [`ThreadLevel`].
static LEVEL: AtomicU32 = AtomicU32::new(ThreadLevel::Multiple as u32);
/// A thread prints its backtrace. Other threads wait for the end of the process, so that its lines
/// stay together.
static PRINTING: AtomicBool = AtomicBool::new(false);

/// Installs the handler, unless FERRY_BACKTRACE is 0. Called once, by the thread that starts MPI.
pub(crate) fn install(rank: u32, ranks: u32, level: ThreadLevel) {
    if ferry_job::settings::BACKTRACE.is("0") {
        return;
    }
    RANK.store(rank, Relaxed);
    RANKS.store(ranks, Relaxed);
    LEVEL.store(level as u32, Relaxed);
    // SAFETY: no frame is written. The stack is static memory that nothing else uses.
    // The handler has the type that SA_SIGINFO needs. Existing handlers are not replaced.
    unsafe {
        libc::backtrace(null_mut(), 0);
        let mut stack = std::mem::zeroed::<libc::stack_t>();
        libc::sigaltstack(null(), &raw mut stack);
        if stack.ss_flags & libc::SS_DISABLE != 0 {
            stack.ss_sp = STACK.0.get().cast();
            stack.ss_size = STACK_BYTES;
            stack.ss_flags = 0;
            libc::sigaltstack(&raw const stack, null_mut());
        }
        for (signal, ..) in SIGNALS {
            let mut now = std::mem::zeroed::<libc::sigaction>();
            let found = libc::sigaction(signal, null(), &raw mut now) == 0;
            if !found || now.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let mut own = std::mem::zeroed::<libc::sigaction>();
            own.sa_sigaction = on_signal as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // A second fault while the handler runs ends the process at once.
            for (other, ..) in SIGNALS {
                libc::sigaddset(&raw mut own.sa_mask, other);
            }
            libc::sigaction(signal, &raw const own, null_mut());
        }
    }
}

/// Prints this thread's backtrace. Then the signal takes its default action.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if PRINTING.swap(true, Relaxed) {
        // Another thread prints, and ends the process.
        loop {
            // SAFETY: pause only waits.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the kernel passes a valid siginfo_t. All calls here are safe in a signal handler:
    // `backtrace` has been called before. The array has the given length.
    unsafe {
        let code = (*info).si_code;
        let mut line = Line::default();
        describe(&mut line, signal, code, (*info).si_addr() as usize);
        libc::write(2, line.bytes.as_ptr().cast(), line.length);
        let mut frames = [null_mut(); FRAMES_MAX];
        let count = libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as i32);
        // The first frame is this function.
        if let Some(count) = count.checked_sub(1) {
            libc::backtrace_symbols_fd(frames[1..].as_ptr(), count, 2);
            let called = frames[1..=count as usize].iter();
            let mut line = Line::default();
            if called.copied().any(|frame| is_of_library(frame)) {
                mention_threads(&mut line, threads());
            }
            libc::write(2, line.bytes.as_ptr().cast(), line.length);
        }
        libc::signal(signal, libc::SIG_DFL);
        // A fault repeats when its instruction does. A signal that was sent has to be sent again.
        // It is delivered when this function returns.
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Is a frame's code this library's?
///
/// # Safety
/// As [`libc::dladdr`], which reads the tables of loaded objects.
unsafe fn is_of_library(frame: *mut libc::c_void) -> bool {
    // SAFETY: two addresses of integers and pointers; the caller's promise.
    unsafe {
        let (mut its, mut own) = (std::mem::zeroed::<libc::Dl_info>(), std::mem::zeroed());
        let here = on_signal as *const libc::c_void;
        libc::dladdr(frame, &raw mut its) != 0
            && libc::dladdr(here, &raw mut own) != 0
            && its.dli_fbase == own.dli_fbase
    }
}

/// Threads of this process. 1 if the system does not tell.
fn threads() -> u64 {
    // SAFETY: the path ends with 0; the result is integers, which `stat` fills in.
    let folder = unsafe {
        let mut found = std::mem::zeroed::<libc::stat>();
        let done = libc::stat(c"/proc/self/task".as_ptr(), &raw mut found);
        (done == 0).then_some(found)
    };
    // A folder has a link from each folder in it, and two more.
    folder.map_or(1, |f| f.st_nlink.saturating_sub(2).max(1))
}

/// Below MPI_THREAD_MULTIPLE and with several threads: two in MPI at once may be the cause.
fn mention_threads(line: &mut Line, threads: u64) {
    let levels = [
        ThreadLevel::Single,
        ThreadLevel::Funneled,
        ThreadLevel::Serialized,
    ];
    let level = LEVEL.load(Relaxed);
    if threads > 1
        && let Some(level) = levels.iter().find(|l| **l as u32 == level)
    {
        let _ = writeln!(
            line,
            "It was in MPI. {threads} threads run in this process, which has {}: two of them must \
             not be in MPI at once without MPI_THREAD_MULTIPLE (MPI_Init_thread)",
            level.name()
        );
    }
}

/// The first line: "rank 1 of 4 (pid 77): SIGSEGV, invalid memory access at 0x8; ...".
fn describe(line: &mut Line, signal: i32, code: i32, address: usize) {
    let known = SIGNALS.iter().find(|(number, ..)| *number == signal);
    let (_, name, meaning) = known.copied().unwrap_or((signal, "signal", ""));
    let (rank, ranks) = (RANK.load(Relaxed), RANKS.load(Relaxed));
    let pid = std::process::id();
    let _ = write!(
        line,
        "rank {rank} of {ranks} (pid {pid}): {name}, {meaning}"
    );
    // Only a fault has an address. A signal that was sent has a sender instead.
    if code > 0 && matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
        let _ = write!(line, " at {address:#x}");
    }
    let _ = writeln!(line, "; backtrace (FERRY_BACKTRACE=0 turns it off):");
}

/// A line of text in a buffer of fixed size. Text that does not fit is cut off.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: [0; LINE_BYTES],
            length: 0,
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES - self.length;
        let fitting = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..][..fitting.len()].copy_from_slice(fitting);
        self.length += fitting.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(signal: i32, code: i32, address: usize) -> String {
        let mut line = Line::default();
        describe(&mut line, signal, code, address);
        String::from_utf8_lossy(&line.bytes[..line.length]).into_owned()
    }

    #[test]
    fn the_first_line_names_rank_signal_and_address() {
        let fault = text(libc::SIGSEGV, 1, 8);
        assert!(fault.starts_with("rank 0 of 1 (pid "), "{fault}");
        assert!(fault.contains("SIGSEGV, invalid memory access at 0x8; backtrace"));
        assert!(fault.ends_with("off):\n"));
        let sent = text(libc::SIGABRT, -6, 8);
        assert!(sent.contains("SIGABRT, abort; backtrace"), "{sent}");
    }

    #[test]
    fn several_threads_are_mentioned_where_only_one_may_be_in_mpi() {
        let text = |threads| {
            let mut line = Line::default();
            mention_threads(&mut line, threads);
            String::from_utf8_lossy(&line.bytes[..line.length]).into_owned()
        };
        assert_eq!(text(3), "", "without MPI_Init");
        LEVEL.store(ThreadLevel::Funneled as u32, Relaxed);
        assert_eq!(text(1), "");
        let told = text(3);
        assert!(told.starts_with("It was in MPI. 3 threads run"), "{told}");
        assert!(told.contains("has MPI_THREAD_FUNNELED: two"), "{told}");
        assert!(told.ends_with('\n'), "{told}");
        LEVEL.store(ThreadLevel::Multiple as u32, Relaxed);
    }

    #[test]
    fn threads_are_counted() {
        let before = threads();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let _ = ended.recv();
            threads()
        });
        drop(end);
        assert!(other.join().unwrap() >= 2 && before >= 1);
        // SAFETY: both are addresses of code.
        unsafe {
            assert!(is_of_library(threads as *mut libc::c_void));
            assert!(!is_of_library(libc::malloc as *mut libc::c_void));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut line = Line::default();
        for _ in 0..LINE_BYTES {
            line.write_str("four").unwrap();
        }
        assert_eq!(line.length, LINE_BYTES);
    }
}
