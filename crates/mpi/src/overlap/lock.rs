//! Takes a mutex whose last holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
