//! Flat boards: few processes of one node, with a core each, exchange small data through the node's
//! memory, each in a slot of its own.
//!
//! What [`CounterBoardGroup`](crate::CounterBoardGroup) is for many. What the members do in a phase
//! is theirs to agree on; [`FlatBoardGroup`] gives them the slots, the moments to wait for and the
//! waking of who waits.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use crate::progress::wait::{WaitingFor, wait_for_board};
use ferry_transport::shm::{self, FLAT_MAX_RANKS, Waker};

pub use ferry_transport::shm::{MARK_BITS, POST_MAX_BYTES};

/// How often a member looks whether another one has posted before it makes other progress as well:
/// less than 1 µs.
const LOOKS_MAX: u32 = 32;

/// One process's part in the exchanges of a group.
pub struct FlatBoardGroup {
    slots: shm::FlatBoard,
    /// The other members.
    others: Vec<Waker>,
    /// How often to look in this phase.
    looks: u32,
}

impl Device {
    /// Is a flat board better than a counter board for `members` processes of this node? Processes
    /// may answer differently; one of them decides.
    pub fn prefers_flat_board(&self, members: u32) -> bool {
        members <= FLAT_MAX_RANKS && !self.wait_policy.oversubscribed
    }

    /// This process's part (`members[me]`) in exchanges of `members`, on board `number` of process
    /// `owner`, which has allocated it. `None`: the board cannot be had.
    pub fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: &[ProcId],
        me: u32,
    ) -> Option<FlatBoardGroup> {
        let others = members
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != me as usize);
        let others: Option<Vec<_>> = others
            .map(|(_, &p)| self.worker.transports.waker(p))
            .collect();
        Some(FlatBoardGroup {
            others: others?,
            slots: self
                .worker
                .transports
                .flat_board(owner, number, members.len() as u32, me)?,
            looks: 0,
        })
    }
}

impl Drop for FlatBoardGroup {
    fn drop(&mut self) {
        self.slots.leave();
    }
}

impl FlatBoardGroup {
    /// Begins the next phase. [Wait](FlatBoardGroup::wait_free) before anything is written.
    #[inline]
    pub fn begin(&mut self, d: &Device) {
        self.looks = if d.polls_alone() { LOOKS_MAX } else { 0 };
        self.slots.next();
    }

    /// Blocks until this member's slot may be written to.
    #[inline]
    pub fn wait_free(&mut self, what: &WaitingFor<'_>) {
        if !self.slots.is_free() {
            wait_for_board(what, |_| self.slots.is_free());
        }
    }

    /// Where member `i`'s data lie in this phase: [`POST_MAX_BYTES`] bytes. This member's own may
    /// be written until it posts, another's read from the time on that it has posted until this one
    /// is done.
    #[inline]
    pub fn data(&self, i: u32) -> *mut u8 {
        self.slots.data(i)
    }

    /// This member has posted, and this is what (below 2^[`MARK_BITS`]).
    #[inline]
    pub fn post(&self, mark: u32) {
        self.slots.post(mark);
        self.wake();
    }

    /// Blocks until member `i` has posted. Returns what it says that is, and whether it had before.
    #[inline]
    pub fn wait_posted(&self, i: u32, what: &WaitingFor<'_>) -> (u32, bool) {
        if let Some(mark) = self.slots.posted(i) {
            return (mark, true);
        }
        for _ in 0..self.looks {
            std::hint::spin_loop();
            if let Some(mark) = self.slots.posted(i) {
                return (mark, false);
            }
        }
        let mut mark = 0;
        wait_for_board(what, |_| {
            self.slots.posted(i).is_some_and(|m| {
                mark = m;
                true
            })
        });
        (mark, false)
    }

    /// What member `i` posted `back` phases ago (0: in this one), if it did and has not posted in
    /// the same slot since. `back` is less than [`PHASES`](ferry_transport::shm::PHASES).
    pub fn posted_before(&self, i: u32, back: u64) -> Option<u32> {
        self.slots.posted_before(i, back)
    }

    /// What member `i` posted in the phase after this one, if it did.
    pub fn posted_next(&self, i: u32) -> Option<u32> {
        self.slots.posted_next(i)
    }

    /// This member is done with this phase, in which it has seen all others post.
    #[inline]
    pub fn done_with_all(&mut self) {
        self.slots.done_with_all();
    }

    /// This member is done with this phase, in which not all wait for all.
    #[inline]
    pub fn done(&mut self) {
        self.slots.done();
        self.wake();
    }

    /// This member has posted, which is all that it has to do in this phase.
    #[inline]
    pub fn post_alone(&mut self, mark: u32) {
        self.slots.note_done();
        self.post(mark);
        self.slots.prepare();
    }

    #[inline]
    fn wake(&self) {
        self.others.iter().for_each(Waker::wake);
    }
}
