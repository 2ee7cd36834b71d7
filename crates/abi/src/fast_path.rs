//! The fast path of one-sided operations on a few bytes (flag `fast` in `mpi.api`). A function here
//! takes what the symbol got, with counts of either form, and does the whole call, or nothing and
//! returns false: then the body does it, which converts, checks and raises errors. So nothing here
//! tells what is wrong. It calls nothing that is not inlined, and the symbol saves no registers.
//!
//! It does not record the call ([`entry::record_call`]): none of them waits.
//!
//! [`entry::record_call`]: crate::entry::record_call

use crate::args;
use crate::entry;
use crate::handle::{Handle, Object};
use ferry_datatype::short_bytes;
use ferry_mpi::Win;
use ferry_op::{Predefined, integer_bytes};

/// The window, if MPI runs and nothing else has to be done first.
#[inline(always)]
fn window(win: Handle) -> Option<&'static Win> {
    if !entry::is_ordinary() {
        return None;
    }
    Win::table().get_early(win).map(|win| &**win)
}

/// Bytes of a transfer, if both sides name one predefined type of at most 8 bytes, and a count
/// above 0. It may be more than is copied here. 0 otherwise, and for an MPI_Count that is no `int`.
#[inline(always)]
fn transfer_bytes<C: TryInto<i32>>(origin: (C, Handle), target: (C, Handle)) -> u64 {
    let (Ok(origin_count), Ok(target_count)) = (origin.0.try_into(), target.0.try_into()) else {
        return 0;
    };
    let (origin, target) = ((origin_count, origin.1), (target_count, target.1));
    if origin != target || origin.0 <= 0 {
        return 0;
    }
    short_bytes(origin.1) * origin.0 as u64
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn put<C: TryInto<i32>>(
    origin_addr: *const u8,
    origin_count: C,
    origin_datatype: Handle,
    target_rank: i32,
    target_disp: i64,
    target_count: C,
    target_datatype: Handle,
    win: Handle,
) -> bool {
    let len = transfer_bytes(
        (origin_count, origin_datatype),
        (target_count, target_datatype),
    );
    if len == 0 || args::is_invalid_address(origin_addr) {
        return false;
    }
    let Some(win) = window(win) else {
        return false;
    };
    // SAFETY: the caller's promise. MPI_PROC_NULL is no rank of a window.
    unsafe { win.try_put(origin_addr, target_rank as u32, target_disp, len) }
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn get<C: TryInto<i32>>(
    origin_addr: *mut u8,
    origin_count: C,
    origin_datatype: Handle,
    target_rank: i32,
    target_disp: i64,
    target_count: C,
    target_datatype: Handle,
    win: Handle,
) -> bool {
    let len = transfer_bytes(
        (origin_count, origin_datatype),
        (target_count, target_datatype),
    );
    if len == 0 || args::is_invalid_address(origin_addr) {
        return false;
    }
    let Some(win) = window(win) else {
        return false;
    };
    // SAFETY: the caller's promise.
    unsafe { win.try_get(origin_addr, target_rank as u32, target_disp, len) }
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn accumulate<C: TryInto<i32>>(
    origin_addr: *const u8,
    origin_count: C,
    origin_datatype: Handle,
    target_rank: i32,
    target_disp: i64,
    target_count: C,
    target_datatype: Handle,
    op: Handle,
    win: Handle,
) -> bool {
    let bytes = integer_bytes(target_datatype);
    if origin_datatype != target_datatype
        || (origin_count.try_into().ok(), target_count.try_into().ok()) != (Some(1), Some(1))
        || bytes == 0
        || args::is_invalid_address(origin_addr)
    {
        return false;
    }
    let Some(win) = window(win) else {
        return false;
    };
    let to = (target_rank as u32, target_disp);
    // SAFETY: the caller's promise.
    unsafe { win.try_accumulate(origin_addr, None, to, bytes, op) }
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn fetch_and_op(
    origin_addr: *const u8,
    result_addr: *mut u8,
    datatype: Handle,
    target_rank: i32,
    target_disp: i64,
    op: Handle,
    win: Handle,
) -> bool {
    let bytes = integer_bytes(datatype);
    let no_origin = args::is_invalid_address(origin_addr) && op != Predefined::NoOp as u64;
    if bytes == 0 || no_origin || args::is_invalid_address(result_addr) {
        return false;
    }
    let Some(win) = window(win) else {
        return false;
    };
    let to = (target_rank as u32, target_disp);
    // SAFETY: the caller's promise.
    unsafe { win.try_accumulate(origin_addr, Some(result_addr), to, bytes, op) }
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn compare_and_swap(
    origin_addr: *const u8,
    compare_addr: *const u8,
    result_addr: *mut u8,
    datatype: Handle,
    target_rank: i32,
    target_disp: i64,
    win: Handle,
) -> bool {
    let bytes = integer_bytes(datatype);
    if bytes == 0
        || args::is_invalid_address(origin_addr)
        || args::is_invalid_address(compare_addr)
        || args::is_invalid_address(result_addr)
    {
        return false;
    }
    let Some(win) = window(win) else {
        return false;
    };
    let (from, to) = (
        (origin_addr, compare_addr),
        (target_rank as u32, target_disp),
    );
    // SAFETY: the caller's promise.
    unsafe { win.try_compare_and_swap(from, result_addr, to, bytes) }
}

/// # Safety
/// As for the symbol.
#[inline(always)]
pub unsafe fn win_flush(rank: i32, win: Handle) -> bool {
    window(win).is_some_and(|win| win.try_flush(rank as u32))
}
