//! Background work behind a request.

use super::{Generalized, Outcome, SuccessStatus};
use crate::device::Device;
use crate::{Error, Result};
use ferry_job::RankStatus;
use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// An operation that completes later.
pub trait Work: Any + Send + Sync {
    /// Is the work complete? Called under the device's lock.
    fn is_done(&self, d: &mut Device) -> bool;
    /// Ends the work in place of [`Work::outcome`] and [`Work::free`], if it is complete and has no
    /// error. Returns what its status says. `None`: nothing was done. Called under the device's
    /// lock.
    fn end_successful(&self, _d: &mut Device) -> Option<SuccessStatus> {
        None
    }
    /// Its outcome, the same in each call. Called after it is complete, without the device's lock.
    fn outcome(&self) -> Outcome;
    /// Cancels it (MPI_Cancel). Called without the device's lock.
    fn cancel(&self) -> Result<()> {
        Ok(())
    }
    /// Frees it (MPI_Request_free). Called without the device's lock.
    fn free(&self) -> Result<()> {
        Ok(())
    }
    /// The name of its kind if the program must complete it. Such an operation cannot be cancelled,
    /// and its request cannot be freed while it is active (MPI 5.0 §4.2.1, §6.12).
    fn must_be_completed(&self) -> Option<&'static str> {
        None
    }
    /// Writes what a hang report says of a wait for it, behind what it says of its communicator.
    /// Called under the device's lock, before it is complete.
    fn describe(&self, _d: &mut Device, _status: &RankStatus) {}
    /// The generalised request, if it is one.
    fn general(&self) -> Option<&Generalized> {
        None
    }
    /// Is the work complete without an error? Called without the device's lock.
    fn has_ended_well(&self) -> bool {
        false
    }
    /// Called when the request is dropped. Work that is complete frees its resources here.
    fn release(&self) {}
}

/// Completion of background work. The work sets it once; its request polls it.
#[derive(Debug, Default)]
pub struct Flag {
    done: AtomicBool,
    error: OnceLock<Error>,
}

impl Flag {
    /// Marks the work as complete.
    pub fn set(&self, result: Result<()>) {
        if let Err(e) = result {
            let _ = self.error.set(e);
        }
        self.done.store(true, Ordering::Release);
    }

    /// Resets it before the work is started again. The last run had no error.
    pub fn clear(&self) {
        self.done.store(false, Ordering::Relaxed);
    }

    /// Is the work complete?
    #[inline]
    pub fn is_set(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

impl Work for Flag {
    fn is_done(&self, _d: &mut Device) -> bool {
        self.is_set()
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        Some("collective")
    }
    fn outcome(&self) -> Outcome {
        Outcome {
            error: self.error.get().cloned(),
            ..Outcome::EMPTY
        }
    }
    #[inline]
    fn has_ended_well(&self) -> bool {
        self.is_set() && self.error.get().is_none()
    }
}
