//! A collective in the background: its run, with all that it needs, and its end, in one piece of
//! memory that its request and the device share.
//!
//! The device advances it under its lock, in the program's threads or in the progress thread. What
//! it uses (communicator, datatypes, schedule) is let go of by the program, when it has done with
//! the request: so a thread of the library's never has the last word on these, and the counts of
//! their users stay in the cache of the program's core.

use super::Binding;
use super::lasting::Lasting;
use super::run::{LONG, Labour, Run, Stand, bytes, takes_long};
use super::tag::Number;
use crate::Result;
use crate::device::{Background, Device};
use crate::request::{Flag, Outcome, Work};
use ferry_schedule::Step;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::Arc;

/// What is run.
pub(crate) enum What {
    /// Once (MPI_I…).
    Once(Lasting),
    /// One run of a persistent collective.
    Again(Arc<Lasting>),
}

impl Deref for What {
    type Target = Lasting;
    fn deref(&self) -> &Lasting {
        match self {
            What::Once(what) => what,
            What::Again(what) => what,
        }
    }
}

/// A collective that has been started.
pub(crate) struct Started {
    pub(crate) flag: Flag,
    /// `None` once the program has done with it.
    inner: UnsafeCell<Option<Inner>>,
}

struct Inner {
    what: What,
    run: Run,
    /// From this step on nothing is sent any more, and no step takes long.
    last: usize,
}

// SAFETY: until the flag is set `inner` is reached only with exclusive use of the device
// (`advance`, `is_urgent`), from then on only by the program, which completes or frees a request once
// (`release`), or starts it again when that request is its alone (`renew`). The buffers are the
// program's, lent to the operation.
unsafe impl Send for Started {}
// SAFETY: as above.
unsafe impl Sync for Started {}

impl Started {
    pub(crate) fn new(what: What) -> Arc<Started> {
        let (s, b) = (&what.schedule, what.binding());
        let is_urgent = |step: &Step| match *step {
            Step::Send { .. } => true,
            Step::Reduce { into, .. } => takes_long(&b, step, into),
            Step::Copy { into, .. } => bytes(&b, into) as i64 > LONG,
            Step::Recv { .. } | Step::Await { .. } => false,
        };
        let last = s.steps.iter().rposition(is_urgent).map_or(0, |at| at + 1);
        let run = Run::new(s, &b, what.number());
        let inner = UnsafeCell::new(Some(Inner { what, run, last }));
        Arc::new(Started {
            flag: Flag::default(),
            inner,
        })
    }

    /// There was nothing to do.
    pub(crate) fn end_at_once(&self) {
        self.flag.set(Ok(()));
    }

    /// What is within, if it has ended.
    ///
    /// # Safety
    /// The caller is alone with it but for the device.
    #[allow(clippy::mut_from_ref)] // the caller's promise
    unsafe fn ended(&self) -> Option<&mut Option<Inner>> {
        // SAFETY: the run has ended, so that the device does not look here any more; the rest is
        // the caller's promise.
        self.flag
            .is_set()
            .then(|| unsafe { &mut *self.inner.get() })
    }

    /// It is to be done once more, with these buffers, which are like those before but for their
    /// addresses. It has ended well, and the program has done with its request.
    pub(crate) fn renew(&self, b: &Binding<'_>, number: Number) {
        debug_assert!(self.flag.has_ended_well());
        // SAFETY: the program starts it in one thread: it is the communicator's list that calls
        // this, under its lock, for a request that nobody else knows.
        if let Some(Some(Inner { what, run, .. })) = unsafe { self.ended() } {
            if let What::Once(what) = what {
                what.renew(b, number);
            }
            run.renew(number);
        }
        self.flag.clear();
    }
}

impl Background for Started {
    fn is_urgent(&self, _exclusive: &Device) -> bool {
        // SAFETY: the device is the caller's, and the run has not ended: the device asks of nothing
        // else.
        let inner = unsafe { &*self.inner.get() };
        inner.as_ref().is_some_and(|i| i.run.at < i.last)
    }

    fn advance(&self, d: &mut Device) -> bool {
        // SAFETY: the device is the caller's alone, and the run has not ended: the device advances
        // nothing else.
        let Some(Inner { what, run, .. }) = (unsafe { &mut *self.inner.get() }) else {
            return true;
        };
        let b: Binding<'_> = what.binding();
        // SAFETY: whoever started this keeps the buffers for it; the run stays where it is, behind
        // an Arc.
        if unsafe { run.advance(&what.schedule, &b, d, Labour::Thread) } != Stand::Done {
            return false;
        }
        let result = run.error().map_or(Ok(()), Err);
        d.notify_sleepers();
        // From here on all that is within is the program's.
        self.flag.set(result);
        true
    }
}

impl Work for Started {
    fn is_done(&self, d: &mut Device) -> bool {
        self.flag.is_done(d)
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        self.flag.must_be_completed()
    }
    fn outcome(&self) -> Outcome {
        self.flag.outcome()
    }
    fn free(&self) -> Result<()> {
        // SAFETY: only the program calls this, as for `release`.
        let inner = unsafe { self.ended() };
        // What is done once may be done again: its request lets go of it.
        if inner.is_some_and(|i| i.as_ref().is_some_and(|i| matches!(i.what, What::Again(_)))) {
            self.release();
        }
        Ok(())
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
