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
use crate::request::{Request, Work};
use ferry_schedule::{Algorithm, Collective, NeighbourExchange};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of requests that a communicator caches. A choice: equal to the number of
/// schedules that it caches.
const CACHED_REQUESTS_MAX: usize = 8;

/// The operation of a call that is cached.
#[derive(Clone, Copy, PartialEq)]
enum CachedOperation {
    Collective(Collective<'static>),
    Exchange(NeighbourExchange),
}

/// The operation of a call.
#[derive(Clone, Copy)]
pub(crate) enum Operation<'a> {
    Collective(&'a Collective<'a>),
    Exchange(&'a NeighbourExchange),
}

/// A call, as the cache looks for it: by all but the addresses of its buffers. It is compared where
/// it lies: a copy would wait for the stores that have just made the call.
#[derive(Clone, Copy)]
pub(crate) struct CallToCache<'a> {
    pub operation: Operation<'a>,
    /// The algorithm that the program or the user has set.
    pub forced: Option<Algorithm>,
    pub args: &'a CollArgs<'a>,
}

/// What identifies a cached call on its communicator.
#[derive(PartialEq)]
struct CacheKey {
    operation: CachedOperation,
    forced: Option<Algorithm>,
    uses: Uses,
}

/// Addresses of the objects: the buffers' types, the operation and its type; 0 for none.
type Uses = [usize; 4];

impl CallToCache<'_> {
    /// The objects that the call uses; `None` if it cannot be cached.
    #[inline]
    fn uses(&self) -> Option<Uses> {
        let b = self.args;
        let of = |view: &View<'_>| match view {
            View::Nothing => Some(0),
            View::Uniform { datatype, .. } => Some(Arc::as_ptr(datatype).addr()),
            View::Blocks(_) => None,
        };
        let (op, element) = b.reduction.map_or((0, 0), |(op, t)| {
            (Arc::as_ptr(op).addr(), Arc::as_ptr(t).addr())
        });
        Some([of(&b.send)?, of(&b.recv)?, op, element])
    }

    /// Its key; `None` if it cannot be cached.
    fn key(&self) -> Option<CacheKey> {
        let operation = match self.operation {
            Operation::Collective(c) => CachedOperation::Collective(c.owned()?),
            Operation::Exchange(e) => CachedOperation::Exchange(*e),
        };
        Some(CacheKey {
            operation,
            forced: self.forced,
            uses: self.uses()?,
        })
    }

    /// Returns whether this is its key. `uses`: [those](CallToCache::uses) of the call.
    #[inline]
    fn has(&self, key: &CacheKey, uses: &Uses) -> bool {
        let is_same = match (&key.operation, self.operation) {
            (CachedOperation::Collective(a), Operation::Collective(b)) => a == b,
            (CachedOperation::Exchange(a), Operation::Exchange(b)) => a == b,
            _ => false,
        };
        is_same && key.forced == self.forced && key.uses == *uses
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
    /// The request of a [`BackgroundRun`], or of a run on a board. Once the program has completed
    /// it, this is the only reference.
    request: Arc<Request>,
}

/// The cached requests of a communicator.
#[derive(Default)]
pub(crate) struct RequestCache(Mutex<Vec<CachedRequest>>);

impl RequestCache {
    /// The cached request of such a call whose work is a `W`, and that work, if there is one that
    /// has ended. The request is active again; `prepare` is called with its work, which the caller
    /// starts.
    #[inline]
    pub(crate) fn renew<W: Work>(
        &self,
        call: &CallToCache<'_>,
        prepare: impl FnOnce(&W),
    ) -> Option<(Arc<Request>, Arc<W>)> {
        let uses = call.uses()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (request, work) = all.iter_mut().rev().find_map(|one| {
            if !call.has(&one.key, &uses) || !one.request.has_ended_well() {
                return None;
            }
            // Fails if the program has not completed it: then it holds a reference, too.
            let work: Arc<W> = Arc::get_mut(&mut one.request)?.renew()?;
            Some((one.request.clone(), work))
        })?;
        prepare(&work);
        Some((request, work))
    }

    /// Restarts such a collective by messages, if there is one that has ended.
    ///
    /// # Safety
    /// As for [`BoundSchedule::start`].
    #[inline]
    pub(crate) unsafe fn restart(
        &self,
        call: &CallToCache<'_>,
        function: Function,
    ) -> Option<Arc<Request>> {
        let b = call.args;
        let restart = |run: &BackgroundRun| run.restart(b, CollTag::next(b.comm, function, b.root));
        let (request, run) = self.renew(call, restart)?;
        device::device().add_background(run);
        Some(request)
    }

    /// Starts a collective by messages, and caches its request if that is allowed.
    ///
    /// # Safety
    /// As for [`BoundSchedule::start`].
    pub(crate) unsafe fn start_and_cache(
        &self,
        call: &CallToCache<'_>,
        bound: BoundSchedule,
    ) -> Arc<Request> {
        let is_small = bound.is_cacheable();
        // SAFETY: the caller's promise.
        let request = unsafe { bound.start() };
        if is_small {
            self.cache(call, &request);
        }
        request
    }

    /// Caches the request of a call, if that is allowed.
    pub(crate) fn cache(&self, call: &CallToCache<'_>, request: &Arc<Request>) {
        // A communicator without a handle is never freed. Its cache would never be cleared.
        if call.args.comm.identity.bits() == 0 || !uses_only_predefined(call.args) {
            return;
        }
        let Some(key) = call.key() else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (all.len() == CACHED_REQUESTS_MAX).then(|| all.remove(0));
        all.push(CachedRequest {
            key,
            request: request.clone(),
        });
        drop(all);
        drop(oldest);
    }

    /// Drops all requests, when the communicator has been freed.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}
