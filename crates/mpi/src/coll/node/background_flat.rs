//! Collectives in the background through an unordered flat board.

use super::board_call::{BoardCall, BoardOp};
use super::board_run::Progress;
use super::flat_phase::{Phase, PhaseBoard};
use crate::coll::executor::CollArgs;
use crate::device::{Post, UnorderedFlatGroup};

/// An unordered flat board in one phase. Nothing blocks here: this member knows that its slot is
/// free before it posts, and that others have posted before it takes what they have.
struct BoardInPhase<'a> {
    group: &'a mut UnorderedFlatGroup,
    phase: u64,
    /// With this one a member is done before it posts in `phase`.
    before: Option<u64>,
}

impl PhaseBoard for BoardInPhase<'_> {
    fn wait_free(&mut self) {}
    fn data(&self, i: u32, post: Post) -> *mut u8 {
        self.group.data(i, self.phase, post)
    }
    fn post(&mut self, mark: u32) {
        self.group.post(self.phase, mark);
    }
    fn post_alone(&mut self, mark: u32) {
        self.group.post_alone(self.phase, mark);
    }
    fn wait_posted(&mut self, i: u32) -> Option<(u32, bool)> {
        let posted = self.group.posted(i, self.phase);
        posted.map(|mark| (mark, true))
    }
    fn end_phase(&mut self) {
        self.group.end(self.phase);
    }
    fn end_full_phase(&mut self) {
        if let Some(before) = self.before {
            self.group.all_are_done(before);
        }
        self.group.end(self.phase);
    }
}

/// Goes on as far as the other members let it. Returns whether all is done.
///
/// # Safety
/// The buffers must be as the call says. `progress` is this phase's from its begin on. With phase
/// `before` a member is done before it posts in this one.
pub(super) unsafe fn advance(
    group: &mut UnorderedFlatGroup,
    (phase, before): (u64, Option<u64>),
    call: &BoardCall,
    b: &CollArgs<'_>,
    progress: &mut Progress,
) -> bool {
    if !progress.posted && uses_own_slot(call, b.comm.rank()) && !group.is_free(phase) {
        return false;
    }
    let board = BoardInPhase {
        group,
        phase,
        before,
    };
    let mut at = Phase::new(board, call, b);
    if !progress.posted {
        // SAFETY: the caller's promise. The slot is free, if it is used.
        unsafe { at.post_own(call) };
        progress.posted = true;
    }
    let is_ready = all_posted(at.board.group, phase, call, b);
    if is_ready {
        // SAFETY: the caller's promise.
        unsafe { at.take(call) };
    }
    progress.fits &= at.fits;
    progress.error = progress.error.take().or(at.error);
    is_ready
}

/// Returns whether this member writes to its slot.
fn uses_own_slot(call: &BoardCall, me: u32) -> bool {
    match call.op {
        BoardOp::Bcast { root } | BoardOp::Scatter { root, .. } => root == me,
        BoardOp::Gather { root, .. } => root != me,
        _ => true,
    }
}

/// Returns whether all members have posted from which this one takes something.
fn all_posted(group: &UnorderedFlatGroup, phase: u64, call: &BoardCall, b: &CollArgs<'_>) -> bool {
    let (me, n) = (b.comm.rank(), b.comm.size());
    let from = match call.op {
        BoardOp::Bcast { root } | BoardOp::Scatter { root, .. } if root == me => 0..0,
        BoardOp::Bcast { root } | BoardOp::Scatter { root, .. } => root..root + 1,
        BoardOp::Gather { root, .. } | BoardOp::Reduce { root } if root != me => 0..0,
        BoardOp::Scan { .. } => 0..me,
        _ => 0..n,
    };
    from.into_iter()
        .all(|i| i == me || group.posted(i, phase).is_some())
}
