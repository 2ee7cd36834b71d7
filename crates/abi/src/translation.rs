//! The table by which the libraries of other ABIs (`libmpi.so.12`, `libmpi.so.40`) call this one.
//!
//! Those libraries export MPI_ and PMPI_ symbols themselves, so they cannot call this library's
//! symbols of the same names. This library exports its functions to them in one table.

use crate::callback::{TranslatedFunction, UserFunction};
use crate::calls;
use crate::entry::{self, symbols};
use crate::handle::{AddressRequest, Handle, IntRequest, OF_ADDRESSES, OF_INTS, Object};
use crate::prelude::*;
use crate::raise::{self, Scope};
use ferry_mpi::errhandler::Target;

/// The body of a function. Its type is that of the function's prototype.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Body(pub *const c_void);

// SAFETY: the address of a function.
unsafe impl Sync for Body {}

/// Number of MPI functions.
const FUNCTIONS: usize = symbols::NAMES.len();

/// The table. Its fields and their order are known to `ferry-translate`.
#[repr(C)]
pub struct Translation {
    /// The bodies of all functions; function n of `mpi.api` stands at n - 1.
    bodies: [Body; FUNCTIONS],
    /// The bodies of the functions that exist for each ABI: for requests that are ints, and for
    /// those that are addresses.
    per_abi: [[Body; symbols::PER_ABI]; 2],
    /// Tells the form (as above) of a library, its MPI_REQUEST_NULL, and what converts error codes.
    set_abi: unsafe extern "C" fn(u32, u64, extern "C" fn(i32) -> i32),
    /// The handle of the request at an index; 0 if there is none.
    request_at: unsafe extern "C" fn(u32) -> Handle,
    /// MPI_Op_create for a function with a state.
    op_create: unsafe extern "C" fn(i32, TranslatedFunction, *mut c_void, i32, *mut Handle) -> i32,
    /// MPI_X_create_errhandler for a function with a state.
    errhandler_create: unsafe extern "C" fn(
        i32,
        unsafe extern "C" fn(*mut c_void, *mut Handle, *mut i32),
        *mut c_void,
        *mut Handle,
    ) -> i32,
}

/// The table.
#[unsafe(no_mangle)]
pub static ferry_translation: Translation = Translation {
    bodies: symbols::BODIES,
    per_abi: [
        symbols::bodies_for::<IntRequest>(),
        symbols::bodies_for::<AddressRequest>(),
    ],
    set_abi,
    request_at,
    op_create,
    errhandler_create,
};

/// Keeps what the library of another ABI tells of itself.
///
/// # Safety
/// `code` may be called at any time: the library that has it stays loaded.
unsafe extern "C" fn set_abi(form: u32, null_request: u64, code: extern "C" fn(i32) -> i32) {
    let abi = [&OF_INTS, &OF_ADDRESSES][form as usize & 1];
    abi.set(null_request, code);
}

/// The handle of the request at an index; 0 if there is none.
///
/// # Safety
/// Always safe: the type of the table's entries says `unsafe`.
unsafe extern "C" fn request_at(index: u32) -> Handle {
    Request::table().handle_at(index).unwrap_or(0)
}

/// The number of a function by its C name.
fn number(name: &str) -> u32 {
    let at = symbols::NAMES.iter().position(|n| *n == name);
    at.map_or(0, |at| at as u32 + 1)
}

/// MPI_Op_create, or MPI_Op_create_c if `large` is not 0.
///
/// # Safety
/// As for MPI_Op_create; `f` may be called with `state` for as long as the operation exists.
unsafe extern "C" fn op_create(
    large: i32,
    f: TranslatedFunction,
    state: *mut c_void,
    commute: i32,
    op: *mut Handle,
) -> i32 {
    let call = number(["MPI_Op_create", "MPI_Op_create_c"][usize::from(large != 0)]);
    let state = state.expose_provenance();
    let function = match large {
        0 => UserFunction::TranslatedInt(f, state),
        _ => UserFunction::TranslatedCount(f, state),
    };
    let result: Result<()> = (|| {
        entry::enter(call)?;
        // SAFETY: where the program wants the handle, or null.
        let op = unsafe { New::<Op>::new(op, "op")? };
        calls::op::op_create(function, commute != 0, op)
    })();
    code(call, result)
}

/// MPI_X_create_errhandler. `target` counts communicators, windows, files and sessions from 0.
///
/// # Safety
/// As for MPI_Comm_create_errhandler; `f` may be called with `state` for as long as the error
/// handler exists.
unsafe extern "C" fn errhandler_create(
    target: i32,
    f: unsafe extern "C" fn(*mut c_void, *mut Handle, *mut i32),
    state: *mut c_void,
    errhandler: *mut Handle,
) -> i32 {
    let (target, name) = match target {
        0 => (Target::Comm, "MPI_Comm_create_errhandler"),
        1 => (Target::Win, "MPI_Win_create_errhandler"),
        2 => (Target::File, "MPI_File_create_errhandler"),
        _ => (Target::Session, "MPI_Session_create_errhandler"),
    };
    let call = number(name);
    let result: Result<()> = (|| {
        entry::record_call(call);
        // SAFETY: where the program wants the handle, or null.
        let errhandler = unsafe { New::<Errhandler>::new(errhandler, "errhandler")? };
        calls::errhandler::create_translated(target, f, state.expose_provenance(), &errhandler);
        Ok(())
    })();
    code(call, result)
}

/// What the call returns.
fn code(call: u32, result: Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => raise::raise(call, Scope::Process, error),
    }
}
