//! The node's segment: one sparse memfd that all ranks of a job on a node and their launcher share.
//!
//! ```text
//! 0                 header (magic, version, ranks)
//! status_offset     one RankStatus for each rank
//! transport_offset  what the shared-memory transport keeps there
//! arena_offset      memory of windows, handed out in ranges (ferry-transport's `SharedMemory`)
//! ```
//!
//! It has no name in a file system, so nothing is left behind however the job ends. Pages that are
//! not touched take no memory. Its length is sealed: no rank can cut it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::error::JobError;
use crate::{PROTOCOL, RankStatus};

const MAGIC: u64 = u64::from_le_bytes(*b"ferryseg");
/// Bytes of the transport's part for each rank: one page of control words.
const TRANSPORT_BYTES_PER_RANK: u64 = 4096;
/// Bytes of the transport's part for each ordered pair of ranks: a ring and its copy table. Sparse
/// until the two communicate. ferry-transport asserts that the figures here are its own.
const TRANSPORT_BYTES_PER_PAIR: u64 = 1600 * 1024;
/// Counter boards of shared-memory collectives that each rank owns. Sparse, too.
const BOARDS_PER_RANK: u64 = 16;
/// Bytes of a counter board for each rank of the node: a slot of 2112 bytes in each of eight
/// phases.
const BOARD_BYTES_PER_RANK: u64 = 8 * (2048 + 64);

/// Bytes of the arena. A choice: no job uses them up, although no range is handed out twice. Only
/// the file's length: a page exists once it is touched.
pub const ARENA_BYTES: u64 = 1 << 60;
/// Alignment of the arena, bytes: the largest page that a system may have.
const ARENA_ALIGN_BYTES: u64 = 64 * 1024;

/// Offsets in the segment. All but the arena's length depend on the number of local ranks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Local ranks.
    pub ranks: u32,
    /// Offset of the [`RankStatus`] of local rank 0.
    pub status_offset: u64,
    /// Offset of the transport's part, page aligned.
    pub transport_offset: u64,
    /// Offset of the arena, a multiple of 64 KiB.
    pub arena_offset: u64,
    /// Bytes of the arena: [`ARENA_BYTES`], or what the limit on the length of files leaves. 0:
    /// there is none.
    pub arena_bytes: u64,
}

impl SegmentLayout {
    /// The layout for `ranks` local ranks, without an arena.
    pub fn new(ranks: u32) -> SegmentLayout {
        let status_offset = 4096;
        let status_len = u64::from(ranks) * std::mem::size_of::<crate::RankStatus>() as u64;
        let transport_offset = (status_offset + status_len).next_multiple_of(4096);
        let transport_end = transport_offset + SegmentLayout::transport_bytes(ranks);
        SegmentLayout {
            ranks,
            status_offset,
            transport_offset,
            arena_offset: transport_end.next_multiple_of(ARENA_ALIGN_BYTES),
            arena_bytes: 0,
        }
    }

    /// The layout with an arena as long as a file of at most `file_max` bytes allows.
    fn with_arena(self, file_max: u64) -> SegmentLayout {
        let room = file_max.saturating_sub(self.arena_offset);
        SegmentLayout {
            arena_bytes: room.min(ARENA_BYTES) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES,
            ..self
        }
    }

    /// Bytes of the transport's part. For n ranks: n pages, n² times what an ordered pair needs,
    /// and the boards.
    pub const fn transport_bytes(ranks: u32) -> u64 {
        let n = ranks as u64;
        let board = (4096 + n * BOARD_BYTES_PER_RANK).next_multiple_of(4096);
        n * TRANSPORT_BYTES_PER_RANK
            + n * n * TRANSPORT_BYTES_PER_PAIR
            + n * BOARDS_PER_RANK * board
    }

    /// Bytes of the whole segment.
    pub fn total_bytes(&self) -> u64 {
        self.arena_offset + self.arena_bytes
    }
}

/// The longest file that this process may make (RLIMIT_FSIZE), in bytes.
fn file_bytes_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.unwrap_or(u64::MAX)
}

/// Gives the file a length. Beyond the limit the system would send SIGXFSZ, whose default is to end
/// the process without a word; so the limit is read before.
fn set_len(fd: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    if bytes > file_bytes_max() {
        return Err(rustix::io::Errno::FBIG);
    }
    rustix::fs::ftruncate(fd, bytes)
}

/// The node's segment in one process: its descriptor, with the status pages mapped.
#[derive(Debug)]
pub struct Segment {
    /// The memfd.
    pub fd: OwnedFd,
    /// Where things lie.
    pub layout: SegmentLayout,
    /// Memory that the ranks share with a modelled machine, if there is one. Mapped by
    /// ferry-fabric.
    pub machine: Option<OwnedFd>,
    /// TAP devices whose frames cross the modelled machine beside MPI's messages: at the launcher
    /// by local rank, at a rank its own. Empty: there are none.
    pub interfaces: Vec<OwnedFd>,
    /// Each local rank's status.
    statuses: &'static [RankStatus],
}

impl Segment {
    /// Makes a segment for `ranks` local ranks. Called by the launcher.
    pub fn create(ranks: u32) -> Result<Segment, JobError> {
        let mut layout = SegmentLayout::new(ranks);
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
        let with_arena = layout.with_arena(file_bytes_max());
        if set_len(&fd, with_arena.total_bytes()).is_ok() {
            layout = with_arena;
        } else {
            set_len(&fd, layout.total_bytes()).map_err(|e| {
                refused(
                    format!(
                        "giving the node's memory segment for {ranks} ranks its {} bytes (sparse)",
                        layout.total_bytes()
                    ),
                    "raise RLIMIT_FSIZE (ulimit -f), or start fewer ranks on this node",
                )(e.into())
            })?;
        }
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
        // An error is ignored: without the seals a faulty rank could cut the file, and nothing else
        // changes.
        let _ =
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        let statuses = map_statuses(&fd, &layout)?;
        Ok(Segment {
            fd,
            layout,
            machine: None,
            interfaces: Vec::new(),
            statuses,
        })
    }

    /// Opens the segment from the launcher, and checks its length and header. `len`: the length,
    /// where the launcher has told it. What is longer than the transport's part is the arena.
    pub fn open(fd: OwnedFd, ranks: u32, len: Option<u64>) -> Result<Segment, JobError> {
        let mut layout = SegmentLayout::new(ranks);
        let bad = |what: String| {
            JobError::Launcher(format!(
                "the node's memory segment from mpiexec cannot be used: {what}"
            ))
        };
        let file = File::from(fd);
        let there = file.metadata().map_err(|e| bad(e.to_string()))?.len();
        let told = len.unwrap_or(there);
        if there != told || there < layout.total_bytes() {
            return Err(bad(format!(
                "it has {there} bytes, mpiexec said {told}, and {ranks} ranks need {}",
                layout.total_bytes()
            )));
        }
        layout = layout.with_arena(there);
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
            interfaces: Vec::new(),
            statuses,
        })
    }

    /// Makes a segment for processes of several jobs: without status pages and arena.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create_shared(processes: u32) -> Result<Segment, JobError> {
        let layout = SegmentLayout::new(processes);
        let refused = |cause: rustix::io::Errno| JobError::Refused {
            attempted: "making a memory segment for processes of several jobs".into(),
            cause: cause.into(),
            advice: "raise RLIMIT_NOFILE and RLIMIT_FSIZE (ulimit -n, ulimit -f)",
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("ferry-jobs", flags).map_err(refused)?;
        set_len(&fd, layout.total_bytes()).map_err(refused)?;
        let _ =
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        Ok(Segment::shared(fd, layout))
    }

    /// Opens a segment that another process has made by [`Segment::create_shared`].
    ///
    /// # Errors
    /// It is none.
    pub fn open_shared(fd: OwnedFd, processes: u32) -> Result<Segment, JobError> {
        let layout = SegmentLayout::new(processes);
        let len = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_size as u64);
        let sealed = rustix::fs::fcntl_get_seals(&fd).is_ok_and(|s| s.contains(SealFlags::SHRINK));
        if len != layout.total_bytes() || !sealed {
            return Err(JobError::Launcher(format!(
                "the memory segment of another job has {len} bytes, which is wrong"
            )));
        }
        Ok(Segment::shared(fd, layout))
    }

    fn shared(fd: OwnedFd, layout: SegmentLayout) -> Segment {
        Segment {
            fd,
            layout,
            machine: None,
            interfaces: Vec::new(),
            statuses: &[],
        }
    }

    /// The status page of a local rank, if there is such a rank.
    pub fn status(&self, local_rank: u32) -> Option<&'static RankStatus> {
        self.statuses.get(local_rank as usize)
    }

    /// The status pages of all local ranks.
    pub fn statuses(&self) -> &'static [RankStatus] {
        self.statuses
    }
}

/// Maps the status pages until the process ends.
fn map_statuses(fd: &OwnedFd, layout: &SegmentLayout) -> Result<&'static [RankStatus], JobError> {
    let len = (layout.transport_offset - layout.status_offset) as usize;
    // SAFETY: a new shared mapping, placed by the kernel, of bytes that the file has: its length
    // was checked or just set.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_fd().as_raw_fd(),
            layout.status_offset as i64,
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
                layout.status_offset + u64::from(ranks) * size_of::<RankStatus>() as u64
                    <= layout.transport_offset
            );
            assert_eq!(layout.transport_offset % 4096, 0);
            let transport_end = layout.transport_offset + SegmentLayout::transport_bytes(ranks);
            assert!(
                layout.transport_offset < transport_end && transport_end <= layout.arena_offset
            );
            assert_eq!(layout.arena_offset % (64 * 1024), 0);
            assert_eq!(layout.total_bytes(), layout.arena_offset);
        }
    }

    #[test]
    fn the_arena_is_as_long_as_a_file_may_be() {
        let layout = SegmentLayout::new(4);
        assert_eq!(layout.with_arena(u64::MAX).arena_bytes, ARENA_BYTES);
        let some = layout.with_arena(layout.arena_offset + 200_000);
        assert_eq!(some.arena_bytes, 3 * 64 * 1024);
        assert_eq!(layout.with_arena(4096), layout, "none");
    }

    #[test]
    fn a_rank_finds_the_arena_that_the_launcher_has_made() {
        let made = Segment::create(2).unwrap();
        let clone = || made.fd.try_clone().unwrap();
        let opened = Segment::open(clone(), 2, None).unwrap();
        assert_eq!(opened.layout, made.layout);
        assert!(opened.layout.arena_bytes > 1 << 40, "no limit in this test");
        let blocks = rustix::fs::fstat(&made.fd).unwrap().st_blocks;
        assert!(blocks <= 16, "{blocks} blocks of 512 bytes");
        // A launcher that was refused a longer file.
        let short = Segment::create(2).unwrap();
        let fd = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, short.layout.arena_offset).unwrap();
        let mut header = [0; 16];
        rustix::io::pread(&short.fd, &mut header, 0).unwrap();
        rustix::io::pwrite(&fd, &header, 0).unwrap();
        assert_eq!(Segment::open(fd, 2, None).unwrap().layout.arena_bytes, 0);
    }

    #[test]
    fn both_sides_see_the_same_status() {
        let made = Segment::create(3).unwrap();
        let fd = made.fd.try_clone().unwrap();
        let opened = Segment::open(fd, 3, Some(made.layout.total_bytes())).unwrap();
        opened.status(2).unwrap().peer.store(-7, Ordering::Relaxed);
        assert_eq!(made.status(2).unwrap().peer.load(Ordering::Relaxed), -7);
        assert!(made.status(3).is_none());
    }

    #[test]
    fn a_wrong_segment_is_refused() {
        let made = Segment::create(3).unwrap();
        let clone = || made.fd.try_clone().unwrap();
        assert!(Segment::open(clone(), 4, Some(made.layout.total_bytes())).is_err());
        assert!(Segment::open(clone(), 3, Some(4096)).is_err());
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
