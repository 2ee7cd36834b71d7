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

/// # Safety
/// As for [`gather`].
#[inline(always)]
unsafe fn copy(from: *const u8, from_step: isize, to: *mut u8, to_step: isize, block: usize, count: usize) {
    // SAFETY: the caller's promise; the arm's constant is the block's length.
    unsafe {
        match block {
            1 => fixed::<1>(from, from_step, to, to_step, count),
            2 => fixed::<2>(from, from_step, to, to_step, count),
            4 => fixed::<4>(from, from_step, to, to_step, count),
            8 => fixed::<8>(from, from_step, to, to_step, count),
            12 => fixed::<12>(from, from_step, to, to_step, count),
            16 => fixed::<16>(from, from_step, to, to_step, count),
            24 => fixed::<24>(from, from_step, to, to_step, count),
            32 => fixed::<32>(from, from_step, to, to_step, count),
            48 => fixed::<48>(from, from_step, to, to_step, count),
            64 => fixed::<64>(from, from_step, to, to_step, count),
            _ => {
                for i in 0..count as isize {
                    let (from, to) = (from.wrapping_offset(i * from_step), to.wrapping_offset(i * to_step));
                    std::ptr::copy_nonoverlapping(from, to, block);
                }
            }
        }
    }
}

/// # Safety
/// As for [`gather`], with blocks of `N` bytes.
unsafe fn fixed<const N: usize>(from: *const u8, from_step: isize, to: *mut u8, to_step: isize, count: usize) {
    let (mut from, mut to) = (from, to);
    for _ in 0..count {
        // SAFETY: the caller's promise; unaligned arrays of bytes may lie anywhere.
        unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
        from = from.wrapping_offset(from_step);
        to = to.wrapping_offset(to_step);
    }
}
