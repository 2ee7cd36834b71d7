//! Sets up the board of a communicator.

use super::CommBoard;
use super::counter_board::CounterBoard;
use crate::coll::executor::{self, CollArgs, CollTag, Function, View};
use crate::coll::select;
use crate::device::{self, ProcId};
use crate::{Comm, Datatype, Op, Result};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Reduction, Root};
use std::sync::Arc;

/// Flag in the board's number, as rank 0 sends it: the board is a flat board.
pub(super) const FLAT_FLAG: i32 = 1 << 16;

/// Sets up the members' board. Rank 0's process allocates it and sends its number to the others.
/// The messages carry the signature of the call `function`, so a rank in another collective call
/// gets an error.
pub(super) fn set_up(comm: &Arc<Comm>, function: Function, root: i32) -> Result<CommBoard> {
    let n = comm.size();
    let members: Vec<_> = (0..n).map(|r| comm.peer(r)).collect();
    let mut number = -1i32;
    {
        let mut d = device::device();
        if !members.iter().all(|&p| d.capabilities(p).same_node) {
            return Ok(CommBoard::Unavailable);
        }
        if comm.rank() == 0
            && let Some(allocated) = d.allocate_board(n)
        {
            let is_flat = d.prefers_flat_board(n);
            number = allocated as i32 + if is_flat { FLAT_FLAG } else { 0 };
        }
    }
    let bcast = Collective::Bcast {
        root: Root::Rank(0),
        bytes: 4,
    };
    let tag = CollTag::internal(0, function, root);
    run_by_messages(comm, &bcast, &mut number, tag)?;
    if number < 0 {
        return Ok(CommBoard::Unavailable);
    }
    let board = open(comm, members, number);
    // All members have opened it, or none uses it.
    let mut is_open = i32::from(board.is_some());
    let of = Reduction {
        count: 1,
        element: 4,
        commutes: true,
    };
    let allreduce = Collective::Allreduce { of, in_place: true };
    let tag = CollTag::internal(1, function, root);
    run_by_messages(comm, &allreduce, &mut is_open, tag)?;
    Ok(board
        .filter(|_| is_open == 1)
        .unwrap_or(CommBoard::Unavailable))
}

/// Opens the board of this number, which rank 0 has allocated.
fn open(comm: &Comm, members: Vec<ProcId>, number: i32) -> Option<CommBoard> {
    let (is_flat, number) = (number >= FLAT_FLAG, (number % FLAT_FLAG) as u32);
    let (owner, me) = (members[0], comm.rank());
    let mut d = device::device();
    if is_flat {
        let group = d.flat_board(owner, number, &members, me)?;
        Some(CommBoard::Flat(group))
    } else {
        let group = d.counter_board(owner, number, members, me)?;
        let board = CounterBoard::new(group, comm.context);
        Some(CommBoard::Counter(Box::new(board)))
    }
}

/// Runs a collective on one integer by messages. A reduction takes the minimum.
fn run_by_messages(
    comm: &Arc<Comm>,
    collective: &Collective<'_>,
    value: &mut i32,
    tag: CollTag,
) -> Result<()> {
    let int = Datatype::basic(Basic::Int32);
    let b = CollArgs {
        comm,
        send: View::Nothing,
        recv: View::Uniform {
            address: std::ptr::from_mut(value).cast(),
            count: 1,
            datatype: int,
        },
        reduction: Some((Op::of(Predefined::Min), int)),
        root: -1,
    };
    // SAFETY: the buffer is one 4-byte integer, as the callers' collectives say.
    unsafe { executor::run(&select::schedule(comm, collective), &b, tag) }
}
