//! The layout of the transport's part of the node's segment.
//!
//! ```text
//! control pages │ rings, from each to each: ring, copy table, words │ boards of each process
//! 0                                                                  boards_offset
//! ```

use super::announcements::AnnouncementWords;
use super::cma::CopyTable;
use super::coll::{BOARDS_PER_RANK, board_bytes};
use super::control::CONTROL_BYTES;
use super::memory::RING_BYTES;
use super::shared_memory::map_shared;
use ferry_job::Segment;

/// Bytes from one ring's beginning to the next one's: whole pages of 64 KiB, the largest that a
/// system may have.
pub(super) const STRIDE_BYTES: u64 = RING_BYTES.next_multiple_of(64 * 1024) as u64;

/// Bytes of a page, on x86-64 and most arm64 systems. Only for alignment.
const PAGE_BYTES: usize = 4096;

/// Offset of the copy table from its ring's beginning, bytes. The ring's writer, as a receiver,
/// puts copies on it with which the ring's reader may assist.
pub(super) const COPY_TABLE_AT: usize = RING_BYTES.next_multiple_of(PAGE_BYTES);

/// Offset of the words for announcements that the ring's writer may withdraw, bytes: behind the
/// copy table.
pub(super) const ANNOUNCEMENTS_AT: usize =
    COPY_TABLE_AT + size_of::<CopyTable>().next_multiple_of(align_of::<AnnouncementWords>());

/// Bytes of a ring, its copy table and its words for announcements.
pub(super) const MAPPED_BYTES: usize =
    (ANNOUNCEMENTS_AT + size_of::<AnnouncementWords>()).next_multiple_of(PAGE_BYTES);

const _: () = assert!(MAPPED_BYTES as u64 <= STRIDE_BYTES);

/// Bytes of the segment that the transport needs for `ranks` local processes. The segment is
/// sparse: what is not touched costs nothing.
pub const fn segment_len(ranks: u32) -> u64 {
    let n = ranks as u64;
    boards_offset(n) + n * BOARDS_PER_RANK as u64 * board_bytes(n)
}

/// Offset of the boards in the transport's part of the segment, bytes. `n`: local processes.
pub(super) const fn boards_offset(n: u64) -> u64 {
    n * CONTROL_BYTES as u64 + n * n * STRIDE_BYTES
}

const _: () = assert!(segment_len(100) == ferry_job::SegmentLayout::transport_bytes(100));

/// Maps `len` bytes of the segment at `at`, for the life of the process.
///
/// Errors: EBADF, the program has closed the segment's descriptor, and may have opened a file of
/// its own under this number; or the system refuses.
pub(super) fn map(segment: &Segment, at: u64, len: usize) -> std::io::Result<*mut u8> {
    // The segment has at least this length, which nobody can change. Other files are shorter.
    let there = rustix::fs::fstat(&segment.fd)?.st_size;
    if u64::try_from(there).map_or(true, |there| there < segment.layout.total_bytes()) {
        return Err(rustix::io::Errno::BADF.into());
    }
    map_shared(&segment.fd, at, len)
}
