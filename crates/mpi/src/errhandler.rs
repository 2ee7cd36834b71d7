//! Error handlers (MPI 5.0 §9.3).
//!
//! The abi layer raises errors. This file has the handlers and the slots that hold them.

use crate::Identity;
use ferry_job::InitialErrhandler;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The handler that this process begins with. Errors before MPI starts need one, too: a value of
/// the variable that names none counts as not given, until starting MPI refuses it.
pub fn initial() -> InitialErrhandler {
    static INITIAL: OnceLock<InitialErrhandler> = OnceLock::new();
    *INITIAL.get_or_init(|| InitialErrhandler::from_environment().unwrap_or_default())
}

/// The kind of object that a handler was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Target {
    Comm,
    Win,
    File,
    Session,
    /// Any of them: a predefined handler.
    Any,
}

impl Target {
    /// Such objects, in messages.
    pub fn text(self) -> &'static str {
        match self {
            Target::Comm => "communicators",
            Target::Win => "windows",
            Target::File => "files",
            Target::Session => "sessions",
            Target::Any => "any object",
        }
    }
}

/// A user's handler. Called with the handle of the object that the error is raised on, and the
/// code. Returns the code for the call to return: the handler may have changed it, as in MPICH (MPI
/// 5.0 §9.3 gives it the code's address).
pub type UserHandler = Box<dyn Fn(u64, i32) -> i32 + Send + Sync>;

/// The action of a handler.
pub enum Action {
    /// Ends the job (MPI_ERRORS_ARE_FATAL).
    Fatal,
    /// Ends the processes of the communicator (MPI_ERRORS_ABORT). In Ferry that is the whole job.
    Abort,
    /// None: the call returns its code (MPI_ERRORS_RETURN).
    Return,
    /// Calls the user's function. Then the call returns the code that it has left.
    User(UserHandler),
}

/// An error handler.
pub struct Errhandler {
    /// The handle.
    pub identity: Identity,
    /// Number of references that the program holds.
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

    /// The handler with which MPI_COMM_WORLD, MPI_COMM_SELF and the communicator with a parent
    /// begin, and that of errors before and after them (MPI 5.0 §9.3): as the launcher or who has
    /// spawned this process asks, else MPI_ERRORS_ARE_FATAL.
    pub fn initial() -> &'static Arc<Errhandler> {
        match initial() {
            InitialErrhandler::Fatal => Errhandler::fatal(),
            InitialErrhandler::Abort => Errhandler::abort(),
            InitialErrhandler::Return => Errhandler::returning(),
        }
    }

    fn predefined(action: Action) -> Arc<Errhandler> {
        Arc::new(Errhandler {
            identity: Identity::none(),
            references: Mutex::new(0),
            target: Target::Any,
            action,
        })
    }

    /// The number of references that the program holds, locked. The handle exists while it is not
    /// 0. Creating a handler and MPI_Comm_get_errhandler add one. MPI_Errhandler_free takes one
    /// away (MPI 5.0 §9.3.4).
    pub fn references(&self) -> MutexGuard<'_, u32> {
        self.references
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Its action.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The kind of object that it was made for.
    pub fn target(&self) -> Target {
        self.target
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

/// The slot in an object that holds its error handler.
#[derive(Debug)]
pub struct ErrhandlerSlot(RwLock<Arc<Errhandler>>);

impl ErrhandlerSlot {
    /// A slot with this handler.
    pub fn new(handler: &Arc<Errhandler>) -> ErrhandlerSlot {
        ErrhandlerSlot(RwLock::new(handler.clone()))
    }

    /// The present handler.
    pub fn current(&self) -> Arc<Errhandler> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the handler.
    pub fn set(&self, handler: &Arc<Errhandler>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = handler.clone();
    }
}

impl Default for ErrhandlerSlot {
    /// MPI_ERRORS_ARE_FATAL.
    fn default() -> ErrhandlerSlot {
        ErrhandlerSlot::new(Errhandler::fatal())
    }
}

impl Clone for ErrhandlerSlot {
    /// A new slot with the same handler. A communicator inherits the handler of its parent (MPI 5.0
    /// §9.3).
    fn clone(&self) -> ErrhandlerSlot {
        ErrhandlerSlot::new(&self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    #[test]
    fn a_slot_starts_fatal_and_a_clone_keeps_its_handler() {
        let slot = ErrhandlerSlot::default();
        assert!(Arc::ptr_eq(&slot.current(), Errhandler::fatal()));
        slot.set(Errhandler::returning());
        let child = slot.clone();
        slot.set(Errhandler::abort());
        assert!(Arc::ptr_eq(&child.current(), Errhandler::returning()));
    }

    #[test]
    fn a_users_handler_fits_its_own_kind_only() {
        static SEEN: AtomicI32 = AtomicI32::new(0);
        let h = Errhandler::user(
            Target::Comm,
            Box::new(|_, code| {
                SEEN.store(code, Ordering::Relaxed);
                code + 1
            }),
        );
        assert!(h.fits(Target::Comm) && !h.fits(Target::Win));
        assert!(Errhandler::fatal().fits(Target::Session));
        match h.action() {
            Action::User(f) => assert_eq!(f(1, 7), 8),
            _ => panic!("it is a user's"),
        }
        assert_eq!(SEEN.load(Ordering::Relaxed), 7);
    }
}
