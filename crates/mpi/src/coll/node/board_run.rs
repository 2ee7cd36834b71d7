//! A collective in the background that goes through a board. The request and the device share it.

use super::background::{Board, BoardForm, ByBoardKind};
use super::background_flat;
use super::board_call::{BoardCall, BoardOp, own_length_error};
use super::slots::Slots;
use crate::coll::executor::{
    BackgroundRun, BoundSchedule, COUNTERS, CollArgs, CollTag, TmpBuffer, error_at_board,
};
use crate::device::{Awaited, Background, CounterBoardGroup, Device, UnorderedFlatGroup};
use crate::request::{Flag, Outcome, SuccessStatus, Work};
use crate::state_lock::{StateGuard, StateLock};
use crate::{Error, Result};
use ferry_job::RankStatus;
use std::sync::Arc;

/// A collective that has been started.
pub(super) struct BoardRun {
    flag: Flag,
    /// `None` once the program has completed the request.
    inner: StateLock<Option<Inner>>,
}

struct Inner {
    bound: Arc<BoundSchedule>,
    form: BoardForm,
    on_board: OnBoard,
    /// There is no board that serves it.
    by_messages: Option<Arc<BackgroundRun>>,
}

/// This member's part in a phase of a board.
struct OnBoard {
    call: BoardCall,
    phases: ByBoardKind,
    /// Its phases in its last run, if it is persistent: it is done with them before it is started
    /// again.
    phases_before: Option<ByBoardKind>,
    progress: Progress,
    /// What others wake this member for, on a counter board.
    awaited: Option<Awaited>,
    /// It waits on a flat board.
    waits: bool,
}

/// How far a member is in a phase.
pub(super) struct Progress {
    /// It has posted what it has for others.
    pub(super) posted: bool,
    pub(super) error: Option<Error>,
    /// The buffers have the right lengths so far.
    pub(super) fits: bool,
}

impl Progress {
    const NONE: Progress = Progress {
        posted: false,
        error: None,
        fits: true,
    };
}

impl BoardRun {
    /// A run in these phases.
    pub(super) fn new(
        bound: Arc<BoundSchedule>,
        form: BoardForm,
        call: BoardCall,
        phases: ByBoardKind,
    ) -> Arc<BoardRun> {
        let on_board = OnBoard {
            call,
            phases,
            phases_before: None,
            progress: Progress::NONE,
            awaited: None,
            waits: false,
        };
        let inner = Inner {
            bound,
            form,
            on_board,
            by_messages: None,
        };
        Arc::new(BoardRun {
            flag: Flag::default(),
            inner: StateLock::new(Some(inner)),
        })
    }

    /// Prepares another run, in these phases. `None`: this one has failed, or somebody else
    /// still knows it.
    pub(super) fn again(mut self: Arc<BoardRun>, phases: ByBoardKind) -> Option<Arc<BoardRun>> {
        let alone = Arc::get_mut(&mut self)?;
        if !alone.flag.has_ended_well() {
            return None;
        }
        alone.inner().as_mut()?.begin(phases);
        alone.flag.clear();
        Some(self)
    }

    /// Prepares another run on a board, in these phases. Its buffers differ from the last ones in
    /// their addresses only. The last run must have ended without error, and its request must be
    /// complete.
    pub(super) fn restart(&self, b: &CollArgs<'_>, tag: CollTag, phases: &ByBoardKind) {
        debug_assert!(self.flag.has_ended_well());
        if let Some(inner) = &mut *self.inner() {
            inner.begin(*phases);
            Arc::make_mut(&mut inner.bound).rebind(b, tag);
        }
        self.flag.clear();
    }

    #[inline]
    fn inner(&self) -> StateGuard<'_, Option<Inner>> {
        self.inner.lock()
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
    fn end_successful(&self, d: &mut Device) -> Option<SuccessStatus> {
        let has_ended_well = self.is_done(d) && self.has_ended_well();
        has_ended_well.then_some(SuccessStatus::Empty)
    }
    fn describe(&self, d: &mut Device, status: &RankStatus) {
        if let Some(inner) = &*self.inner() {
            inner.bound.describe(d, status);
        }
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
    /// Begins another run.
    fn begin(&mut self, phases: ByBoardKind) {
        self.by_messages = None;
        let on_board = &mut self.on_board;
        on_board.progress = Progress::NONE;
        let last = std::mem::replace(&mut on_board.phases, phases);
        on_board.phases_before = (self.form == BoardForm::Persistent).then_some(last);
    }

    /// Does what can be done now. Returns the result once all is done.
    fn advance(&mut self, d: &mut Device) -> Option<Result<()>> {
        if let Some(run) = &self.by_messages {
            return run
                .advance(d)
                .then(|| run.outcome().into_result().map(drop));
        }
        let Inner {
            bound,
            form,
            on_board,
            ..
        } = self;
        let comm = bound.comm();
        let mut state = comm.coll.background_boards.of(*form).state();
        let ByBoardKind { counter, flat } = on_board.phases;
        let ended = match (&mut state.board, counter, flat) {
            (Board::Untried | Board::SettingUp, ..) => return None,
            (Board::Failed(e), ..) => return Some(Err(e.clone())),
            (Board::Counter(group), Some(phase), _) => {
                on_board.advance_on_counter_board(group, phase, &bound.args(), d)
            }
            (Board::Flat(group), _, Some(phase)) => {
                on_board.advance_on_flat_board(group, phase, &bound.args(), d)
            }
            _ => {
                drop(state);
                self.by_messages = Some(BackgroundRun::shared(bound.clone()));
                return self.advance(d);
            }
        };
        if !ended {
            if !d.is_about_to_sleep() {
                return None;
            }
            // A member that goes by messages will not post.
            let error = error_at_board(comm, bound.tag(), on_board.call.len, d)?;
            on_board.stop_waiting(&state.board, d);
            state.board = Board::Failed(error.clone());
            return Some(Err(error));
        }
        COUNTERS.board.increment(d);
        let Progress { error, fits, .. } = &mut on_board.progress;
        if !*fits {
            error.get_or_insert_with(own_length_error);
        }
        Some(error.take().map_or(Ok(()), |e| Err(e.on(comm))))
    }
}

impl OnBoard {
    /// Does what can be done now in a phase of a flat board. Returns whether that was all.
    fn advance_on_flat_board(
        &mut self,
        group: &mut UnorderedFlatGroup,
        phase: u64,
        b: &CollArgs<'_>,
        d: &mut Device,
    ) -> bool {
        let before = self.phases_before.and_then(|before| before.flat);
        // SAFETY: the program lends the buffers until the operation has ended.
        let ended = unsafe {
            background_flat::advance(group, (phase, before), &self.call, b, &mut self.progress)
        };
        if self.waits == ended {
            self.waits = !ended;
            UnorderedFlatGroup::set_waiting(d, self.waits);
        }
        ended
    }

    /// It waits no longer, on this board.
    fn stop_waiting(&mut self, board: &Board, d: &mut Device) {
        if let Board::Counter(group) = board {
            self.set_awaited(group, d, None);
        }
        if std::mem::take(&mut self.waits) {
            UnorderedFlatGroup::set_waiting(d, false);
        }
    }

    /// Does what can be done now in a phase of a counter board. Returns whether that was all.
    fn advance_on_counter_board(
        &mut self,
        group: &CounterBoardGroup,
        phase: u64,
        b: &CollArgs<'_>,
        d: &mut Device,
    ) -> bool {
        while let Some(what) = self.exchange(group, phase, b, d) {
            // It may have come just before this member said that it waits.
            if !self.set_awaited(group, d, Some(what)) {
                return false;
            }
        }
        self.set_awaited(group, d, None);
        true
    }

    /// Goes on on a counter board as far as the other members let it. Returns what it waits for.
    /// `None`: all is done.
    fn exchange(
        &mut self,
        group: &CounterBoardGroup,
        phase: u64,
        b: &CollArgs<'_>,
        d: &Device,
    ) -> Option<Awaited> {
        let (me, call) = (b.comm.rank(), &self.call);
        let slots = Slots::new(group, b.comm.context, phase, call.posted(b.root));
        let is_bcast = matches!(call.op, BoardOp::Bcast { .. });
        let posts = !matches!(call.op, BoardOp::Bcast { root } if root != me);
        if posts && !self.progress.posted {
            if !group.is_free(phase) {
                return Some(Awaited::Part);
            }
            let input = b.buffers().locate(call.input, &mut TmpBuffer::new(0, None));
            if is_bcast {
                // SAFETY: in this phase only the root writes slot 0. The program lends the buffer.
                self.progress.fits = unsafe { slots.post_first(&input, &mut self.progress.error) };
                group.open_phase(d, phase);
                group.done_in(d, phase);
                return None;
            }
            // SAFETY: no other rank uses the slot until this rank has posted. The program lends
            // the buffer.
            self.progress.fits = unsafe { slots.post(me, &input) };
            self.progress.posted = true;
            if group.post_in(phase) {
                // SAFETY: all members have posted.
                unsafe { slots.combine(call, b, &mut self.progress.error) };
                group.open_phase(d, phase);
            }
        }
        if !group.is_open(phase) {
            return Some(Awaited::Data);
        }
        // SAFETY: the phase is open. The program lends the buffers until the operation has ended.
        self.progress.fits &= unsafe { slots.read(call, b, &mut self.progress.error) };
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
