//! Generalised requests (MPI 5.0 §13.2): operations of the program's own that complete when it says
//! so.

use super::{Outcome, Work};
use crate::Result;
use crate::device::{self, Device};
use std::sync::atomic::{AtomicBool, Ordering};

/// What the program gave for a generalised request. Called without the device's lock.
pub trait GeneralizedCallbacks: Send + Sync {
    /// Fills the status.
    fn query(&self) -> Outcome;
    /// Lets go of the program's own state.
    fn free(&self) -> Result<()>;
    /// Cancels; `complete`: whether the operation is complete already.
    fn cancel(&self, complete: bool) -> Result<()>;
}

/// An operation of the program's own.
pub struct Generalized {
    callbacks: Box<dyn GeneralizedCallbacks>,
    done: AtomicBool,
    /// The program has let go of it before it was complete.
    abandoned: AtomicBool,
}

impl Generalized {
    /// A new operation, under way.
    pub fn new(callbacks: Box<dyn GeneralizedCallbacks>) -> Generalized {
        Generalized {
            callbacks,
            done: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    /// The program says that it is complete (MPI_Grequest_complete). Wakes threads that wait for
    /// it.
    ///
    /// Errors: the free callback's, if the program had freed the request before.
    pub fn complete(&self) -> Result<()> {
        self.done.store(true, Ordering::SeqCst);
        device::device().notify_sleepers();
        if self.abandoned.swap(false, Ordering::SeqCst) {
            self.callbacks.free()
        } else {
            Ok(())
        }
    }
}

impl Work for Generalized {
    fn is_done(&self, _d: &mut Device) -> bool {
        self.done.load(Ordering::Acquire)
    }
    fn outcome(&self) -> Outcome {
        self.callbacks.query()
    }
    fn cancel(&self) -> Result<()> {
        self.callbacks.cancel(self.done.load(Ordering::Acquire))
    }
    fn free(&self) -> Result<()> {
        if self.done.load(Ordering::SeqCst) {
            return self.callbacks.free();
        }
        self.abandoned.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn general(&self) -> Option<&Generalized> {
        Some(self)
    }
}
