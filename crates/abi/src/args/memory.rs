//! Buffer and pointer arguments.

use crate::constants::MPI_IN_PLACE;
use crate::status::Status;
use ferry_mpi::{Comm, Datatype, Error, Result, err};

/// Addresses below this are constants of the ABI (MPI_IN_PLACE …) or null with an offset. The first
/// page of memory is never mapped.
const ADDRESS_MIN: usize = 4096;

/// Checks a buffer of `count` elements. Null is MPI_BOTTOM, which requires a datatype with absolute
/// addresses.
#[inline]
pub fn buffer(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
    if at as usize >= ADDRESS_MIN {
        Ok(())
    } else {
        check_low_address(at, count, datatype, name)
    }
}

#[cold]
fn check_low_address(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
    address(at, count, name)?;
    if count > 0 && datatype.basic_kind().is_some() && datatype.size() > 0 {
        let what = if at.is_null() {
            "null".to_string()
        } else {
            format!("{at:?}, which is no memory")
        };
        return Err(err!(
            Buffer,
            "{name} is {what}, for a message of {count} elements"
        ));
    }
    Ok(())
}

/// Checks the address of a buffer of `count` elements of unknown type. A buffer without elements
/// may have any address. Some languages, such as Rust, give an empty vector the address 1, which is
/// MPI_IN_PLACE.
#[inline]
pub fn address(at: *const u8, count: i64, name: &str) -> Result<()> {
    if at as usize == MPI_IN_PLACE && count != 0 {
        Err(err!(
            Buffer,
            "{name} is MPI_IN_PLACE, which is not allowed here"
        ))
    } else {
        Ok(())
    }
}

#[cold]
fn bad_in_place(name: &str, comm: &Comm) -> Error {
    if comm.is_inter() {
        err!(
            Buffer,
            "{name} is MPI_IN_PLACE, which is not allowed on an intercommunicator"
        )
    } else {
        err!(
            Buffer,
            "{name} is MPI_IN_PLACE, which is allowed at the root only"
        )
    }
}

/// A buffer to send `count` elements from, or `None` for MPI_IN_PLACE. Where that is not allowed, a
/// buffer without elements may still have that address ([`address`]).
#[inline]
pub fn send_in_place(
    at: *const u8,
    count: i64,
    name: &str,
    comm: &Comm,
    allowed: bool,
) -> Result<Option<*const u8>> {
    if at as usize != MPI_IN_PLACE {
        Ok(Some(at))
    } else if allowed && !comm.is_inter() {
        Ok(None)
    } else if count == 0 {
        Ok(Some(at))
    } else {
        Err(bad_in_place(name, comm))
    }
}

/// A buffer to receive `count` elements into, as in [`send_in_place`].
#[inline]
pub fn receive_in_place(
    at: *mut u8,
    count: i64,
    name: &str,
    comm: &Comm,
    allowed: bool,
) -> Result<Option<*mut u8>> {
    Ok(send_in_place(at, count, name, comm, allowed)?.map(<*const u8>::cast_mut))
}

/// Is `at` below all mapped memory? It is null, or a handle passed instead of its address.
#[inline]
pub(crate) fn is_invalid_address<T>(at: *const T) -> bool {
    (at as usize) < ADDRESS_MIN
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    err!(Arg, "{name} is null")
}

/// The error for an argument `at` that is [`is_invalid_address`].
#[cold]
pub(crate) fn invalid_address<T>(at: *const T, name: &str) -> Error {
    if at.is_null() {
        null(name)
    } else {
        err!(
            Arg,
            "{name} is {at:?}, which is no memory (a handle in place of its address?)"
        )
    }
}

/// An input and output argument.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn out_reference<'a, T>(at: *mut T, name: &str) -> Result<&'a mut T> {
    if is_invalid_address(at) {
        return Err(invalid_address(at, name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { &mut *at })
}

/// An optional input and output argument.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn place_or_none<'a, T>(at: *mut T) -> Option<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }
}

/// A status that the call reads.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn status<'a>(at: *const Status, name: &str) -> Result<&'a Status> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or_else(|| {
        err!(
            Arg,
            "{name} is MPI_STATUS_IGNORE, but this call needs a status"
        )
    })
}
