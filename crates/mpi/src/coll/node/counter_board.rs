//! Collectives through a counter board. All members post. The last one to post opens the phase.
//! Then all members read.

use super::alltoall_in_parts::Run;
use super::board_call::{
    BoardCall, BoardOp, Posted, SIGNATURE_BYTES, not_posted_error, own_length_error,
};
use super::slots::{Slots, phase_mark, read_word, stride_of};
use crate::coll::executor::{COUNTERS, CollArgs, TmpBuffer};
use crate::device::{self, ContextId, CounterBoardGroup, PHASES, SLOT_MAX_BYTES, WaitingFor};
use crate::{Error, Result};

/// This rank's part in a counter board.
pub(in crate::coll) struct CounterBoard {
    group: CounterBoardGroup,
    /// The communicator's context.
    context: ContextId,
    /// The number of the last phase, which is the number of collectives so far.
    phase: u64,
    /// The signatures that this rank posted in the last phases, by phase.
    recent: [Option<Recent>; PHASES],
}

/// The signature that this rank posted in a phase.
#[derive(Clone, Copy)]
struct Recent {
    phase: u64,
    stride: usize,
    posted: Posted,
}

impl CounterBoard {
    pub(super) fn new(group: CounterBoardGroup, context: ContextId) -> CounterBoard {
        CounterBoard {
            group,
            context,
            phase: 0,
            recent: [None; PHASES],
        }
    }

    /// The error of a member whose signature differs from this one's in one of the last phases.
    pub(super) fn recent_mismatch(&self) -> Option<Error> {
        let size = self.group.size();
        let look = |recent: &Recent| {
            (0..size).find_map(|i| {
                let slot = self.group.slot_in(recent.phase, i, recent.stride);
                let word: *const u64 = slot.wrapping_add(recent.stride - SIGNATURE_BYTES).cast();
                let mark = phase_mark(self.context, recent.phase);
                // SAFETY: within the board, aligned. Others may write there in a later phase, with
                // another mark.
                let theirs = read_word(unsafe { word.read_volatile() }, mark)?;
                // The root of a broadcast always posts in slot 0.
                let peer = match theirs.is_bcast() {
                    true => theirs.root,
                    false => i,
                };
                let differs = theirs != recent.posted;
                differs.then(|| recent.posted.disagreement(peer, Some(theirs), size))
            })
        };
        self.recent.iter().flatten().find_map(look)
    }

    /// A member that has posted in the phase that this one has not reached, and its signature. The
    /// slots of that phase are not used again before this member has passed it.
    pub(super) fn posted_ahead(&self) -> Option<(u32, Posted)> {
        let (phase, size) = (self.phase + 1, self.group.size());
        let mark = phase_mark(self.context, phase);
        // The stride of the slots depends on the length, which is unknown here.
        let strides = (64..=SLOT_MAX_BYTES).step_by(64);
        strides.into_iter().find_map(|stride| {
            (0..size).find_map(|i| {
                let slot = self.group.slot_in(phase, i, stride);
                let word: *const u64 = slot.wrapping_add(stride - SIGNATURE_BYTES).cast();
                // SAFETY: the word is within the board, and aligned.
                let posted = read_word(unsafe { word.read_volatile() }, mark)?;
                // The word of another rank's slot, of another length, may lie here.
                let posted = Some(posted).filter(|p| p.stride() == stride)?;
                let peer = if posted.is_bcast() { posted.root } else { i };
                Some((peer, posted))
            })
        })
    }

    /// Counts a phase, and notes what this rank posts in it.
    #[inline]
    fn record(&mut self, call: &BoardCall, b: &CollArgs<'_>) {
        self.phase += 1;
        let (phase, posted) = (self.phase, call.posted(b.root));
        let stride = stride_of(call.len);
        let posts = !posted.is_bcast() || posted.root == b.comm.rank();
        self.recent[phase as usize % PHASES] = posts.then_some(Recent {
            phase,
            stride,
            posted,
        });
    }

    /// Runs a collective through the board.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    pub(super) unsafe fn execute(
        &mut self,
        call: &BoardCall,
        b: &CollArgs<'_>,
        waiting_for: &WaitingFor<'_>,
    ) -> Result<()> {
        if let BoardOp::AlltoallInParts { recv, block } = call.op {
            let (run, first) = (Run::new(recv, block, self.group.size()), self.phase + 1);
            (0..run.phases()).for_each(|_| self.record(call, b));
            // SAFETY: the caller's promise.
            return unsafe {
                run.execute(&mut self.group, self.context, first, call, b, waiting_for)
            };
        }
        self.record(call, b);
        let (phase, posted) = (self.phase, call.posted(b.root));
        let group = &mut self.group;
        group.begin(waiting_for);
        let group = &*group;
        let slots = Slots::new(group, self.context, phase, posted);
        // SAFETY: the caller's promise.
        unsafe { exchange(group, &slots, call, b, waiting_for) }
    }
}

/// This rank's part in a phase that it may write to.
///
/// # Safety
/// The buffers must be as the call says.
unsafe fn exchange(
    group: &CounterBoardGroup,
    slots: &Slots,
    call: &BoardCall,
    b: &CollArgs<'_>,
    waiting_for: &WaitingFor<'_>,
) -> Result<()> {
    let me = b.comm.rank();
    let mut tmp = TmpBuffer::new(0, None);
    let input = b.buffers().locate(call.input, &mut tmp);
    let mut error = None;
    let fits = match call.op {
        BoardOp::Bcast { root } if me == root => {
            // SAFETY: in this phase only the root writes slot 0.
            let fits = unsafe { slots.post_first(&input, &mut error) };
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.open(&d);
            group.done(&d);
            fits
        }
        BoardOp::Bcast { .. } => {
            if !group.wait_open(waiting_for) {
                return Err(not_posted_error().on(b.comm));
            }
            // SAFETY: the phase is open. The rest is the caller's promise.
            let fits = unsafe { slots.read(call, b, &mut error) };
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.done(&d);
            fits
        }
        _ => {
            // SAFETY: no other rank uses the slot until this rank has posted.
            let mut fits = unsafe { slots.post(me, &input) };
            let is_last = group.post();
            if is_last {
                // SAFETY: all members have posted.
                unsafe { slots.combine(call, b, &mut error) };
                group.open(&device::device());
            } else if !group.wait_open(waiting_for) {
                return Err(not_posted_error().on(b.comm));
            }
            // SAFETY: the phase is open. The rest is the caller's promise.
            fits &= unsafe { slots.read(call, b, &mut error) };
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.read(&d);
            drop(d);
            if is_last && call.op == BoardOp::Barrier {
                device::yield_after_barrier();
            }
            fits
        }
    };
    if !fits {
        error.get_or_insert_with(own_length_error);
    }
    error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}
