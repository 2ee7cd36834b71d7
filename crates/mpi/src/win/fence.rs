//! MPI_Win_fence (MPI 5.0 §12.5.1).

use super::epoch::{FENCE, NO_FENCE};
use super::{Flavor, Win, remote};
use crate::coll::{Call, CollectiveOperation, View};
use crate::{Result, err};
use ferry_schedule::Collective;
use std::sync::atomic::Ordering;

/// What the program asserts about a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FenceAssertions {
    /// No operation of this process precedes it (MPI_MODE_NOPRECEDE).
    pub no_precede: bool,
    /// No operation of this process follows it (MPI_MODE_NOSUCCEED).
    pub no_succeed: bool,
}

impl Win {
    /// A fence. Collective; blocks until all ranks call it and the operations of all before it are
    /// complete.
    ///
    /// Errors: RmaSync in another epoch.
    pub fn fence(&self, assertions: FenceAssertions) -> Result<()> {
        {
            let state = self.epochs.state();
            if let Some(open) = state.open_access() {
                return Err(err!(RmaSync, "MPI_Win_fence {open}"));
            }
            if state.exposure.is_some() {
                return Err(err!(
                    RmaSync,
                    "MPI_Win_fence between MPI_Win_post and MPI_Win_wait"
                ));
            }
        }
        let number = self.epochs.fences.load(Ordering::Relaxed) + 1;
        let inboxes = self.flavor == Flavor::Create && self.all_on_node();
        if !assertions.no_precede {
            if inboxes {
                self.leave_all_puts(number)?;
            } else {
                self.drain_all_puts()?;
            }
            remote::flush_all(self)?;
        }
        self.barrier()?;
        // From here on others wait for this process if they find anything in its inbox.
        self.epochs.fences.store(number, Ordering::Relaxed);
        if inboxes {
            self.take_puts(|inboxes| inboxes.fence(number));
        }
        let now = if assertions.no_succeed {
            NO_FENCE
        } else {
            FENCE
        };
        self.epochs.fence.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Blocks until all ranks of the window are here.
    pub(super) fn barrier(&self) -> Result<()> {
        // What was stored in mapped memory comes before what the barrier stores or sends.
        full_barrier();
        let operation = CollectiveOperation::Collective(Collective::Barrier);
        let call = Call::new(&self.comm, operation, View::Nothing, View::Nothing, None);
        // SAFETY: a barrier has no buffers.
        let done = unsafe { call.run() };
        // Its errors belong to the window, not to its communicator.
        done.map_err(crate::Error::on_call)
    }
}

/// A full memory barrier: stores before it are visible before anything after it is read. On x86-64
/// a locked instruction on this thread's own stack takes half the time of mfence.
#[inline]
pub(super) fn full_barrier() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it writes back what it has read on this thread's stack. Without `nomem` the compiler
    // moves no access of memory across it.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(Ordering::SeqCst);
}
