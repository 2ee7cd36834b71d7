//! What a transport offers to collectives among processes of one node.

use crate::ProcId;
use crate::shm::{CounterBoard, FlatBoard, Waker};

/// Boards in memory that a group of processes shares, and the waking of those that wait there.
pub trait NodeCollectives {
    /// Allocates a board of this process's for a group of `members` processes of its node, itself
    /// among them. Returns its number, by which all members open it. `None`: none is left.
    fn allocate_board(&mut self, members: u32) -> Option<u32>;
    /// A member's view of board `number` of process `owner`, with counters. `None`: it cannot be
    /// had.
    fn counter_board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<CounterBoard>;
    /// Member `me`'s view of the same board without counters, for few members. A board has views of
    /// one kind only. `None`: it cannot be had.
    fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<FlatBoard>;
    /// A handle that wakes `peer`'s program without this transport.
    fn waker(&self, peer: ProcId) -> Option<Waker>;
    /// Wakes `peer` if a thread of its program sleeps, as far as one can tell. What the peer is to
    /// see must have been written with a full barrier.
    fn wake_program(&self, peer: ProcId);
    /// As [`NodeCollectives::wake_program`], for what `peer`'s progress thread may handle as well.
    fn wake(&self, peer: ProcId);
}
