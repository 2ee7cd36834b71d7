//! `libmpi.so.12`: MPICH's ABI over the standard one, for programs that were linked with MPICH,
//! Intel MPI, MVAPICH or Cray MPICH.
//!
//! A handle is an int. That of an object has its two upper bits set, and the index of the standard
//! ABI's handle below. A status has 20 bytes. An error code is its class and 128 times the number
//! of its text.

mod handles;
mod objects;
mod standard_handles;

use ferry_translate::abi::{Abi, Requests, StringSizes, Tables, kind};
use ferry_translate::constants;
use ferry_translate::extras::{of_standard_int, standard_int};
use ferry_translate::standard::Status as StandardStatus;

/// Tables made from `crates/api/abis/mpich.abi`.
#[allow(dead_code)]
mod table {
    include!(concat!(env!("OUT_DIR"), "/table.rs"));
}

ferry_translate::entries!(Mpich);

/// MPICH's ABI.
#[derive(Debug)]
pub struct Mpich;

/// Called when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        let null = handles::of_standard::<kind::Request>(constants::MPI_REQUEST_NULL);
        ferry_translate::standard::set_abi::<Mpich>(u64::from(null));
    }
    at_load
};

/// MPI_Status of MPICH.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Status {
    count_low: u32,
    /// 31 bits of the count, then the cancelled flag.
    count_high_and_cancelled: u32,
    source: i32,
    tag: i32,
    error: i32,
}

/// A code is its class plus this times the number of its text. Every class is below it.
const CLASS_STRIDE: i32 = 128;
/// The same in the standard ABI's codes as Ferry makes them.
const STANDARD_STRIDE: i32 = 64;
/// The standard ABI's first code of the tool interface.
const TOOL: i32 = constants::MPI_T_ERR_CANNOT_INIT;

impl Abi for Mpich {
    type Handle = i32;
    type File = usize;
    type Status = Status;

    const REQUESTS: Requests = Requests::Ints;
    const TABLES: Tables = ferry_translate::tables!(table);
    const STRING_SIZES: StringSizes = ferry_translate::string_sizes!(table);
    const ANY_SOURCE: i32 = table::ANY_SOURCE;
    const ANY_TAG: i32 = table::ANY_TAG;
    const PROC_NULL: i32 = table::PROC_NULL;
    const ROOT: i32 = table::ROOT;
    const IN_PLACE: usize = table::IN_PLACE as usize;
    const BUFFER_AUTOMATIC: usize = table::BUFFER_AUTOMATIC as usize;
    const STATUS_IGNORE: usize = table::STATUS_IGNORE as usize;
    const DISPLACEMENT_CURRENT: i64 = table::DISPLACEMENT_CURRENT;

    fn weights() -> [*mut i32; 2] {
        objects::weights()
    }

    #[inline(always)]
    unsafe fn handle_in<K: kind::Kind>(handle: i32) -> u64 {
        handles::standard::<K>(handle as u32)
    }

    #[inline(always)]
    fn handle_out<K: kind::Kind>(handle: u64) -> i32 {
        handles::of_standard::<K>(handle) as i32
    }

    unsafe fn file_in(file: usize) -> u64 {
        match file {
            0 => constants::MPI_FILE_NULL,
            _ if (file as u64) < ferry_translate::abi::PREDEFINED => ferry_translate::abi::INVALID,
            _ => file as u64,
        }
    }

    fn file_out(file: u64) -> usize {
        if file == constants::MPI_FILE_NULL {
            0
        } else {
            file as usize
        }
    }

    // Fortran's handles are C's (MPICH's mpi.h).
    unsafe fn to_int<K: kind::Kind>(handle: i32) -> i32 {
        handle
    }

    unsafe fn from_int<K: kind::Kind>(number: i32) -> i32 {
        number
    }

    unsafe fn file_to_int(file: usize) -> i32 {
        // SAFETY: a call of MPI.
        unsafe {
            match Self::file_in(file) {
                constants::MPI_FILE_NULL => 0,
                standard => standard_int::<kind::File>(standard),
            }
        }
    }

    unsafe fn file_from_int(number: i32) -> usize {
        match number {
            0 => 0,
            // SAFETY: a call of MPI.
            _ => Self::file_out(unsafe { of_standard_int::<kind::File>(number) }),
        }
    }

    #[inline(always)]
    fn code_out(code: i32) -> i32 {
        if code == 0 { 0 } else { code_out(code) }
    }

    fn code_in(code: i32) -> i32 {
        if code >= table::ERR_LASTCODE {
            return code - table::ERR_LASTCODE + constants::MPI_ERR_LASTCODE;
        }
        let (class, text) = (code % CLASS_STRIDE, code / CLASS_STRIDE);
        match table::CLASS_PAIRS.iter().find(|pair| pair.0 == class) {
            Some((_, tool)) if *tool >= TOOL => *tool,
            Some((_, class)) => class + STANDARD_STRIDE * text,
            // A number between the classes.
            None if text == 0 && class > 0 => constants::MPI_ERR_UNKNOWN,
            None => -1,
        }
    }

    fn status_in(status: &Status) -> StandardStatus {
        StandardStatus {
            source: ferry_translate::convert::rank_in::<Mpich>(status.source),
            tag: ferry_translate::convert::tag_in::<Mpich>(status.tag),
            error: Self::code_in(status.error),
            count: [status.count_low, status.count_high_and_cancelled >> 1],
            cancelled: (status.count_high_and_cancelled & 1) as i32,
            reserved: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn store_status(status: &StandardStatus, to: *mut Status) {
        // SAFETY: the caller's promise. A call that stores one status leaves MPI_ERROR as it is.
        unsafe {
            (*to).count_low = status.count[0];
            let cancelled = u32::from(status.cancelled != 0);
            (*to).count_high_and_cancelled = status.count[1] << 1 | cancelled;
            (*to).source = ferry_translate::convert::rank_out::<Mpich>(status.source);
            (*to).tag = ferry_translate::convert::tag_out::<Mpich>(status.tag);
            if status.error != StandardStatus::NOT_STORED {
                (*to).error = Self::code_out(status.error);
            }
        }
    }

    fn pvar_handle_in(handle: u64) -> u64 {
        if handle == objects::all_handles() {
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
    let (class, text) = (code % STANDARD_STRIDE, code / STANDARD_STRIDE);
    let class = usize::try_from(class)
        .ok()
        .and_then(|c| table::CLASSES.get(c));
    class.map_or(code, |class| class + CLASS_STRIDE * text)
}
