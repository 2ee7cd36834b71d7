//! What a progress thread that polls knows of the program without the device.
//!
//! `tests/loom.rs` tests this, with the wakeup word, under every order of steps.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};

/// Written by plain stores under the device's lock; read without it as well.
pub(crate) struct ThreadFlags {
    /// Threads of the program that wait in MPI and make the progress.
    pub waiting: AtomicU32,
    /// The progress thread was asked to look at what is under way, and has not yet.
    pub asked: AtomicBool,
}

/// What a signal means to the progress thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It has to look.
    Now,
    /// It has to look once no thread of the program waits any more.
    Later,
    /// The signal was for a thread of the program, which does what there is to do.
    Nothing,
}

impl ThreadFlags {
    /// Does a thread of the program wait in MPI, and make the progress?
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

    /// Was the progress thread asked to look, and has not yet?
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The progress thread is asked to look, or looks now.
    #[inline]
    pub fn set_asked(&self, asked: bool) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// What the signal means that the wakeup word has got.
    #[inline]
    pub fn heard(&self) -> Heard {
        // Whoever signals has written these before, and the wakeup word's order publishes them.
        if !self.waits() {
            Heard::Now
        } else if self.is_asked() {
            // Nobody signals again before the thread has looked.
            Heard::Later
        } else {
            Heard::Nothing
        }
    }
}
