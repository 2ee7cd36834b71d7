//! Handle arguments, and pointers to handles.

use super::{invalid_address, is_invalid_address};
use crate::constants::{MPI_BYTE, MPI_COMM_NULL, MPI_COMM_SELF, MPI_COMM_WORLD, MPI_SUM};
use crate::handle::{self, Handle, Object};
use ferry_mpi::{Comm, Datatype, Error, Op, Result, err};
use std::sync::Arc;

/// The object behind a handle.
#[inline]
pub fn object<T: Object>(handle: Handle, name: &str) -> Result<&'static Arc<T>> {
    match handle::get(handle) {
        Some(object) => Ok(object),
        None => Err(invalid_handle::<T>(handle, name)),
    }
}

/// The object behind a handle. `None` for the null handle.
#[inline]
pub fn object_or_null<T: Object>(handle: Handle, name: &str) -> Result<Option<&'static Arc<T>>> {
    if handle == T::NULL {
        Ok(None)
    } else {
        object(handle, name).map(Some)
    }
}

#[cold]
pub(super) fn invalid_handle<T: Object>(handle: Handle, name: &str) -> Error {
    let what = match handle {
        0 => "0, which is no handle (has it been set?)".to_string(),
        h if h == T::NULL => format!("the null handle {}", null_name::<T>()),
        MPI_COMM_WORLD | MPI_COMM_SELF if T::NULL == MPI_COMM_NULL => {
            let which = if handle == MPI_COMM_WORLD {
                "MPI_COMM_WORLD"
            } else {
                "MPI_COMM_SELF"
            };
            format!("{which}, which is there between MPI_Init and MPI_Finalize only")
        }
        h if handle::is_predefined(h) => format!("{h:#x}, which is the handle of something else"),
        h => format!("{h:#x}, which is no {} (any more)", T::TYPE),
    };
    Error::new(T::ERROR, format!("{name} is {what}"))
}

fn null_name<T: Object>() -> String {
    format!("{}_NULL", T::TYPE.to_uppercase())
}

/// A communicator.
#[inline]
pub fn comm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    object(handle, name)
}

/// An intracommunicator.
#[inline]
pub fn intracomm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    let comm = comm(handle, name)?;
    if comm.is_inter() {
        Err(err!(
            Comm,
            "{name} is an intercommunicator, which this call does not take"
        ))
    } else {
        Ok(comm)
    }
}

/// An intercommunicator.
#[inline]
pub fn intercomm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    let comm = comm(handle, name)?;
    if comm.is_inter() {
        Ok(comm)
    } else {
        Err(err!(
            Comm,
            "{name} is an intracommunicator; this call needs an intercommunicator"
        ))
    }
}

/// A committed datatype.
#[inline]
pub fn committed(handle: Handle, name: &str) -> Result<&'static Arc<Datatype>> {
    let datatype: &Arc<Datatype> = object(handle, name)?;
    if datatype.is_committed() {
        Ok(datatype)
    } else {
        Err(not_committed(name))
    }
}

/// [`committed`], for a handle that is likely to be the same as `other`, whose datatype is known.
#[inline]
pub fn committed_like(
    handle: Handle,
    (other, datatype): (Handle, &'static Arc<Datatype>),
    name: &str,
) -> Result<&'static Arc<Datatype>> {
    // MPI_DATATYPE_NULL may stand for a datatype at the origin (`needs_no_datatype`).
    if handle == other && handle != Datatype::NULL {
        return Ok(datatype);
    }
    committed(handle, name)
}

#[cold]
pub(super) fn not_committed(name: &str) -> Error {
    err!(Type, "{name} has not been committed (MPI_Type_commit)")
}

/// Is this MPI_DATATYPE_NULL in a message without elements or with MPI_PROC_NULL? It is accepted
/// there. The standard requires a valid datatype, but MPICH and Open MPI accept the null handle,
/// and programs rely on it.
#[inline]
pub fn needs_no_datatype(datatype: Handle, rank: i32, count: i64) -> bool {
    datatype == crate::constants::MPI_DATATYPE_NULL
        && (rank == crate::constants::MPI_PROC_NULL || count == 0)
}

/// Placeholder for a datatype that has no meaning in this call.
pub fn unused_type() -> &'static Arc<Datatype> {
    handle::get(MPI_BYTE).expect("MPI_BYTE is predefined")
}

/// Placeholder for an operation that has no meaning in this call.
pub fn unused_op() -> &'static Arc<Op> {
    handle::get(MPI_SUM).expect("MPI_SUM is predefined")
}

/// The handle at `at`, to find the error handler. 0 if `at` is invalid.
///
/// # Safety
/// `at` is null or valid.
#[cold]
pub unsafe fn peek(at: *mut Handle) -> Handle {
    if is_invalid_address(at) {
        0
    } else {
        // SAFETY: the caller's promise.
        unsafe { *at }
    }
}

/// A pointer to a valid handle, which the call may free.
pub struct InOutHandle<T: Object> {
    at: *mut Handle,
    object: &'static Arc<T>,
}

impl<T: Object> InOutHandle<T> {
    /// Looks the handle up.
    ///
    /// # Safety
    /// `at` is null or valid.
    pub unsafe fn new(at: *mut Handle, name: &str) -> Result<InOutHandle<T>> {
        if is_invalid_address(at) {
            return Err(invalid_address(at, name));
        }
        // SAFETY: the caller's promise.
        let object = object(unsafe { *at }, name)?;
        Ok(InOutHandle { at, object })
    }

    /// The object.
    pub fn object(&self) -> &'static Arc<T> {
        self.object
    }

    /// The handle.
    pub fn handle(&self) -> Handle {
        // SAFETY: checked in `new`.
        unsafe { *self.at }
    }

    /// Is the handle predefined?
    pub fn is_predefined(&self) -> bool {
        handle::is_predefined(self.handle())
    }

    /// Frees the handle, sets the program's variable to the null handle, and returns the object.
    ///
    /// # Errors
    /// The handle is predefined.
    pub fn free(self) -> Result<Arc<T>> {
        let handle = self.handle();
        match handle::remove(handle) {
            Some(object) => {
                self.forget();
                Ok(object)
            }
            None => Err(Error::new(
                T::ERROR,
                format!("the handle {handle:#x} is predefined and cannot be freed"),
            )),
        }
    }

    /// Sets the program's variable to the null handle. The object stays.
    pub fn forget(self) {
        // SAFETY: checked in `new`.
        unsafe { *self.at = T::NULL };
    }
}
