//! `libmpi.so.40`: Open MPI's ABI over the standard one, for programs that were linked with Open
//! MPI 4 or 5.
//!
//! A handle is an address: that of an exported object if it is predefined. An object holds the
//! standard ABI's handle. A linker that makes a program of fixed addresses copies the object into
//! the program, and what is copied is all there is in it. Handles of other objects are those of the
//! standard ABI, which are no addresses. An error code is its class; the text of the latest error
//! of a class is kept.

mod cxx;
mod objects;

use ferry_translate::abi::{Abi, INVALID, PREDEFINED, Requests, StringSizes, Tables, kind};
use ferry_translate::constants;
use ferry_translate::extras::{of_standard_int, standard_int};
use ferry_translate::standard::Status as StandardStatus;
use std::sync::atomic::{AtomicI32, Ordering};

/// Tables and objects made from `crates/api/abis/openmpi.abi`.
#[allow(dead_code, non_upper_case_globals)]
mod table {
    use crate::objects::{Address, Object};

    include!(concat!(env!("OUT_DIR"), "/table.rs"));
}

ferry_translate::entries!(OpenMpi);

/// Open MPI's ABI.
#[derive(Debug)]
pub struct OpenMpi;

/// Called when the library is loaded. A program's copy of the null request has its address then.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        let null = objects::of_standard(constants::MPI_REQUEST_NULL);
        ferry_translate::standard::set_abi::<OpenMpi>(null as u64);
    }
    at_load
};

/// MPI_Status of Open MPI. In Fortran it is an array of INTEGERs, with their alignment.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Debug)]
pub struct Status {
    source: i32,
    tag: i32,
    error: i32,
    cancelled: i32,
    bytes: u64,
}

/// The class of a code of the standard ABI as Ferry makes them is the code modulo this.
const STANDARD_STRIDE: i32 = 64;
/// The standard ABI's first code of the tool interface.
const TOOL: i32 = constants::MPI_T_ERR_CANNOT_INIT;
/// The latest code of each class of the standard ABI, with the number of its text.
static LATEST: [AtomicI32; STANDARD_STRIDE as usize] =
    [const { AtomicI32::new(0) }; STANDARD_STRIDE as usize];

impl Abi for OpenMpi {
    type Handle = usize;
    type File = usize;
    type Status = Status;

    const REQUESTS: Requests = Requests::Addresses;
    const TABLES: Tables = ferry_translate::tables!(table);
    const STRING_SIZES: StringSizes = ferry_translate::string_sizes!(table);
    const ANY_SOURCE: i32 = table::ANY_SOURCE;
    const ANY_TAG: i32 = table::ANY_TAG;
    const PROC_NULL: i32 = table::PROC_NULL;
    const ROOT: i32 = table::ROOT;
    const IN_PLACE: usize = table::IN_PLACE as usize;
    // Not in Open MPI 4 and 5: the standard ABI's value.
    const BUFFER_AUTOMATIC: usize = constants::MPI_BUFFER_AUTOMATIC;
    const STATUS_IGNORE: usize = table::STATUS_IGNORE as usize;
    const DISPLACEMENT_CURRENT: i64 = table::DISPLACEMENT_CURRENT;

    fn weights() -> [*mut i32; 2] {
        [table::UNWEIGHTED, table::WEIGHTS_EMPTY]
            .map(|value| std::ptr::without_provenance_mut(value as usize))
    }

    #[inline(always)]
    unsafe fn handle_in<K: kind::Kind>(handle: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { objects::standard(handle) }
    }

    #[inline(always)]
    fn handle_out<K: kind::Kind>(handle: u64) -> usize {
        objects::of_standard(handle)
    }

    unsafe fn file_in(file: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { objects::standard(file) }
    }

    fn file_out(file: u64) -> usize {
        objects::of_standard(file)
    }

    unsafe fn to_int<K: kind::Kind>(handle: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe {
            let standard = objects::standard(handle);
            if is_object(standard) {
                standard_int::<K>(standard)
            } else {
                objects::to_integer::<K>(handle, standard)
            }
        }
    }

    unsafe fn from_int<K: kind::Kind>(number: i32) -> usize {
        if let Some(predefined) = objects::of_integer::<K>(number) {
            return predefined;
        }
        // SAFETY: a call of MPI.
        objects::of_standard(unsafe { of_standard_int::<K>(number) })
    }

    unsafe fn file_to_int(file: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { Self::to_int::<kind::File>(file) }
    }

    unsafe fn file_from_int(number: i32) -> usize {
        // SAFETY: the caller's promise.
        unsafe { Self::from_int::<kind::File>(number) }
    }

    #[inline(always)]
    fn code_out(code: i32) -> i32 {
        if code == 0 { 0 } else { code_out(code) }
    }

    fn code_in(code: i32) -> i32 {
        if code >= table::ERR_LASTCODE {
            return code - table::ERR_LASTCODE + constants::MPI_ERR_LASTCODE;
        }
        let class = Self::class_in(code);
        let latest = usize::try_from(class).ok().and_then(|c| LATEST.get(c));
        match latest.map(|code| code.load(Ordering::Relaxed)) {
            Some(latest) if latest != 0 => latest,
            _ => class,
        }
    }

    fn class_in(class: i32) -> i32 {
        if class >= table::ERR_LASTCODE {
            return class - table::ERR_LASTCODE + constants::MPI_ERR_LASTCODE;
        }
        match table::CLASS_PAIRS.iter().find(|pair| pair.0 == class) {
            Some((_, class)) => *class,
            // A number between the classes.
            None if class > 0 => constants::MPI_ERR_UNKNOWN,
            None => -1,
        }
    }

    fn status_in(status: &Status) -> StandardStatus {
        StandardStatus {
            source: ferry_translate::convert::rank_in::<OpenMpi>(status.source),
            tag: ferry_translate::convert::tag_in::<OpenMpi>(status.tag),
            error: Self::code_in(status.error),
            count: StandardStatus::halves(status.bytes),
            cancelled: status.cancelled,
            reserved: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn store_status(status: &StandardStatus, to: *mut Status) {
        // SAFETY: the caller's promise. A call that stores one status leaves MPI_ERROR as it is.
        unsafe {
            (*to).source = ferry_translate::convert::rank_out::<OpenMpi>(status.source);
            (*to).tag = ferry_translate::convert::tag_out::<OpenMpi>(status.tag);
            (*to).cancelled = i32::from(status.cancelled != 0);
            (*to).bytes = status.bytes();
            if status.error != StandardStatus::NOT_STORED {
                (*to).error = Self::code_out(status.error);
            }
        }
    }

    fn pvar_handle_in(handle: u64) -> u64 {
        if handle == u64::MAX {
            1 // MPI_T_PVAR_ALL_HANDLES of the standard ABI
        } else {
            handle
        }
    }
}

#[cold]
fn code_out(code: i32) -> i32 {
    if code >= constants::MPI_ERR_LASTCODE {
        return code - constants::MPI_ERR_LASTCODE + table::ERR_LASTCODE;
    }
    let tool = usize::try_from(code - TOOL).ok();
    if let Some(own) = tool.and_then(|at| table::TOOL_CODES.get(at)) {
        return *own;
    }
    let class = usize::try_from(code % STANDARD_STRIDE).unwrap_or(0);
    if code >= STANDARD_STRIDE {
        LATEST[class].store(code, Ordering::Relaxed);
    }
    table::CLASSES.get(class).copied().unwrap_or(code)
}

/// Is the handle one of an object that is not predefined?
#[inline(always)]
const fn is_object(handle: u64) -> bool {
    // The standard library's handles have their kind in the upper byte, where no address has any.
    handle >> 56 != 0
}

const _: () = assert!(PREDEFINED < 1 << 56 && !is_object(INVALID));
