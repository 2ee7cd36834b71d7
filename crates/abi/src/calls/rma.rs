//! Windows and one-sided operations (MPI 5.0 chapter 12).

use crate::prelude::*;
use ferry_mpi::pt2pt::Buffer;
use ferry_mpi::win::{FenceAssertions, Flavor, LockType, NewWindow, Operands, TargetBuffer};
use ferry_op::Predefined;

type Window = WinRef;

/// The assertions that MPI_Win_fence takes.
const FENCE_ASSERTIONS: i32 = constants::MPI_MODE_NOSTORE
    | constants::MPI_MODE_NOPUT
    | constants::MPI_MODE_NOPRECEDE
    | constants::MPI_MODE_NOSUCCEED;
/// The assertions that MPI_Win_post takes.
const POST_ASSERTIONS: i32 =
    constants::MPI_MODE_NOCHECK | constants::MPI_MODE_NOSTORE | constants::MPI_MODE_NOPUT;

/// A target's rank. `None` for MPI_PROC_NULL. Whether there is such a rank is checked later: one
/// that is negative becomes a large number.
#[inline]
fn rank_of(target: i32) -> Option<u32> {
    (target != constants::MPI_PROC_NULL).then_some(target as u32)
}

#[inline]
fn target_buffer(rank: u32, disp: i64, count: i64, datatype: DatatypeRef) -> TargetBuffer<'static> {
    TargetBuffer {
        rank,
        disp,
        count,
        datatype,
    }
}

/// A buffer at the origin that is read.
#[inline]
fn source(at: *const u8, count: i64, datatype: DatatypeRef, name: &str) -> Result<Buffer<'static>> {
    sink(at.cast_mut(), count, datatype, name)
}

/// A buffer at the origin that is written.
#[inline]
fn sink(
    address: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    name: &str,
) -> Result<Buffer<'static>> {
    args::buffer(address, count, datatype, name)?;
    Ok(Buffer {
        address,
        count,
        datatype,
    })
}

/// Checks assertions.
///
/// Errors: Assert.
fn check_assertions(given: i32, allowed: i32) -> Result<()> {
    if given & !allowed == 0 {
        return Ok(());
    }
    Err(err!(
        Assert,
        "assert is {given}, of which {:#x} is no assertion that this call takes",
        given & !allowed
    ))
}

fn no_check(assertions: i32) -> bool {
    assertions & constants::MPI_MODE_NOCHECK != 0
}

// Windows.

fn make(new: &NewWindow<'_>, baseptr: Option<OutPointer>, win: New<Win>) -> Result<()> {
    let made = Win::make(new)?;
    if let Some(baseptr) = baseptr {
        baseptr.set(made.base().cast());
    }
    win.set(made);
    Ok(())
}

pub fn win_create(
    base: *mut c_void,
    size: i64,
    disp_unit: i64,
    info: Option<InfoRef>,
    comm: CommRef,
    win: New<Win>,
) -> Result<()> {
    let new = NewWindow {
        comm,
        info: info.map(|info| &**info),
        flavor: Flavor::Create,
        base: base.cast(),
        size,
        disp_unit,
    };
    make(&new, None, win)
}

fn allocate(
    flavor: Flavor,
    (size, disp_unit): (i64, i64),
    info: Option<InfoRef>,
    comm: CommRef,
    baseptr: OutPointer,
    win: New<Win>,
) -> Result<()> {
    let new = NewWindow {
        comm,
        info: info.map(|info| &**info),
        flavor,
        base: std::ptr::null_mut(),
        size,
        disp_unit,
    };
    make(&new, Some(baseptr), win)
}

pub fn win_allocate(
    size: i64,
    disp_unit: i64,
    info: Option<InfoRef>,
    comm: CommRef,
    baseptr: OutPointer,
    win: New<Win>,
) -> Result<()> {
    allocate(
        Flavor::Allocate,
        (size, disp_unit),
        info,
        comm,
        baseptr,
        win,
    )
}

pub fn win_allocate_shared(
    size: i64,
    disp_unit: i64,
    info: Option<InfoRef>,
    comm: CommRef,
    baseptr: OutPointer,
    win: New<Win>,
) -> Result<()> {
    allocate(Flavor::Shared, (size, disp_unit), info, comm, baseptr, win)
}

pub fn win_create_dynamic(info: Option<InfoRef>, comm: CommRef, win: New<Win>) -> Result<()> {
    let new = NewWindow {
        comm,
        info: info.map(|info| &**info),
        flavor: Flavor::Dynamic,
        base: std::ptr::null_mut(),
        size: 0,
        disp_unit: 1,
    };
    make(&new, None, win)
}

pub fn win_free(win: InOutHandle<Win>) -> Result<()> {
    win.object().free()?;
    win.free().map(drop)
}

pub fn win_attach(win: Window, base: *mut c_void, size: i64) -> Result<()> {
    win.attach(base.cast(), size)
}

pub fn win_detach(win: Window, base: *const u8) -> Result<()> {
    win.detach(base)
}

pub fn win_shared_query(
    win: Window,
    rank: i32,
    size: Out<i64>,
    disp_unit: OutCount,
    baseptr: OutPointer,
) -> Result<()> {
    let (base, bytes, unit) = win.shared_query(rank_of(rank))?;
    size.set(bytes as i64);
    disp_unit.set(unit);
    baseptr.set(base.cast());
    Ok(())
}

pub fn win_get_group(win: Window, group: New<Group>) -> Result<()> {
    group.set(win.group().duplicate());
    Ok(())
}

pub fn win_get_info(win: Window, info_used: New<Info>) -> Result<()> {
    info_used.set(Info::of(win.info()));
    Ok(())
}

pub fn win_set_info(win: Window, info: Option<InfoRef>) -> Result<()> {
    info.map_or(Ok(()), |info| win.set_info(info))
}

pub fn win_get_name(win: Handle, win_name: OutText, resultlen: Out<i32>) -> Result<()> {
    // The null handle has a name, too (MPI 5.0 §7.8).
    let name = match win {
        constants::MPI_WIN_NULL => b"MPI_WIN_NULL".to_vec(),
        win => args::object::<Win>(win, "win")?.name(),
    };
    resultlen.set(win_name.set(name));
    Ok(())
}

pub fn win_set_name(win: Window, win_name: &CStr) -> Result<()> {
    win.rename(win_name.to_bytes());
    Ok(())
}

// Synchronisation.

pub fn win_fence(assert: i32, win: Window) -> Result<()> {
    check_assertions(assert, FENCE_ASSERTIONS)?;
    win.fence(FenceAssertions {
        no_precede: assert & constants::MPI_MODE_NOPRECEDE != 0,
        no_succeed: assert & constants::MPI_MODE_NOSUCCEED != 0,
    })
}

pub fn win_post(group: GroupRef, assert: i32, win: Window) -> Result<()> {
    check_assertions(assert, POST_ASSERTIONS)?;
    win.post(group, no_check(assert))
}

pub fn win_start(group: GroupRef, assert: i32, win: Window) -> Result<()> {
    check_assertions(assert, constants::MPI_MODE_NOCHECK)?;
    win.start(group, no_check(assert))
}

pub fn win_complete(win: Window) -> Result<()> {
    win.complete_access()
}

pub fn win_wait(win: Window) -> Result<()> {
    win.wait()
}

pub fn win_test(win: Window, flag: OutFlag) -> Result<()> {
    flag.set(win.test()?);
    Ok(())
}

pub fn win_lock(lock_type: i32, rank: i32, assert: i32, win: Window) -> Result<()> {
    let kind = match lock_type {
        constants::MPI_LOCK_EXCLUSIVE => LockType::Exclusive,
        constants::MPI_LOCK_SHARED => LockType::Shared,
        other => {
            return Err(err!(
                Locktype,
                "lock_type is {other}: it has to be MPI_LOCK_EXCLUSIVE or MPI_LOCK_SHARED"
            ));
        }
    };
    check_assertions(assert, constants::MPI_MODE_NOCHECK)?;
    match rank_of(rank) {
        Some(rank) => win.lock(kind, rank, no_check(assert)),
        None => Ok(()),
    }
}

pub fn win_lock_all(assert: i32, win: Window) -> Result<()> {
    check_assertions(assert, constants::MPI_MODE_NOCHECK)?;
    win.lock_all(no_check(assert))
}

pub fn win_unlock(rank: i32, win: Window) -> Result<()> {
    rank_of(rank).map_or(Ok(()), |rank| win.unlock(rank))
}

pub fn win_unlock_all(win: Window) -> Result<()> {
    win.unlock_all()
}

#[inline]
pub fn win_flush(rank: i32, win: Window) -> Result<()> {
    rank_of(rank).map_or(Ok(()), |rank| win.flush(rank))
}

pub fn win_flush_all(win: Window) -> Result<()> {
    win.flush_all()
}

pub fn win_flush_local(rank: i32, win: Window) -> Result<()> {
    rank_of(rank).map_or(Ok(()), |rank| win.flush_local(rank))
}

pub fn win_flush_local_all(win: Window) -> Result<()> {
    win.flush_local_all()
}

pub fn win_sync(win: Window) -> Result<()> {
    win.sync()
}

// Operations.

/// What starts an operation that goes somewhere, and its request if it has one.
macro_rules! start {
    ($win:ident.$name:ident($($argument:expr),*)) => {
        // SAFETY: the program leaves the buffers alone until the operation is complete.
        unsafe { $win.$name($($argument),*) }
    };
    ($win:ident.$name:ident($($argument:expr),*), $request:ident) => {{
        let started = start!($win.$name($($argument),*))?;
        $request.set(handle::insert(started));
        Ok(())
    }};
}

/// An operation that goes nowhere: its request has ended.
macro_rules! nowhere {
    () => {
        Ok(())
    };
    ($request:ident) => {{
        let outcome = ferry_mpi::request::Outcome::EMPTY;
        $request.set(handle::insert(Request::ended(outcome)));
        Ok(())
    }};
}

/// Defines a call that puts or gets. The buffer at the origin is a `source` or a `sink`.
macro_rules! transfer {
    ($name:ident, $pointer:ty, $buffer:ident $(, $request:ident)?) => {
        #[inline(always)]
        pub fn $name(
            origin_addr: $pointer,
            origin_count: i64,
            origin_datatype: DatatypeRef,
            target_rank: i32,
            target_disp: i64,
            target_count: i64,
            target_datatype: DatatypeRef,
            win: Window,
            $($request: Out<Handle>,)?
        ) -> Result<()> {
            let Some(rank) = rank_of(target_rank) else {
                return nowhere!($($request)?);
            };
            let origin = $buffer(origin_addr, origin_count, origin_datatype, "origin_addr")?;
            let target_buffer = target_buffer(rank, target_disp, target_count, target_datatype);
            start!(win.$name(origin, target_buffer) $(, $request)?)
        }
    };
}

transfer!(put, *const u8, source);
transfer!(get, *mut u8, sink);
transfer!(rput, *const u8, source, request);
transfer!(rget, *mut u8, sink, request);

/// The origin's operand. MPI_NO_OP reads none, whatever its arguments are (MPI 5.0 §12.3.4).
///
/// Errors: Count, Type and Buffer.
#[inline]
fn operand(
    op: &Op,
    at: *const u8,
    count: i64,
    datatype: Option<DatatypeRef>,
) -> Result<Option<Buffer<'static>>> {
    if op.predefined_kind() == Some(Predefined::NoOp) {
        return Ok(None);
    }
    let count = args::count(count, "origin_count")?;
    let Some(datatype) = datatype else {
        return Err(err!(
            Type,
            "origin_datatype is the null handle MPI_DATATYPE_NULL"
        ));
    };
    source(at, count, datatype, "origin_addr").map(Some)
}

/// Defines a call that accumulates.
macro_rules! accumulate {
    ($name:ident, $starts:ident, $call:literal $(, $request:ident)?) => {
        #[inline(always)]
        pub fn $name(
            origin_addr: *const u8,
            origin_count: i64,
            origin_datatype: DatatypeRef,
            target_rank: i32,
            target_disp: i64,
            target_count: i64,
            target_datatype: DatatypeRef,
            op: OpRef,
            win: Window,
            $($request: Out<Handle>,)?
        ) -> Result<()> {
            let Some(rank) = rank_of(target_rank) else {
                return nowhere!($($request)?);
            };
            let operands = Operands {
                origin: operand(op, origin_addr, origin_count, Some(origin_datatype))?,
                result: None,
            };
            let target_buffer = target_buffer(rank, target_disp, target_count, target_datatype);
            start!(win.$starts(operands, target_buffer, op, $call) $(, $request)?)
        }
    };
}

accumulate!(accumulate, accumulate, "MPI_Accumulate");
accumulate!(raccumulate, raccumulate, "MPI_Raccumulate", request);

/// Defines a call that accumulates and fetches.
macro_rules! get_accumulate {
    ($name:ident, $starts:ident, $call:literal $(, $request:ident)?) => {
        #[inline(always)]
        pub fn $name(
            origin_addr: *const u8,
            origin_count: i64,
            origin_datatype: Option<DatatypeRef>,
            result_addr: *mut u8,
            result_count: i64,
            result_datatype: DatatypeRef,
            target_rank: i32,
            target_disp: i64,
            target_count: i64,
            target_datatype: DatatypeRef,
            op: OpRef,
            win: Window,
            $($request: Out<Handle>,)?
        ) -> Result<()> {
            let Some(rank) = rank_of(target_rank) else {
                return nowhere!($($request)?);
            };
            let result = sink(result_addr, result_count, result_datatype, "result_addr")?;
            let operands = Operands {
                origin: operand(op, origin_addr, origin_count, origin_datatype)?,
                result: Some(result),
            };
            let target_buffer = target_buffer(rank, target_disp, target_count, target_datatype);
            start!(win.$starts(operands, target_buffer, op, $call) $(, $request)?)
        }
    };
}

get_accumulate!(get_accumulate, accumulate, "MPI_Get_accumulate");
get_accumulate!(rget_accumulate, raccumulate, "MPI_Rget_accumulate", request);

#[inline(always)]
pub fn fetch_and_op(
    origin_addr: *const u8,
    result_addr: *mut u8,
    datatype: DatatypeRef,
    target_rank: i32,
    target_disp: i64,
    op: OpRef,
    win: Window,
) -> Result<()> {
    let Some(rank) = rank_of(target_rank) else {
        return Ok(());
    };
    predefined(datatype)?;
    let operands = Operands {
        origin: operand(op, origin_addr, 1, Some(datatype))?,
        result: Some(sink(result_addr, 1, datatype, "result_addr")?),
    };
    let target_buffer = target_buffer(rank, target_disp, 1, datatype);
    // SAFETY: the program leaves the buffers alone until the operation is complete.
    unsafe { win.accumulate(operands, target_buffer, op, "MPI_Fetch_and_op") }
}

/// Checks that the type is predefined.
///
/// Errors: Type.
#[inline]
fn predefined(datatype: DatatypeRef) -> Result<()> {
    if datatype.is_predefined() {
        Ok(())
    } else {
        Err(err!(
            Type,
            "datatype is a derived type, but has to be a predefined one"
        ))
    }
}

#[inline(always)]
pub fn compare_and_swap(
    origin_addr: *const u8,
    compare_addr: *const u8,
    result_addr: *mut u8,
    datatype: DatatypeRef,
    target_rank: i32,
    target_disp: i64,
    win: Window,
) -> Result<()> {
    let Some(rank) = rank_of(target_rank) else {
        return Ok(());
    };
    predefined(datatype)?;
    args::buffer(origin_addr, 1, datatype, "origin_addr")?;
    args::buffer(compare_addr, 1, datatype, "compare_addr")?;
    args::buffer(result_addr, 1, datatype, "result_addr")?;
    let target_buffer = target_buffer(rank, target_disp, 1, datatype);
    // SAFETY: the program leaves the buffers alone until the operation is complete.
    unsafe { win.compare_and_swap(origin_addr, compare_addr, result_addr, target_buffer) }
}
