//! The node's segment: one sparse memfd that all ranks of a job on a node share with the launcher.
//!
//! ```text
//! 0            header (magic, version, ranks, layout)
//! STATUS_AT    one RankStatus a rank
//! wire_at      what the shared-memory transport keeps there (its own business)
//! ```

use std::os::fd::OwnedFd;

/// Where things lie in the segment; a function of the number of local ranks alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Local ranks.
    pub ranks: u32,
    /// Offset of rank 0's [`RankStatus`](crate::RankStatus), bytes.
    pub status_at: u64,
    /// Offset of the transport's part, bytes; page aligned.
    pub wire_at: u64,
}

impl SegmentLayout {
    /// The layout for `ranks` local ranks.
    pub fn new(ranks: u32) -> SegmentLayout {
        let status_at = 4096;
        let status_len = u64::from(ranks) * std::mem::size_of::<crate::RankStatus>() as u64;
        SegmentLayout { ranks, status_at, wire_at: (status_at + status_len).next_multiple_of(4096) }
    }
}

/// The node's segment as one process has it: the descriptor, and header and status pages mapped.
#[derive(Debug)]
pub struct Segment {
    /// The memfd.
    pub fd: OwnedFd,
    /// Where things lie.
    pub layout: SegmentLayout,
}
