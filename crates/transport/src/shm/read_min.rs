//! The threshold between pipelined copy and single copy: from which size on a receiver reads a
//! large message out of its sender's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Value in place of a threshold, bytes: path selection takes whichever of single copy and
/// pipelined copy was faster so far.
pub const READ_MIN_ADAPTIVE: usize = usize::MAX - 1;

/// The threshold in bytes, or [`UNKNOWN`].
static READ_MIN_SET: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// Value of [`READ_MIN_SET`] before the environment has been read.
const UNKNOWN: usize = usize::MAX;

/// Bytes from which on messages are read by their receiver: FERRY_SHM_READ_MIN, or what
/// [`set_read_min`] has set, or [`READ_MIN_ADAPTIVE`].
#[inline]
pub fn read_min() -> usize {
    match READ_MIN_SET.load(Ordering::Relaxed) {
        UNKNOWN => read_min_from_environment(),
        bytes => bytes,
    }
}

#[cold]
fn read_min_from_environment() -> usize {
    let set = ferry_job::settings::SHM_READ_MIN.whole();
    set_read_min(set.map_or(READ_MIN_ADAPTIVE, |bytes| bytes as usize));
    READ_MIN_SET.load(Ordering::Relaxed)
}

/// Sets the threshold for messages that this process receives from now on, bytes.
pub fn set_read_min(bytes: usize) {
    READ_MIN_SET.store(bytes.min(UNKNOWN - 1), Ordering::Relaxed);
}
