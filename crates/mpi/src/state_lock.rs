//! The lock of an object's state, which costs nothing while only one thread may be in MPI. Two
//! atomic instructions are half of MPI_Pready, four a third of MPI_Win_lock with MPI_Win_unlock.

use crate::device;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State that threads of the program and the progress thread share.
pub(crate) struct StateLock<T> {
    mutex: Mutex<()>,
    /// Somebody has the state: checked in debug builds.
    is_taken: AtomicBool,
    state: UnsafeCell<T>,
}

// SAFETY: a reference to the state exists only in a guard, and there is one guard at a time: by the
// mutex, or because one thread alone is in MPI, which takes no second one (`lock`).
unsafe impl<T: Send> Sync for StateLock<T> {}

impl<T> StateLock<T> {
    pub(crate) fn new(state: T) -> StateLock<T> {
        StateLock {
            mutex: Mutex::new(()),
            is_taken: AtomicBool::new(false),
            state: UnsafeCell::new(state),
        }
    }

    /// The state, until the guard is dropped. Not reentrant; not kept over a call that another
    /// thread could begin to make progress in.
    #[inline]
    pub(crate) fn lock(&self) -> StateGuard<'_, T> {
        let is_shared = !device::is_alone();
        let guard = StateGuard {
            _mutex: is_shared.then(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner)),
            lock: self,
        };
        if cfg!(debug_assertions) {
            let was_taken = self.is_taken.swap(true, Ordering::Relaxed);
            assert!(!was_taken, "a state is taken twice");
        }
        guard
    }
}

impl<T: Default> Default for StateLock<T> {
    fn default() -> StateLock<T> {
        StateLock::new(T::default())
    }
}

/// Access to the state.
pub(crate) struct StateGuard<'a, T> {
    lock: &'a StateLock<T>,
    _mutex: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for StateGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time.
        unsafe { &*self.lock.state.get() }
    }
}

impl<T> DerefMut for StateGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time.
        unsafe { &mut *self.lock.state.get() }
    }
}

impl<T> Drop for StateGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.lock.is_taken.store(false, Ordering::Relaxed);
        }
    }
}
