//! Non-blocking collectives that have ended, cached by their communicator. The next call like one
//! of them restarts it. To make a request anew, and to take it apart, takes longer than to start a
//! small collective.
//!
//! Only requests that use predefined types and operations are cached: these are never freed.
//! Nothing is cached once the program has freed the communicator.

use super::CollArgs;
use super::background::BackgroundRun;
use super::bound_schedule::BoundSchedule;
use super::signature::Function;
use super::tag::CollTag;
use super::view::View;
use crate::device;
use crate::request::Request;
use ferry_schedule::{Algorithm, Collective};
use std::sync::{Arc, Mutex, PoisonError};

/// Most requests that a communicator caches. As many as it caches schedules; not measured.
const CACHED_REQUESTS_MAX: usize = 8;

/// What two calls on a communicator have in common if they differ in their buffers' addresses only.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct CacheKey {
    collective: Collective<'static>,
    forced: Option<Algorithm>,
    /// Addresses of the objects: the buffers' types, the operation and its type; 0 for none.
    uses: [usize; 4],
}

impl CacheKey {
    /// The key of a call; `None` if it cannot be cached.
    #[inline]
    pub fn new(
        collective: &Collective<'_>,
        forced: Option<Algorithm>,
        b: &CollArgs<'_>,
    ) -> Option<CacheKey> {
        let of = |view: &View<'_>| match view {
            View::Nothing => Some(0),
            View::Uniform { datatype, .. } => Some(Arc::as_ptr(datatype).addr()),
            View::Blocks(_) => None,
        };
        let (op, element) = b.reduction.map_or((0, 0), |(op, t)| {
            (Arc::as_ptr(op).addr(), Arc::as_ptr(t).addr())
        });
        Some(CacheKey {
            collective: collective.owned()?,
            forced,
            uses: [of(&b.send)?, of(&b.recv)?, op, element],
        })
    }
}

/// Returns whether all that it uses exists as long as the process.
fn uses_only_predefined(b: &CollArgs<'_>) -> bool {
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

struct CachedRequest {
    key: CacheKey,
    /// Of a [`BackgroundRun`]. The only reference to it once the program has completed it.
    request: Arc<Request>,
}

/// The cached requests of a communicator.
#[derive(Default)]
pub(crate) struct RequestCache(Mutex<Vec<CachedRequest>>);

impl RequestCache {
    /// Restarts a cached collective with this key, if there is one that has ended.
    ///
    /// # Safety
    /// As for [`BoundSchedule::start`].
    #[inline]
    pub(crate) unsafe fn restart(
        &self,
        key: &CacheKey,
        b: &CollArgs<'_>,
        function: Function,
    ) -> Option<Arc<Request>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (request, started) = all.iter_mut().rev().find_map(|one| {
            if one.key != *key || !one.request.has_ended_well() {
                return None;
            }
            // The program has completed it: nobody else has a reference.
            let started: Arc<BackgroundRun> = Arc::get_mut(&mut one.request)?.renew()?;
            started.restart(b, CollTag::next(b.comm, function, b.root));
            Some((one.request.clone(), started))
        })?;
        drop(all);
        device::device().add_background(started);
        Some(request)
    }

    /// Starts a collective, and caches its request if that is allowed.
    ///
    /// # Safety
    /// As for [`BoundSchedule::start`].
    pub(crate) unsafe fn start_and_cache(
        &self,
        key: CacheKey,
        b: &CollArgs<'_>,
        bound: BoundSchedule,
    ) -> Arc<Request> {
        // A communicator without a handle is never freed, and so its cache never cleared.
        let cacheable =
            b.comm.identity.bits() != 0 && uses_only_predefined(b) && bound.is_cacheable();
        // SAFETY: the caller's promise.
        let request = unsafe { bound.start() };
        if cacheable {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = (all.len() == CACHED_REQUESTS_MAX).then(|| all.remove(0));
            all.push(CachedRequest {
                key,
                request: request.clone(),
            });
            drop(all);
            drop(gone);
        }
        request
    }

    /// Drops all: the communicator has been freed.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}
