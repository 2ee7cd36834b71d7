//! Unordered flat boards: a few processes of one node, with a core each, exchange small data in
//! shared memory in the background.
//!
//! As on a [flat board](crate::FlatBoardGroup) each member has a slot of its own. Here the caller
//! names the phase, can be in several, and never waits.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use ferry_transport::shm::{Post, UnorderedFlatBoard, Waker};

/// One process's part in the exchanges of a group.
pub struct UnorderedFlatGroup {
    slots: UnorderedFlatBoard,
    /// The other members.
    others: Vec<Waker>,
}

impl Device {
    /// Joins the group `members`, as `members[me]`, on the board `number` that process `owner` has
    /// allocated, for collectives in the background. Progress threads advance them as well. `None`:
    /// this process cannot map the board.
    pub fn unordered_flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: &[ProcId],
        me: u32,
    ) -> Option<UnorderedFlatGroup> {
        let (others, slots) = self.open_flat_board(owner, number, members, me)?;
        Some(UnorderedFlatGroup {
            slots: slots.unordered(),
            others,
        })
    }
}

impl Drop for UnorderedFlatGroup {
    fn drop(&mut self) {
        self.slots.leave();
    }
}

impl UnorderedFlatGroup {
    /// Returns whether this member's slot may be written to in a phase.
    #[inline]
    pub fn is_free(&mut self, phase: u64) -> bool {
        self.slots.is_free(phase)
    }

    /// The address of what member `i` posts in a phase. This member may write to its own, once it
    /// is [free](UnorderedFlatGroup::is_free), until it posts. It may read another's after that one
    /// has posted, until it is done itself.
    #[inline]
    pub fn data(&self, i: u32, phase: u64, post: Post) -> *mut u8 {
        self.slots.data(i, phase, post)
    }

    /// This member has posted in a phase. `mark` says what, and is below 2^[`crate::MARK_BITS`].
    #[inline]
    pub fn post(&self, phase: u64, mark: u32) {
        self.slots.post(phase, mark);
        self.wake();
    }

    /// This member posts in a phase, and is done with it: it reads nothing.
    #[inline]
    pub fn post_alone(&self, phase: u64, mark: u32) {
        self.slots.end_before_post(phase);
        self.post(phase, mark);
    }

    /// The mark that member `i` has posted in a phase, if it has.
    #[inline]
    pub fn posted(&self, i: u32, phase: u64) -> Option<u32> {
        self.slots.posted(i, phase)
    }

    /// This member is done with a phase.
    #[inline]
    pub fn end(&self, phase: u64) {
        self.slots.end(phase);
        self.wake();
    }

    /// All members are known to be done with a phase, since they have begun what comes after it.
    #[inline]
    pub fn all_are_done(&mut self, phase: u64) {
        self.slots.all_are_done(phase);
    }

    /// This process waits, or no longer waits, for what others write to a board.
    #[inline]
    pub fn set_waiting(d: &mut Device, waiting: bool) {
        match waiting {
            true => d.memory_waits += 1,
            false => d.memory_waits -= 1,
        }
    }

    #[inline]
    fn wake(&self) {
        self.others.iter().for_each(Waker::wake_any);
    }
}
