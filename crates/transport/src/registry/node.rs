//! What the processes of a node have beside messages: boards for collectives, shared memory, and
//! each other's memory, cores and sleep.

use super::Transports;
use crate::shm::{
    Announcements, CounterBoard, FlatBoard, PeerMemory, SharedMemory, UpdateSlot, Waker,
};
use crate::{NodeCollectives, ProcId};

impl Transports {
    /// [`Shm::set_off_core`](crate::shm::Shm::set_off_core).
    #[inline]
    pub fn set_off_core(&self, off: bool) {
        if let Some(shm) = &self.shm {
            shm.set_off_core(off);
        }
    }

    /// [`Shm::runs_elsewhere`](crate::shm::Shm::runs_elsewhere).
    #[inline]
    pub fn runs_elsewhere(&self, peer: crate::ProcId) -> bool {
        self.shm
            .as_ref()
            .is_some_and(|shm| shm.runs_elsewhere(peer))
    }

    /// [`Shm::waiting_core`](crate::shm::Shm::waiting_core).
    pub fn waiting_core(&self, peer: crate::ProcId) -> Option<u32> {
        self.shm.as_ref().and_then(|shm| shm.waiting_core(peer))
    }

    /// [`Shm::shares_core`](crate::shm::Shm::shares_core).
    pub fn shares_core(&self, core: u32) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.shares_core(core))
    }

    /// [`Shm::progress_polls`](crate::shm::Shm::progress_polls).
    pub fn progress_polls(&self, peer: ProcId) -> bool {
        self.shm
            .as_ref()
            .is_some_and(|shm| shm.progress_polls(peer))
    }

    /// [`Shm::for_each_waiting_core`](crate::shm::Shm::for_each_waiting_core).
    pub fn for_each_waiting_core(&self, each: &mut dyn FnMut(u32)) {
        if let Some(shm) = &self.shm {
            shm.for_each_waiting_core(each);
        }
    }

    /// [`NodeCollectives::allocate_board`] of shared memory.
    pub fn allocate_board(&mut self, members: u32) -> Option<u32> {
        self.shm.as_mut()?.allocate_board(members)
    }

    /// [`NodeCollectives::counter_board`] of shared memory.
    pub fn counter_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
    ) -> Option<CounterBoard> {
        self.shm.as_mut()?.counter_board(owner, number, members)
    }

    /// [`NodeCollectives::flat_board`] of shared memory.
    pub fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<FlatBoard> {
        self.shm.as_mut()?.flat_board(owner, number, members, me)
    }

    /// [`NodeCollectives::waker`] of shared memory.
    pub fn waker(&self, peer: ProcId) -> Option<Waker> {
        self.shm.as_ref()?.waker(peer)
    }

    /// [`NodeCollectives::wake_program`] of shared memory.
    #[inline]
    pub fn wake_program(&self, peer: ProcId) {
        if let Some(shm) = &self.shm {
            shm.wake_program(peer);
        }
    }

    /// [`NodeCollectives::wake`] of shared memory.
    #[inline]
    pub fn wake(&self, peer: ProcId) {
        if let Some(shm) = &self.shm {
            NodeCollectives::wake(shm, peer);
        }
    }

    /// [`Shm::announcements`](crate::shm::Shm::announcements).
    pub fn announcements(&mut self, peer: ProcId) -> Option<Announcements> {
        self.shm.as_mut()?.announcements(peer)
    }

    /// [`Shm::update_slot`](crate::shm::Shm::update_slot).
    pub fn update_slot(&self, peer: ProcId) -> Option<&'static UpdateSlot> {
        self.shm.as_ref()?.update_slot(peer)
    }

    /// Memory shared with the processes of the node. `None`: on a modelled machine, without a
    /// launcher, and where the system has refused the arena.
    pub fn shared_memory(&self) -> Option<&SharedMemory> {
        self.shared_memory.as_ref()
    }

    /// The memory of a process of this node that shared memory leads to. `None`: there is none, or
    /// the system does not let this process read and write it.
    pub fn peer_memory(&mut self, peer: ProcId) -> Option<PeerMemory> {
        self.shm.as_mut()?.peer_memory(peer)
    }
}
