//! Non-blocking and persistent collectives through boards. The device advances them in the
//! background, and nobody waits here.
//!
//! A communicator has two boards for them, apart from that of its blocking collectives. Where all
//! members have a core each these are unordered flat boards, otherwise counter boards. A
//! non-blocking call's phase is its number among those calls, which all members make in the same
//! order. Several can be under way. One that finds its part of the board in use posts later.
//!
//! Persistent operations may be started in another order on each member (MPI 5.0 §6.13). So each
//! has [`PARTS`] parts of the board for itself, in the order in which they were made.

use super::background_set_up::SetUp;
use super::board_call::{BoardCall, BoardOp, plan_call};
use super::board_run::BoardRun;
use super::{SETUP_AFTER_CALLS, select};
use crate::coll::executor::{BoundSchedule, CallToCache, CollArgs, CollTag};
use crate::device::{self, CounterBoardGroup, Device, FLAT_MAX_RANKS, PHASES, UnorderedFlatGroup};
use crate::request::{Active, Request};
use crate::state_lock::{StateGuard, StateLock};
use crate::{Comm, Error};
use ferry_schedule::Collective;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The boards of a communicator's non-blocking and persistent collectives.
#[derive(Default)]
pub(in crate::coll) struct BackgroundBoards {
    /// By [`BoardForm`].
    boards: [BackgroundBoard; 2],
    /// All members are on this node, and time is real.
    possible: OnceLock<bool>,
}

/// Which of the two boards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BoardForm {
    NonBlocking,
    Persistent,
}

#[derive(Default)]
pub(super) struct BackgroundBoard {
    /// There is none and there will be none. Set after `state`.
    is_unavailable: AtomicBool,
    state: StateLock<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Calls so far of operations that set up the board.
    calls: u64,
    /// Calls since then that a counter board, and that a flat board serves.
    counter_calls: u64,
    flat_calls: u64,
    pub(super) board: Board,
}

/// The number of a call among those that a kind of board serves, from 1 on, or its phase there; for
/// each kind, since a call may begin before the board is known. `None`: that kind does not serve
/// it.
#[derive(Clone, Copy)]
pub(super) struct ByBoardKind {
    pub(super) counter: Option<u64>,
    pub(super) flat: Option<u64>,
}

impl ByBoardKind {
    fn map(self, f: impl Fn(u64) -> Option<u64>) -> ByBoardKind {
        ByBoardKind {
            counter: self.counter.and_then(&f),
            flat: self.flat.and_then(&f),
        }
    }
}

#[derive(Default)]
pub(super) enum Board {
    #[default]
    Untried,
    SettingUp,
    Unavailable,
    /// The members could not agree, or one went by messages where another was on the board.
    Failed(Error),
    Counter(CounterBoardGroup),
    Flat(UnorderedFlatGroup),
}

impl BackgroundBoards {
    pub(super) fn of(&self, form: BoardForm) -> &BackgroundBoard {
        &self.boards[form as usize]
    }
}

impl BackgroundBoard {
    #[inline]
    pub(super) fn state(&self) -> StateGuard<'_, State> {
        self.state.lock()
    }

    #[inline]
    fn is_unavailable(&self) -> bool {
        self.is_unavailable.load(Ordering::Relaxed)
    }

    /// Counts a call. Returns its numbers, and whether it may yet go by messages. `None`: it does.
    fn count(&self, call: &BoardCall, size: u32, calls_before: u64) -> Option<(ByBoardKind, bool)> {
        let mut state = self.state();
        state.calls += u64::from(call.op.sets_up());
        if state.calls <= calls_before {
            return None;
        }
        let on_counter_board = counter_board_serves(call, size);
        let on_flat_board = flat_board_serves(call, size);
        state.counter_calls += u64::from(on_counter_board);
        state.flat_calls += u64::from(on_flat_board);
        let by_messages = match state.board {
            Board::Counter(_) if !on_counter_board => return None,
            Board::Flat(_) if !on_flat_board => return None,
            Board::Counter(_) | Board::Flat(_) => false,
            _ => true,
        };
        let numbers = ByBoardKind {
            counter: on_counter_board.then_some(state.counter_calls),
            flat: on_flat_board.then_some(state.flat_calls),
        };
        Some((numbers, by_messages))
    }

    /// Begins to set up the board, unless that has begun.
    fn begin_set_up(&self, comm: &Arc<Comm>, form: BoardForm, d: &mut Device) {
        {
            let mut state = self.state();
            let Board::Untried = state.board else { return };
            state.board = Board::SettingUp;
        }
        SetUp::begin(comm, form, d);
    }

    /// The board is set up, or cannot be.
    pub(super) fn end_set_up(&self, board: Board, d: &mut Device) {
        let unavailable = matches!(board, Board::Unavailable);
        self.state().board = board;
        self.is_unavailable.store(unavailable, Ordering::Relaxed);
        d.notify_sleepers();
    }
}

/// On a counter board, broadcasts among this many ranks go by messages: a root need not wait until
/// a part of the board is free. With changing roots that is faster on 4 and 8 ranks of 2 cores, and
/// slower on 16 (docs/measured/collectives.md).
const BCAST_BY_MESSAGES_MAX_RANKS: u32 = 8;

/// Longest data of a call in the background that go through a flat board, bytes that a member
/// posts. Longer ones are as fast by messages, or faster (docs/measured/collectives.md).
const FLAT_MAX_BYTES: usize = 256;

/// Returns whether a call among `size` ranks goes through a flat board.
fn flat_board_serves(call: &BoardCall, size: u32) -> bool {
    size <= FLAT_MAX_RANKS && call.len <= FLAT_MAX_BYTES
}

/// Returns whether a call among `size` ranks goes through a counter board.
fn counter_board_serves(call: &BoardCall, size: u32) -> bool {
    match call.op {
        BoardOp::Bcast { .. } => size > BCAST_BY_MESSAGES_MAX_RANKS,
        op => !op.flat_only(),
    }
}

/// The board call of a collective that can go through a board in the background. All members
/// decide alike.
fn plan(collective: &Collective<'_>, b: &CollArgs<'_>, form: BoardForm) -> Option<BoardCall> {
    let comm = b.comm;
    let boards = &comm.coll.background_boards;
    if boards.of(form).is_unavailable()
        || comm.size() < 2
        || comm.is_inter()
        || !select::board_allowed(comm, collective.kind())
    {
        return None;
    }
    let call = plan_call(collective, comm.rank(), comm.size(), b.reduction)?;
    let served = flat_board_serves(&call, comm.size()) || counter_board_serves(&call, comm.size());
    let possible = || {
        let mut d = device::device();
        !d.is_virtual() && (0..comm.size()).all(|r| d.capabilities(comm.peer(r)).same_node)
    };
    (served && *boards.possible.get_or_init(possible)).then_some(call)
}

/// Parts of the board for each persistent operation. A choice: while others still read what it did
/// in its last run, a member can post in the next one.
const PARTS: u64 = 2;

/// Starts a collective through the communicator's board (MPI_I…). `to_cache` is the same call for
/// the request cache, `tag` takes its tag. `None`: it needs messages.
///
/// # Safety
/// As for [`BoundSchedule::start`].
pub(in crate::coll) unsafe fn start(
    collective: &Collective<'_>,
    to_cache: &CallToCache<'_>,
    tag: impl FnOnce() -> CollTag,
) -> Option<Arc<Request>> {
    const FORM: BoardForm = BoardForm::NonBlocking;
    let b = to_cache.args;
    let call = &plan(collective, b, FORM)?;
    let board = b.comm.coll.background_boards.of(FORM);
    let before = u64::from(SETUP_AFTER_CALLS - 1);
    let (ref phases, by_messages) = board.count(call, b.comm.size(), before)?;
    let tag = tag();
    let cache = &b.comm.coll.request_cache;
    let restart = |run: &BoardRun| run.restart(b, tag, phases);
    if !by_messages && let Some((request, run)) = cache.renew(to_cache, restart) {
        device::device().add_background(run);
        return Some(request);
    }
    let schedule = match by_messages {
        true => select::schedule(b.comm, collective),
        false => select::no_schedule(),
    };
    let bound = Arc::new(BoundSchedule::new(schedule, b, tag));
    let run = BoardRun::new(bound, FORM, *call, *phases);
    {
        let mut d = device::device();
        if by_messages {
            board.begin_set_up(b.comm, FORM, &mut d);
        }
        d.add_background(run.clone());
    }
    let request = Request::flagged(Some(b.comm.clone()), run);
    if !by_messages {
        cache.cache(to_cache, &request);
    }
    Some(request)
}

/// Makes an inactive persistent request whose collective goes through the communicator's board.
/// Otherwise gives back the schedule.
///
/// # Safety
/// As for [`BoundSchedule::init`].
pub(in crate::coll) unsafe fn init(
    collective: &Collective<'_>,
    b: &CollArgs<'_>,
    bound: BoundSchedule,
) -> std::result::Result<Arc<Request>, BoundSchedule> {
    const FORM: BoardForm = BoardForm::Persistent;
    let Some(call) = plan(collective, b, FORM).filter(|call| call.op.sets_up()) else {
        return Err(bound);
    };
    let board = b.comm.coll.background_boards.of(FORM);
    let Some((numbers, _)) = board.count(&call, b.comm.size(), 0) else {
        return Err(bound);
    };
    let numbers = numbers.map(|n| (n <= PHASES as u64 / PARTS).then_some(n));
    if numbers.counter.or(numbers.flat).is_none() {
        return Err(bound);
    }
    let mut runs = 0;
    let bound = Arc::new(bound);
    let mut by_messages = BoundSchedule::starter(bound.clone());
    let mut last: Option<Arc<BoardRun>> = None;
    // The caller's promise holds for each start.
    let starter = move |d: &mut Device| {
        let board = bound.comm().coll.background_boards.of(FORM);
        if board.is_unavailable() {
            return by_messages(d);
        }
        board.begin_set_up(bound.comm(), FORM, d);
        // Its parts in turn, each in the board's next round.
        let phases = numbers.map(|number| {
            Some(1 + runs / PARTS * PHASES as u64 + (number - 1) * PARTS + runs % PARTS)
        });
        runs += 1;
        let again = last.take().and_then(|run| run.again(phases));
        let run = again.unwrap_or_else(|| BoardRun::new(bound.clone(), FORM, call, phases));
        last = Some(run.clone());
        d.add_background(run.clone());
        Active::Work(run)
    };
    let comm = Some(b.comm.clone());
    Ok(Request::persistent_work(comm, Box::new(starter)))
}
