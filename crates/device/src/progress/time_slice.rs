//! The scheduler's time slice of a thread that waits for messages, on Linux 6.12 and newer.
//!
//! A thread that yields gives up the rest of its slice, one to four milliseconds, and a program
//! that computes on the same core gets it. A thread that is woken takes its core from a program
//! with a longer slice. So a thread asks for a short slice before it waits for the first time. Its
//! share of the core stays what it was.

use rustix::io::Errno;
use std::cell::Cell;
use std::mem::size_of;
use std::sync::OnceLock;

/// The slice that a waiting thread asks for, nanoseconds: the least that the system gives.
const TIME_SLICE_DEFAULT: u64 = 100_000;

thread_local! {
    /// This thread has asked.
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Called before a thread yields or sleeps.
#[inline]
pub(crate) fn ask_once() {
    if !HAS_ASKED.replace(true) {
        ask();
    }
}

/// Asks for a short slice. If the system refuses, the thread waits as well as it can.
#[cold]
fn ask() {
    static WANTED: OnceLock<u64> = OnceLock::new();
    let wanted = *WANTED.get_or_init(|| {
        let micros = ferry_job::settings::TIME_SLICE.whole();
        micros.map_or(TIME_SLICE_DEFAULT, |n| n * 1000)
    });
    if wanted != 0 {
        let _ = shorten_to(wanted);
    }
}

/// Makes the calling thread's slice `nanos` long, if it is longer and the thread's scheduling is
/// the ordinary one.
///
/// Errors: the system's. ENOSYS or EPERM where a sandbox forbids it.
fn shorten_to(nanos: u64) -> rustix::io::Result<()> {
    let mut attributes = attributes()?;
    let is_ordinary = matches!(
        attributes.sched_policy as i32,
        libc::SCHED_OTHER | libc::SCHED_BATCH
    );
    if !is_ordinary || attributes.sched_runtime <= nanos {
        return Ok(());
    }
    attributes.sched_runtime = nanos;
    attributes.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the attributes are initialised and say their size.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(done)
}

/// The calling thread's scheduling attributes. The runtime is its slice, 0 before Linux 6.12.
fn attributes() -> rustix::io::Result<libc::sched_attr> {
    // SAFETY: it has integers only.
    let mut attributes = unsafe { std::mem::zeroed::<libc::sched_attr>() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: `attributes` has room for that many bytes.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    check(done)?;
    Ok(attributes)
}

fn check(result: libc::c_long) -> rustix::io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_gets_shorter_and_never_longer() {
        let slice = || attributes().unwrap().sched_runtime;
        // Older systems have no slices.
        if slice() == 0 {
            assert_eq!(shorten_to(TIME_SLICE_DEFAULT), Ok(()));
            assert_eq!(slice(), 0);
            return;
        }
        shorten_to(300_000).unwrap();
        assert!(slice() <= 300_000);
        shorten_to(200_000).unwrap();
        shorten_to(250_000).unwrap();
        assert_eq!(slice(), 200_000);
    }
}
