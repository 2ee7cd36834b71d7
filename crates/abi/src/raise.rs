//! Raising of errors: from an error to its code and its error handler (MPI 5.0 §9.3).

use crate::args::ranks;
use crate::constants::{MPI_COMM_SELF, MPI_FILE_NULL};
use crate::handle::{self, Handle};
use crate::{codes, entry};
use ferry_mpi::errhandler::Action;
use ferry_mpi::tool;
use ferry_mpi::{
    Comm, Errhandler, Error, ErrorScope, File, Kind, Session, Win, err, file, process,
};
use std::sync::Arc;

/// The object of a call whose error handler gets the call's errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A communicator.
    Comm(Handle),
    /// A window.
    Win(Handle),
    /// A file.
    File(Handle),
    /// A session.
    Session(Handle),
    /// An object that could not be created: the handler that it was to have, and its null handle.
    Unmade(Handle, Handle),
    /// A file that is not open: the handler of MPI_FILE_NULL.
    NoFile,
    /// No object: the handler of MPI_COMM_SELF.
    Process,
}

/// Raises `error` in call number `call`. Returns the code for the call to return, if the handler
/// returns. A user's handler may change it.
#[cold]
pub fn raise(call: u32, scope: Scope, error: Error) -> i32 {
    let name = entry::name_of(call);
    let of_error = match error.scope() {
        Some(ErrorScope::Comm(comm)) => Raised::Comm(comm.clone()),
        Some(ErrorScope::Win(win)) => Raised::Win(win.clone()),
        Some(ErrorScope::File(file)) => Raised::File(file.clone()),
        None => Raised::Other,
    };
    let of_call = || match scope {
        Scope::Comm(handle) => handle::get::<Comm>(handle).cloned().map(Raised::Comm),
        Scope::Win(handle) => handle::get::<Win>(handle).cloned().map(Raised::Win),
        Scope::File(handle) => handle::get::<File>(handle).cloned().map(Raised::File),
        _ => None,
    };
    let raised = match of_error {
        Raised::Other => of_call().unwrap_or(Raised::Other),
        known => known,
    };
    let (object, handler) = match (&raised, scope) {
        (Raised::Comm(comm), _) => (comm.identity.bits(), comm.errhandler.current()),
        (Raised::Win(win), _) => (win.identity.bits(), win.errhandler.current()),
        (Raised::File(file), _) => (file.identity.bits(), file.errhandler.current()),
        (_, Scope::File(_) | Scope::NoFile) => {
            (MPI_FILE_NULL, file::default_errhandler().current())
        }
        (_, Scope::Session(session)) => match handle::get::<Session>(session) {
            Some(valid) => (session, valid.errhandler.current()),
            None => (MPI_COMM_SELF, handler_of_process()),
        },
        (_, Scope::Unmade(handler, null)) => match handle::get::<Errhandler>(handler) {
            Some(valid) => (null, valid.clone()),
            None => (MPI_COMM_SELF, handler_of_process()),
        },
        _ => (MPI_COMM_SELF, handler_of_process()),
    };
    let comm_name = match &raised {
        Raised::Comm(comm) => comm_text(comm),
        Raised::Win(win) => win_text(win),
        Raised::File(file) => file_text(file),
        Raised::Other => String::new(),
    };
    let code = codes::code(error.kind(), format!("{name}{comm_name}: {}", error.text()));
    if tool::has_listeners() {
        tool::emit(
            tool::ERROR_RAISED,
            &[code, codes::class_of_kind(error.kind())],
        );
    }
    invoke(
        &handler,
        object,
        code,
        &format!("{name}{comm_name}"),
        &error,
    )
}

/// The object that an error is raised on, if it is one of these.
enum Raised {
    Comm(Arc<Comm>),
    Win(Arc<Win>),
    File(Arc<File>),
    Other,
}

/// The handler of errors that belong to no object: that of MPI_COMM_SELF (MPI 5.0 §9.3). If the
/// program has not set it, the handler of MPI_COMM_WORLD, where MPI 3 programs expect such errors.
/// Without the world model, the handler that the process begins with.
fn handler_of_process() -> Arc<Errhandler> {
    match process::try_process() {
        Some(process) if process.world_level().is_some() => {
            let own = process.comm_self.errhandler.current();
            if Arc::ptr_eq(&own, Errhandler::fatal()) {
                process.world.errhandler.current()
            } else {
                own
            }
        }
        _ => Errhandler::initial().clone(),
    }
}

/// Calls a handler for an error in `call`, which names the call and its object. Returns the code
/// that the handler has left.
pub fn invoke(handler: &Errhandler, object: Handle, code: i32, call: &str, error: &Error) -> i32 {
    match handler.action() {
        Action::Return => code,
        Action::User(f) => f(object, code),
        Action::Fatal | Action::Abort => abort_job(call, code, error),
    }
}

/// Ends the job with one message about the error.
fn abort_job(call: &str, code: i32, error: &Error) -> ! {
    let class = codes::class_of_kind(error.kind());
    let text = match error.kind() {
        Kind::Code(code) => format!(
            "{}: {call}: error code {code}: {}",
            rank_text(),
            error.text()
        ),
        _ => format!(
            "{}: {call}: {}: {}",
            rank_text(),
            codes::class_name(class),
            error.text()
        ),
    };
    let status = if (1..=255).contains(&class) {
        class
    } else {
        code
    };
    process::abort(status, &text)
}

/// This rank in messages, as "ferry: rank 2 of 4".
pub fn rank_text() -> String {
    match process::rank_and_size() {
        Some((rank, size)) => format!("ferry: rank {rank} of {size}"),
        None => "ferry".into(),
    }
}

/// The communicator in messages, as " on MPI_COMM_WORLD".
pub fn comm_text(comm: &Comm) -> String {
    let name = String::from_utf8_lossy(&comm.name()).into_owned();
    if name.is_empty() {
        let kind = if comm.is_inter() {
            "an intercommunicator"
        } else {
            "a communicator"
        };
        format!(" on {kind} of {}", ranks(comm.size()))
    } else {
        format!(" on {name}")
    }
}

/// The window in messages, as " on window grid".
pub fn win_text(win: &Win) -> String {
    let name = String::from_utf8_lossy(&win.name()).into_owned();
    if name.is_empty() {
        format!(" on a window of {}", ranks(win.ranks()))
    } else {
        format!(" on window {name}")
    }
}

/// The file in messages, as " on file data/out.h5".
pub fn file_text(file: &File) -> String {
    format!(" on file {}", file.path().display())
}

/// The code of an error in a status.
#[cold]
pub fn code_of(error: &Error) -> i32 {
    codes::code(error.kind(), error.text().to_string())
}

/// The code of an error of the tool interface, which has no error handlers (MPI 5.0 §15.3).
#[cold]
pub fn tool_code(error: Error) -> i32 {
    match error.kind() {
        Kind::Code(code) => code,
        _ => crate::constants::MPI_T_ERR_INVALID,
    }
}

/// The error of a function that is not implemented.
#[cold]
#[allow(dead_code, reason = "for entries that the description marks as todo")]
pub fn unsupported(name: &str) -> Error {
    let instead = if name.starts_with("MPI_Comm_spawn") {
        "; `mpiexec -n N python -m mpi4py.futures SCRIPT` has mpi4py's workers without it"
    } else {
        ""
    };
    err!(
        UnsupportedOperation,
        "{name} is not part of this version of Ferry (`ferry doctor --coverage` lists what \
         is){instead}"
    )
}
