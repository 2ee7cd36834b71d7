//! The flags that a polling progress thread reads without the device's lock.
//!
//! `tests/loom.rs` tests this, with the wakeup word, under every order of steps.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};

/// Written by plain stores under the device's lock. Also read without the lock.
pub(crate) struct ThreadFlags {
    /// Threads of the program that wait in MPI and make progress.
    pub waiting: AtomicU32,
    /// The progress thread was asked to make progress, and has not begun.
    pub progress_requested: AtomicBool,
}

/// The meaning of a signal for the progress thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The thread must make progress.
    Now,
    /// The thread must make progress when no thread of the program waits any more.
    Later,
    /// The signal was for a thread of the program, which makes progress itself.
    Nothing,
}

impl ThreadFlags {
    /// Does a thread of the program wait in MPI, and make progress?
    #[inline]
    pub fn waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Does exactly one thread of the program wait in MPI?
    #[inline]
    pub fn waits_alone(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 1
    }

    /// One more thread of the program waits in MPI.
    #[inline]
    pub fn begin_wait(&self) {
        let before = self.waiting.load(Ordering::Relaxed);
        self.waiting.store(before + 1, Ordering::Relaxed);
    }

    /// One thread less waits in MPI.
    #[inline]
    pub fn end_wait(&self) {
        let before = self.waiting.load(Ordering::Relaxed);
        self.waiting.store(before - 1, Ordering::Relaxed);
    }

    /// Was the progress thread asked to make progress, and has not begun?
    #[inline]
    pub fn is_progress_requested(&self) -> bool {
        self.progress_requested.load(Ordering::Relaxed)
    }

    /// The progress thread is asked to make progress, or begins it.
    #[inline]
    pub fn set_progress_requested(&self, requested: bool) {
        self.progress_requested.store(requested, Ordering::Relaxed);
    }

    /// The meaning of a signal on the wakeup word.
    #[inline]
    pub fn classify_signal(&self) -> Signal {
        // The signalling thread has written the flags before, and the wakeup word's order publishes
        // them.
        if !self.waits() {
            Signal::Now
        } else if self.is_progress_requested() {
            // There is no other signal before the thread makes progress.
            Signal::Later
        } else {
            Signal::Nothing
        }
    }
}
