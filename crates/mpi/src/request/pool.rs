//! The request pool: completed requests that are kept, with their communicators, for reuse.
//!
//! Allocating and freeing a request and counting a reference to its communicator takes longer than
//! a small message. The pool takes requests of non-persistent sends and receives. It takes none of
//! a freed communicator.

use super::{Active, Class, Operation, Request, State};
use crate::Comm;
use crate::device::Device;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Requests that the pool holds at most, about 30 KiB. A choice: programs that keep more open at
/// once pay for more than one request anyway.
const POOL_MAX_REQUESTS: usize = 256;

struct Pool(UnsafeCell<Vec<Arc<Request>>>);
// SAFETY: reached only with exclusive use of the device (`pool`).
unsafe impl Sync for Pool {}

static POOL: Pool = Pool(UnsafeCell::new(Vec::new()));

#[inline]
fn pool(_exclusive: &mut Device) -> &mut Vec<Arc<Request>> {
    // SAFETY: `&mut Device` exists once at a time in the process, so no other reference to the list
    // does.
    unsafe { &mut *POOL.0.get() }
}

/// A request for `active`, in `comm`.
#[inline(always)]
pub(super) fn make(d: &mut Device, comm: &Arc<Comm>, class: Class, active: Active) -> Arc<Request> {
    let Some(recycled) = pool(d).pop() else {
        return Request::make(Some(comm.clone()), class, State::Active(active), None);
    };
    // SAFETY: there is no other reference: a request enters the pool only with its last one.
    let operation = unsafe { &mut *recycled.operation.get() };
    match &operation.comm {
        Some(same) if Arc::ptr_eq(same, comm) => operation.class = class,
        _ => *operation = of_comm(comm, class),
    }
    debug_assert!(!recycled.is_active(d));
    recycled.overwrite_state(d, State::Active(active));
    recycled
}

#[cold]
fn of_comm(comm: &Arc<Comm>, class: Class) -> Operation {
    Operation {
        comm: Some(comm.clone()),
        class,
    }
}

impl Request {
    /// The program has done with the request, whose handle is gone; it was completed. Returns it if
    /// it is of no more use: to be dropped without the device's lock.
    #[inline(always)]
    pub fn recycle(self: Arc<Self>, d: &mut Device) -> Option<Arc<Request>> {
        // To be changed in `make` it must be the only reference.
        let is_kept = matches!(self.operation().class, Class::Send | Class::Receive);
        if !is_kept || self.is_persistent() || Arc::strong_count(&self) != 1 {
            return Some(self);
        }
        let of_freed = self.comm().is_none_or(|c| c.is_freed());
        if of_freed || !matches!(self.state(d), State::Inactive) {
            return Some(self);
        }
        let pool = pool(d);
        if pool.len() == POOL_MAX_REQUESTS {
            return Some(self);
        }
        pool.push(self);
        None
    }
}

/// Lets go of all that is kept, with their communicators: one of them is about to end.
pub fn clear_pool(d: &mut Device) {
    pool(d).clear();
}
