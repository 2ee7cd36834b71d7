//! Flat boards: a few processes of one node, with a core each, exchange small data in shared
//! memory.
//!
//! Each member has a slot of its own, and there is no common counter. Larger groups use a
//! [`CounterBoardGroup`](crate::CounterBoardGroup). [`FlatBoardGroup`] has the slots, the waits and
//! the wakeups. The collectives say what the members do in a phase.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use crate::progress::wait::{WaitingFor, wait_for_memory};
use ferry_transport::shm::{self, Waker};

pub use ferry_transport::shm::{FLAT_MAX_RANKS, MARK_BITS, POST_MAX_BYTES, Post};

/// How often a member polls another one's slot before it also makes progress. A choice: it takes
/// less than 1 µs.
const POLLS_MAX: u32 = 32;

/// One process's part in the exchanges of a group.
pub struct FlatBoardGroup {
    slots: shm::FlatBoard,
    /// The other members.
    others: Vec<Waker>,
    /// How often to poll a slot in this phase, up to [`POLLS_MAX`].
    polls: u32,
}

impl Device {
    /// Is a flat board better than a counter board for `members` processes of this node? The answer
    /// may differ between processes, so one of them decides.
    pub fn prefers_flat_board(&self, members: u32) -> bool {
        members <= FLAT_MAX_RANKS && !self.wait_policy.oversubscribed
    }

    /// Joins the group `members`, as `members[me]`, on the board `number` that process `owner` has
    /// allocated. `None`: this process cannot map the board.
    pub fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: &[ProcId],
        me: u32,
    ) -> Option<FlatBoardGroup> {
        let (others, slots) = self.open_flat_board(owner, number, members, me)?;
        Some(FlatBoardGroup {
            slots,
            others,
            polls: 0,
        })
    }

    /// Opens the board, and finds out how to wake the other members.
    pub(super) fn open_flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: &[ProcId],
        me: u32,
    ) -> Option<(Vec<Waker>, shm::FlatBoard)> {
        let transports = &mut self.worker.transports;
        let others = members
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != me as usize);
        let others: Option<Vec<_>> = others.map(|(_, &p)| transports.waker(p)).collect();
        let slots = transports.flat_board(owner, number, members.len() as u32, me)?;
        Some((others?, slots))
    }
}

impl Drop for FlatBoardGroup {
    fn drop(&mut self) {
        self.slots.leave();
    }
}

impl FlatBoardGroup {
    /// Begins the next phase. [Wait](FlatBoardGroup::wait_free) before writing to the slot.
    #[inline]
    pub fn begin(&mut self, d: &Device) {
        self.polls = if d.polls_alone() { POLLS_MAX } else { 0 };
        self.slots.next();
    }

    /// Blocks until this member's slot may be written to.
    #[inline]
    pub fn wait_free(&mut self, what: &WaitingFor<'_>) {
        if !self.slots.is_free() {
            wait_for_memory(what, |_| self.slots.is_free());
        }
    }

    /// The address of what member `i` posts in this phase. This member may write to its own until
    /// it posts. It may read another's after that one has posted, until it is done itself.
    #[inline]
    pub fn data(&self, i: u32, post: Post) -> *mut u8 {
        self.slots.data(i, post)
    }

    /// This member has posted. `mark` says what, and is below 2^[`MARK_BITS`].
    #[inline]
    pub fn post(&self, mark: u32) {
        self.slots.post(mark);
        self.wake();
    }

    /// Blocks until member `i` has posted. Returns its mark, and whether it had posted before the
    /// call. `None`: it is in another call ([`Describe::is_hopeless`](crate::Describe)).
    #[inline]
    pub fn wait_posted(&self, i: u32, what: &WaitingFor<'_>) -> Option<(u32, bool)> {
        if let Some(mark) = self.slots.posted(i) {
            return Some((mark, true));
        }
        for _ in 0..self.polls {
            std::hint::spin_loop();
            if let Some(mark) = self.slots.posted(i) {
                return Some((mark, false));
            }
        }
        let mut mark = None;
        wait_for_memory(what, |d| {
            mark = self.slots.posted(i);
            mark.is_some() || what.is_hopeless(d)
        });
        mark.map(|mark| (mark, false))
    }

    /// The mark that member `i` posted `back` phases ago; 0 is this phase. `None`: it did not post,
    /// or has posted in the same slot since. `back` is less than
    /// [`PHASES`](ferry_transport::shm::PHASES).
    pub fn posted_before(&self, i: u32, back: u64) -> Option<u32> {
        self.slots.posted_before(i, back)
    }

    /// The mark that member `i` has posted in the next phase, if it has.
    pub fn posted_next(&self, i: u32) -> Option<u32> {
        self.slots.posted_next(i)
    }

    /// This member is done with this phase, in which it has waited for all others to post.
    #[inline]
    pub fn end_full_phase(&mut self) {
        self.slots.end_full_phase();
    }

    /// This member is done with this phase, in which not every member waits for all others.
    #[inline]
    pub fn end_phase(&mut self) {
        self.slots.end_phase();
        self.wake();
    }

    /// This member posts, and is done with this phase: it reads nothing.
    #[inline]
    pub fn post_alone(&mut self, mark: u32) {
        self.slots.end_phase_before_post();
        self.post(mark);
        self.slots.prepare();
    }

    #[inline]
    fn wake(&self) {
        self.others.iter().for_each(Waker::wake);
    }
}
