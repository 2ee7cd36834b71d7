//! Ferry's own threads in a program's process: how they are named and started, signals blocked.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Prefix of the names of Ferry's threads, which tells them from the program's.
pub const THREAD_PREFIX: &str = "ferry-";

/// Starts a thread named [`THREAD_PREFIX`] and `name`, with `stack` bytes of stack. All signals are
/// blocked in it: they belong to the program.
///
/// # Errors
/// The system gives no thread.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    stack: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread inherits the signal mask of its creator, so it never runs with signals unblocked.
    // SAFETY: both sets are written by the calls before they are read; the calling thread's mask is
    // put back.
    unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let begun = Builder::new()
            .name(format!("{THREAD_PREFIX}{name}"))
            .stack_size(stack)
            .spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is SIGUSR1 blocked in the calling thread?
    fn blocked() -> bool {
        // SAFETY: with no new set the call only writes the old one.
        unsafe {
            let mut now = std::mem::zeroed::<libc::sigset_t>();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, libc::SIGUSR1) == 1
        }
    }

    #[test]
    fn it_takes_no_signals_and_its_starter_still_does() {
        assert!(!blocked());
        let name = || std::thread::current().name().map(str::to_owned);
        let thread = start_thread("quiet", 64 * 1024, move || (blocked(), name())).unwrap();
        assert_eq!(thread.join().unwrap(), (true, Some("ferry-quiet".into())));
        assert!(!blocked());
    }
}
