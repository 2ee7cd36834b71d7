//! How a rank ends the job, or its own part in it.

use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use super::kvs::SharedKvs;
use crate::{RankState, RankStatus};

/// What the exit handler needs.
struct AtExit {
    kvs: SharedKvs,
    status: &'static RankStatus,
    pid: u32,
}
static AT_EXIT: OnceLock<AtExit> = OnceLock::new();

/// Registers an exit handler that tells the launcher of a normal end, if MPI is finalised by then.
/// Not earlier: a session may begin after MPI_Finalize, but a launcher's protocol begins only once.
pub(super) fn finalize_at_exit(kvs: SharedKvs, status: &'static RankStatus) {
    let pid = std::process::id();
    if AT_EXIT.set(AtExit { kvs, status, pid }).is_ok() {
        // SAFETY: a function that lives as long as this library; if it is unloaded the C library
        // runs it then.
        unsafe { libc::atexit(tell_launcher_at_exit) };
    }
}

extern "C" fn tell_launcher_at_exit() {
    let Some(at_exit) = AT_EXIT.get() else { return };
    let state = at_exit
        .status
        .state
        .load(std::sync::atomic::Ordering::Acquire);
    // A forked child of the rank runs this handler, too, but is no rank.
    if at_exit.pid == std::process::id() && RankState::from_number(state) == RankState::Finalized {
        let mut kvs = at_exit.kvs.lock().unwrap_or_else(PoisonError::into_inner);
        kvs.finalize();
    }
}

/// How long an aborting rank waits until its message has been read.
const ABORT_TEXT_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits until what was written into a pipe has been read, at most [`ABORT_TEXT_TIMEOUT`]. Hydra's
/// proxy reads a rank's output and its PMI socket in any order. After an abort it drops output, so
/// the text must be read before. The kernel does not notify a writer of an empty pipe, so this asks
/// every millisecond. Returns at once for anything but a pipe.
pub(super) fn wait_until_read(pipe: std::os::fd::BorrowedFd) {
    let started_at = std::time::Instant::now();
    while rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0)
        && started_at.elapsed() < ABORT_TEXT_TIMEOUT
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the job. If another thread holds the store in a fence, gives up after one second: the end
/// of this process then ends the job.
pub(crate) fn abort(kvs: &SharedKvs, code: i32, text: &str) {
    if !text.is_empty() {
        let text = format!("{}\n", text.trim_end());
        // SAFETY: descriptor 2 is only written to; if it is closed that fails.
        let stderr = unsafe { std::os::fd::BorrowedFd::borrow_raw(2) };
        let _ = rustix::io::write(stderr, text.as_bytes());
        wait_until_read(stderr);
    }
    for _ in 0..100 {
        if let Ok(mut kvs) = kvs.try_lock() {
            kvs.abort(crate::abort_status(code).into(), text);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
