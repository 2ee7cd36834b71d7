//! Small collectives among the processes of one node, by a board in the node's memory instead of
//! messages.
//!
//! Each rank writes one slot and reads what it needs from others'; nobody handles more than one
//! wake-up. Where ranks outnumber cores this is several times cheaper than any exchange of
//! messages. Collectives in which most ranks only send (reduce, gather) are better by messages
//! there: ranks run ahead of one another. Among [few] they need not wait either.

mod counter_board;
mod flat_board;
mod plan;
mod set_up;

use super::executor::{Binding, Form, Function, Number, Story};
use super::select;
use crate::Result;
use crate::device::{CounterBoardGroup, FlatBoardGroup, WaitingFor};
use ferry_schedule::Collective;
use plan::plan;
use set_up::set_up;
use std::sync::PoisonError;

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

/// Runs the call by board, if it is one for that. `None`: use messages.
///
/// # Safety
/// The binding's buffers must be as the call says.
pub(super) unsafe fn run(what: &Collective<'_>, b: &Binding<'_>) -> Option<Result<()>> {
    let comm = b.comm;
    if comm.size() < 2 || comm.is_inter() || !select::may_use_board(comm, what.kind()) {
        return None;
    }
    let plan = plan(what, comm.rank(), comm.size(), b.reduction)?;
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
    let number = Number::next(comm, Function::of(what, Form::Blocking));
    let story = Story(comm, number, b.root);
    let what = WaitingFor {
        context: comm.context,
        peer: -2,
        tag: -1,
        details: Some(&story),
    };
    // SAFETY: the caller's promise.
    let result = unsafe {
        match &mut *place {
            Place::Few(round) => flat_board::carry_out(round, &plan, b, &what),
            Place::Here(meeting) => counter_board::carry_out(meeting, &plan, b, &what),
            Place::Nowhere | Place::NotYet(_) => return None,
        }
    };
    Some(result)
}
