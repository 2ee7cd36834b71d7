//! Copies of a few bytes without a call.

/// Copies `len` bytes as `copy_nonoverlapping` does. Up to 16 bytes are moved by the first and the
/// last half of them, each in one instruction: a call of memcpy takes as long as such a copy.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub unsafe fn short_copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the two halves of an arm cover exactly `len` bytes.
    unsafe {
        match len {
            8..=16 => halves::<8>(from, to, len),
            4..8 => halves::<4>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// # Safety
/// As for [`short_copy`], with `N <= len <= 2 * N`.
#[inline(always)]
unsafe fn halves<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let first = from.cast::<[u8; N]>().read();
        let last = from.add(len - N).cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(first);
        to.add(len - N).cast::<[u8; N]>().write(last);
    }
}

#[cfg(test)]
mod tests {
    use super::short_copy;

    #[test]
    fn every_length_arrives_and_no_more() {
        let from: Vec<u8> = (1..=64).collect();
        for len in 0..40 {
            let mut to = [0u8; 48];
            // SAFETY: both have that many bytes.
            unsafe { short_copy(from.as_ptr(), to.as_mut_ptr().add(3), len) };
            assert_eq!(to[3..3 + len], from[..len]);
            assert!(to[..3].iter().chain(&to[3 + len..]).all(|&b| b == 0));
        }
    }
}
