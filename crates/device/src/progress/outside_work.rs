//! Operations of this process that neither the device nor its peers carry out, such as transfers
//! of files: threads may wait in MPI for their end.

use std::sync::atomic::{AtomicU32, Ordering};

/// Operations that have begun and not ended.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// An operation has begun. Until its end, the launcher does not take the rank for hanging.
pub fn begin_outside_work() {
    RUNNING.fetch_add(1, Ordering::SeqCst);
}

/// An operation has ended.
pub(crate) fn end() {
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// Is an operation running?
pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::SeqCst) != 0
}
