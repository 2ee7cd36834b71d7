//! Exported data and functions that MPICH's header names, and functions of MPI that the standard
//! ABI does not have.

#![allow(non_snake_case, non_upper_case_globals)]

use crate::{Mpich as A, Status};
use ferry_translate::abi::{Abi, kind};
use ferry_translate::compound;
use ferry_translate::extras::{Bound, Sentinel};
use std::ffi::c_void;

type H = <A as Abi>::Handle;
type F = <A as Abi>::File;

static UNWEIGHTED: i32 = 0;
static WEIGHTS_EMPTY: i32 = 1;
static ALL_HANDLES: i32 = 2;

/// MPI_UNWEIGHTED.
#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: Sentinel = Sentinel::of(&UNWEIGHTED);
/// MPI_WEIGHTS_EMPTY.
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: Sentinel = Sentinel::of(&WEIGHTS_EMPTY);
/// MPI_T_PVAR_ALL_HANDLES.
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: Sentinel = Sentinel::of(&ALL_HANDLES);
ferry_translate::export_ignored_statuses!(5);

/// The addresses of MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY.
pub fn weights() -> [*mut i32; 2] {
    [&raw const UNWEIGHTED, &raw const WEIGHTS_EMPTY].map(|p| p.cast_mut())
}

/// MPI_T_PVAR_ALL_HANDLES as a handle.
pub fn all_handles() -> u64 {
    (&raw const ALL_HANDLES).addr() as u64
}

/// MPI_DUP_FN: the value of the attribute is copied.
///
/// # Safety
/// Called as a copy function of attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _object: H,
    _keyval: i32,
    _state: *mut c_void,
    value: *mut c_void,
    new_value: *mut *mut c_void,
    flag: *mut i32,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        *new_value = value;
        *flag = 1;
    }
    0
}

/// MPI_LB and MPI_UB.
fn bound_of(datatype: H) -> Option<Bound> {
    match datatype as u32 {
        0x4c00_0010 => Some(Bound::Lower),
        0x4c00_0011 => Some(Bound::Upper),
        _ => None,
    }
}

ferry_translate::export_extras!(bound_of);

ferry_translate::export_status_conversions!(Status);

// Ferry passes no memory of other processors to a device: the answer is no.
ferry_translate::exports! {
    MPIX_Query_cuda_support PMPIX_Query_cuda_support() => 0;
    MPIX_Query_ze_support PMPIX_Query_ze_support() => 0;
    MPIX_Query_hip_support PMPIX_Query_hip_support() => 0;
}
