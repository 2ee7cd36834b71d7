//! MPI_Alltoall among so many ranks that the blocks of one do not fit a slot of the counter board.
//!
//! A rank posts its blocks in several slots: those for the first ranks in a phase, those for the
//! next ones in the next phase, in a run of phases (`ferry_transport::shm::coll::counter_board`).
//! It waits once, until all have posted, and reads its own blocks, which all lie in one phase.

use super::board_call::{BoardCall, not_posted_error, own_length_error};
use super::slots::Slots;
use crate::Result;
use crate::coll::executor::{COUNTERS, CollArgs, TmpBuffer};
use crate::device::{self, ContextId, CounterBoardGroup, POST_MAX_BYTES, WaitingFor};
use ferry_schedule::Piece;

/// How the blocks of a rank lie in the slots of a run of phases.
pub(super) struct Run {
    /// Elements of a block in the receive buffer.
    recv: i64,
    /// Bytes of a block.
    block: usize,
    /// Blocks of a slot. The last one may have fewer.
    blocks: u32,
    size: u32,
}

impl Run {
    /// The run of an alltoall among `size` ranks, with blocks of `block` bytes (1 to
    /// [`POST_MAX_BYTES`]), each `recv` elements of the receive buffer.
    pub(super) fn new(recv: i64, block: usize, size: u32) -> Run {
        Run {
            recv,
            block,
            blocks: (POST_MAX_BYTES / block) as u32,
            size,
        }
    }

    /// The number of phases.
    pub(super) fn phases(&self) -> u64 {
        u64::from(self.size.div_ceil(self.blocks))
    }

    /// Runs the alltoall, whose first phase follows the group's last one.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    pub(super) unsafe fn execute(
        &self,
        group: &mut CounterBoardGroup,
        context: ContextId,
        first: u64,
        call: &BoardCall,
        b: &CollArgs<'_>,
        waiting_for: &WaitingFor<'_>,
    ) -> Result<()> {
        let posted = call.posted(b.root);
        let (me, n, phases) = (b.comm.rank(), self.size, self.phases());
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        let (mut fits, mut error) = (true, None);
        group.begin_run(phases, waiting_for);
        let slots = |group: &CounterBoardGroup, part: u32| {
            Slots::new(group, context, first + u64::from(part), posted)
        };
        let each = call.input.count / i64::from(n);
        for part in 0..phases as u32 {
            let from = part * self.blocks;
            let count = self.blocks.min(n - from);
            let piece = call
                .input
                .part(i64::from(from) * each, i64::from(count) * each);
            let input = buffers.locate(piece, &mut tmp);
            let len = count as usize * self.block;
            // SAFETY: no other rank uses the slot until this rank has posted.
            fits &= unsafe { slots(group, part).post_len(me, &input, len) };
        }
        if group.post() {
            group.open(&device::device());
        } else if !group.wait_open(waiting_for) {
            return Err(not_posted_error().on(b.comm));
        }
        let own = slots(group, me / self.blocks);
        let skip = (me % self.blocks) as usize * self.block;
        for i in 0..n {
            own.check(i, &mut error);
            let into = buffers.locate(Piece::recv(i64::from(i) * self.recv, self.recv), &mut tmp);
            // SAFETY: all members have posted. The block lies within the member's data, and the
            // buffer is writable.
            fits &= unsafe { own.data(i, skip, self.block).copy_to(&into) };
        }
        if error.is_some() {
            // A rank in another collective has posted in the first phase only.
            error = slots(group, 0).first_disagreement().or(error);
        }
        let d = device::device();
        COUNTERS.board.increment(&d);
        group.end_run(&d, phases);
        drop(d);
        if !fits {
            error.get_or_insert_with(own_length_error);
        }
        error.map_or(Ok(()), |e| Err(e.on(b.comm)))
    }
}
