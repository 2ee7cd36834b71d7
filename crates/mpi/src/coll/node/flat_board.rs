//! The same where the members are few and have a core each: each reads what the others have posted,
//! and nobody counts.

use super::plan::{Job, MARK, Plan, disagreement, kind_and_root, own_disagreement};
use crate::coll::executor::{Binding, Memory, Room, TALLY};
use crate::device::{self, FlatBoardGroup, MARK_BITS, POST_MAX_BYTES, SLOT_MAX_BYTES, WaitingFor};
use crate::{Error, Result};
use ferry_schedule::Piece;

// What is posted on a board can be posted in a round, and its length has room in the mark.
const _: () = assert!(POST_MAX_BYTES == SLOT_MAX_BYTES - MARK && POST_MAX_BYTES < 1 << LEN_BITS);
const LEN_BITS: u32 = 12;
// Four bits for the root, and four for which collective.
const _: () = assert!(LEN_BITS + 8 <= MARK_BITS);

/// What a member says that it has posted: which collective, its root, its length.
fn mark(plan: &Plan) -> u32 {
    let (kind, root) = kind_and_root(plan);
    kind << (LEN_BITS + 4) | (root & 0xf) << LEN_BITS | plan.len as u32
}

/// One collective's phase.
struct Phase<'a, 'w> {
    round: &'a mut FlatBoardGroup,
    what: &'a WaitingFor<'w>,
    mark: u32,
    len: usize,
    error: Option<Error>,
    /// All whom it has waited for had posted before.
    late: bool,
}

impl Phase<'_, '_> {
    /// Part of a slot's data.
    #[inline]
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.round.data(i).wrapping_add(skip),
            len,
        }
    }

    /// Writes this rank's slot. Returns whether the input had the right length.
    ///
    /// # Safety
    /// The input is readable; this rank is `me`.
    #[inline]
    unsafe fn write(&mut self, me: u32, input: &Memory<'_>) -> bool {
        self.round.wait_free(self.what);
        if self.len == 0 {
            return true;
        }
        // SAFETY: the slot is this rank's until it posts.
        unsafe { input.copy_to(&self.data(me, 0, self.len)) }
    }

    /// Waits for rank `i`, and checks that it has posted what this rank would have.
    #[inline]
    fn wait(&mut self, i: u32) {
        let (found, before) = self.round.wait_posted(i, self.what);
        self.late &= before;
        if found != self.mark {
            let same = found >> LEN_BITS == self.mark >> LEN_BITS;
            let theirs = same.then_some(u64::from(found & ((1 << LEN_BITS) - 1)));
            self.error
                .get_or_insert_with(|| disagreement(i, theirs, self.len));
        }
    }
}

/// # Safety
/// The binding's buffers must be as the call says.
pub(super) unsafe fn carry_out(
    round: &mut FlatBoardGroup,
    plan: &Plan,
    b: &Binding<'_>,
    what: &WaitingFor<'_>,
) -> Result<()> {
    let (me, n) = (b.comm.rank(), b.comm.size());
    let mut room = Room::new(0, None);
    let places = b.places();
    let mut find = |p: Piece| places.find(p, &mut room);
    {
        let d = device::device();
        TALLY.board.increment(&d);
        round.begin(&d);
    }
    let mut phase = Phase {
        round,
        what,
        mark: mark(plan),
        len: plan.len,
        error: None,
        late: true,
    };
    let mut fits = true;
    match plan.job {
        Job::Bcast { root } if me == root => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &find(plan.input)) };
            phase.round.post_alone(phase.mark);
        }
        Job::Bcast { root } => {
            phase.wait(root);
            // SAFETY: the root has posted; the buffer is writable.
            fits &= unsafe { phase.data(root, 0, plan.len).copy_to(&find(plan.input)) };
            phase.round.done();
        }
        Job::Scatter { root, recv } if me == root => {
            let all = find(plan.input);
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &all) };
            phase.round.post_alone(phase.mark);
            if !plan.in_place {
                let each = plan.input.count / i64::from(n);
                let own = find(Piece::send(i64::from(me) * each, each));
                // SAFETY: the program's buffers are readable and writable.
                fits &= unsafe { own.copy_to(&find(Piece::recv(0, recv))) };
            }
        }
        Job::Scatter { root, recv } => {
            phase.wait(root);
            let len = plan.len / n as usize;
            let part = phase.data(root, me as usize * len, len);
            // SAFETY: the root has posted; the buffer is writable.
            fits &= unsafe { part.copy_to(&find(Piece::recv(0, recv))) };
            phase.round.done();
        }
        Job::Gather { root, .. } | Job::Reduce { root } if me != root => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &find(plan.input)) };
            phase.round.post_alone(phase.mark);
        }
        Job::Gather { recv, .. } => {
            for i in from(me, n) {
                let into = find(Piece::recv(i64::from(i) * recv, recv));
                if i != me {
                    phase.wait(i);
                    // SAFETY: it has posted; the buffer is writable.
                    fits &= unsafe { phase.data(i, 0, plan.len).copy_to(&into) };
                } else if !plan.in_place {
                    // SAFETY: the program's buffers are readable and writable.
                    fits &= unsafe { find(plan.input).copy_to(&into) };
                }
            }
            phase.round.done();
        }
        Job::Reduce { .. } => {
            // SAFETY: the program's buffer is readable; the slot is this rank's until the phase is
            // done.
            fits &= unsafe { phase.write(me, &find(plan.input)) };
            let output = find(Piece::recv(0, plan.input.count));
            // SAFETY: the buffer is writable; nobody else reads this rank's slot.
            fits &= unsafe { fold(&mut phase, b, me, (0, n - 1), &output, 0) };
            phase.round.done();
        }
        Job::Scan { inclusive } => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &find(plan.input)) };
            phase.round.post(phase.mark);
            if inclusive || me > 0 {
                let first = if inclusive { me } else { me - 1 };
                // SAFETY: the buffer is writable.
                fits &= unsafe {
                    fold(
                        &mut phase,
                        b,
                        me,
                        (0, first),
                        &find(Piece::recv(0, plan.input.count)),
                        0,
                    )
                };
            }
            phase.round.done();
        }
        _ => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &find(plan.input)) };
            phase.round.post(phase.mark);
            match plan.job {
                Job::Allgather { unit } => {
                    for i in from(me, n) {
                        if i != me {
                            phase.wait(i);
                        } else if plan.in_place {
                            continue;
                        }
                        let into = find(Piece::recv(i64::from(i) * unit, unit));
                        // SAFETY: it has posted; the buffer is writable.
                        fits &= unsafe { phase.data(i, 0, plan.len).copy_to(&into) };
                    }
                }
                Job::Alltoall { recv } => {
                    let block = plan.len / n as usize;
                    for i in from(me, n) {
                        if i != me {
                            phase.wait(i);
                        }
                        let into = find(Piece::recv(i64::from(i) * recv, recv));
                        // SAFETY: it has posted; the block lies within what it posted, and the
                        // buffer is writable.
                        fits &= unsafe { phase.data(i, me as usize * block, block).copy_to(&into) };
                    }
                }
                Job::Allreduce => {
                    let output = find(Piece::recv(0, plan.input.count));
                    // SAFETY: the buffer is writable.
                    fits &= unsafe { fold(&mut phase, b, me, (0, n - 1), &output, 0) };
                }
                Job::ReduceScatter { own } => {
                    let (output, len) = (find(Piece::recv(0, own)), plan.len / n as usize);
                    // SAFETY: the buffer is writable.
                    fits &=
                        unsafe { fold(&mut phase, b, me, (0, n - 1), &output, me as usize * len) };
                }
                _ => (1..n).for_each(|by| phase.wait((me + by) % n)),
            }
            phase.round.done_with_all();
            if phase.late && plan.job == Job::Barrier {
                device::yield_after_barrier();
            }
        }
    }
    if !fits {
        phase.error.get_or_insert_with(own_disagreement);
    }
    phase.error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}

/// All ranks, this one first.
fn from(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (me..n).chain(0..me)
}

/// Waits for ranks `first` to `last`, and reduces what they have posted, as much of it as the
/// output has room for from `skip` bytes on. Operands are taken in from the highest rank down, as
/// everybody does. Returns whether the output is as long as it should be.
///
/// # Safety
/// This rank has posted; the output is writable.
unsafe fn fold(
    phase: &mut Phase<'_, '_>,
    b: &Binding<'_>,
    me: u32,
    (first, last): (u32, u32),
    output: &Memory<'_>,
    skip: usize,
) -> bool {
    let (Some((op, t)), Memory::Run { address, len }) = (b.reduction, output) else {
        return false;
    };
    let count = *len as i64 / t.size().max(1);
    let mut fits = *len <= phase.len.saturating_sub(skip);
    for i in (first..=last).rev() {
        if i != me {
            phase.wait(i);
        }
        if i == last {
            // SAFETY: it has posted; the output is writable.
            fits &= unsafe { phase.data(i, skip, *len).copy_to(output) };
        } else {
            // SAFETY: it has posted, and the output holds `count` elements.
            unsafe { op.apply(phase.round.data(i).wrapping_add(skip), *address, count, t) };
        }
    }
    fits
}
