//! C functions that programs pass as arguments.

use crate::handle::Handle;
use crate::status::Status;
use ferry_mpi::{Result, err};
use std::ffi::c_void;
use std::mem::transmute;

/// MPI_X_errhandler_function.
pub type ErrorFunction = unsafe extern "C" fn(*mut Handle, *mut i32, ...);
/// MPI_Grequest_query_function.
pub type QueryFunction = unsafe extern "C" fn(*mut c_void, *mut Status) -> i32;
/// MPI_Grequest_free_function.
pub type FreeFunction = unsafe extern "C" fn(*mut c_void) -> i32;
/// MPI_Grequest_cancel_function.
pub type CancelFunction = unsafe extern "C" fn(*mut c_void, i32) -> i32;

/// How an attribute is copied when its object is duplicated.
#[derive(Clone, Copy, Debug)]
pub enum CopyFunction {
    /// It is not copied (MPI_X_NULL_COPY_FN).
    Null,
    /// Its value is copied (MPI_X_DUP_FN).
    Dup,
    /// The program's function: object, key, extra state, value, place of the new value, flag.
    User(unsafe extern "C" fn(Handle, i32, *mut c_void, *mut c_void, *mut c_void, *mut i32) -> i32),
}

/// Delete callback: object, key, value, extra state. `None` for no function.
pub type DeleteFunction =
    Option<unsafe extern "C" fn(Handle, i32, *mut c_void, *mut c_void) -> i32>;

/// User-defined reduction: input, input and output, count, datatype.
#[derive(Clone, Copy, Debug)]
pub enum UserFunction {
    /// Counts are int.
    Int(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i32, *mut Handle)),
    /// Counts are MPI_Count.
    Count(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut Handle)),
    /// That of a library of another ABI, with its state. Counts are int.
    TranslatedInt(TranslatedFunction, usize),
    /// The same. Counts are MPI_Count.
    TranslatedCount(TranslatedFunction, usize),
}

/// A reduction of a library of another ABI: its state, input, input and output, count (int, or
/// MPI_Count in the large-count form), datatype.
pub type TranslatedFunction =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut Handle);

/// MPI_Datarep_conversion_function: user's buffer, datatype, count, file's buffer, position, extra
/// state.
#[derive(Clone, Copy, Debug)]
pub enum ConversionFunction {
    /// Counts are int.
    Int(unsafe extern "C" fn(*mut c_void, Handle, i32, *mut c_void, i64, *mut c_void) -> i32),
    /// Counts are MPI_Count.
    Count(unsafe extern "C" fn(*mut c_void, Handle, i64, *mut c_void, i64, *mut c_void) -> i32),
}

/// MPI_Datarep_extent_function: datatype, extent, extra state.
pub type ExtentFunction = unsafe extern "C" fn(Handle, *mut i64, *mut c_void) -> i32;

/// The predefined function constants are 0 and 1.
const DUP: usize = 1;

fn check_function(f: *const c_void, name: &str) -> Result<()> {
    if f as usize > DUP {
        Ok(())
    } else {
        Err(err!(Arg, "{name} is no function"))
    }
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn error_function(f: *const c_void, name: &str) -> Result<ErrorFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { transmute::<*const c_void, ErrorFunction>(f) })
}

/// # Safety
/// `f` is one of the predefined constants, or a function of this type.
pub unsafe fn copy_function(f: *const c_void) -> CopyFunction {
    match f as usize {
        0 => CopyFunction::Null,
        DUP => CopyFunction::Dup,
        // SAFETY: the caller's promise; no constant.
        _ => CopyFunction::User(unsafe {
            transmute::<
                *const c_void,
                unsafe extern "C" fn(
                    Handle,
                    i32,
                    *mut c_void,
                    *mut c_void,
                    *mut c_void,
                    *mut i32,
                ) -> i32,
            >(f)
        }),
    }
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn delete_function(f: *const c_void) -> DeleteFunction {
    // SAFETY: the caller's promise; null becomes None.
    unsafe { transmute::<*const c_void, DeleteFunction>(f) }
}

/// # Safety
/// `f` is null, or a function of the type that `large` says.
pub unsafe fn user_function(f: *const c_void, large: bool, name: &str) -> Result<UserFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe {
        if large {
            UserFunction::Count(transmute::<
                *const c_void,
                unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut Handle),
            >(f))
        } else {
            UserFunction::Int(transmute::<
                *const c_void,
                unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i32, *mut Handle),
            >(f))
        }
    })
}

/// # Safety
/// `f` is null (MPI_CONVERSION_FN_NULL), or a function of the type that `large` says.
pub unsafe fn conversion_function(f: *const c_void, large: bool) -> Option<ConversionFunction> {
    if f.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; not null.
    Some(unsafe {
        if large {
            ConversionFunction::Count(transmute::<
                *const c_void,
                unsafe extern "C" fn(
                    *mut c_void,
                    Handle,
                    i64,
                    *mut c_void,
                    i64,
                    *mut c_void,
                ) -> i32,
            >(f))
        } else {
            ConversionFunction::Int(transmute::<
                *const c_void,
                unsafe extern "C" fn(
                    *mut c_void,
                    Handle,
                    i32,
                    *mut c_void,
                    i64,
                    *mut c_void,
                ) -> i32,
            >(f))
        }
    })
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn extent_function(f: *const c_void, name: &str) -> Result<ExtentFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { transmute::<*const c_void, ExtentFunction>(f) })
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn query_function(f: *const c_void, name: &str) -> Result<QueryFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { transmute::<*const c_void, QueryFunction>(f) })
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn free_function(f: *const c_void, name: &str) -> Result<FreeFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { transmute::<*const c_void, FreeFunction>(f) })
}

/// # Safety
/// `f` is null, or a function of this type.
pub unsafe fn cancel_function(f: *const c_void, name: &str) -> Result<CancelFunction> {
    check_function(f, name)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { transmute::<*const c_void, CancelFunction>(f) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_never_taken_for_functions() {
        // SAFETY: all are constants.
        unsafe {
            assert!(matches!(
                copy_function(std::ptr::null()),
                CopyFunction::Null
            ));
            assert!(matches!(
                copy_function(std::ptr::without_provenance(1)),
                CopyFunction::Dup
            ));
            assert!(delete_function(std::ptr::null()).is_none());
            assert!(user_function(std::ptr::null(), false, "user_fn").is_err());
            assert!(error_function(std::ptr::without_provenance(1), "f").is_err());
        }
    }
}
