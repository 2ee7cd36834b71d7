//! The wakeup word: how often it was signaled, and whether the progress thread polls it.
//!
//! Both are in one word, so that a thread that stops polling either sees a signal or is seen to
//! sleep. The device's `tests/loom.rs` checks this under every order of steps.

use super::memory::{AtomicU32, Ordering};

/// What each signal adds to the word: one above the [`POLLED`] bit.
const SIGNAL_INCREMENT: u32 = 2;
/// Bit that is set while the progress thread polls the word, or is at work and will look at it
/// before it sleeps. Who signals that thread alone then has nobody to wake.
const POLLED: u32 = 1;

/// The word's value, to be compared by [`signaled_since`].
#[inline]
pub fn epoch(word: &AtomicU32) -> u32 {
    word.load(Ordering::SeqCst)
}

/// Returns whether the word was signaled since its value was `seen`.
#[inline]
pub fn signaled_since(word: &AtomicU32, seen: u32) -> bool {
    (self::epoch(word) ^ seen) & !POLLED != 0
}

/// Signals the word. Returns whether its sleepers are to be woken. `for_thread`: the signal is for
/// the progress thread alone.
#[inline]
#[must_use]
pub fn signal(word: &AtomicU32, for_thread: bool) -> bool {
    word.fetch_add(SIGNAL_INCREMENT, Ordering::SeqCst) & POLLED == 0 || !for_thread
}

/// Returns whether the progress thread now sees a signal without being woken.
#[inline]
pub fn is_polled(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) & POLLED != 0
}

/// Sets whether the progress thread will look at the word before it sleeps. False: it is about to
/// sleep.
#[inline]
pub fn set_polled(word: &AtomicU32, polled: bool) {
    if polled {
        word.fetch_or(POLLED, Ordering::SeqCst);
    } else {
        word.fetch_and(!POLLED, Ordering::SeqCst);
    }
}

/// The value that the word must still have for the progress thread to sleep. `seen`: the value
/// before the thread said that it is about to sleep.
#[inline]
pub fn asleep_at(seen: u32) -> u32 {
    seen & !POLLED
}
