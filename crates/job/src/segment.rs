//! The node's segment: one sparse memfd that all ranks of a job on a node share with the launcher.
//!
//! ```text
//! 0            header (magic, version, ranks)
//! status_at    one RankStatus a rank
//! wire_at      what the shared-memory transport keeps there (its own business)
//! ```
//!
//! It has no name in any file system, so nothing is left behind however the job ends, and its size
//! is no matter until a page is touched. Its length is sealed: no rank can cut it under the others.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::client::JobError;
use crate::{PROTOCOL, RankStatus};

const MAGIC: u64 = u64::from_le_bytes(*b"ferryseg");
/// Bytes of the wire's area for each rank by itself.
const WIRE_PER_RANK: u64 = 4096;
/// Bytes of the wire's area for each ordered pair of ranks; sparse until they speak.
const WIRE_PER_PAIR: u64 = 1600 * 1024;
/// Boards that each rank can lend (memory where a group meets), and bytes of a board for each rank
/// of the node; sparse too.
const WIRE_BOARDS: u64 = 16;
const WIRE_BOARD_PER_RANK: u64 = 8 * (2048 + 64);

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
        SegmentLayout {
            ranks,
            status_at,
            wire_at: (status_at + status_len).next_multiple_of(4096),
        }
    }

    /// Bytes of the transport's part: for n ranks n · 4096 (one page each) + n² · 1600 KiB (one
    /// ring and more for each ordered pair), and the boards.
    pub const fn wire_len(ranks: u32) -> u64 {
        let n = ranks as u64;
        let board = (4096 + n * WIRE_BOARD_PER_RANK).next_multiple_of(4096);
        n * WIRE_PER_RANK + n * n * WIRE_PER_PAIR + n * WIRE_BOARDS * board
    }

    /// Bytes of the whole segment.
    pub fn total(&self) -> u64 {
        self.wire_at + SegmentLayout::wire_len(self.ranks)
    }
}

/// The node's segment as one process has it: the descriptor, and header and status pages mapped.
#[derive(Debug)]
pub struct Segment {
    /// The memfd.
    pub fd: OwnedFd,
    /// Where things lie.
    pub layout: SegmentLayout,
    /// The memory that the ranks share with a modelled machine, if they are on one; whoever knows
    /// machines maps it.
    pub machine: Option<OwnedFd>,
    /// Each local rank's status.
    statuses: &'static [RankStatus],
}

impl Segment {
    /// Makes a segment for `ranks` local ranks; the launcher's part.
    pub fn create(ranks: u32) -> Result<Segment, JobError> {
        let layout = SegmentLayout::new(ranks);
        let refused = |attempted: String, advice| {
            move |cause: io::Error| JobError::Refused {
                attempted,
                cause,
                advice,
            }
        };
        let fd = rustix::fs::memfd_create(
            "ferry-node",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(|e| {
            refused(
                "making the node's memory segment (memfd_create)".into(),
                "Ferry needs memfd_create (Linux 3.17) and a free file descriptor",
            )(e.into())
        })?;
        rustix::fs::ftruncate(&fd, layout.total()).map_err(|e| {
            refused(
                format!(
                    "giving the node's memory segment for {ranks} ranks its {} bytes (sparse)",
                    layout.total()
                ),
                "raise RLIMIT_FSIZE (ulimit -f), or start fewer ranks on this node",
            )(e.into())
        })?;
        let mut header = [0u8; 16];
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&PROTOCOL.to_le_bytes());
        header[12..].copy_from_slice(&ranks.to_le_bytes());
        let file = File::from(fd);
        file.write_all_at(&header, 0).map_err(refused(
            "writing the first page of the node's memory segment".into(),
            "is the memory limit of this process's cgroup reached?",
        ))?;
        let fd = OwnedFd::from(file);
        // Best effort: without the seals a misbehaving rank could cut the file, nothing else
        // changes.
        let _ =
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        let statuses = map_statuses(&fd, &layout)?;
        Ok(Segment {
            fd,
            layout,
            machine: None,
            statuses,
        })
    }

    /// Opens the segment that the launcher passed; checks that it is what the welcome said.
    pub fn open(fd: OwnedFd, ranks: u32, len: u64) -> Result<Segment, JobError> {
        let layout = SegmentLayout::new(ranks);
        let bad = |what: String| {
            JobError::Launcher(format!(
                "the node's memory segment from mpiexec cannot be used: {what}"
            ))
        };
        let file = File::from(fd);
        let there = file.metadata().map_err(|e| bad(e.to_string()))?.len();
        if there != len || there < layout.total() {
            return Err(bad(format!(
                "it has {there} bytes, mpiexec said {len}, and {ranks} ranks need {}",
                layout.total()
            )));
        }
        let mut header = [0u8; 16];
        file.read_exact_at(&mut header, 0)
            .map_err(|e| bad(e.to_string()))?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if header[..8] != MAGIC.to_le_bytes() || word(8) != PROTOCOL || word(12) != ranks {
            return Err(bad(
                "its first page is not the one that mpiexec wrote".into()
            ));
        }
        let fd = OwnedFd::from(file);
        let statuses = map_statuses(&fd, &layout)?;
        Ok(Segment {
            fd,
            layout,
            machine: None,
            statuses,
        })
    }

    /// The status of a local rank; `None` if there is no such one.
    pub fn status(&self, local_rank: u32) -> Option<&'static RankStatus> {
        self.statuses.get(local_rank as usize)
    }

    /// All local ranks' statuses.
    pub fn statuses(&self) -> &'static [RankStatus] {
        self.statuses
    }
}

/// Maps the status pages for the rest of the process's life.
fn map_statuses(fd: &OwnedFd, layout: &SegmentLayout) -> Result<&'static [RankStatus], JobError> {
    let len = (layout.wire_at - layout.status_at) as usize;
    // SAFETY: a new shared mapping, placed by the kernel, of bytes that the file has: its length
    // was checked or just set.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_fd().as_raw_fd(),
            layout.status_at as i64,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(JobError::Refused {
            attempted: format!("mapping {len} bytes of the node's memory segment"),
            cause: io::Error::last_os_error(),
            advice: "raise RLIMIT_AS (ulimit -v) or the memory limit of the cgroup",
        });
    }
    // SAFETY: page aligned, long enough for `ranks` statuses, never unmapped; a RankStatus is all
    // atomics and any bytes make one.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<RankStatus>(), layout.ranks as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn layout_leaves_no_overlap() {
        for ranks in [1, 2, 16, 17, 512] {
            let layout = SegmentLayout::new(ranks);
            assert!(
                layout.status_at + u64::from(ranks) * size_of::<RankStatus>() as u64
                    <= layout.wire_at
            );
            assert_eq!(layout.wire_at % 4096, 0);
            assert!(layout.total() > layout.wire_at);
        }
    }

    #[test]
    fn both_sides_see_the_same_status() {
        let made = Segment::create(3).unwrap();
        let fd = made.fd.try_clone().unwrap();
        let opened = Segment::open(fd, 3, made.layout.total()).unwrap();
        opened.status(2).unwrap().peer.store(-7, Ordering::Relaxed);
        assert_eq!(made.status(2).unwrap().peer.load(Ordering::Relaxed), -7);
        assert!(made.status(3).is_none());
    }

    #[test]
    fn a_wrong_segment_is_refused() {
        let made = Segment::create(3).unwrap();
        let clone = || made.fd.try_clone().unwrap();
        assert!(Segment::open(clone(), 4, made.layout.total()).is_err());
        assert!(Segment::open(clone(), 3, 4096).is_err());
        assert!(
            rustix::fs::ftruncate(&made.fd, 4096).is_err(),
            "the length is sealed"
        );
    }

    #[test]
    fn a_big_node_costs_nothing_until_touched() {
        let made = Segment::create(1024).unwrap();
        let blocks = rustix::fs::fstat(&made.fd).unwrap().st_blocks;
        assert!(blocks <= 16, "{blocks} blocks of 512 bytes");
    }
}
