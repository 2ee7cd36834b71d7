//! Non-blocking and persistent collectives through counter boards. The device advances them in the
//! background, and nobody waits here.
//!
//! A communicator has two boards for them, apart from that of its blocking collectives. A
//! non-blocking call's phase is its number among those calls, which all members make in the same
//! order. Several can be under way. One that finds its part of the board in use posts later.
//!
//! Persistent operations may be started in another order on each member (MPI 5.0 §6.13). So each
//! has [`PARTS`] parts of the board for itself, in the order in which they were made.

use super::background_set_up::SetUp;
use super::board_call::{BoardCall, BoardOp, own_length_error, plan_call};
use super::slots::Slots;
use super::{SETUP_AFTER_CALLS, select};
use crate::coll::executor::{BackgroundRun, BoundSchedule, COUNTERS, CollArgs, TmpBuffer};
use crate::device::{self, Awaited, Background, CounterBoardGroup, Device, PHASES};
use crate::request::{Active, Flag, Outcome, Request, Work};
use crate::{Comm, Error, Result};
use ferry_schedule::Collective;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls so far that could have used the board.
    calls: u64,
    board: Board,
}

#[derive(Default)]
pub(super) enum Board {
    #[default]
    Untried,
    SettingUp,
    Unavailable,
    /// The members could not agree.
    Failed(Error),
    Ready(CounterBoardGroup),
}

impl BackgroundBoards {
    pub(super) fn of(&self, form: BoardForm) -> &BackgroundBoard {
        &self.boards[form as usize]
    }
}

impl BackgroundBoard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_unavailable(&self) -> bool {
        self.is_unavailable.load(Ordering::Relaxed)
    }

    /// Counts a call. Returns how many came before, and whether the board is set up.
    fn count(&self) -> (u64, bool) {
        let mut state = self.state();
        state.calls += 1;
        (state.calls - 1, matches!(state.board, Board::Ready(_)))
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

/// Broadcasts in the background among this many ranks go by messages: a root need not wait until a
/// part of the board is free. With changing roots that is faster on 4 and 8 ranks of 2 cores, and
/// slower on 16 (docs/measured/collectives.md).
const BCAST_BY_MESSAGES_MAX_RANKS: u32 = 8;

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
    let possible = || {
        let mut d = device::device();
        !d.is_virtual() && (0..comm.size()).all(|r| d.capabilities(comm.peer(r)).same_node)
    };
    let by_messages = match call.op {
        BoardOp::Bcast { .. } => comm.size() <= BCAST_BY_MESSAGES_MAX_RANKS,
        op => op.flat_only(),
    };
    (!by_messages && *boards.possible.get_or_init(possible)).then_some(call)
}

/// Parts of the board for each persistent operation. A choice: while others still read what it did
/// in its last run, a member can post in the next one.
const PARTS: u64 = 2;

/// Whether a collective may yet go by messages, and so needs its schedule.
pub(in crate::coll) type NeedsSchedule = bool;

/// Starts a collective through the communicator's board (MPI_I…). `None`: it needs messages.
///
/// # Safety
/// As for [`BoundSchedule::start`], of what `bind` gives. It is asked for the schedule only if the
/// board may turn out not to be there.
pub(in crate::coll) unsafe fn start(
    collective: &Collective<'_>,
    b: &CollArgs<'_>,
    bind: impl FnOnce(NeedsSchedule) -> BoundSchedule,
) -> Option<Arc<Request>> {
    let call = plan(collective, b, BoardForm::NonBlocking)?;
    let board = b.comm.coll.background_boards.of(BoardForm::NonBlocking);
    let before = u64::from(SETUP_AFTER_CALLS - 1);
    let (calls, is_ready) = board.count();
    let phase = 1 + calls.checked_sub(before)?;
    let bound = Arc::new(bind(!is_ready));
    let run = BoardRun::new(bound, BoardForm::NonBlocking, call, phase);
    let mut d = device::device();
    board.begin_set_up(b.comm, BoardForm::NonBlocking, &mut d);
    d.add_background(run.clone());
    drop(d);
    Some(Request::flagged(Some(b.comm.clone()), run))
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
    let Some(call) = plan(collective, b, FORM) else {
        return Err(bound);
    };
    let (number, _) = b.comm.coll.background_boards.of(FORM).count();
    if number >= PHASES as u64 / PARTS {
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
        let phase = 1 + runs / PARTS * PHASES as u64 + number * PARTS + runs % PARTS;
        runs += 1;
        let again = last.take().and_then(|run| run.again(phase));
        let run = again.unwrap_or_else(|| BoardRun::new(bound.clone(), FORM, call, phase));
        last = Some(run.clone());
        d.add_background(run.clone());
        Active::Work(run)
    };
    let comm = Some(b.comm.clone());
    Ok(Request::persistent_work(comm, Box::new(starter)))
}

/// A collective that has been started.
struct BoardRun {
    flag: Flag,
    /// `None` once the program has completed the request.
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    bound: Arc<BoundSchedule>,
    form: BoardForm,
    call: BoardCall,
    phase: u64,
    stage: Stage,
    error: Option<Error>,
    /// The buffers have the right lengths so far.
    fits: bool,
    /// What others wake this member for.
    awaited: Option<Awaited>,
}

enum Stage {
    /// This member has not posted.
    Begun,
    /// It has posted.
    Posted,
    /// There is no board.
    ByMessages(Arc<BackgroundRun>),
}

impl BoardRun {
    fn new(
        bound: Arc<BoundSchedule>,
        form: BoardForm,
        call: BoardCall,
        phase: u64,
    ) -> Arc<BoardRun> {
        let inner = Inner {
            bound,
            form,
            call,
            phase,
            stage: Stage::Begun,
            error: None,
            fits: true,
            awaited: None,
        };
        Arc::new(BoardRun {
            flag: Flag::default(),
            inner: Mutex::new(Some(inner)),
        })
    }

    /// Prepares another run, in this phase. `None`: this one has failed, or somebody else
    /// still knows it.
    fn again(mut self: Arc<BoardRun>, phase: u64) -> Option<Arc<BoardRun>> {
        let alone = Arc::get_mut(&mut self)?;
        let inner = alone
            .inner
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let inner = inner.as_mut()?;
        if !alone.flag.has_ended_well() {
            return None;
        }
        (inner.stage, inner.phase, inner.fits) = (Stage::Begun, phase, true);
        alone.flag.clear();
        Some(self)
    }

    fn inner(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background for BoardRun {
    fn advance(&self, d: &mut Device) -> bool {
        if self.flag.is_set() {
            return true;
        }
        let ended = match &mut *self.inner() {
            Some(inner) => inner.advance(d),
            None => return true,
        };
        let Some(result) = ended else { return false };
        d.notify_sleepers();
        self.flag.set(result);
        true
    }

    /// What it does next may let others go on, but only those that this rank has kept waiting in
    /// an earlier collective.
    fn is_urgent(&self, _exclusive: &Device) -> bool {
        false
    }
}

impl Work for BoardRun {
    fn is_done(&self, d: &mut Device) -> bool {
        if self.flag.is_set() {
            return true;
        }
        let done = self.advance(d);
        if done {
            d.drop_background(std::ptr::from_ref(self).cast());
        }
        done
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        self.flag.must_be_completed()
    }
    fn outcome(&self) -> Outcome {
        self.flag.outcome()
    }
    fn has_ended_well(&self) -> bool {
        self.flag.has_ended_well()
    }
    fn release(&self) {
        if self.flag.is_set() {
            let ended = self.inner().take();
            drop(ended);
        }
    }
}

impl Inner {
    /// Does what can be done now. Returns the result once all is done.
    fn advance(&mut self, d: &mut Device) -> Option<Result<()>> {
        if let Stage::ByMessages(run) = &self.stage {
            return run
                .advance(d)
                .then(|| run.outcome().into_result().map(drop));
        }
        let bound = self.bound.clone();
        let comm = bound.comm();
        let state = comm.coll.background_boards.of(self.form).state();
        let group = match &state.board {
            Board::Untried | Board::SettingUp => return None,
            Board::Failed(e) => return Some(Err(e.clone())),
            Board::Unavailable => {
                drop(state);
                self.stage = Stage::ByMessages(BackgroundRun::shared(bound.clone()));
                return self.advance(d);
            }
            Board::Ready(group) => group,
        };
        let b = bound.args();
        while let Some(what) = self.exchange(group, &b, d) {
            // It may have come just before this member said that it waits.
            if !self.set_awaited(group, d, Some(what)) {
                return None;
            }
        }
        self.set_awaited(group, d, None);
        COUNTERS.board.increment(d);
        if !self.fits {
            self.error.get_or_insert_with(own_length_error);
        }
        Some(self.error.take().map_or(Ok(()), |e| Err(e.on(comm))))
    }

    /// Goes on as far as the other members let it. Returns what it waits for. `None`: all is done.
    fn exchange(
        &mut self,
        group: &CounterBoardGroup,
        b: &CollArgs<'_>,
        d: &Device,
    ) -> Option<Awaited> {
        let (phase, me, call) = (self.phase, b.comm.rank(), &self.call);
        let slots = Slots::new(group, b.comm.context, phase, call.posted(b.root));
        let is_bcast = matches!(call.op, BoardOp::Bcast { .. });
        let posts = !matches!(call.op, BoardOp::Bcast { root } if root != me);
        if posts && matches!(self.stage, Stage::Begun) {
            if !group.is_free(phase) {
                return Some(Awaited::Part);
            }
            let input = b.buffers().locate(call.input, &mut TmpBuffer::new(0, None));
            if is_bcast {
                // SAFETY: in this phase only the root writes slot 0. The program lends the buffer.
                self.fits = unsafe { slots.post_first(&input, &mut self.error) };
                group.open_phase(d, phase);
                group.done_in(d, phase);
                return None;
            }
            // SAFETY: no other rank uses the slot until this rank has posted. The program lends
            // the buffer.
            self.fits = unsafe { slots.post(me, &input) };
            self.stage = Stage::Posted;
            if group.post_in(phase) {
                // SAFETY: all members have posted.
                unsafe { slots.combine(call, b, &mut self.error) };
                group.open_phase(d, phase);
            }
        }
        if !group.is_open(phase) {
            return Some(Awaited::Data);
        }
        // SAFETY: the phase is open. The program lends the buffers until the operation has ended.
        self.fits &= unsafe { slots.read(call, b, &mut self.error) };
        if is_bcast {
            group.done_in(d, phase);
        } else {
            group.read_in(d, phase);
        }
        None
    }

    /// Sets what others wake this member for. Returns false if that was set already.
    fn set_awaited(
        &mut self,
        group: &CounterBoardGroup,
        d: &mut Device,
        now: Option<Awaited>,
    ) -> bool {
        if self.awaited == now {
            return false;
        }
        if let Some(what) = now {
            group.begin_wait(d, what);
        }
        if let Some(what) = std::mem::replace(&mut self.awaited, now) {
            group.end_wait(d, what);
        }
        true
    }
}
