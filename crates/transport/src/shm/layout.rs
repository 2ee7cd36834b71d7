//! Where things lie in the transport's part of the node's segment.

use super::cma::CopyTable;
use super::coll::{BOARDS_PER_RANK, board_bytes};
use super::control::CONTROL_BYTES;
use super::memory::RING_BYTES;
use ferry_job::Segment;
use std::os::fd::AsFd;

/// Bytes from one ring's beginning to the next one's.
pub(super) const STRIDE_BYTES: u64 = RING_BYTES.next_multiple_of(64 * 1024) as u64;

/// Where the copy table lies behind a ring's beginning: on it the ring's writer, as a receiver,
/// puts what its reader may help to copy.
pub(super) const COPY_TABLE_AT: usize = RING_BYTES.next_multiple_of(4096);

/// Bytes of a ring and its copy table.
pub(super) const MAPPED_BYTES: usize =
    COPY_TABLE_AT + size_of::<CopyTable>().next_multiple_of(4096);

const _: () = assert!(MAPPED_BYTES as u64 <= STRIDE_BYTES);

/// Bytes of the segment that the transport needs for `ranks` local processes (sparse: what is not
/// touched costs nothing).
pub const fn segment_len(ranks: u32) -> u64 {
    let n = ranks as u64;
    boards_offset(n) + n * BOARDS_PER_RANK as u64 * board_bytes(n)
}

/// Where, in the transport's part of the segment, the boards lie: behind the rings.
pub(super) const fn boards_offset(n: u64) -> u64 {
    n * CONTROL_BYTES as u64 + n * n * STRIDE_BYTES
}

const _: () = assert!(segment_len(100) == ferry_job::SegmentLayout::wire_len(100));

/// Maps `len` bytes of the segment at `at`, for the life of the process.
pub(super) fn map(segment: &Segment, at: u64, len: usize) -> std::io::Result<*mut u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            segment.fd.as_fd(),
            at,
        )
    }?;
    Ok(base.cast())
}
