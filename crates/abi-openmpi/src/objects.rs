//! Exported data and functions that Open MPI's header names, and functions of MPI that the standard
//! ABI does not have.

#![allow(non_snake_case, non_upper_case_globals)]

use crate::table::{self, OBJECTS};
use crate::{OpenMpi as A, Status, entries, is_object};
use ferry_translate::abi::kind::Kind;
use ferry_translate::abi::{Abi, INVALID, kind};
use ferry_translate::compound;
use ferry_translate::extras::Bound;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

type H = <A as Abi>::Handle;
type F = <A as Abi>::File;

/// Marks an object. Bytes of the text "FERRYMPI".
const MARK: u64 = u64::from_le_bytes(*b"FERRYMPI");

/// A predefined object. Open MPI's objects are larger; a program that has a copy of one has room
/// for more than this.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Object {
    mark: u64,
    standard: u64,
}

impl Object {
    /// The object of the standard ABI's predefined handle.
    pub const fn new(standard: u64) -> Object {
        Object {
            mark: MARK,
            standard,
        }
    }
}

/// The address of an object, or none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Address(*const Object);

// SAFETY: objects are constant.
unsafe impl Sync for Address {}

impl Address {
    /// No object.
    pub const NONE: Address = Address(std::ptr::null());

    /// The address of an object, in the program if that has a copy.
    pub const fn of(object: &'static Object) -> Address {
        Address(object)
    }
}

/// Where objects can be: above the first page, and below what is no address.
const ADDRESSES: std::ops::Range<usize> = 4096..1 << 56;

/// The standard ABI's handle of one that a program passed.
///
/// # Safety
/// An address is that of readable memory.
#[inline(always)]
pub unsafe fn standard(handle: usize) -> u64 {
    // Most handles are predefined.
    if !ADDRESSES.contains(&handle) {
        return if is_object(handle as u64) {
            handle as u64
        } else {
            INVALID
        };
    }
    let object: *const Object = std::ptr::with_exposed_provenance(handle);
    // SAFETY: the caller's promise. What is no object may be at any address.
    unsafe {
        if (&raw const (*object).mark).read_unaligned() == MARK {
            (&raw const (*object).standard).read_unaligned()
        } else {
            INVALID
        }
    }
}

/// The handle of one of the standard ABI. 0 for a predefined one that Open MPI does not have.
#[inline(always)]
pub fn of_standard(handle: u64) -> usize {
    if is_object(handle) {
        return handle as usize;
    }
    let object = OBJECTS.get(handle as usize);
    object.map_or(0, |address| address.0.expose_provenance())
}

/// What a header of Open MPI 4 calls MPI_C_COMPLEX.
#[unsafe(no_mangle)]
pub static ompi_mpi_c_complex: Object =
    Object::new(ferry_translate::constants::MPI_C_FLOAT_COMPLEX);
/// Another name of binary16. Programs get the one of the extension MPIX_SHORT_FLOAT, which Open
/// MPI has without a Fortran compiler that knows the type.
#[unsafe(no_mangle)]
pub static ompi_mpi_real2: Object = Object::new(ferry_translate::constants::MPI_REAL2);
/// MPI_LB, which MPI 3 has removed.
#[unsafe(no_mangle)]
pub static ompi_mpi_lb: Object = Object::new(INVALID);
/// MPI_UB, which MPI 3 has removed.
#[unsafe(no_mangle)]
pub static ompi_mpi_ub: Object = Object::new(INVALID);
/// A type that Ferry does not have.
#[unsafe(no_mangle)]
pub static ompi_mpi_2cplex: Object = Object::new(INVALID);
/// A type that Ferry does not have.
#[unsafe(no_mangle)]
pub static ompi_mpi_2dblcplex: Object = Object::new(INVALID);
/// A type that Ferry does not have.
#[unsafe(no_mangle)]
pub static ompi_mpi_ldblcplex: Object = Object::new(INVALID);
/// MPI_ERRORS_THROW_EXCEPTIONS of the bindings for C++, which MPI 3 has removed.
#[unsafe(no_mangle)]
pub static ompi_mpi_errors_throw_exceptions: Object =
    Object::new(ferry_translate::constants::MPI_ERRORS_ARE_FATAL);

/// The standard ABI's predefined handles of a kind by their INTEGERs in Fortran, 0 for none.
const fn integers<K: Kind>() -> &'static [u64] {
    match K::INDEX {
        0 => table::COMM_INTEGERS,
        1 => table::GROUP_INTEGERS,
        2 => table::DATATYPE_INTEGERS,
        3 => table::OP_INTEGERS,
        4 => table::REQUEST_INTEGERS,
        5 => table::MESSAGE_INTEGERS,
        6 => table::INFO_INTEGERS,
        7 => table::ERRHANDLER_INTEGERS,
        8 => table::WIN_INTEGERS,
        9 => table::SESSION_INTEGERS,
        _ => table::FILE_INTEGERS,
    }
}

/// Datatypes that the standard ABI does not have: their INTEGERs in Fortran.
static OTHER_DATATYPES: [(i32, &Object); 4] = [
    (3, &ompi_mpi_ub),
    (4, &ompi_mpi_lb),
    (26, &ompi_mpi_2cplex),
    (27, &ompi_mpi_2dblcplex),
];

/// Is the kind that of datatypes?
const fn of_datatypes<K: Kind>() -> bool {
    K::INDEX == kind::Datatype::INDEX
}

/// The INTEGER of a predefined handle; -1 of one that has none.
#[inline(always)]
pub fn to_integer<K: Kind>(handle: usize, standard: u64) -> i32 {
    let at = integers::<K>().iter().position(|known| *known == standard);
    if let Some(at) = at.filter(|_| standard != 0) {
        return at as i32;
    }
    let mut others = OTHER_DATATYPES.iter().filter(|_| of_datatypes::<K>());
    let other = others.find(|other| Address::of(other.1).0.addr() == handle);
    other.map_or(-1, |other| other.0)
}

/// The predefined handle of an INTEGER.
#[inline(always)]
pub fn of_integer<K: Kind>(number: i32) -> Option<usize> {
    let at = usize::try_from(number).ok()?;
    if let Some(standard) = integers::<K>().get(at).filter(|standard| **standard != 0) {
        return Some(of_standard(*standard));
    }
    let mut others = OTHER_DATATYPES.iter().filter(|_| of_datatypes::<K>());
    let other = others.find(|other| other.0 == number)?;
    Some(Address::of(other.1).0.expose_provenance())
}

ferry_translate::export_ignored_statuses!(6);

/// Data of Open MPI's inside that its C++ bindings (`libmpi_cxx.so.40`) name, so that a program
/// that is linked with them starts. They read it where a call of the bindings fails.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct OpaqueData([u64; 32]);

/// The number of errors that only Open MPI's inside has: none.
#[unsafe(no_mangle)]
pub static ompi_errcode_intern_lastused: OpaqueData = OpaqueData([0; 32]);
/// These errors.
#[unsafe(no_mangle)]
pub static ompi_errcodes_intern: OpaqueData = OpaqueData([0; 32]);
/// Data representations that the bindings have registered.
#[unsafe(no_mangle)]
pub static ompi_registered_datareps: OpaqueData = OpaqueData([0; 32]);

/// Open MPI's own function behind MPI_Init_thread. Programs that load an MPI by its name look for
/// it to tell Open MPI's ABI from MPICH's. `reinit_ok`: it is no error if MPI is initialised.
///
/// # Safety
/// As MPI_Init_thread: `provided` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_mpi_init(
    _argc: i32,
    _argv: *mut *mut c_char,
    required: i32,
    provided: *mut i32,
    reinit_ok: bool,
) -> i32 {
    let mut is_initialized = 0;
    // SAFETY: `is_initialized` is writable; for `provided` the caller's promise.
    unsafe {
        if reinit_ok && entries::MPI_Initialized(&mut is_initialized) == 0 && is_initialized != 0 {
            return entries::MPI_Query_thread(provided);
        }
        entries::MPI_Init_thread(null_mut(), null_mut(), required, provided)
    }
}

/// Called by MPI::Op::Init of the C++ bindings, for reductions of C++, which Ferry cannot call.
/// Ends the process with a message: a reduction without its function would give wrong numbers.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_op_set_cxx_callback(_op: H, _function: *const c_void) {
    eprintln!("Ferry MPI: MPI::Op::Init of Open MPI's C++ bindings is not supported");
    std::process::abort();
}

macro_rules! predefined_functions {
    ($($dup:ident $null_copy:ident $null_delete:ident;)*) => {$(
        /// The value of the attribute is copied.
        ///
        /// # Safety
        /// Called as a copy function of attributes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $dup(
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

        /// The attribute is not copied.
        ///
        /// # Safety
        /// Called as a copy function of attributes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $null_copy(
            _object: H,
            _keyval: i32,
            _state: *mut c_void,
            _value: *mut c_void,
            _new_value: *mut *mut c_void,
            flag: *mut i32,
        ) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { *flag = 0 };
            0
        }

        /// Nothing is to be done when the attribute is deleted.
        #[unsafe(no_mangle)]
        pub extern "C" fn $null_delete(
            _object: H,
            _keyval: i32,
            _value: *mut c_void,
            _state: *mut c_void,
        ) -> i32 {
            0
        }
    )*};
}

predefined_functions! {
    OMPI_C_MPI_COMM_DUP_FN OMPI_C_MPI_COMM_NULL_COPY_FN OMPI_C_MPI_COMM_NULL_DELETE_FN;
    OMPI_C_MPI_TYPE_DUP_FN OMPI_C_MPI_TYPE_NULL_COPY_FN OMPI_C_MPI_TYPE_NULL_DELETE_FN;
    OMPI_C_MPI_WIN_DUP_FN OMPI_C_MPI_WIN_NULL_COPY_FN OMPI_C_MPI_WIN_NULL_DELETE_FN;
    OMPI_C_MPI_DUP_FN OMPI_C_MPI_NULL_COPY_FN OMPI_C_MPI_NULL_DELETE_FN;
}

/// MPI_LB and MPI_UB.
fn bound_of(datatype: H) -> Option<Bound> {
    if datatype == Address::of(&ompi_mpi_lb).0.addr() {
        Some(Bound::Lower)
    } else if datatype == Address::of(&ompi_mpi_ub).0.addr() {
        Some(Bound::Upper)
    } else {
        None
    }
}

ferry_translate::export_extras!(bound_of);

ferry_translate::export_status_conversions!(Status);

// Ferry passes no memory of other processors to a device: the answer is no.
ferry_translate::exports! {
    MPIX_Query_cuda_support PMPIX_Query_cuda_support() => 0;
    MPIX_Query_rocm_support PMPIX_Query_rocm_support() => 0;
}
