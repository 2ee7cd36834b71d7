//! Copying equal blocks at equal distances: the loops where derived datatypes spend their time.

/// Copies `count` blocks of `block` bytes, `stride` bytes apart at `from`, one after the other to `to`.
///
/// # Safety
/// All blocks must be readable and `count * block` bytes at `to` writable, without overlap between the two.
#[inline]
pub(super) unsafe fn gather(from: *const u8, stride: i64, to: *mut u8, block: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(from, stride as isize, to, block as isize, block, count) }
}

/// The other way round: from one run at `from` to blocks `stride` bytes apart at `to`.
///
/// # Safety
/// As for [`gather`].
#[inline]
pub(super) unsafe fn scatter(from: *const u8, to: *mut u8, stride: i64, block: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(from, block as isize, to, stride as isize, block, count) }
}

/// Copies blocks of `block` bytes at the places `at`, counted from `base`, one after the other to `to`.
///
/// # Safety
/// All blocks must be readable and `at.len() * block` bytes at `to` writable, without overlap between the two.
#[inline]
pub(super) unsafe fn gather_spots(base: *const u8, at: &[i64], to: *mut u8, block: usize) {
    let mut to = to;
    each_size(block, |n| {
        for at in at {
            // SAFETY: the caller's promise; `n` is `block`.
            unsafe { move_block(base.wrapping_offset(*at as isize), to, n) };
            to = to.wrapping_add(n);
        }
    });
}

/// The other way round: from one run at `from` to blocks at the places `at`.
///
/// # Safety
/// As for [`gather_spots`].
#[inline]
pub(super) unsafe fn scatter_spots(from: *const u8, base: *mut u8, at: &[i64], block: usize) {
    let mut from = from;
    each_size(block, |n| {
        for at in at {
            // SAFETY: the caller's promise; `n` is `block`.
            unsafe { move_block(from, base.wrapping_offset(*at as isize), n) };
            from = from.wrapping_add(n);
        }
    });
}

/// At most so many columns are taken together where they lie side by side: as many doubles as a cache line holds.
pub(super) const COLUMNS: u64 = 8;

/// Where columns of a table lie: blocks `step` bytes from one to the next, the columns `apart` bytes from each other.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub step: isize,
    pub apart: isize,
}

/// Copies `columns` columns of `rows` blocks from one table to another, row by row: each cache line is touched once, not once
/// for every column.
///
/// # Safety
/// All blocks of `from` must be readable and those of `to` writable, `block` bytes each, without overlap between the two.
#[inline]
pub(super) unsafe fn transpose(from: (*const u8, Table), to: (*mut u8, Table), block: usize, rows: usize, columns: usize) {
    let ((mut from, there), (mut to, here)) = (from, to);
    each_size(block, |n| {
        for _ in 0..rows {
            for c in 0..columns as isize {
                // SAFETY: the caller's promise; `n` is `block`.
                unsafe { move_block(from.wrapping_offset(c * there.apart), to.wrapping_offset(c * here.apart), n) };
            }
            from = from.wrapping_offset(there.step);
            to = to.wrapping_offset(here.step);
        }
    });
}

/// Copies a run, which is often short: then without a call of memcpy.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(always)]
pub(super) unsafe fn copy_run(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the two moves of an arm overlap and together cover exactly `len` bytes.
    unsafe {
        match len {
            4..=7 => ends::<4>(from, to, len),
            8..=15 => ends::<8>(from, to, len),
            16..=32 => ends::<16>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// # Safety
/// As for `copy_nonoverlapping`, with `N <= len <= 2 * N`.
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (first, last) = (from.cast::<[u8; N]>().read(), from.add(len - N).cast::<[u8; N]>().read());
        to.cast::<[u8; N]>().write(first);
        to.add(len - N).cast::<[u8; N]>().write(last);
    }
}

/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(always)]
unsafe fn move_block(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

/// Calls `f` with `block`, as a constant for the common sizes: the compiler then makes a loop for each without calls of memcpy.
#[inline(always)]
fn each_size(block: usize, mut f: impl FnMut(usize)) {
    match block {
        1 => f(1),
        2 => f(2),
        4 => f(4),
        8 => f(8),
        12 => f(12),
        16 => f(16),
        24 => f(24),
        32 => f(32),
        48 => f(48),
        64 => f(64),
        n => f(n),
    }
}

/// # Safety
/// As for [`gather`].
#[inline(always)]
unsafe fn copy(from: *const u8, from_step: isize, to: *mut u8, to_step: isize, block: usize, count: usize) {
    let (mut from, mut to) = (from, to);
    each_size(block, |n| {
        for _ in 0..count {
            // SAFETY: the caller's promise; `n` is `block`.
            unsafe { move_block(from, to, n) };
            from = from.wrapping_offset(from_step);
            to = to.wrapping_offset(to_step);
        }
    });
}
