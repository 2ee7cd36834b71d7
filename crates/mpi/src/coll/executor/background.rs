//! A collective in the background. One allocation holds its schedule, its progress and its outcome.
//! The request and the device share it.
//!
//! The device advances it under its lock, in the program's threads or in the progress thread. The
//! program's thread drops the communicator, the datatypes and the schedule when it completes the
//! request. The progress thread never frees these objects. Their reference counts stay in the cache
//! of the program's core.

use super::CollArgs;
use super::bound_schedule::BoundSchedule;
use super::run::{INLINE_WORK_MAX_BYTES, Run, RunState, WorkPolicy, bytes, takes_long};
use super::tag::CollTag;
use crate::device::{Background, Device};
use crate::request::{Flag, Outcome, SuccessStatus, Work};
use ferry_job::RankStatus;
use ferry_schedule::Step;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::Arc;

/// The schedule of a run, and how often it runs.
pub(super) enum Bound {
    /// It runs once (MPI_I…).
    Once(BoundSchedule),
    /// Starts of a persistent collective.
    Persistent(Arc<BoundSchedule>),
}

impl Deref for Bound {
    type Target = BoundSchedule;
    fn deref(&self) -> &BoundSchedule {
        match self {
            Bound::Once(schedule) => schedule,
            Bound::Persistent(schedule) => schedule,
        }
    }
}

/// A collective that has been started.
pub(crate) struct BackgroundRun {
    pub(crate) flag: Flag,
    /// `None` once the program has completed the request.
    inner: UnsafeCell<Option<Inner>>,
}

struct Inner {
    bound: Bound,
    run: Run,
    /// Steps up to and with the last one that sends or that takes long.
    urgent_until: usize,
}

// SAFETY: until the flag is set `inner` is reached only with exclusive use of the device
// (`advance`, `is_urgent`), from then on only by the program, which completes or frees a request
// once (`release`), or starts it again when that request is its alone (`renew`). The buffers are
// the program's, lent to the operation.
unsafe impl Send for BackgroundRun {}
// SAFETY: as above.
unsafe impl Sync for BackgroundRun {}

impl BackgroundRun {
    pub(super) fn new(bound: Bound) -> Arc<BackgroundRun> {
        let (s, b) = (&bound.schedule, bound.args());
        let is_urgent = |step: &Step| match *step {
            Step::Send { .. } => true,
            Step::Reduce { into, .. } => takes_long(&b, step, into),
            Step::Copy { into, .. } => bytes(&b, into) as i64 > INLINE_WORK_MAX_BYTES,
            Step::Recv { .. } | Step::Await { .. } => false,
        };
        let urgent_until = s.steps.iter().rposition(is_urgent).map_or(0, |at| at + 1);
        let run = Run::new(s, &b, bound.tag());
        let inner = UnsafeCell::new(Some(Inner {
            bound,
            run,
            urgent_until,
        }));
        Arc::new(BackgroundRun {
            flag: Flag::default(),
            inner,
        })
    }

    /// A run of a schedule that others use as well.
    pub(crate) fn shared(bound: Arc<BoundSchedule>) -> Arc<BackgroundRun> {
        BackgroundRun::new(Bound::Persistent(bound))
    }

    /// Completes a collective whose schedule has no steps.
    pub(crate) fn complete(&self) {
        self.flag.set(Ok(()));
    }

    /// The state of the run, if the run has ended.
    ///
    /// # Safety
    /// Only the caller and the device may use this value.
    #[allow(clippy::mut_from_ref)] // the caller's promise
    unsafe fn ended(&self) -> Option<&mut Option<Inner>> {
        // SAFETY: the run has ended, so that the device does not look here any more; the rest is
        // the caller's promise.
        self.flag
            .is_set()
            .then(|| unsafe { &mut *self.inner.get() })
    }

    /// Prepares another run of a persistent collective. `None`: this run has failed, or
    /// somebody else still knows it.
    pub(super) fn again(mut self: Arc<BackgroundRun>) -> Option<Arc<BackgroundRun>> {
        let alone = Arc::get_mut(&mut self)?;
        let Inner { bound, run, .. } = alone.inner.get_mut().as_mut()?;
        if !alone.flag.has_ended_well() {
            return None;
        }
        run.reset(bound.tag());
        alone.flag.clear();
        Some(self)
    }

    /// Prepares another run. Its buffers differ from the last ones in their addresses only. The
    /// last run must have ended without error, and its request must be complete.
    pub(super) fn restart(&self, b: &CollArgs<'_>, tag: CollTag) {
        debug_assert!(self.flag.has_ended_well());
        // SAFETY: the program starts it in one thread: it is the communicator's list that calls
        // this, under its lock, for a request that nobody else knows.
        if let Some(Some(Inner { bound, run, .. })) = unsafe { self.ended() } {
            if let Bound::Once(bound) = bound {
                bound.rebind(b, tag);
            }
            run.reset(tag);
        }
        self.flag.clear();
    }
}

impl Background for BackgroundRun {
    fn is_urgent(&self, _exclusive: &Device) -> bool {
        // SAFETY: the device is the caller's, and the run has not ended: the device asks of nothing
        // else.
        let inner = unsafe { &*self.inner.get() };
        inner
            .as_ref()
            .is_some_and(|i| i.run.next_step < i.urgent_until)
    }

    fn advance(&self, d: &mut Device) -> bool {
        // SAFETY: the device is the caller's alone, and the run has not ended: the device advances
        // nothing else.
        let Some(Inner { bound, run, .. }) = (unsafe { &mut *self.inner.get() }) else {
            return true;
        };
        let b: CollArgs<'_> = bound.args();
        // SAFETY: the caller of the collective keeps the buffers until it has ended. The run does
        // not move: it is behind an Arc.
        if unsafe { run.advance(&bound.schedule, &b, d, WorkPolicy::ProgressThread) }
            != RunState::Done
        {
            return false;
        }
        let result = run.take_error().map_or(Ok(()), Err);
        d.notify_sleepers();
        // From here on `inner` belongs to the program.
        self.flag.set(result);
        true
    }
}

impl Work for BackgroundRun {
    fn is_done(&self, d: &mut Device) -> bool {
        self.flag.is_done(d)
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        self.flag.must_be_completed()
    }
    fn end_successful(&self, _d: &mut Device) -> Option<SuccessStatus> {
        self.has_ended_well().then_some(SuccessStatus::Empty)
    }
    fn describe(&self, d: &mut Device, status: &RankStatus) {
        // SAFETY: the run has not ended, and the device is the caller's alone.
        if let Some(Inner { bound, .. }) = unsafe { &*self.inner.get() } {
            bound.describe(d, status);
        }
    }
    fn outcome(&self) -> Outcome {
        self.flag.outcome()
    }
    fn has_ended_well(&self) -> bool {
        self.flag.has_ended_well()
    }
    fn release(&self) {
        // SAFETY: only the program calls this, when it has done with the request, which it does in
        // one thread at a time (MPI 5.0 §11.6.1).
        if let Some(inner) = unsafe { self.ended() } {
            *inner = None;
        }
    }
}
