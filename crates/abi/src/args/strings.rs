//! String arguments.

use super::{invalid_address, is_invalid_address};
use crate::constants::{MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL};
use ferry_mpi::{Result, err};
use std::ffi::{CStr, c_char};

/// A string.
///
/// # Safety
/// `at` is null or a string that ends with a null byte.
#[inline]
pub unsafe fn string<'a>(at: *const c_char, name: &str) -> Result<&'a CStr> {
    if is_invalid_address(at) {
        return Err(invalid_address(at, name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(at) })
}

/// The key of an info.
///
/// # Safety
/// As for [`string`].
pub unsafe fn key<'a>(at: *const c_char) -> Result<&'a CStr> {
    // SAFETY: the caller's promise.
    let key = unsafe { string(at, "key") }.map_err(|_| err!(InfoKey, "key is null"))?;
    match key.count_bytes() {
        0 => Err(err!(InfoKey, "key is empty")),
        n if n >= MPI_MAX_INFO_KEY => Err(err!(
            InfoKey,
            "key has {n} characters; at most {} are allowed",
            MPI_MAX_INFO_KEY - 1
        )),
        _ => Ok(key),
    }
}

/// The value of a key of an info.
///
/// # Safety
/// As for [`string`].
pub unsafe fn value<'a>(at: *const c_char) -> Result<&'a CStr> {
    // SAFETY: the caller's promise.
    let value = unsafe { string(at, "value") }.map_err(|_| err!(InfoValue, "value is null"))?;
    match value.count_bytes() {
        n if n >= MPI_MAX_INFO_VAL => Err(err!(
            InfoValue,
            "value has {n} characters; at most {} are allowed",
            MPI_MAX_INFO_VAL - 1
        )),
        _ => Ok(value),
    }
}
