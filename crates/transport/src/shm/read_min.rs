//! From which size a receiver reads a large message out of its sender's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// In place of a boundary: whether a large message is read out of its sender's memory or comes in
/// pieces through the ring is decided by which was faster so far.
pub const READ_MIN_ADAPTIVE: usize = usize::MAX - 1;

static READ_MIN_SET: AtomicUsize = AtomicUsize::new(UNKNOWN);

const UNKNOWN: usize = usize::MAX;

/// From how many bytes on messages are read by their receiver: what FERRY_SHM_READ_MIN or
/// [`set_read_min`] said, or [`READ_MIN_ADAPTIVE`].
#[inline]
pub fn read_min() -> usize {
    match READ_MIN_SET.load(Ordering::Relaxed) {
        UNKNOWN => read_min_from_environment(),
        bytes => bytes,
    }
}

#[cold]
fn read_min_from_environment() -> usize {
    let asked = std::env::var("FERRY_SHM_READ_MIN").ok();
    set_read_min(
        asked
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(READ_MIN_ADAPTIVE),
    );
    READ_MIN_SET.load(Ordering::Relaxed)
}

/// Says from how many bytes on, from now on. Counts for messages that this process receives.
pub fn set_read_min(bytes: usize) {
    READ_MIN_SET.store(bytes.min(UNKNOWN - 1), Ordering::Relaxed);
}
