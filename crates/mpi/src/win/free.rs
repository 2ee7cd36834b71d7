//! MPI_Win_free (MPI 5.0 §12.2.5).
//!
//! Members of one node meet by counters in the window's own memory: its communicator has mostly not
//! been used, and would need messages.

use super::{Win, remote};
use crate::device;
use crate::{Result, err};
use ferry_job::TAG_WINDOW_FREE;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Win {
    /// Frees the window (MPI_Win_free). Collective; blocks until all ranks have called it and all
    /// operations are complete.
    ///
    /// Errors: RmaSync in an epoch; a delete callback's. The window then stays.
    pub fn free(self: &Arc<Win>) -> Result<()> {
        {
            let state = self.epochs.state();
            if let Some(open) = state.open_access() {
                return Err(err!(RmaSync, "MPI_Win_free {open}"));
            }
            if state.exposure.is_some() {
                return Err(err!(
                    RmaSync,
                    "MPI_Win_free between MPI_Win_post and MPI_Win_wait"
                ));
            }
        }
        self.attributes.delete_all(self.identity.bits())?;
        // Puts of a fence's epoch that no other fence has ended: dropped, they would be lost.
        self.drain_all_puts()?;
        remote::flush_all(self)?;
        if self.all_on_node() {
            self.await_members();
        } else {
            self.barrier()?;
        }
        self.let_go();
        Ok(())
    }

    /// Nobody uses the window any more.
    pub(super) fn let_go(self: &Arc<Win>) {
        remote::unregister(self);
        if self.has_short_updates() {
            device::device().end_updates();
        }
        self.memory.leave_card();
        if let Some(range) = self.control.range()
            && let Some(memory) = device::device().shared_memory()
        {
            memory.release(range);
        }
        let _ = self.comm.free();
    }

    /// Do all members share the memory of the control blocks?
    pub(super) fn all_on_node(&self) -> bool {
        self.control.memory(0).is_some() && self.members.len() == self.ranks() as usize
    }

    /// Blocks until all members of the node are here. The first one releases the memory that has
    /// the counters, so it waits until all others have seen that.
    fn await_members(&self) {
        let (first, all) = (self.control.block(0), self.members.len() as u64);
        let what = self.waiting_for_origins(TAG_WINDOW_FREE);
        if first.arrived.fetch_add(1, Ordering::SeqCst) + 1 == all {
            let mut d = device::device();
            for member in (0..self.members.len()).filter(|m| *m != self.member) {
                self.wake(&mut d, member);
            }
        } else {
            device::wait_for_memory(&what, |_| first.arrived.load(Ordering::SeqCst) == all);
        }
        let left = first.left.fetch_add(1, Ordering::SeqCst) + 1;
        if self.member == 0 {
            if left < all {
                device::wait_for_memory(&what, |_| first.left.load(Ordering::SeqCst) == all);
            }
        } else if left == all {
            self.wake(&mut device::device(), 0);
        }
    }
}
