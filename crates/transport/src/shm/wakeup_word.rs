//! The wakeup word: how often it was signaled, and whether the progress thread looks at it by
//! itself.
//!
//! Both in one word, so that a thread that ceases to look either sees a ring or is seen to sleep.
//! The device's `tests/loom.rs` puts this under every order of steps.

use super::memory::{AtomicU32, Ordering};

/// The word grows by so much with each ring.
const STEP: u32 = 2;
/// Set while the progress thread polls the word, or is at work and looks at it before it sleeps:
/// whoever rings for that thread alone has nobody to wake.
const POLLED: u32 = 1;

/// Where it stands.
#[inline]
pub fn epoch(word: &AtomicU32) -> u32 {
    word.load(Ordering::SeqCst)
}

/// Returns whether it was signaled since it stood at `seen`.
#[inline]
pub fn signaled_since(word: &AtomicU32, seen: u32) -> bool {
    (self::epoch(word) ^ seen) & !POLLED != 0
}

/// Rings. Returns whether those for whom it rings are to be woken; `for_thread`: it does for the
/// progress thread alone.
#[inline]
#[must_use]
pub fn signal(word: &AtomicU32, for_thread: bool) -> bool {
    word.fetch_add(STEP, Ordering::SeqCst) & POLLED == 0 || !for_thread
}

/// Returns whether the progress thread sees a signal by itself just now.
#[inline]
pub fn is_polled(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) & POLLED != 0
}

/// The progress thread will look at the word before it sleeps, or is about to sleep.
#[inline]
pub fn set_polled(word: &AtomicU32, polled: bool) {
    if polled {
        word.fetch_or(POLLED, Ordering::SeqCst);
    } else {
        word.fetch_and(!POLLED, Ordering::SeqCst);
    }
}

/// What the word must still hold for the progress thread to sleep, which has said that it is about
/// to: it stood at `seen` for this thread.
#[inline]
pub fn asleep_at(seen: u32) -> u32 {
    seen & !POLLED
}
