//! Updates of this process's memory that peers leave with it while it polls in MPI: operations on
//! up to 8 bytes of windows of the program's own memory, and its part of long copies. Only a
//! waiting thread that polls does them.

use crate::progress::device::Device;
use crate::progress::state::{DoUpdate, Served};
use ferry_transport::shm::UpdateSlot;

impl Device {
    /// The update slot of a process of this node. `None`: shared memory does not lead to it, or
    /// ranks outnumber cores, where no process polls.
    pub fn update_slot(&self, peer: crate::ProcId) -> Option<&'static UpdateSlot> {
        let slot = self.worker.transports.update_slot(peer);
        slot.filter(|_| !self.is_oversubscribed())
    }

    /// From now on, waiting threads of this process do what peers leave in its update slot. Ends
    /// with as many calls of [`Device::end_updates`].
    pub fn begin_updates(&mut self, run: DoUpdate) {
        if let Some(served) = &mut self.served {
            served.users += 1;
        } else if let Some(slot) = self.update_slot(self.me()) {
            let users = 1;
            self.served = Some(Served { slot, run, users });
        }
    }

    /// Ends [`Device::begin_updates`]. No peer uses this caller's memory any more.
    pub fn end_updates(&mut self) {
        let Some(served) = &mut self.served else {
            return;
        };
        served.users -= 1;
        if served.users == 0 {
            served.slot.stop();
            self.served = None;
        }
    }

    /// This thread polls: does what a peer has left. Returns whether there was anything.
    #[inline]
    pub(crate) fn serve_updates(&mut self) -> bool {
        let served = self.served.as_ref();
        let Some((slot, run)) = served.map(|served| (served.slot, served.run)) else {
            return false;
        };
        let transports = &mut self.worker.transports;
        slot.serve(|words| run(&mut |peer| transports.peer_memory(peer), words))
    }

    /// This thread does not poll any more.
    #[inline]
    pub(crate) fn stop_serving(&self) {
        if let Some(served) = &self.served {
            served.slot.stop();
        }
    }
}
