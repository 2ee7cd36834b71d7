//! Buffers, and places that are read or written.

use crate::constants::MPI_IN_PLACE;
use crate::status::Status;
use ferry_mpi::{Comm, Datatype, Error, Result, err};

/// Addresses below this are the ABI's constants (MPI_IN_PLACE …), or null with an offset: nobody's
/// memory.
const NOBODYS: usize = 4096;

/// Checks a buffer of `count` elements. Null is MPI_BOTTOM, which suits datatypes with absolute
/// addresses only.
#[inline]
pub fn buffer(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
    if at as usize >= NOBODYS {
        Ok(())
    } else {
        suspicious(at, count, datatype, name)
    }
}

#[cold]
fn suspicious(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
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

/// Checks the address of a buffer of `count` elements of which nothing more is known. One of no
/// elements may be anywhere: of an empty vector a language may well say that it is at 1, which is
/// MPI_IN_PLACE (Rust does).
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

/// A buffer to send `count` elements from, or `None` for MPI_IN_PLACE. Where that is not allowed,
/// one of no elements may be there, too ([`address`]).
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

/// Is `at` no address at all: null, or below all memory, as a handle is that was given in place of
/// its address?
#[inline]
pub(crate) fn nowhere<T>(at: *const T) -> bool {
    (at as usize) < NOBODYS
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    err!(Arg, "{name} is null")
}

/// The error for an argument `at` that is [`nowhere`].
#[cold]
pub(crate) fn no_place<T>(at: *const T, name: &str) -> Error {
    if at.is_null() {
        null(name)
    } else {
        err!(
            Arg,
            "{name} is {at:?}, which is no memory (a handle in place of its address?)"
        )
    }
}

/// A place in the program's memory that the call reads and writes.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn place<'a, T>(at: *mut T, name: &str) -> Result<&'a mut T> {
    if nowhere(at) {
        return Err(no_place(at, name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { &mut *at })
}

/// A place that the call reads and changes, if the program gives one.
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
