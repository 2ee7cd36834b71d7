//! Small collectives among the processes of one node, through a board in shared memory in place of
//! messages (MPICH: release-gather; Open MPI: coll/sm).
//!
//! Each rank writes one slot, and reads the data it needs from the other slots. No rank handles
//! more than one wake-up. Where ranks outnumber cores this is several times cheaper than messages.
//!
//! A *flat board* is for few members that have a core each: each polls the other slots. A *counter
//! board* is for all other communicators: a counter shows that all members have posted.

mod alltoall_in_parts;
mod background;
mod background_flat;
mod background_set_up;
mod board_call;
mod board_run;
mod counter_board;
mod flat_board;
mod flat_phase;
mod set_up;
mod slots;

use super::executor::{
    CollArgs, CollTag, Form, Function, HangDescription, call_ahead, error_at_board,
    has_peer_given_up,
};
use super::{neighbour, select};
use crate::device::{self, FLAT_MAX_RANKS, FlatBoardGroup};
use crate::{Comm, Error, Result};
pub(super) use background::{BackgroundBoards, init, start};
use board_call::{BoardCall, plan_call, plan_exchange, plan_in_parts};
use counter_board::CounterBoard;
use ferry_schedule::{Collective, Kind, NeighbourExchange};
use set_up::set_up;
use std::sync::{Arc, PoisonError};

/// The board of a communicator.
pub(super) enum CommBoard {
    /// Not set up yet. The number of collectives so far that could have used a board.
    Untried(u32),
    /// The members cannot have a board.
    Unavailable,
    /// A member went by messages in a call that this one made on the board. They no longer agree
    /// about their phases.
    Failed(Error),
    Counter(Box<CounterBoard>),
    Flat(FlatBoardGroup),
}

impl Default for CommBoard {
    fn default() -> CommBoard {
        CommBoard::Untried(0)
    }
}

/// The number of the collective at which a communicator sets up its board. Many communicators never
/// have that many collectives that could use one. Not measured.
const SETUP_AFTER_CALLS: u32 = 3;

/// Runs a collective through the communicator's board. `None`: the collective needs messages.
///
/// # Safety
/// The buffers must be as the call says.
pub(super) unsafe fn run(collective: &Collective<'_>, b: &CollArgs<'_>) -> Option<Result<()>> {
    let comm = b.comm;
    if comm.size() < 2 || comm.is_inter() || !select::board_allowed(comm, collective.kind()) {
        return None;
    }
    // Borrowed: a move of it would wait for the stores that have just made it.
    let call = plan_call(collective, comm.rank(), comm.size(), b.reduction);
    let in_parts;
    let call = match &call {
        Some(call) => call,
        None => {
            in_parts = plan_in_parts(collective, comm.size())?;
            &in_parts
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run_call(call, Function::of(collective, Form::Blocking), b) }
}

/// Runs a neighbourhood collective through the communicator's board. `None`: it needs messages. It
/// does unless all members have a core of their own: otherwise a rank would wait for all members,
/// and not for its neighbours alone.
///
/// The members of a grid can decide alike. By MPI 5.0 §8.6 any two neighbours send and receive
/// equal blocks, and there is a way along neighbours from each member to each other one.
///
/// # Safety
/// The buffers must be as the call says.
pub(super) unsafe fn exchange(
    exchange: &NeighbourExchange,
    b: &CollArgs<'_>,
) -> Option<Result<()>> {
    let comm = b.comm;
    let kind = match exchange {
        NeighbourExchange::Allgather(_) => Kind::Allgather,
        NeighbourExchange::Alltoall(_) => Kind::Alltoall,
    };
    if comm.size() < 2
        || comm.size() > FLAT_MAX_RANKS
        || !neighbour::is_grid(comm)
        || !select::board_allowed(comm, kind)
    {
        return None;
    }
    let neighbours = neighbour::neighbours(comm).ok()?;
    let call = plan_exchange(exchange, neighbours.destinations.len(), &b.send)?;
    // SAFETY: the caller's promise.
    unsafe { run_call(&call, Function::of_exchange(exchange, Form::Blocking), b) }
}

/// Runs a call through the communicator's board, which it sets up when it is time.
///
/// # Safety
/// The buffers must be as the call says.
unsafe fn run_call(call: &BoardCall, function: Function, b: &CollArgs<'_>) -> Option<Result<()>> {
    let comm = b.comm;
    let board = &comm.coll.board;
    let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
    let serves = |board: &CommBoard| match board {
        CommBoard::Flat(_) | CommBoard::Failed(_) => true,
        CommBoard::Untried(_) => call.op.sets_up(),
        CommBoard::Counter(_) => !call.op.flat_only(),
        CommBoard::Unavailable => false,
    };
    if !serves(&board) {
        return None;
    }
    if let CommBoard::Untried(calls) = &mut *board {
        if *calls + 1 < SETUP_AFTER_CALLS {
            *calls += 1;
            return None;
        }
        *board = CommBoard::Unavailable;
        match set_up(comm, function, b.root) {
            Ok(found) => *board = found,
            Err(e) => return Some(Err(e)),
        }
    }
    if !serves(&board) {
        return None;
    }
    let tag = CollTag::next(comm, function, b.root);
    let description = HangDescription {
        comm,
        tag,
        root: b.root,
    };
    let waiting_for = description.waiting_for();
    // SAFETY: the caller's promise.
    let result = unsafe {
        match &mut *board {
            CommBoard::Flat(board) => flat_board::execute(board, call, b, &waiting_for),
            CommBoard::Counter(board) => board.execute(call, b, &waiting_for),
            CommBoard::Failed(e) => return Some(Err(e.clone())),
            CommBoard::Unavailable | CommBoard::Untried(_) => return None,
        }
    };
    if result.is_err()
        && let Some(e) = error_at_board(comm, tag, call.given(comm.size()), &mut device::device())
    {
        *board = CommBoard::Failed(e.clone());
        return Some(Err(e));
    }
    Some(result)
}

/// After a call by messages that has failed: if a peer has given up the board, because it was there
/// in this call, this rank will not use it, either.
#[cold]
pub(super) fn give_up_with_peers(comm: &Comm, error: &Error) {
    if has_peer_given_up(comm, Form::Blocking, &device::device()) {
        let board = comm.coll.board.lock();
        *board.unwrap_or_else(PoisonError::into_inner) = CommBoard::Failed(error.clone());
    }
}

/// The error of a rank that made another collective call than this one, as the communicator's board
/// shows it: its signature differs in one of the last phases, or it has posted in a phase that this
/// rank has not reached. Only while no call is under way on the communicator. Ranks that only post
/// do not check the other signatures during the call.
pub(super) fn pending_mismatch(comm: &Arc<Comm>) -> Option<Error> {
    let board = &comm.coll.board;
    let board = board.lock().unwrap_or_else(PoisonError::into_inner);
    let (me, size) = (comm.rank(), comm.size());
    let (mismatch, ahead) = match &*board {
        CommBoard::Flat(board) => (
            flat_board::recent_mismatch(board, me, size),
            flat_board::posted_ahead(board, size),
        ),
        CommBoard::Counter(board) => (board.recent_mismatch(), board.posted_ahead()),
        CommBoard::Unavailable | CommBoard::Failed(_) | CommBoard::Untried(_) => return None,
    };
    let ahead = || {
        let (peer, posted) = ahead?;
        Some(call_ahead(comm, peer, posted.signature()?))
    };
    mismatch.or_else(ahead).map(|e| e.on(comm))
}
