//! Memory beside messages: what the processes of a node share, and a peer's own.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use ferry_transport::shm::{PeerMemory, SharedMemory, Waker};

impl Device {
    /// Memory that this process can share with others of its node, whatever transport leads to
    /// them. `None`: on a modelled machine, without a launcher, and where the system refuses it.
    pub fn shared_memory(&self) -> Option<SharedMemory> {
        self.worker.transports.shared_memory().cloned()
    }

    /// The memory of a process of this node, if the system lets this process read and write it.
    /// That is tried once for each peer. `None` also for peers that shared memory does not lead to.
    pub fn peer_memory(&mut self, peer: ProcId) -> Option<PeerMemory> {
        self.worker.transports.peer_memory(peer)
    }

    /// What wakes a process that waits for shared memory ([`wait_for_memory`]). `None`: shared
    /// memory does not lead to it.
    ///
    /// [`wait_for_memory`]: crate::wait_for_memory
    pub fn waker(&self, peer: ProcId) -> Option<Waker> {
        self.worker.transports.waker(peer)
    }
}
