//! Copies past the caches, for long bodies of a stream where the lines written to are in another
//! core's cache.

/// Shortest body that is copied past the caches, bytes. Measured (docs/measured/shm.md): from 2 KiB
/// on it is faster than a ring that is larger than the first-level caches.
pub const STREAMING_MIN_BYTES: usize = 2 * 1024 + 1;

/// Returns whether this processor's cores take long to write a line that has left the other's
/// first-level cache, while stores past the caches do not wait for it. So it is on AMD's Zen
/// (docs/measured/shm.md). On others it was not measured, and they are left as they are.
#[cfg(target_arch = "x86_64")]
pub fn lines_are_costly() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    matches!(name.as_flattened(), b"AuthenticAMD" | b"HygonGenuine")
}

/// On other architectures: false, since it was not measured there.
#[cfg(not(target_arch = "x86_64"))]
pub fn lines_are_costly() -> bool {
    false
}

/// Copies `from` to `to`, which have the same length. `streaming`: past the caches.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8], streaming: bool) {
    if streaming {
        copy_past_caches(from, to);
    } else {
        to.copy_from_slice(from);
    }
}

/// Bytes of a line, which is filled by stores past the caches as a whole.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = super::memory::LINE_BYTES;

/// Copies `from` to `to`, which have the same length, past the caches. Ends when all is in order
/// with later stores.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const PARTS: usize = LINE_BYTES / size_of::<__m128i>();
    assert_eq!(from.len(), to.len());
    let before = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
    let (first, from) = from.split_at(before);
    let (into_first, to) = to.split_at_mut(before);
    into_first.copy_from_slice(first);
    let (lines, last) = from.as_chunks::<LINE_BYTES>();
    let (into_lines, into_last) = to.as_chunks_mut::<LINE_BYTES>();
    for (line, into_line) in lines.iter().zip(into_lines) {
        let from: *const __m128i = line.as_ptr().cast();
        let to: *mut __m128i = into_line.as_mut_ptr().cast();
        for part in 0..PARTS {
            // SAFETY: SSE2 is part of x86-64. Both lines have that many parts, and the one written
            // to is aligned. The fence below comes before any later access.
            unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
        }
    }
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
    into_last.copy_from_slice(last);
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn every_length_arrives_at_every_offset_and_no_more() {
        let from: Vec<u8> = (0..400u32).map(|i| (i % 251 + 1) as u8).collect();
        for (len, offset) in (0..300).flat_map(|len| [0, 1, 8, 63].map(|offset| (len, offset))) {
            let mut to = vec![0u8; 500];
            copy(&from[offset..][..len], &mut to[offset..][..len], true);
            assert_eq!(to[offset..][..len], from[offset..][..len]);
            let rest = to[..offset].iter().chain(&to[offset + len..]);
            assert!(rest.clone().all(|&b| b == 0), "{len} bytes at {offset}");
        }
    }
}
