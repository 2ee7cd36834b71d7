//! A collective by a counter board: all post, the last one opens the phase, all read.

use super::plan::{Job, MARK, Plan, disagreement, mark, own_disagreement};
use crate::coll::executor::{Binding, Memory, Room, TALLY};
use crate::device::{self, CounterBoardGroup, WaitingFor};
use crate::{Error, Result};
use ferry_schedule::Piece;

/// The board's slots in one phase, as one collective uses them.
struct Slots<'a> {
    meeting: &'a CounterBoardGroup,
    stride: usize,
    mark: u64,
    len: usize,
}

impl Slots<'_> {
    fn at(&self, i: u32) -> *mut u8 {
        self.meeting.slot(i, self.stride)
    }
    fn mark_at(&self, i: u32) -> *mut u64 {
        self.at(i).wrapping_add(self.stride - MARK).cast()
    }
    /// Part of a slot's data.
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.at(i).wrapping_add(skip),
            len,
        }
    }
    /// Writes slot `i`. Returns whether the input had the right length.
    ///
    /// # Safety
    /// The slot is this rank's to write now; the input is readable.
    unsafe fn post(&self, i: u32, input: &Memory<'_>) -> bool {
        // SAFETY: the caller's promise; the mark lies within the slot, aligned.
        unsafe {
            self.mark_at(i).write(self.mark);
            input.copy_to(&self.data(i, 0, self.len))
        }
    }
    /// Is what stands in slot `i` what this rank would have posted?
    fn check(&self, i: u32, error: &mut Option<Error>) {
        // SAFETY: within the board, aligned; written before by whoever has posted.
        let found = unsafe { self.mark_at(i).read() };
        if found != self.mark {
            let same = found >> 32 == self.mark >> 32;
            let theirs = same.then_some(found & 0xffff_ffff);
            error.get_or_insert_with(|| disagreement(i, theirs, self.len));
        }
    }
}

/// # Safety
/// The binding's buffers must be as the call says.
pub(super) unsafe fn carry_out(
    meeting: &mut CounterBoardGroup,
    plan: &Plan,
    b: &Binding<'_>,
    what: &WaitingFor<'_>,
) -> Result<()> {
    let (me, n) = (b.comm.rank(), b.comm.size());
    let mut room = Room::new(0, None);
    let places = b.places();
    let mut find = |p: Piece| places.find(p, &mut room);
    let mut error = None;
    meeting.begin(what);
    let stride = (plan.len + MARK).next_multiple_of(64);
    let slots = Slots {
        meeting,
        stride,
        mark: mark(plan),
        len: plan.len,
    };
    // The result of a reduction stands in the last slot: operands are taken in from the highest
    // rank down.
    let last = n - 1;
    let fold = |from: u32, to: u32, result: *mut u8, error: &mut Option<Error>| {
        let Some((op, t)) = b.reduction else { return };
        let count = plan.len as i64 / t.size().max(1);
        for i in (from..to).rev() {
            slots.check(i, error);
            // SAFETY: slots and result hold `count` elements; nobody else writes them now.
            unsafe { op.apply(slots.at(i), result, count, t) };
        }
    };
    let fits = match plan.job {
        Job::Bcast { root } if me == root => {
            // SAFETY: in this phase slot 0 is the root's.
            let fits = unsafe { slots.post(0, &find(plan.input)) };
            let d = device::device();
            TALLY.board.increment(&d);
            meeting.open(&d);
            meeting.done(&d);
            fits
        }
        Job::Bcast { .. } => {
            meeting.wait_open(what);
            slots.check(0, &mut error);
            // SAFETY: the root has posted; the buffer is writable.
            let fits = unsafe { slots.data(0, 0, plan.len).copy_to(&find(plan.input)) };
            let d = device::device();
            TALLY.board.increment(&d);
            meeting.done(&d);
            fits
        }
        _ => {
            // A barrier is but the counting.
            // SAFETY: the slot is this rank's until it has posted.
            let mut fits = plan.job == Job::Barrier || unsafe { slots.post(me, &find(plan.input)) };
            let came_last = meeting.post();
            if came_last {
                if matches!(plan.job, Job::Allreduce | Job::ReduceScatter { .. }) {
                    slots.check(last, &mut error);
                    fold(0, last, slots.at(last), &mut error);
                    if error.is_some() {
                        // SAFETY: only the last to post writes here, before the phase is open.
                        unsafe { slots.mark_at(last).write(0) };
                    }
                }
                meeting.open(&device::device());
            } else {
                meeting.wait_open(what);
            }
            match plan.job {
                Job::Allgather { unit } => {
                    for i in (0..n).filter(|&i| !(plan.in_place && i == me)) {
                        slots.check(i, &mut error);
                        let into = find(Piece::recv(i64::from(i) * unit, unit));
                        // SAFETY: all have posted; the buffer is writable.
                        fits &= unsafe { slots.data(i, 0, plan.len).copy_to(&into) };
                    }
                }
                Job::Alltoall { recv } => {
                    let block = plan.len / n as usize;
                    for i in 0..n {
                        slots.check(i, &mut error);
                        let into = find(Piece::recv(i64::from(i) * recv, recv));
                        // SAFETY: all have posted; the member's block lies within what it posted,
                        // and the buffer is writable.
                        fits &= unsafe { slots.data(i, me as usize * block, block).copy_to(&into) };
                    }
                }
                Job::Allreduce | Job::ReduceScatter { .. } => {
                    slots.check(last, &mut error);
                    let own = if let Job::ReduceScatter { own } = plan.job {
                        own
                    } else {
                        plan.input.count
                    };
                    let len = if own == plan.input.count {
                        plan.len
                    } else {
                        plan.len / n as usize
                    };
                    let skip = if own == plan.input.count {
                        0
                    } else {
                        me as usize * len
                    };
                    // SAFETY: the last member has posted the result, and the buffer is writable.
                    fits &= unsafe {
                        slots
                            .data(last, skip, len)
                            .copy_to(&find(Piece::recv(0, own)))
                    };
                }
                Job::Scan { inclusive } if inclusive || me > 0 => {
                    let first = if inclusive { me } else { me - 1 };
                    let output = find(Piece::recv(0, plan.input.count));
                    slots.check(first, &mut error);
                    // SAFETY: that member has posted its partial result, and the buffer is
                    // writable.
                    fits &= unsafe { slots.data(first, 0, plan.len).copy_to(&output) };
                    if let Memory::Run { address, .. } = output {
                        fold(0, first, address, &mut error);
                    }
                }
                _ => {}
            }
            let d = device::device();
            TALLY.board.increment(&d);
            meeting.read(&d);
            drop(d);
            if came_last && plan.job == Job::Barrier {
                device::yield_after_barrier();
            }
            fits
        }
    };
    if !fits {
        error.get_or_insert_with(own_disagreement);
    }
    error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}
