//! Non-blocking collectives that have ended, kept by their communicator: the next call like one of
//! them starts it again. To make one anew, with a request and a user more of all that it uses, and
//! to take it apart, takes longer than to start a small one.
//!
//! Only what uses predefined types and operations is kept, which end with nobody, and nothing once
//! the program has freed the communicator.

use super::Binding;
use super::background::Started;
use super::lasting::Lasting;
use super::tag::{Function, Number};
use super::view::View;
use crate::device;
use crate::request::Request;
use ferry_schedule::{Algorithm, Collective};
use std::sync::{Arc, Mutex, PoisonError};

/// More than these a communicator does not keep.
const MOST: usize = 8;

/// What makes two calls on a communicator alike, but for where their buffers are.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Like {
    what: Collective<'static>,
    asked: Option<Algorithm>,
    /// Addresses of the objects: the buffers' types, the operation and its type; 0 for none.
    uses: [usize; 4],
}

impl Like {
    /// Of a call that may be kept, as far as one can tell without looking at what it uses.
    #[inline]
    pub fn new(what: &Collective<'_>, asked: Option<Algorithm>, b: &Binding<'_>) -> Option<Like> {
        let of = |view: &View<'_>| match view {
            View::Nothing => Some(0),
            View::Uniform { datatype, .. } => Some(Arc::as_ptr(datatype).addr()),
            View::Blocks(_) => None,
        };
        let (op, element) = b.reduction.map_or((0, 0), |(op, t)| {
            (Arc::as_ptr(op).addr(), Arc::as_ptr(t).addr())
        });
        Some(Like {
            what: what.owned()?,
            asked,
            uses: [of(&b.send)?, of(&b.recv)?, op, element],
        })
    }
}

/// Is all that it uses there as long as the process is?
fn lasts(b: &Binding<'_>) -> bool {
    let view = |view: &View<'_>| match view {
        View::Nothing => true,
        View::Uniform { datatype, .. } => datatype.is_predefined(),
        View::Blocks(_) => false,
    };
    let reduction = b
        .reduction
        .is_none_or(|(op, t)| op.predefined_kind().is_some() && t.is_predefined());
    view(&b.send) && view(&b.recv) && reduction
}

struct One {
    like: Like,
    /// The only reference while the program does not have it. Of a [`Started`].
    request: Arc<Request>,
}

/// The collectives that a communicator keeps to start them again.
#[derive(Default)]
pub(crate) struct KeptCollectives(Mutex<Vec<One>>);

impl KeptCollectives {
    /// Starts a collective like one of them, if there is one that has ended.
    ///
    /// # Safety
    /// As for [`Lasting::start`].
    #[inline]
    pub(crate) unsafe fn start(
        &self,
        like: &Like,
        b: &Binding<'_>,
        function: Function,
    ) -> Option<Arc<Request>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (request, started) = all.iter_mut().rev().find_map(|one| {
            if one.like != *like || !one.request.has_ended_well() {
                return None;
            }
            // The program has done with it: nobody else knows the request.
            let started: Arc<Started> = Arc::get_mut(&mut one.request)?.renew()?;
            started.renew(b, Number::next(b.comm, function));
            Some((one.request.clone(), started))
        })?;
        drop(all);
        device::device().add_background(started);
        Some(request)
    }

    /// Starts one for the first time, and keeps it if it may be.
    ///
    /// # Safety
    /// As for [`Lasting::start`].
    pub(crate) unsafe fn start_new(
        &self,
        like: Like,
        b: &Binding<'_>,
        lasting: Lasting,
    ) -> Arc<Request> {
        // A communicator that the program has no handle of is freed by nobody.
        let keeps = b.comm.identity.bits() != 0 && lasts(b) && lasting.is_small();
        // SAFETY: the caller's promise.
        let request = unsafe { lasting.start() };
        if keeps {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = (all.len() == MOST).then(|| all.remove(0));
            all.push(One {
                like,
                request: request.clone(),
            });
            drop(all);
            drop(gone);
        }
        request
    }

    /// Lets go of all: its communicator has been freed.
    pub(crate) fn forget(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}
