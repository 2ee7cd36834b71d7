//! A communicator gets its board.

use super::Place;
use crate::coll::executor::{self, Binding, Number, View};
use crate::coll::select;
use crate::device;
use crate::{Comm, Datatype, Op, Result};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Reduction, Root};
use std::sync::Arc;

/// What rank 0 adds to a board's number: the members are to meet on it in a round.
const IN_ROUND: i32 = 1 << 16;

/// The members' board: rank 0's process lends it and tells the others.
pub(super) fn set_up(comm: &Arc<Comm>) -> Result<Place> {
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
        unsafe { executor::run(&select::schedule(comm, &what), &b, number) }
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
