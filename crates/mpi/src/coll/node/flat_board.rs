//! Blocking collectives through a flat board. Each member polls the other members' slots. There is
//! no shared counter.

use super::board_call::{BoardCall, BoardOp, Posted, own_length_error};
use super::flat_phase::{Phase, PhaseBoard, read_bits};
use crate::coll::executor::{COUNTERS, CollArgs};
use crate::device::{self, FlatBoardGroup, PHASES, Post, WaitingFor};
use crate::{Error, Result};

/// The error of a member whose signature differs from that of this one (`me`) in one of the last
/// phases.
pub(super) fn recent_mismatch(board: &FlatBoardGroup, me: u32, size: u32) -> Option<Error> {
    (0..PHASES as u64).find_map(|back| {
        let own = read_bits(board.posted_before(me, back)?);
        let posted = |i| Some((i, read_bits(board.posted_before(i, back)?)));
        let mut others = (0..size).filter_map(posted);
        let (peer, theirs) = others.find(|(_, theirs)| !theirs.agrees_with(own))?;
        Some(own.disagreement(peer, Some(theirs), size))
    })
}

/// A member that has posted in a phase that this one has not reached, and its signature.
pub(super) fn posted_ahead(board: &FlatBoardGroup, size: u32) -> Option<(u32, Posted)> {
    (0..size).find_map(|i| Some((i, read_bits(board.posted_next(i)?))))
}

/// The board in its current phase.
struct CurrentPhase<'a, 'w> {
    group: &'a mut FlatBoardGroup,
    waiting_for: &'a WaitingFor<'w>,
}

impl PhaseBoard for CurrentPhase<'_, '_> {
    #[inline(always)]
    fn wait_free(&mut self) {
        self.group.wait_free(self.waiting_for);
    }
    #[inline(always)]
    fn data(&self, i: u32, post: Post) -> *mut u8 {
        self.group.data(i, post)
    }
    #[inline(always)]
    fn post(&mut self, mark: u32) {
        self.group.post(mark);
    }
    #[inline(always)]
    fn post_alone(&mut self, mark: u32) {
        self.group.post_alone(mark);
    }
    #[inline(always)]
    fn wait_posted(&mut self, i: u32) -> Option<(u32, bool)> {
        self.group.wait_posted(i, self.waiting_for)
    }
    #[inline(always)]
    fn end_phase(&mut self) {
        self.group.end_phase();
    }
    #[inline(always)]
    fn end_full_phase(&mut self) {
        self.group.end_full_phase();
    }
}

/// Runs a collective through the board.
///
/// # Safety
/// The buffers must be as the call says.
pub(super) unsafe fn execute(
    group: &mut FlatBoardGroup,
    call: &BoardCall,
    b: &CollArgs<'_>,
    waiting_for: &WaitingFor<'_>,
) -> Result<()> {
    {
        let d = device::device();
        COUNTERS.board.increment(&d);
        group.begin(&d);
    }
    let current = CurrentPhase { group, waiting_for };
    let mut phase = Phase::new(current, call, b);
    // SAFETY: the caller's promise.
    unsafe {
        phase.post_own(call);
        phase.take(call);
    }
    if phase.is_last && call.op == BoardOp::Barrier {
        device::yield_after_barrier();
    }
    if !phase.fits {
        phase.error.get_or_insert_with(own_length_error);
    }
    phase.error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}
