//! Initialisation, versions, clocks and memory (MPI 5.0 chapters 9 and 11), and the functions of
//! the ABI (chapter 21).

use crate::constants::*;
use crate::entry::{self, WorldState};
use crate::prelude::*;
use ferry_mpi::process::{self, ThreadLevel, process};
use ferry_op::FortranBooleans;
use std::sync::OnceLock;

pub fn init(argc: *mut i32, argv: *mut *mut *mut c_char) -> Result<()> {
    // The arguments stay unchanged: Ferry passes its own data by the environment.
    let _ = (argc, argv);
    start(ThreadLevel::Single)
}

pub fn init_thread(
    argc: *mut i32,
    argv: *mut *mut *mut c_char,
    required: i32,
    provided: Out<i32>,
) -> Result<()> {
    let _ = (argc, argv);
    let level = LEVELS
        .into_iter()
        .find(|l| l.1 == required)
        .ok_or_else(|| {
            err!(
                Arg,
                "required is {required}, which is no level of thread support"
            )
        })?;
    start(level.0)?;
    provided.set(required);
    Ok(())
}

fn start(level: ThreadLevel) -> Result<()> {
    match entry::world_state() {
        WorldState::NotInitialized => {}
        WorldState::Running => return Err(err!(Other, "MPI has been initialised already")),
        WorldState::Finalized => return Err(err!(Other, "it was called after MPI_Finalize")),
    }
    let process = process::init(level)?;
    process.world.identity.set(MPI_COMM_WORLD);
    process.comm_self.identity.set(MPI_COMM_SELF);
    super::group::empty().identity.set(MPI_GROUP_EMPTY);
    super::info::environment().set(b"thread_level", name_of(level).as_bytes());
    super::info::environment().set(b"maxprocs", process.size.to_string().as_bytes());
    entry::world_begins();
    Ok(())
}

/// The levels of thread support, with their numbers and names.
const LEVELS: [(ThreadLevel, i32, &str); 4] = [
    (ThreadLevel::Single, MPI_THREAD_SINGLE, "MPI_THREAD_SINGLE"),
    (
        ThreadLevel::Funneled,
        MPI_THREAD_FUNNELED,
        "MPI_THREAD_FUNNELED",
    ),
    (
        ThreadLevel::Serialized,
        MPI_THREAD_SERIALIZED,
        "MPI_THREAD_SERIALIZED",
    ),
    (
        ThreadLevel::Multiple,
        MPI_THREAD_MULTIPLE,
        "MPI_THREAD_MULTIPLE",
    ),
];

/// The name of a level.
pub fn name_of(level: ThreadLevel) -> &'static str {
    LEVELS[level as usize].2
}

/// The level with that name.
pub fn level_named(name: &str) -> Option<ThreadLevel> {
    LEVELS.into_iter().find(|l| l.2 == name).map(|l| l.0)
}

/// The level with that number.
pub fn level_numbered(number: i32) -> Option<ThreadLevel> {
    LEVELS.into_iter().find(|l| l.1 == number).map(|l| l.0)
}

/// The number of a level.
pub fn number_of(level: ThreadLevel) -> i32 {
    LEVELS[level as usize].1
}

pub fn finalize() -> Result<()> {
    if entry::world_state() != WorldState::Running {
        return Err(no_world());
    }
    // The delete callbacks of MPI_COMM_SELF run first, while MPI still works (MPI 5.0 §11.2.4).
    process().comm_self.attributes.delete_all(MPI_COMM_SELF)?;
    let leaks = crate::leaks::report();
    let result = process().finalize(&handle::all::<Comm>(), leaks);
    entry::world_ends();
    result
}

/// The error of a function of the world model that is called outside it.
#[cold]
fn no_world() -> Error {
    match entry::world_state() {
        WorldState::Finalized => err!(Other, "it was called after MPI_Finalize"),
        _ => err!(
            Other,
            "it belongs to the world model, but there are only sessions: MPI_Init has not been \
             called"
        ),
    }
}

pub fn initialized(flag: OutFlag) -> Result<()> {
    flag.set(entry::world_state() != WorldState::NotInitialized);
    Ok(())
}

pub fn finalized(flag: OutFlag) -> Result<()> {
    flag.set(entry::world_state() == WorldState::Finalized);
    Ok(())
}

pub fn is_thread_main(flag: OutFlag) -> Result<()> {
    let main = process().main_thread().ok_or_else(no_world)?;
    flag.set(std::thread::current().id() == main);
    Ok(())
}

pub fn query_thread(provided: Out<i32>) -> Result<()> {
    let level = process().world_level().ok_or_else(no_world)?;
    provided.set(LEVELS[level as usize].1);
    Ok(())
}

/// The time in seconds, on the node's monotonic clock, which its processes share. A modelled
/// machine has virtual time.
pub fn wtime() -> f64 {
    if let Some(time) = ferry_device::virtual_time() {
        return time;
    }
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

pub fn wtick() -> f64 {
    // The unit of virtual time is a picosecond.
    if ferry_device::virtual_time().is_some() {
        1e-12
    } else {
        1e-9
    }
}

pub fn aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

pub fn aint_diff(addr1: i64, addr2: i64) -> i64 {
    addr1.wrapping_sub(addr2)
}

pub fn get_processor_name(name: OutText, resultlen: Out<i32>) -> Result<()> {
    resultlen.set(name.set(host()));
    Ok(())
}

/// The node's name.
pub fn host() -> String {
    let mut bytes = [0u8; 256];
    // SAFETY: the buffer has room for 255 bytes and a null, which stays.
    unsafe { libc::gethostname(bytes.as_mut_ptr().cast(), bytes.len() - 1) };
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

pub fn get_version(version: Out<i32>, subversion: Out<i32>) -> Result<()> {
    version.set(MPI_VERSION);
    subversion.set(MPI_SUBVERSION);
    Ok(())
}

pub fn get_library_version(version: OutText, resultlen: Out<i32>) -> Result<()> {
    let text = concat!(
        "Ferry MPI ",
        env!("CARGO_PKG_VERSION"),
        " (MPI 5.0, standard ABI 1.0)"
    );
    resultlen.set(version.set(text));
    Ok(())
}

/// For tools that intercept it. The library itself does nothing (MPI 5.0 §15.2.4).
pub fn pcontrol(level: i32) -> Result<()> {
    let _ = level;
    Ok(())
}

/// Alignment of allocated memory, bytes: a cache line.
const ALIGNMENT_BYTES: usize = 64;

pub fn alloc_mem(size: i64, info: Option<InfoRef>, baseptr: OutPointer) -> Result<()> {
    let bytes =
        usize::try_from(size).map_err(|_| err!(Arg, "size is {size}, which is negative"))?;
    let mut alignment = ALIGNMENT_BYTES;
    if let Some(text) = info.and_then(|i| i.text("mpi_minimum_memory_alignment")) {
        match text.trim().parse::<usize>() {
            Ok(n) if n.is_power_of_two() => alignment = alignment.max(n),
            _ => {
                return Err(err!(
                    InfoValue,
                    "mpi_minimum_memory_alignment is {text}, which is no power of two"
                ));
            }
        }
    }
    let ordinary = info.and_then(|i| i.text("ferry_memory"));
    let ordinary = match ordinary.as_deref().map(str::trim) {
        None | Some("card") => false,
        Some("system") => true,
        Some(text) => {
            return Err(err!(
                InfoValue,
                "ferry_memory is {text}; it can be card or system"
            ));
        }
    };
    if ferry_device::is_modelled() && !ordinary {
        let on_card = ferry_device::device().allocate_on_card(bytes, alignment);
        if let Some(base) = on_card {
            baseptr.set(base.cast());
            return Ok(());
        }
    }
    let mut base = std::ptr::null_mut();
    // SAFETY: the result's address is valid. The alignment is a power of two and a multiple of a
    // pointer's size.
    if unsafe { libc::posix_memalign(&raw mut base, alignment, bytes.max(1)) } != 0 {
        return Err(err!(NoMem, "{size} bytes are not to be had"));
    }
    baseptr.set(base);
    Ok(())
}

pub fn free_mem(base: *mut c_void) -> Result<()> {
    if ferry_device::is_modelled() && ferry_device::device().release_on_card(base.addr()) {
        return Ok(());
    }
    // SAFETY: the program passes an address from alloc_mem, or null.
    unsafe { libc::free(base) };
    Ok(())
}

/// Ferry knows no hardware types yet, so MPI_Comm_split_type accepts none.
pub fn get_hw_resource_info(hw_info: New<Info>) -> Result<()> {
    hw_info.set(Info::new());
    Ok(())
}

pub fn abi_get_version(abi_major: Out<i32>, abi_minor: Out<i32>) -> Result<()> {
    abi_major.set(MPI_ABI_VERSION);
    abi_minor.set(MPI_ABI_SUBVERSION);
    Ok(())
}

pub fn abi_get_info(info: New<Info>) -> Result<()> {
    info.set(Info::of([
        ("mpi_aint_size", "8"),
        ("mpi_count_size", "8"),
        ("mpi_offset_size", "8"),
    ]));
    Ok(())
}

/// The values that a Fortran layer has set for its compiler.
static FORTRAN: OnceLock<Arc<Info>> = OnceLock::new();

pub fn abi_set_fortran_info(info: Option<InfoRef>) -> Result<()> {
    let info = info.ok_or_else(|| err!(Info, "info is MPI_INFO_NULL"))?;
    FORTRAN
        .set(info.duplicate())
        .map_err(|_| err!(Abi, "the properties of Fortran have been set already"))
}

pub fn abi_get_fortran_info(info: New<Info>) -> Result<()> {
    info.set_or_null(FORTRAN.get().map(|i| i.duplicate()));
    Ok(())
}

pub fn abi_set_fortran_booleans(
    logical_size: i32,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
) -> Result<()> {
    let size = logical_width(logical_size)?;
    if logical_true.is_null() || logical_false.is_null() {
        return Err(err!(Arg, "the address of a LOGICAL is null"));
    }
    // SAFETY: the program promises two LOGICALs of that size.
    let (true_value, false_value) =
        unsafe { (load(size, logical_true), load(size, logical_false)) };
    if (FortranBooleans {
        size,
        true_value,
        false_value,
    })
    .set()
    {
        Ok(())
    } else {
        Err(err!(
            Abi,
            "the values of Fortran's LOGICAL have been set already"
        ))
    }
}

pub fn abi_get_fortran_booleans(
    logical_size: i32,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
    is_set: OutFlag,
) -> Result<()> {
    let size = logical_width(logical_size)?;
    let known = FortranBooleans::current().filter(|b| b.size == size);
    is_set.set(known.is_some());
    if let Some(booleans) = known {
        // SAFETY: the program promises room for two LOGICALs of that size.
        unsafe {
            store(size, logical_true, booleans.true_value);
            store(size, logical_false, booleans.false_value);
        }
    }
    Ok(())
}

fn logical_width(size: i32) -> Result<usize> {
    match size {
        1 | 2 | 4 | 8 => Ok(size as usize),
        _ => Err(err!(
            Arg,
            "logical_size is {size}; sizes of LOGICAL known here are 1, 2, 4 and 8"
        )),
    }
}

/// # Safety
/// `at` has `size` readable bytes.
unsafe fn load(size: usize, at: *const c_void) -> i64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the caller's promise; no size exceeds 8.
    unsafe { std::ptr::copy_nonoverlapping(at.cast(), bytes.as_mut_ptr(), size) };
    let unused = 64 - 8 * size as u32;
    i64::from_le_bytes(bytes) << unused >> unused
}

/// # Safety
/// `at` is null or has `size` writable bytes.
unsafe fn store(size: usize, at: *mut c_void, value: i64) {
    if !at.is_null() {
        // SAFETY: the caller's promise; no size exceeds 8.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at.cast(), size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logicals_of_all_sizes_come_back() {
        for size in [1, 2, 4, 8] {
            for value in [0i64, 1, -1] {
                let mut room = [0x55u8; 8];
                // SAFETY: eight bytes.
                unsafe {
                    store(size, room.as_mut_ptr().cast(), value);
                    assert_eq!(load(size, room.as_ptr().cast()), value);
                }
                assert!(room[size..].iter().all(|b| *b == 0x55));
            }
        }
        assert!(logical_width(3).is_err());
    }

    #[test]
    fn levels_have_names_in_order() {
        for (at, (level, _, name)) in LEVELS.into_iter().enumerate() {
            assert_eq!((level as usize, name_of(level)), (at, name));
            assert_eq!(level_named(name), Some(level));
        }
        assert_eq!(level_named("MPI_THREAD_NONE"), None);
    }

    #[test]
    fn the_clock_moves_forward() {
        let before = wtime();
        assert!(wtime() >= before && wtick() > 0.0);
        assert!(!host().is_empty());
    }
}
