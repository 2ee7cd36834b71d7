//! Generalised requests (MPI 5.0 §13.2): the program's own operations, which it completes itself.

use super::{Outcome, Work};
use crate::Result;
use crate::device::{self, Device};
use std::sync::atomic::{AtomicBool, Ordering};

/// The callbacks of a generalised request. Called without the device's lock.
pub trait GeneralizedCallbacks: Send + Sync {
    /// Fills the status.
    fn query(&self) -> Outcome;
    /// Frees the program's state.
    fn free(&self) -> Result<()>;
    /// Cancels the operation. `complete` says whether it is complete already.
    fn cancel(&self, complete: bool) -> Result<()>;
}

/// A generalised request's operation.
pub struct Generalized {
    callbacks: Box<dyn GeneralizedCallbacks>,
    done: AtomicBool,
    /// The program freed the request before it was complete.
    abandoned: AtomicBool,
}

impl Generalized {
    /// A new operation, active.
    pub fn new(callbacks: Box<dyn GeneralizedCallbacks>) -> Generalized {
        Generalized {
            callbacks,
            done: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Completes the operation (MPI_Grequest_complete). Wakes threads that wait for it.
    ///
    /// Errors: the free callback's, if the program freed the request before.
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
