//! The standard ABI's library: its functions and its status.

use crate::abi::{Abi, INVALID};
use crate::number;
use std::ffi::c_void;

/// A reduction with its state: state, input, input and output, count, datatype.
pub type Reduction =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut u64);
/// An error handler with its state: state, the object's handle, code.
pub type ErrorFunction = unsafe extern "C" fn(*mut c_void, *mut u64, *mut i32);

/// The table that libmpi_abi.so.1 exports. Its fields and their order are those of
/// `crates/abi/src/translation.rs`.
#[repr(C)]
struct Translation {
    bodies: [*const c_void; number::COUNT],
    per_abi: [[*const c_void; number::PER_ABI]; 2],
    set_abi: unsafe extern "C" fn(u32, u64, extern "C" fn(i32) -> i32),
    request_at: unsafe extern "C" fn(u32) -> u64,
    op_create: unsafe extern "C" fn(i32, Reduction, *mut c_void, i32, *mut u64) -> i32,
    errhandler_create: unsafe extern "C" fn(i32, ErrorFunction, *mut c_void, *mut u64) -> i32,
}

unsafe extern "C" {
    static ferry_translation: Translation;
}

/// A function of the standard ABI by its number.
///
/// # Safety
/// `F` is the type of a pointer to that function.
#[inline(always)]
pub unsafe fn function<F: Copy>(number: u32) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the table is constant, and the caller knows the type.
    unsafe { std::mem::transmute_copy(&ferry_translation.bodies[number as usize - 1]) }
}

/// A function of the standard ABI that exists for each ABI, by its place among these. It gets
/// requests and arrays of them as the program has them, or its MPI_STATUS_IGNORE, and returns the
/// ABI's error codes.
///
/// # Safety
/// As for [`function`].
#[inline(always)]
pub unsafe fn abi_function<A: Abi, F: Copy>(at: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the table is constant, and the caller knows the type.
    unsafe { std::mem::transmute_copy(&ferry_translation.per_abi[A::REQUESTS as usize][at]) }
}

/// Tells the standard ABI's library which ABI the program has: how requests look, which one is
/// MPI_REQUEST_NULL, and what error codes it returns. Needed before [`abi_function`] is called.
pub fn set_abi<A: Abi>(null_request: u64) {
    extern "C" fn code<A: Abi>(code: i32) -> i32 {
        A::code_out(code)
    }
    // SAFETY: the function takes any values.
    unsafe { (ferry_translation.set_abi)(A::REQUESTS as u32, null_request, code::<A>) }
}

/// The handle of the request at an index; [`INVALID`] if there is none.
pub fn request_at(index: u32) -> u64 {
    // SAFETY: the function takes any number.
    match unsafe { (ferry_translation.request_at)(index) } {
        0 => INVALID,
        handle => handle,
    }
}

/// MPI_Op_create for a function with a state; MPI_Op_create_c if `large` is not 0.
///
/// # Safety
/// `op` is null or valid; `f` may be called with `state` as long as the operation is used.
pub unsafe fn op_create(
    large: i32,
    f: Reduction,
    state: *mut c_void,
    commute: i32,
    op: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { (ferry_translation.op_create)(large, f, state, commute, op) }
}

/// MPI_X_create_errhandler for a function with a state. `target` counts communicators, windows,
/// files and sessions from 0.
///
/// # Safety
/// `errhandler` is null or valid; `f` may be called with `state` as long as the handler is used.
pub unsafe fn errhandler_create(
    target: i32,
    f: ErrorFunction,
    state: *mut c_void,
    errhandler: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { (ferry_translation.errhandler_create)(target, f, state, errhandler) }
}

/// MPI_Status of the standard ABI, with the library's own fields as Ferry uses them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// MPI_SOURCE.
    pub source: i32,
    /// MPI_TAG.
    pub tag: i32,
    /// MPI_ERROR.
    pub error: i32,
    /// Bytes of the message, the lower half first.
    pub count: [u32; 2],
    /// Was the operation cancelled?
    pub cancelled: i32,
    /// Not used.
    pub reserved: [i32; 2],
}

impl Status {
    /// No field of a status has this value after a call has stored it.
    pub const NOT_STORED: i32 = i32::MIN;
    /// A status that a call has not stored to. Its error has not been stored, either.
    pub const UNTOUCHED: Status = Status {
        source: Status::NOT_STORED,
        tag: 0,
        error: Status::NOT_STORED,
        count: [0; 2],
        cancelled: 0,
        reserved: [0; 2],
    };

    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count[0]) | u64::from(self.count[1]) << 32
    }

    /// The two halves of a byte count.
    pub fn halves(bytes: u64) -> [u32; 2] {
        [bytes as u32, (bytes >> 32) as u32]
    }
}
