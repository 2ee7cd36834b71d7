//! The entry points of the library.
//!
//! Each checks its arguments, does its work on the [`Node`], and hands errors to
//! the program's handler. They follow Myrinet Express; the header says what each does.
//!
//! # Safety
//! Pointers are valid for what the header says of them. NULL is told where it is not allowed.

mod endpoints;
mod messages;

use crate::abi::{ErrorHandler, SUCCESS};
use crate::error::{self, Error};
use crate::node::{self, Node};
use std::ffi::{c_char, c_double, c_int};

/// `MX_ERRORS_ARE_FATAL`: prints the error and ends the job.
#[unsafe(no_mangle)]
pub static MX_ERRORS_ARE_FATAL: ErrorHandler = error::fatal;
/// `MX_ERRORS_RETURN`: the call returns the error's code.
#[unsafe(no_mangle)]
pub static MX_ERRORS_RETURN: ErrorHandler = returning;

/// The handler behind `MX_ERRORS_RETURN`.
///
/// # Safety
/// `description` is a C string.
unsafe extern "C" fn returning(description: *mut c_char, code: c_int) -> c_int {
    error::return_code(description, code)
}

/// What a call returns. An error goes to the program's handler first.
fn result(call: &str, done: Result<(), Error>) -> c_int {
    match done {
        Ok(()) => SUCCESS,
        Err(error) => error::raise(call, &error),
    }
}

/// Does `work` on the node.
fn on_node(call: &str, work: impl FnOnce(&mut Node) -> Result<(), Error>) -> c_int {
    // The lock is given back before the handler runs.
    let done = node::lock().node().and_then(work);
    result(call, done)
}

/// Writes to where the program wants a result.
///
/// # Safety
/// `at` is null or writable.
unsafe fn put<T>(at: *mut T, value: T, name: &str) -> Result<(), Error> {
    if at.is_null() {
        return Err(Error::BadArgument(format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    unsafe { at.write(value) };
    Ok(())
}

/// Reads what the program points to.
///
/// # Safety
/// `at` is null or readable.
unsafe fn get<T: Copy>(at: *const T, name: &str) -> Result<T, Error> {
    if at.is_null() {
        return Err(Error::BadArgument(format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { at.read() })
}

/// `mx_init`: joins the job and its machine, or becomes active again after `mx_finalize`. Errors:
/// MX_ALREADY_INITIALIZED; MX_NO_DRIVER without `mpiexec --machine`; MX_NO_DEV if the machine's
/// card has no MX level.
#[unsafe(no_mangle)]
pub extern "C" fn mx_init() -> c_int {
    result("mx_init", node::init())
}

/// `mx_finalize`: closes all endpoints. Blocks until all that was sent has been accepted.
#[unsafe(no_mangle)]
pub extern "C" fn mx_finalize() -> c_int {
    result("mx_finalize", node::finalize())
}

/// `mx_set_error_handler`: sets the handler of all later errors. NULL: errors are fatal.
#[unsafe(no_mangle)]
pub extern "C" fn mx_set_error_handler(handler: Option<ErrorHandler>) -> c_int {
    error::set_handler(handler);
    SUCCESS
}

/// `mx_strerror`: the text of a return code. It is constant.
#[unsafe(no_mangle)]
pub extern "C" fn mx_strerror(code: c_int) -> *const c_char {
    error::text(code).as_ptr()
}

/// `mx_strstatus`: the text of a status code. It is constant.
#[unsafe(no_mangle)]
pub extern "C" fn mx_strstatus(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"success",
        1 => c"the message is there, and no receive has taken it",
        2 => c"the message is longer than the receive's memory",
        3 => c"cancelled",
        _ => c"no status of MX",
    };
    text.as_ptr()
}

/// `ferry_mx_last_error`: what was wrong when this thread's last call failed. Valid until its next
/// call that fails. An addition to Myrinet Express.
#[unsafe(no_mangle)]
pub extern "C" fn ferry_mx_last_error() -> *const c_char {
    error::last()
}

/// `ferry_mx_rank`: the number of this node in the job, from 0. An addition to Myrinet Express.
#[unsafe(no_mangle)]
pub extern "C" fn ferry_mx_rank() -> u32 {
    node::place().0
}

/// `ferry_mx_size`: the number of nodes of the job. An addition to Myrinet Express.
#[unsafe(no_mangle)]
pub extern "C" fn ferry_mx_size() -> u32 {
    node::place().1
}

/// `ferry_mx_wtime`: the virtual time of this node, seconds. An addition to Myrinet Express.
#[unsafe(no_mangle)]
pub extern "C" fn ferry_mx_wtime() -> c_double {
    node::time().seconds()
}
