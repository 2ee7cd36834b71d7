//! Exported data and functions that MPICH's header names, and functions of MPI that the standard
//! ABI does not have.

#![allow(non_snake_case, non_upper_case_globals)]

use crate::{Mpich as A, Status};
use ferry_translate::abi::{Abi, kind};
use ferry_translate::by_hand;
use ferry_translate::extras::Bound;
use std::ffi::c_void;

type H = <A as Abi>::Handle;
type F = <A as Abi>::File;

/// An address in exported data.
#[repr(transparent)]
#[derive(Debug)]
pub struct Address(*const i32);

// SAFETY: the address is compared, never read through.
unsafe impl Sync for Address {}

static UNWEIGHTED: i32 = 0;
static WEIGHTS_EMPTY: i32 = 1;
static ALL_HANDLES: i32 = 2;
static F_STATUS: [i32; 5] = [0; 5];

/// MPI_UNWEIGHTED.
#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: Address = Address(&raw const UNWEIGHTED);
/// MPI_WEIGHTS_EMPTY.
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: Address = Address(&raw const WEIGHTS_EMPTY);
/// MPI_T_PVAR_ALL_HANDLES.
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: Address = Address(&raw const ALL_HANDLES);
/// MPI_F_STATUS_IGNORE.
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: Address = Address((&raw const F_STATUS).cast());
/// MPI_F_STATUSES_IGNORE.
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: Address = Address((&raw const F_STATUS).cast());
/// MPI_F08_STATUS_IGNORE.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: Address = Address((&raw const F_STATUS).cast());
/// MPI_F08_STATUSES_IGNORE.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: Address = Address((&raw const F_STATUS).cast());

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

/// Copies a status between C and Fortran, where it is the same five ints.
unsafe fn copy_status(from: *const Status, to: *mut Status) -> i32 {
    // SAFETY: both are valid.
    unsafe { *to = *from };
    0
}

ferry_translate::exports! {
    MPI_Status_c2f PMPI_Status_c2f(c: *const Status, f: *mut Status) => copy_status(c, f);
    MPI_Status_f2c PMPI_Status_f2c(f: *const Status, c: *mut Status) => copy_status(f, c);
    MPI_Status_c2f08 PMPI_Status_c2f08(c: *const Status, f: *mut Status) => copy_status(c, f);
    MPI_Status_f082c PMPI_Status_f082c(f: *const Status, c: *mut Status) => copy_status(f, c);
    MPI_Status_f082f PMPI_Status_f082f(a: *const Status, b: *mut Status) => copy_status(a, b);
    MPI_Status_f2f08 PMPI_Status_f2f08(a: *const Status, b: *mut Status) => copy_status(a, b);
}

// Ferry passes no memory of other processors to a device: the answer is no.
ferry_translate::exports! {
    MPIX_Query_cuda_support PMPIX_Query_cuda_support() => 0;
    MPIX_Query_ze_support PMPIX_Query_ze_support() => 0;
    MPIX_Query_hip_support PMPIX_Query_hip_support() => 0;
}
