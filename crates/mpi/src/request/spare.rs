//! Requests that are done with, kept to be used again with the communicator they had: to make and
//! drop one, and to count one more user of its communicator, takes longer than a small message
//! does.
//!
//! Only requests of sends and receives that are not persistent are kept, and none of a communicator
//! that the program has freed.

use super::{Active, Class, Of, Request, State};
use crate::Comm;
use crate::device::Device;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// More than these are not kept.
const MOST: usize = 256;

struct Spares(UnsafeCell<Vec<Arc<Request>>>);
// SAFETY: reached only with exclusive use of the device (`spares`).
unsafe impl Sync for Spares {}

static SPARES: Spares = Spares(UnsafeCell::new(Vec::new()));

#[inline]
fn spares(_exclusive: &mut Device) -> &mut Vec<Arc<Request>> {
    // SAFETY: `&mut Device` exists once at a time in the process, so no other reference to the list
    // does.
    unsafe { &mut *SPARES.0.get() }
}

/// A request for `active`, in `comm`.
#[inline]
pub(super) fn make(d: &mut Device, comm: &Arc<Comm>, class: Class, active: Active) -> Arc<Request> {
    let Some(spare) = spares(d).pop() else {
        return Request::make(Some(comm.clone()), class, State::Active(active), None);
    };
    // SAFETY: nobody else knows the request: it was the only reference when it was put here.
    let of = unsafe { &mut *spare.of.get() };
    match &of.comm {
        Some(same) if Arc::ptr_eq(same, comm) => of.class = class,
        _ => {
            *of = Of {
                comm: Some(comm.clone()),
                class,
            }
        }
    }
    let state = spare.state(d);
    match active {
        // Not moved as a whole, which would wait for its parts to be stored.
        Active::Device(req) => *state = State::Active(Active::Device(req)),
        other => *state = State::Active(other),
    }
    spare
}

impl Request {
    /// The program has done with the request, whose handle is gone; it was completed. Returns it if
    /// it is of no more use: to be dropped without the device's lock.
    #[inline]
    pub fn put_away(self: Arc<Self>, d: &mut Device) -> Option<Arc<Request>> {
        // To be changed in `make` it must be the only reference.
        let is_kept = matches!(self.of().class, Class::Send | Class::Receive);
        if !is_kept || self.is_persistent() || Arc::strong_count(&self) != 1 {
            return Some(self);
        }
        let of_freed = self.comm().is_none_or(|c| c.is_freed());
        if of_freed || !matches!(self.state(d), State::Inactive) {
            return Some(self);
        }
        let spares = spares(d);
        if spares.len() == MOST {
            return Some(self);
        }
        spares.push(self);
        None
    }
}

/// Lets go of all that is kept, with their communicators: one of them is about to end.
pub fn forget_spares(d: &mut Device) {
    spares(d).clear();
}
