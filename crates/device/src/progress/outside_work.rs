//! Operations of this process that neither the device nor its peers carry out, such as transfers
//! of files: threads may wait in MPI for their end.

use crate::progress::lock::{is_watched, wakeup};
use ferry_transport::Sleeper;
use std::sync::atomic::{AtomicU32, Ordering};

/// Operations that have begun and not ended.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// An operation has begun. Until its end, the launcher does not take the rank for hanging.
pub fn begin_outside_work() {
    RUNNING.fetch_add(1, Ordering::SeqCst);
}

/// An operation has ended, and what waits for it can see that. Wakes the threads that sleep in MPI.
/// Any thread may call it; needs no lock.
pub fn end_outside_work() {
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    if let Some(wakeup) = wakeup() {
        wakeup.signal(Sleeper::Program, is_watched());
        wakeup.signal(Sleeper::Progress, true);
    }
}

/// Is an operation running?
pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::SeqCst) != 0
}
