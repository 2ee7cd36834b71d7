//! Copying equal blocks at equal distances, and other regular patterns. Derived datatypes spend
//! their time in these loops.
//!
//! Each loop exists once for every common block size, as a constant. A block is then a move or two
//! instead of a call of memcpy.

/// Calls the loop `$f` for blocks of `$block` bytes, with the size as the constant `N`. `N` is 0
/// for other sizes.
macro_rules! sized {
    ($block:expr, $f:ident($($arg:expr),*)) => {
        match $block {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            4 => $f::<4>($($arg),*),
            8 => $f::<8>($($arg),*),
            12 => $f::<12>($($arg),*),
            16 => $f::<16>($($arg),*),
            24 => $f::<24>($($arg),*),
            32 => $f::<32>($($arg),*),
            48 => $f::<48>($($arg),*),
            64 => $f::<64>($($arg),*),
            _ => $f::<0>($($arg),*),
        }
    };
}

/// Blocks to read: address of the first, and bytes from one to the next.
pub(super) type ReadBlocks = (*const u8, isize);
/// Blocks to write: address of the first, and bytes from one to the next.
pub(super) type WriteBlocks = (*mut u8, isize);

/// Copies `count` blocks of `block` bytes.
///
/// # Safety
/// All blocks must be readable and writable, respectively, without overlap between the two.
#[inline]
pub(super) unsafe fn copy_steps(from: ReadBlocks, to: WriteBlocks, block: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { sized!(block, steps(from, to, block, count)) }
}

/// # Safety
/// As for [`copy_steps`].
unsafe fn steps<const N: usize>(
    (mut from, from_step): ReadBlocks,
    (mut to, to_step): WriteBlocks,
    block: usize,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: the caller's promise.
        unsafe { move_block::<N>(from, to, block) };
        from = from.wrapping_offset(from_step);
        to = to.wrapping_offset(to_step);
    }
}

/// Copies blocks of `block` bytes from the offsets `at` from `base` to one run at `to`.
///
/// # Safety
/// All blocks must be readable and `at.len() * block` bytes at `to` writable, without overlap
/// between the two.
#[inline]
pub(super) unsafe fn gather_blocks(base: *const u8, at: &[i64], to: *mut u8, block: usize) {
    // SAFETY: the caller's promise.
    unsafe { sized!(block, gather(base, at, to, block)) }
}

/// # Safety
/// As for [`gather_blocks`].
unsafe fn gather<const N: usize>(base: *const u8, at: &[i64], mut to: *mut u8, block: usize) {
    for at in at {
        // SAFETY: the caller's promise.
        unsafe { move_block::<N>(base.wrapping_offset(*at as isize), to, block) };
        to = to.wrapping_add(block);
    }
}

/// Copies blocks of `block` bytes from one run at `from` to the offsets `at` from `base`.
///
/// # Safety
/// As for [`gather_blocks`].
#[inline]
pub(super) unsafe fn scatter_blocks(from: *const u8, base: *mut u8, at: &[i64], block: usize) {
    // SAFETY: the caller's promise.
    unsafe { sized!(block, scatter(from, base, at, block)) }
}

/// # Safety
/// As for [`gather_blocks`].
unsafe fn scatter<const N: usize>(mut from: *const u8, base: *mut u8, at: &[i64], block: usize) {
    for at in at {
        // SAFETY: the caller's promise.
        unsafe { move_block::<N>(from, base.wrapping_offset(*at as isize), block) };
        from = from.wrapping_add(block);
    }
}

/// Most neighbouring columns that are copied together: the number of doubles in a cache line.
pub(super) const COLUMNS_MAX: u64 = 8;

/// Copies `columns` columns of `rows` blocks from one table to another, row by row. Each cache line
/// is touched once instead of once for every column. `column_strides`: bytes from one column to the
/// next in `from` and in `to`.
///
/// # Safety
/// All blocks of `from` must be readable and those of `to` writable, `block` bytes each, without
/// overlap between the two.
#[inline]
pub(super) unsafe fn transpose(
    from: ReadBlocks,
    to: WriteBlocks,
    column_strides: (isize, isize),
    block: usize,
    rows: usize,
    columns: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match columns as u64 {
            COLUMNS_MAX => sized!(block, eight_columns(from, to, column_strides, block, rows)),
            _ => sized!(
                block,
                some_columns(from, to, column_strides, block, rows, columns)
            ),
        }
    }
}

/// # Safety
/// As for [`transpose`].
unsafe fn eight_columns<const N: usize>(
    from: ReadBlocks,
    to: WriteBlocks,
    column_strides: (isize, isize),
    block: usize,
    rows: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { some_columns::<N>(from, to, column_strides, block, rows, COLUMNS_MAX as usize) }
}

/// # Safety
/// As for [`transpose`].
#[inline(always)]
unsafe fn some_columns<const N: usize>(
    (mut from, from_step): ReadBlocks,
    (mut to, to_step): WriteBlocks,
    column_strides: (isize, isize),
    block: usize,
    rows: usize,
    columns: usize,
) {
    for _ in 0..rows {
        for c in 0..columns as isize {
            // SAFETY: the caller's promise.
            unsafe {
                move_block::<N>(
                    from.wrapping_offset(c * column_strides.0),
                    to.wrapping_offset(c * column_strides.1),
                    block,
                )
            };
        }
        from = from.wrapping_offset(from_step);
        to = to.wrapping_offset(to_step);
    }
}

/// Copies a run. A short one needs no call of memcpy.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(always)]
pub(super) unsafe fn copy_run(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the two moves of an arm overlap and together cover exactly
    // `len` bytes.
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
        let (first, last) = (
            from.cast::<[u8; N]>().read(),
            from.add(len - N).cast::<[u8; N]>().read(),
        );
        to.cast::<[u8; N]>().write(first);
        to.add(len - N).cast::<[u8; N]>().write(last);
    }
}

/// Copies a block of `N` bytes, or of `block` bytes if `N` is 0.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(always)]
unsafe fn move_block<const N: usize>(from: *const u8, to: *mut u8, block: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if N == 0 {
            copy_run(from, to, block)
        } else {
            std::ptr::copy_nonoverlapping(from, to, N)
        }
    }
}
