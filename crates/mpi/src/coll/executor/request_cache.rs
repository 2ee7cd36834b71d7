//! The request cache: non-blocking collectives of a communicator that have ended. The next call
//! with the same arguments restarts one of them. Making and dropping a request takes longer than
//! starting a small collective.
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
use ferry_schedule::{Algorithm, Collective, NeighbourExchange};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of requests that a communicator caches. A choice: equal to the number of
/// schedules that it caches.
const CACHED_REQUESTS_MAX: usize = 8;

/// The operation of a call that is cached.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum CachedOperation {
    Collective(Collective<'static>),
    Exchange(NeighbourExchange),
}

/// What identifies a call on a communicator, but for the addresses of its buffers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct CacheKey {
    operation: CachedOperation,
    forced: Option<Algorithm>,
    /// Addresses of the objects: the buffers' types, the operation and its type; 0 for none.
    uses: [usize; 4],
}

impl CacheKey {
    /// The key of a call; `None` if it cannot be cached.
    #[inline]
    pub fn new(
        operation: CachedOperation,
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
            operation,
            forced,
            uses: [of(&b.send)?, of(&b.recv)?, op, element],
        })
    }
}

/// Returns whether all objects of the call are predefined. These exist as long as the process.
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
    /// The request of a [`BackgroundRun`]. Once the program has completed it, this is the only
    /// reference.
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
        let (request, run) = all.iter_mut().rev().find_map(|one| {
            if one.key != *key || !one.request.has_ended_well() {
                return None;
            }
            // Fails if the program has not completed it: then it holds a reference, too.
            let run: Arc<BackgroundRun> = Arc::get_mut(&mut one.request)?.renew()?;
            run.restart(b, CollTag::next(b.comm, function, b.root));
            Some((one.request.clone(), run))
        })?;
        drop(all);
        device::device().add_background(run);
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
        // A communicator without a handle is never freed. Its cache would never be cleared.
        let cacheable =
            b.comm.identity.bits() != 0 && uses_only_predefined(b) && bound.is_cacheable();
        // SAFETY: the caller's promise.
        let request = unsafe { bound.start() };
        if cacheable {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = (all.len() == CACHED_REQUESTS_MAX).then(|| all.remove(0));
            all.push(CachedRequest {
                key,
                request: request.clone(),
            });
            drop(all);
            drop(oldest);
        }
        request
    }

    /// Drops all requests, when the communicator has been freed.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}
