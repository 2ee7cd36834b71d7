//! Sets up the board of a communicator.

use super::CommBoard;
use super::counter_board::CounterBoard;
use crate::coll::executor::{self, CollArgs, CollTag, Function, View};
use crate::coll::select;
use crate::device;
use crate::{Comm, Datatype, Op, Result};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Reduction, Root};
use std::sync::Arc;

/// Flag in the board's number, as rank 0 sends it: the board is a flat board.
const FLAT_FLAG: i32 = 1 << 16;

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
            && let Some(lent) = d.allocate_board(n)
        {
            number = lent as i32
                + if d.prefers_flat_board(n) {
                    FLAT_FLAG
                } else {
                    0
                };
        }
    }
    let int = Datatype::basic(Basic::Int32);
    let of = Reduction {
        count: 1,
        element: 4,
        commutes: true,
    };
    let by_messages = |collective: Collective<'_>, value: &mut i32, tag: CollTag| {
        let view = View::Uniform {
            address: std::ptr::from_mut(value).cast(),
            count: 1,
            datatype: int,
        };
        let reduction = Some((Op::of(Predefined::Min), int));
        let b = CollArgs {
            comm,
            send: View::Nothing,
            recv: view,
            reduction,
            root: -1,
        };
        // SAFETY: the calls below pass a buffer of one 4-byte integer.
        unsafe { executor::run(&select::schedule(comm, &collective), &b, tag) }
    };
    by_messages(
        Collective::Bcast {
            root: Root::Rank(0),
            bytes: 4,
        },
        &mut number,
        CollTag::internal(0, function, root),
    )?;
    if number < 0 {
        return Ok(CommBoard::Unavailable);
    }
    let (is_flat, number) = (number >= FLAT_FLAG, (number % FLAT_FLAG) as u32);
    let (owner, me) = (members[0], comm.rank());
    let board = {
        let mut d = device::device();
        if is_flat {
            d.flat_board(owner, number, &members, me)
                .map(CommBoard::Flat)
        } else {
            d.counter_board(owner, number, members, me)
                .map(|group| CommBoard::Counter(Box::new(CounterBoard::new(group, comm.context))))
        }
    };
    let mut there = i32::from(board.is_some());
    let agree = Collective::Allreduce { of, in_place: true };
    by_messages(agree, &mut there, CollTag::internal(1, function, root))?;
    Ok(board
        .filter(|_| there == 1)
        .unwrap_or(CommBoard::Unavailable))
}
