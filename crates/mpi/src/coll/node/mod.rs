//! Small collectives among the processes of one node, through a board in shared memory in place of
//! messages (MPICH: release-gather; Open MPI: coll/sm).
//!
//! Each rank writes one slot, and reads the data it needs from the other slots. No rank handles
//! more than one wake-up. Where ranks outnumber cores this is several times cheaper than messages.
//!
//! A *flat board* is for few members that have a core each: each polls the other slots. A *counter
//! board* is for all other communicators: a counter shows that all members have posted.

mod board_call;
mod counter_board;
mod flat_board;
mod set_up;

use super::executor::{CollArgs, CollTag, Form, Function, HangDescription, call_ahead};
use super::select;
use crate::device::{FlatBoardGroup, WaitingFor};
use crate::{Comm, Error, Result};
use board_call::plan_call;
use counter_board::CounterBoard;
use ferry_schedule::Collective;
use set_up::set_up;
use std::sync::{Arc, PoisonError};

/// The board of a communicator.
pub(super) enum CommBoard {
    /// Not set up yet. The number of collectives so far that could have used a board.
    Untried(u32),
    /// The members cannot have a board.
    Unavailable,
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
    let call = plan_call(collective, comm.rank(), comm.size(), b.reduction)?;
    let board = &comm.coll.board;
    let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
    if call.op.flat_only() && !matches!(*board, CommBoard::Flat(_)) {
        return None;
    }
    let function = Function::of(collective, Form::Blocking);
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
    if let CommBoard::Unavailable = *board {
        return None;
    }
    let description = HangDescription {
        comm,
        tag: CollTag::next(comm, function, b.root),
        root: b.root,
    };
    let waiting_for = WaitingFor {
        context: comm.context,
        peer: -2,
        tag: -1,
        details: Some(&description),
    };
    // SAFETY: the caller's promise.
    let result = unsafe {
        match &mut *board {
            CommBoard::Flat(board) => flat_board::execute(board, &call, b, &waiting_for),
            CommBoard::Counter(board) => board.execute(&call, b, &waiting_for),
            CommBoard::Unavailable | CommBoard::Untried(_) => return None,
        }
    };
    Some(result)
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
        CommBoard::Unavailable | CommBoard::Untried(_) => return None,
    };
    let ahead = || {
        let (peer, posted) = ahead?;
        Some(call_ahead(comm, peer, posted.signature()?))
    };
    mismatch.or_else(ahead).map(|e| e.on(comm))
}
