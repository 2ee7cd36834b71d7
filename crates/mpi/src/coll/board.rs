//! Small collectives among the processes of one node, by a board in the node's memory instead of
//! messages.
//!
//! Each rank writes one slot and reads what it needs from others'; nobody handles more than one
//! wake-up. Where ranks outnumber cores this is several times cheaper than any exchange of
//! messages. Collectives in which most ranks only send (reduce, gather) are better by messages
//! there: ranks run ahead of one another. Among [few] they need not wait either.

mod few;

use super::memory::{Memory, Room};
use super::number::{Form, Number};
use super::run::{self, Binding, Story};
use super::{Call, TALLY, View, What, plans};
use crate::device::{self, CounterBoardGroup, FlatBoardGroup, SLOT_MAX_BYTES, WaitingFor};
use crate::{Comm, Datatype, Error, Op, Result, err};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Piece, Reduction, Region, Root};
use std::sync::{Arc, PoisonError};

/// Where a communicator's members meet.
pub(super) enum Place {
    /// They have had so many collectives that could have gone by a board.
    NotYet(u32),
    /// There is no board for them.
    Nowhere,
    /// Here.
    Here(CounterBoardGroup),
    /// Here, as they are few.
    Few(FlatBoardGroup),
}

impl Default for Place {
    fn default() -> Place {
        Place::NotYet(0)
    }
}

/// A communicator is given a board at its so many-th collective that could use one: many never have
/// so many.
const PATIENCE: u32 = 3;
/// Bytes at a slot's end that say what was posted in it.
const MARK: usize = 8;

/// What a rank does in a collective by board.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// All post and read.
    Barrier,
    Allgather {
        unit: i64,
    },
    Alltoall {
        recv: i64,
    },
    Allreduce,
    ReduceScatter {
        own: i64,
    },
    Scan {
        inclusive: bool,
    },
    /// One posts, the others read.
    Bcast {
        root: u32,
    },
    /// One posts, each of the others reads its part.
    Scatter {
        root: u32,
        recv: i64,
    },
    /// All but one post, and that one reads.
    Gather {
        root: u32,
        recv: i64,
    },
    Reduce {
        root: u32,
    },
}

impl Job {
    /// Is it one for few members only?
    fn for_few(self) -> bool {
        use Job::{Gather, Reduce, Scatter};
        matches!(self, Scatter { .. } | Gather { .. } | Reduce { .. })
    }
}

/// A collective by board: what, how many bytes a rank posts, and from where.
struct Plan {
    job: Job,
    len: usize,
    input: Piece,
    in_place: bool,
}

/// Runs the call by board, if it is one for that. `None`: use messages.
pub(super) fn run(call: &Call<'_>) -> Option<Result<()>> {
    let What::Collective(what) = &call.what else {
        return None;
    };
    let comm = call.comm;
    if comm.size() < 2 || comm.is_inter() || !plans::may_use_board(comm, what.kind()) {
        return None;
    }
    let plan = plan(what, comm.rank(), comm.size(), call.reduction)?;
    let mut place = comm
        .plans
        .place
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if plan.job.for_few() && !matches!(*place, Place::Few(_)) {
        return None;
    }
    if let Place::NotYet(had) = &mut *place {
        if *had + 1 < PATIENCE {
            *had += 1;
            return None;
        }
        *place = Place::Nowhere;
        match set_up(comm) {
            Ok(found) => *place = found,
            Err(e) => return Some(Err(e)),
        }
    }
    if let Place::Nowhere = *place {
        return None;
    }
    let b = call.binding();
    let story = Story(comm, call.number(Form::Blocking), b.root);
    let what = WaitingFor {
        context: comm.context,
        peer: -2,
        tag: -1,
        details: Some(&story),
    };
    // SAFETY: the buffers are as the call says.
    let result = unsafe {
        match &mut *place {
            Place::Few(round) => few::carry_out(round, &plan, &b, &what),
            Place::Here(meeting) => carry_out(meeting, &plan, &b, &what),
            Place::Nowhere | Place::NotYet(_) => return None,
        }
    };
    Some(result)
}

/// What to do for a collective, if its data are few and its operation is nobody else's code. All
/// ranks must decide alike, so the decision is by what all ranks know.
fn plan(
    what: &Collective<'_>,
    me: u32,
    n: u32,
    reduction: Option<(&Arc<Op>, &Arc<Datatype>)>,
) -> Option<Plan> {
    let n = i64::from(n);
    let buffer = |count: i64, in_place: bool| {
        if in_place {
            Piece::recv(0, count)
        } else {
            Piece::send(0, count)
        }
    };
    let reduced = |of: Reduction, factor: i64, in_place: bool, job: Job| {
        let (op, t) = reduction?;
        let plain = op.predefined_kind().is_some() && t.basic_kind().is_some() && t.is_dense();
        let len = of.count.checked_mul(of.element)?.checked_mul(factor)?;
        plain.then_some((job, len, buffer(of.count * factor, in_place), in_place))
    };
    let (job, len, input, in_place) = match *what {
        Collective::Barrier => (Job::Barrier, 0, Piece::EMPTY, false),
        Collective::Bcast {
            root: Root::Rank(root),
            bytes,
        } => (
            Job::Bcast { root },
            bytes,
            Piece::new(Region::Packed, 0, bytes),
            false,
        ),
        Collective::Allgather { block, in_place } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let own = if in_place {
                Piece::recv(i64::from(me) * block.recv, block.recv)
            } else {
                Piece::send(0, block.send)
            };
            (
                Job::Allgather { unit: block.recv },
                block.bytes,
                own,
                in_place,
            )
        }
        Collective::Alltoall { block, in_place } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let each = if in_place { block.recv } else { block.send };
            let all = buffer(each.saturating_mul(n), in_place);
            (
                Job::Alltoall { recv: block.recv },
                block.bytes.checked_mul(n)?,
                all,
                in_place,
            )
        }
        Collective::Allreduce { of, in_place } => reduced(of, 1, in_place, Job::Allreduce)?,
        Collective::ReduceScatterBlock { of, in_place } => {
            reduced(of, n, in_place, Job::ReduceScatter { own: of.count })?
        }
        Collective::Scan { of, in_place } => {
            reduced(of, 1, in_place, Job::Scan { inclusive: true })?
        }
        Collective::Exscan { of, in_place } => {
            reduced(of, 1, in_place, Job::Scan { inclusive: false })?
        }
        Collective::Scatter {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let all = Piece::send(0, block.send.saturating_mul(n));
            let len = block.bytes.checked_mul(n)?;
            let recv = block.recv;
            (Job::Scatter { root, recv }, len, all, in_place)
        }
        Collective::Gather {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let recv = block.recv;
            let own = Piece::send(0, block.send);
            (Job::Gather { root, recv }, block.bytes, own, in_place)
        }
        Collective::Reduce {
            root: Root::Rank(root),
            of,
            in_place,
        } => reduced(of, 1, in_place, Job::Reduce { root })?,
        _ => return None,
    };
    let fits =
        (0..=(SLOT_MAX_BYTES - MARK) as i64).contains(&len) && (len > 0 || job == Job::Barrier);
    fits.then_some(Plan {
        job,
        len: len as usize,
        input,
        in_place,
    })
}

/// What rank 0 adds to a board's number: the members are to meet on it in a round.
const IN_ROUND: i32 = 1 << 16;

/// The members' board: rank 0's process lends it and tells the others.
fn set_up(comm: &Arc<Comm>) -> Result<Place> {
    let n = comm.size();
    let members: Vec<_> = (0..n).map(|r| comm.peer(r)).collect();
    let mut number = -1i32;
    {
        let mut d = device::device();
        if !members.iter().all(|&p| d.capabilities(p).same_node) {
            return Ok(Place::Nowhere);
        }
        if comm.rank() == 0
            && let Some(lent) = d.allocate_board(n)
        {
            number = lent as i32 + if d.prefers_flat_board(n) { IN_ROUND } else { 0 };
        }
    }
    let int = Datatype::basic(Basic::Int32);
    let of = Reduction {
        count: 1,
        element: 4,
        commutes: true,
    };
    let by_messages = |what: Collective<'_>, value: &mut i32, number: Number| {
        let view = View::Uniform {
            address: std::ptr::from_mut(value).cast(),
            count: 1,
            datatype: int,
        };
        let reduction = Some((Op::of(Predefined::Min), int));
        let b = Binding {
            comm,
            send: View::Nothing,
            recv: view,
            reduction,
            root: -1,
        };
        // SAFETY: the buffer is one 4-byte integer, by what is called below.
        unsafe { run::run(&plans::schedule(comm, &what), &b, number) }
    };
    by_messages(
        Collective::Bcast {
            root: Root::Rank(0),
            bytes: 4,
        },
        &mut number,
        Number::own_affair(0),
    )?;
    if number < 0 {
        return Ok(Place::Nowhere);
    }
    let (in_round, number) = (number >= IN_ROUND, (number % IN_ROUND) as u32);
    let (owner, me) = (members[0], comm.rank());
    let place = {
        let mut d = device::device();
        if in_round {
            d.flat_board(owner, number, &members, me).map(Place::Few)
        } else {
            d.counter_board(owner, number, members, me).map(Place::Here)
        }
    };
    let mut there = i32::from(place.is_some());
    let agree = Collective::Allreduce { of, in_place: true };
    by_messages(agree, &mut there, Number::own_affair(1))?;
    Ok(place.filter(|_| there == 1).unwrap_or(Place::Nowhere))
}

/// A number for each collective, below 16 and not 0, and its root.
fn kind_and_root(plan: &Plan) -> (u32, u32) {
    match plan.job {
        Job::Barrier => (1, 0),
        Job::Allgather { .. } => (2, 0),
        Job::Alltoall { .. } => (3, 0),
        Job::Allreduce => (4, 0),
        Job::ReduceScatter { .. } => (5, 0),
        Job::Scan { inclusive } => (6 + u32::from(inclusive), 0),
        Job::Bcast { root } => (8, root),
        Job::Scatter { root, .. } => (9, root),
        Job::Gather { root, .. } => (10, root),
        Job::Reduce { root } => (11, root),
    }
}

/// What stands at the end of a posted slot: which collective, its root, its length.
fn mark(plan: &Plan) -> u64 {
    let (kind, root) = kind_and_root(plan);
    u64::from(kind) << 56 | u64::from(root & 0xff_ffff) << 32 | plan.len as u64
}

/// Rank `i` posted something else than this rank, which has `len` bytes: so many bytes, or (`None`)
/// in another collective.
#[cold]
fn disagreement(i: u32, theirs: Option<u64>, len: usize) -> Error {
    match theirs {
        Some(theirs) => err!(
            Truncate,
            "rank {i} takes part in this collective with {theirs} bytes, this rank with {len}: do all ranks give counts and datatypes that agree?"
        ),
        None => err!(
            Other,
            "rank {i} is in another collective, or gave another root: do all ranks call the same collectives in the same order?"
        ),
    }
}

/// This rank's own arguments contradict each other.
#[cold]
fn own_disagreement() -> Error {
    err!(
        Truncate,
        "this rank's send and receive arguments do not agree about the length of a block"
    )
}

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
unsafe fn carry_out(
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

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_schedule::Block;

    fn allreduce(count: i64, op: &Arc<Op>, t: &Arc<Datatype>) -> Option<Plan> {
        let of = Reduction {
            count,
            element: t.size(),
            commutes: true,
        };
        plan(
            &Collective::Allreduce {
                of,
                in_place: false,
            },
            0,
            4,
            Some((op, t)),
        )
    }

    #[test]
    fn only_small_data_and_known_operations_go_by_board() {
        let (sum, double) = (Op::of(Predefined::Sum), Datatype::basic(Basic::Double));
        let most = (SLOT_MAX_BYTES - MARK) as i64 / 8;
        assert!(allreduce(1, sum, double).is_some() && allreduce(most, sum, double).is_some());
        assert!(allreduce(most + 1, sum, double).is_none() && allreduce(0, sum, double).is_none());
        let own = Op::user(Box::new(|_, _, _, _| ()), true);
        assert!(allreduce(1, &own, double).is_none());
        let barrier = plan(&Collective::Barrier, 0, 4, None).unwrap();
        assert_eq!(barrier.len, 0);
        let huge = Block {
            send: i64::MAX / 2,
            recv: i64::MAX / 2,
            bytes: i64::MAX / 2,
        };
        assert!(
            plan(
                &Collective::Alltoall {
                    block: huge,
                    in_place: false
                },
                0,
                4,
                None
            )
            .is_none()
        );
        let reduce = Reduction {
            count: 1,
            element: 8,
            commutes: true,
        };
        let call = Collective::Reduce {
            root: Root::Rank(0),
            of: reduce,
            in_place: false,
        };
        let p = plan(&call, 0, 4, Some((sum, double)));
        assert!(p.is_some_and(|p| p.job.for_few()), "not on a board");
    }

    #[test]
    fn an_allgather_in_place_posts_the_ranks_own_block() {
        let block = Block {
            send: 0,
            recv: 3,
            bytes: 12,
        };
        let p = plan(
            &Collective::Allgather {
                block,
                in_place: true,
            },
            2,
            4,
            None,
        )
        .unwrap();
        assert_eq!((p.input, p.len), (Piece::recv(6, 3), 12));
    }

    #[test]
    fn marks_tell_collectives_roots_and_lengths_apart() {
        let p = |job, len| {
            mark(&Plan {
                job,
                len,
                input: Piece::EMPTY,
                in_place: false,
            })
        };
        let all = [
            p(Job::Bcast { root: 0 }, 8),
            p(Job::Bcast { root: 1 }, 8),
            p(Job::Bcast { root: 0 }, 4),
            p(Job::Allreduce, 8),
            p(Job::Scan { inclusive: true }, 8),
            p(Job::Scan { inclusive: false }, 8),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(*a != 0 && all[..i].iter().all(|b| a != b));
        }
    }
}
