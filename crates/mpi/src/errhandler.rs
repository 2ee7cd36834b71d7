//! Error handlers (MPI 5.0 §9.3): what happens to a call that went wrong.
//!
//! The abi floor raises errors; here is only what a handler is and where it hangs.

use crate::Identity;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The kind of object that a handler was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Target {
    Comm,
    Win,
    File,
    Session,
    /// A predefined handler fits all.
    Any,
}

/// A user's handler: the handle of the object that the error is raised on, and the error code.
pub type UserHandler = Box<dyn Fn(u64, i32) + Send + Sync>;

/// What a handler does.
pub enum Action {
    /// Ends the job (MPI_ERRORS_ARE_FATAL).
    Fatal,
    /// Ends the processes of the communicator (MPI_ERRORS_ABORT); here that is the job, too.
    Abort,
    /// Nothing: the call returns its code (MPI_ERRORS_RETURN).
    Return,
    /// Calls the user's function; then the call returns its code.
    User(UserHandler),
}

/// An error handler.
pub struct Errhandler {
    /// The handle.
    pub identity: Identity,
    /// References to the handle that the program holds.
    references: Mutex<u32>,
    target: Target,
    action: Action,
}

impl Errhandler {
    /// A user's handler for objects of kind `target`.
    pub fn user(target: Target, f: UserHandler) -> Arc<Errhandler> {
        Arc::new(Errhandler {
            identity: Identity::none(),
            references: Mutex::new(0),
            target,
            action: Action::User(f),
        })
    }

    /// MPI_ERRORS_ARE_FATAL.
    pub fn fatal() -> &'static Arc<Errhandler> {
        static HANDLER: OnceLock<Arc<Errhandler>> = OnceLock::new();
        HANDLER.get_or_init(|| Errhandler::predefined(Action::Fatal))
    }

    /// MPI_ERRORS_ABORT.
    pub fn abort() -> &'static Arc<Errhandler> {
        static HANDLER: OnceLock<Arc<Errhandler>> = OnceLock::new();
        HANDLER.get_or_init(|| Errhandler::predefined(Action::Abort))
    }

    /// MPI_ERRORS_RETURN.
    pub fn returning() -> &'static Arc<Errhandler> {
        static HANDLER: OnceLock<Arc<Errhandler>> = OnceLock::new();
        HANDLER.get_or_init(|| Errhandler::predefined(Action::Return))
    }

    fn predefined(action: Action) -> Arc<Errhandler> {
        Arc::new(Errhandler {
            identity: Identity::none(),
            references: Mutex::new(0),
            target: Target::Any,
            action,
        })
    }

    /// The number of references to its handle that the program holds, locked: the handle exists
    /// while it is not 0. Making a handler and MPI_Comm_get_errhandler add one,
    /// MPI_Errhandler_free takes one away (MPI 5.0 §9.3.4).
    pub fn references(&self) -> MutexGuard<'_, u32> {
        self.references
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// May it be set on objects of kind `target`?
    pub fn fits(&self, target: Target) -> bool {
        self.target == Target::Any || self.target == target
    }
}

impl fmt::Debug for Errhandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Fatal => "MPI_ERRORS_ARE_FATAL",
            Action::Abort => "MPI_ERRORS_ABORT",
            Action::Return => "MPI_ERRORS_RETURN",
            Action::User(_) => "a user's function",
        };
        f.debug_struct("Errhandler")
            .field("target", &self.target)
            .field("action", &action)
            .finish()
    }
}

/// The place in an object where its error handler hangs.
#[derive(Debug)]
pub struct ErrhandlerPlace(RwLock<Arc<Errhandler>>);

impl ErrhandlerPlace {
    /// A place with this handler.
    pub fn new(handler: &Arc<Errhandler>) -> ErrhandlerPlace {
        ErrhandlerPlace(RwLock::new(handler.clone()))
    }

    /// The handler that hangs here.
    pub fn current(&self) -> Arc<Errhandler> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Hangs another one here.
    pub fn set(&self, handler: &Arc<Errhandler>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = handler.clone();
    }
}

impl Default for ErrhandlerPlace {
    /// MPI_ERRORS_ARE_FATAL.
    fn default() -> ErrhandlerPlace {
        ErrhandlerPlace::new(Errhandler::fatal())
    }
}

impl Clone for ErrhandlerPlace {
    /// A new place with the same handler: a communicator made from another inherits its handler
    /// (MPI 5.0 §9.3).
    fn clone(&self) -> ErrhandlerPlace {
        ErrhandlerPlace::new(&self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    #[test]
    fn a_place_starts_fatal_and_passes_its_handler_on() {
        let place = ErrhandlerPlace::default();
        assert!(Arc::ptr_eq(&place.current(), Errhandler::fatal()));
        place.set(Errhandler::returning());
        let child = place.clone();
        place.set(Errhandler::abort());
        assert!(Arc::ptr_eq(&child.current(), Errhandler::returning()));
    }

    #[test]
    fn a_users_handler_fits_its_own_kind_only() {
        static SEEN: AtomicI32 = AtomicI32::new(0);
        let h = Errhandler::user(
            Target::Comm,
            Box::new(|_, code| SEEN.store(code, Ordering::Relaxed)),
        );
        assert!(h.fits(Target::Comm) && !h.fits(Target::Win));
        assert!(Errhandler::fatal().fits(Target::Session));
        match h.action() {
            Action::User(f) => f(1, 7),
            _ => panic!("it is a user's"),
        }
        assert_eq!(SEEN.load(Ordering::Relaxed), 7);
    }
}
