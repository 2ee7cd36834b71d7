//! What a progress thread that polls knows of the program without the device.
//!
//! `tests/loom.rs` puts this, with the bell's word, under every order of steps.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};

/// Written under the device's lock.
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
    /// The bell has been rung.
    #[inline]
    pub fn heard(&self) -> Heard {
        // Whoever rings has written these before, and the bell's word hands them on.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            Heard::Now
        } else if self.asked.load(Ordering::Relaxed) {
            // Nobody rings again before the thread has looked.
            Heard::Later
        } else {
            Heard::Nothing
        }
    }
}
