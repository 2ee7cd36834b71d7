//! The fast path of operations on a few bytes, and of a flush behind them: the target has been
//! used, is mapped, and this process has access to it. Each function does all of its call, or
//! nothing and returns false; the caller then takes the way that also finds what is wrong. None of
//! them waits.

use super::Win;
use super::epoch::FENCE_EPOCH;
use super::target::{CLOSED, LOCKED, Reach, Target};
use ferry_op::Predefined;
use std::sync::atomic::Ordering;

impl Win {
    /// The address of `len` bytes at a displacement in the memory of `rank`, 1 or more, if they are
    /// reached by loads and stores, and may be now.
    #[inline(always)]
    fn accessible(&self, rank: u32, disp: i64, len: u64) -> Option<(&Target, *mut u8)> {
        let target = self.targets.known(rank)?;
        if target.access.load(Ordering::Relaxed) == CLOSED
            && self.epochs.fence.load(Ordering::Relaxed) != FENCE_EPOCH
        {
            return None;
        }
        // A negative displacement becomes a number larger than any memory.
        let offset = (disp as u64).checked_mul(target.disp_unit as u64)?;
        let room = target.direct_size.checked_sub(offset)?;
        (len <= room).then(|| (target, target.base.wrapping_add(offset as usize)))
    }

    /// As `accessible`, for an element that is accumulated by an atomic.
    #[inline(always)]
    fn accessible_cell(&self, rank: u32, disp: i64, len: u64) -> Option<(&Target, *mut u8)> {
        let (target, at) = self.accessible(rank, disp, len)?;
        let aligned = at.addr() as u64 & (len - 1) == 0;
        (target.atomics && aligned).then_some((target, at))
    }

    /// MPI_Put of 1, 2, 4 or 8 bytes that are one run on both sides.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    #[inline(always)]
    pub unsafe fn try_put(&self, from: *const u8, rank: u32, disp: i64, len: u64) -> bool {
        let Some((target, to)) = self.accessible(rank, disp, len) else {
            return false;
        };
        // SAFETY: the caller's promise; the target's range was checked.
        let copied = unsafe { copy_short(from, to, len) };
        if copied {
            target.note_stores();
        }
        copied
    }

    /// MPI_Get of 1, 2, 4 or 8 bytes that are one run on both sides.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    #[inline(always)]
    pub unsafe fn try_get(&self, to: *mut u8, rank: u32, disp: i64, len: u64) -> bool {
        let Some((_, from)) = self.accessible(rank, disp, len) else {
            return false;
        };
        // SAFETY: the caller's promise; the target's range was checked.
        unsafe { copy_short(from, to, len) }
    }

    /// MPI_Fetch_and_op and MPI_Accumulate of one integer of `bytes` bytes
    /// ([`ferry_op::integer_bytes`]) with the operation that has the handle `op`.
    ///
    /// # Safety
    /// `origin` is readable, unless it is MPI_NO_OP, and `result` writable.
    #[inline(always)]
    pub unsafe fn try_accumulate(
        &self,
        origin: *const u8,
        result: Option<*mut u8>,
        (rank, disp): (u32, i64),
        bytes: u64,
        op: u64,
    ) -> bool {
        let Some((target, at)) = self.accessible_cell(rank, disp, bytes) else {
            return false;
        };
        // MPI_SUM of 0 is a way to read.
        // SAFETY: the caller's promise.
        let adds = op == Predefined::Sum as u64 && !unsafe { is_zero(origin, bytes) };
        // SAFETY: the caller's promise; the target's range and alignment were checked.
        let done = unsafe { ferry_op::fetch_apply_integer(op, bytes, origin, at, result) };
        if result.is_none() && op == Predefined::Replace as u64 {
            target.note_stores();
        }
        if adds {
            self.has_added.store(true, Ordering::Relaxed);
        }
        done
    }

    /// MPI_Compare_and_swap of an integer of `bytes` bytes ([`ferry_op::integer_bytes`]).
    ///
    /// # Safety
    /// `origin` and `compare` are readable and `result` is writable.
    #[inline(always)]
    pub unsafe fn try_compare_and_swap(
        &self,
        (origin, compare): (*const u8, *const u8),
        result: *mut u8,
        (rank, disp): (u32, i64),
        bytes: u64,
    ) -> bool {
        let Some((_, at)) = self.accessible_cell(rank, disp, bytes) else {
            return false;
        };
        // SAFETY: the caller's promise; the target's range and alignment were checked.
        unsafe { ferry_op::compare_exchange_integer(bytes, compare, origin, at, result) }
    }

    /// MPI_Win_flush of a rank that this process has locked, if it is not time for progress.
    #[inline(always)]
    pub fn try_flush(&self, rank: u32) -> bool {
        let Some(target) = self.targets.known(rank) else {
            return false;
        };
        let left = self.flushes_left.load(Ordering::Relaxed) - 1;
        if target.access.load(Ordering::Relaxed) & LOCKED == 0
            || target.reach != Reach::Mapped
            || left <= 0
        {
            return false;
        }
        self.flushes_left.store(left, Ordering::Relaxed);
        target.order_stores();
        true
    }
}

/// Is this integer of 4 or 8 bytes 0?
///
/// # Safety
/// It is readable, at any alignment.
#[inline(always)]
unsafe fn is_zero(at: *const u8, bytes: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            8 => at.cast::<u64>().read_unaligned() == 0,
            _ => at.cast::<u32>().read_unaligned() == 0,
        }
    }
}

/// Copies 1, 2, 4 or 8 bytes. Returns false, and copies nothing, if they are another number.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, at any alignment.
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            8 => copy::<u64>(from, to),
            4 => copy::<u32>(from, to),
            2 => copy::<u16>(from, to),
            1 => copy::<u8>(from, to),
            _ => return false,
        }
    }
    true
}

/// # Safety
/// `from` is readable and `to` writable for a `T`, at any alignment.
#[inline(always)]
unsafe fn copy<T>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<T>()
            .write_unaligned(from.cast::<T>().read_unaligned())
    }
}
