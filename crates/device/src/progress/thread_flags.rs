//! What a progress thread that polls knows of the program without the device.
//!
//! `tests/loom.rs` puts this, with the bell's word, under every order of steps.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};

/// Written under the device's lock, by plain stores; read without it, too.
pub(crate) struct Asking {
    /// Threads of the program that wait in MPI and make the progress.
    pub waiting: AtomicU32,
    /// The progress thread was asked to look at what is under way, and has not yet.
    pub asked: AtomicBool,
}

/// What a ring is to the progress thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It has to look.
    Now,
    /// It has to look once no thread of the program waits any more.
    Later,
    /// A thread of the program was rung for, and does what there is to do.
    Nothing,
}

impl Asking {
    /// Does a thread of the program wait in MPI, and make the progress?
    #[inline]
    pub fn waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Does exactly one?
    #[inline]
    pub fn waits_alone(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 1
    }

    /// One more does.
    #[inline]
    pub fn begin_wait(&self) {
        let before = self.waiting.load(Ordering::Relaxed);
        self.waiting.store(before + 1, Ordering::Relaxed);
    }

    /// One does not any more.
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

    /// It is to look, or looks now.
    #[inline]
    pub fn set_asked(&self, asked: bool) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// The bell has been rung.
    #[inline]
    pub fn heard(&self) -> Heard {
        // Whoever rings has written these before, and the bell's word hands them on.
        if !self.waits() {
            Heard::Now
        } else if self.is_asked() {
            // Nobody rings again before the thread has looked.
            Heard::Later
        } else {
            Heard::Nothing
        }
    }
}
