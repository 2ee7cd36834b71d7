//! The shared memory of a job and its model: a header, and for each rank a mailbox and the memory
//! that its card maps.
//!
//! ```text
//! | header | machine's description | rank 0 | rank 1 | …
//!                                  | mailbox | commands | events | mapped memory |
//! ```
//!
//! Both sides never use the same part at once. A rank writes its mailbox while it has the turn. The
//! model reads and writes it while the rank has stopped. [`Mailbox::state`] says who has the turn.

use super::Rank;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::futex;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, ptr};

/// First word of the memory.
const MAGIC: u64 = u64::from_le_bytes(*b"ferrymod");
/// Version of the layout. Raised with each change of it.
const VERSION: u32 = 6;
/// The system's page size.
const PAGE_BYTES: usize = 4096;
/// Most bytes of the machine's encoded description.
const MACHINE_MAX_BYTES: usize = 64 * 1024;
/// Most bytes of commands, and of events, in a mailbox.
pub(super) const BOX_MAX_BYTES: usize = 256 * 1024;
/// Most ranks of a modelled job.
const RANKS_MAX: u32 = 4096;
/// Most bytes that one rank's card maps.
const MAPPED_MAX_BYTES: u64 = 1 << 32;

/// Kinds of commands with a response time in the header. That of others is zero.
pub(super) const COMMAND_KINDS: usize = 8;
/// Most cores that ranks are spread over.
const CPUS_MAX: usize = 64;

/// States of a rank.
pub(super) mod state {
    /// It has not joined yet. Counts as running.
    pub const ABSENT: u32 = 0;
    /// It has the turn.
    pub const RUNNING: u32 = 1;
    /// It waits for the model to catch up with its clock.
    pub const SYNCING: u32 = 2;
    /// It waits until the model has something for it.
    pub const WAITING: u32 = 3;
    /// It takes no part any more.
    pub const LEFT: u32 = 4;
    /// It waited, or had left, and asks to go on.
    pub const RESUMING: u32 = 5;
    /// It polls, and waits if nothing is there.
    pub const POLLING: u32 = 6;
}

/// What all ranks and the model share.
#[repr(C)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    ranks: AtomicU32,
    /// Bytes that each rank's card maps.
    mapped_bytes: AtomicU64,
    /// Bytes of the machine's description.
    machine_bytes: AtomicU64,
    /// What the model sleeps on.
    pub wakeup: AtomicU32,
    /// The model sleeps.
    pub asleep: AtomicU32,
    /// Ranks that have not stopped yet.
    pub running: AtomicU32,
    /// Ranks that have asked to go on.
    pub resume_requests: AtomicU32,
    /// A rank's process has ended, so `running` may be too high.
    pub exited: AtomicU32,
    /// The job is over.
    pub closing: AtomicU32,
    /// Ranks record their work for the timeline, span by span.
    pub traced: AtomicU32,
    /// Virtual time does not run ahead of real time.
    pub paced: AtomicU32,
    /// By kind of command: least time until its own rank can see anything of it, picoseconds.
    pub response_times: [AtomicU64; COMMAND_KINDS],
    /// Virtual time in picoseconds, for observers.
    pub now: AtomicU64,
    /// Commands so far, for observers.
    pub commands: AtomicU64,
    /// How often a rank that waits for its turn yields before it sleeps.
    pub yields: AtomicU32,
    /// How many of `cpus` the ranks are on, from the first one on.
    pub cores: AtomicU32,
    /// CPUs that the ranks may be spread over. Zero: they stay where they are.
    cpu_count: AtomicU32,
    cpus: [AtomicU32; CPUS_MAX],
}

/// What a rank and the model share.
#[repr(C)]
pub(super) struct Mailbox {
    /// One of [`state`].
    pub state: AtomicU32,
    /// How often the rank has got the turn. Only the model raises it. A rank with one thread sleeps
    /// on it; of a rank with several, the thread that asks to go on.
    pub turn: AtomicU32,
    /// What the threads of a rank with several sleep on. The model raises it after a turn that none
    /// of them has asked for. The rank raises it when one thread has something for another.
    pub wakeup: AtomicU32,
    /// Somebody sleeps on `turn`, or is about to.
    pub asleep: AtomicU32,
    /// Threads of the rank may call MPI at once. A waiting rank may then go on by itself.
    pub concurrent: AtomicU32,
    /// The process has ended.
    pub exited: AtomicU32,
    /// A device outside the model has something for the rank: it goes on if it waits.
    pub interrupted: AtomicU32,
    /// There are more events than the mailbox holds.
    pub more_events: AtomicU32,
    /// The rank goes on because its poll has found something. It has not waited.
    pub poll_found: AtomicU32,
    /// Bytes of commands in the mailbox.
    pub command_bytes: AtomicU32,
    /// Bytes of events in the mailbox.
    pub event_bytes: AtomicU32,
    /// The rank's clock in picoseconds: when it stopped, or when it goes on.
    pub clock: AtomicU64,
    /// Nothing changes for the rank before this time, in picoseconds, unless it issues commands.
    pub horizon: AtomicU64,
    /// How often the waiting rank polls, picoseconds.
    pub poll_period: AtomicU64,
}

/// Bytes of a rank's part before what its card maps.
const MAILBOX_BYTES: usize = PAGE_BYTES + 2 * BOX_MAX_BYTES;

/// Why the shared memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelSegmentError {
    /// A system call was refused.
    #[error(
        "the memory of the modelled machine: {0} was refused: {1}; the limits on memory, files and \
         address space (ulimit -v, -f, -n) may be too low"
    )]
    Refused(&'static str, io::Error),
    /// It is not what a model of this version makes.
    #[error(
        "the memory of the modelled machine is none of this version's: {0}; use the mpiexec of the \
         same installation"
    )]
    Foreign(&'static str),
    /// More was asked for than there can be.
    #[error(
        "a modelled machine has at most {RANKS_MAX} ranks, and a card at most {MAPPED_MAX_BYTES} \
         bytes"
    )]
    TooMuch,
}

/// The shared memory, mapped into this process. Clones share the mapping.
#[derive(Clone)]
pub struct ModelSegment(Arc<Mapping>);

struct Mapping {
    fd: OwnedFd,
    at: *mut u8,
    len: usize,
    ranks: u32,
    mapped_bytes: usize,
    machine_bytes: usize,
}

// SAFETY: the mapping is shared memory that is only touched through atomics, or by the side that
// has the turn.
unsafe impl Send for Mapping {}
// SAFETY: what several threads reach at once are atomics; the rest belongs to the side that has the
// turn.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrowed from it outlives the Arc (Client leaks its
        // clone).
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

fn rank_stride(mapped_bytes: usize) -> usize {
    MAILBOX_BYTES + mapped_bytes
}

impl ModelSegment {
    /// Makes the memory for `ranks` ranks whose cards map `mapped` bytes each. The ranks can read
    /// `machine` with [`ModelSegment::machine`]. Pages exist only once touched.
    ///
    /// # Errors
    /// The system gives no memory, or more was asked for than there can be.
    pub fn create(
        ranks: u32,
        mapped: u64,
        machine: &[u8],
    ) -> Result<ModelSegment, ModelSegmentError> {
        let mapped = mapped.next_multiple_of(PAGE_BYTES as u64);
        if ranks == 0
            || ranks > RANKS_MAX
            || mapped > MAPPED_MAX_BYTES
            || machine.len() > MACHINE_MAX_BYTES
        {
            return Err(ModelSegmentError::TooMuch);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("ferry-machine", flags)
            .map_err(|e| ModelSegmentError::Refused("making it", e.into()))?;
        let len = PAGE_BYTES + MACHINE_MAX_BYTES + ranks as usize * rank_stride(mapped as usize);
        rustix::fs::ftruncate(&fd, len as u64)
            .map_err(|e| ModelSegmentError::Refused("giving it its size", e.into()))?;
        // Best effort, as for the node's segment.
        let _ =
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        let mapping = map(fd, len, ranks, mapped as usize, machine.len())?;
        let segment = ModelSegment(Arc::new(mapping));
        let header = segment.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.ranks.store(ranks, Ordering::Relaxed);
        header.mapped_bytes.store(mapped, Ordering::Relaxed);
        header
            .machine_bytes
            .store(machine.len() as u64, Ordering::Relaxed);
        header.running.store(ranks, Ordering::Relaxed);
        // SAFETY: the room is there (checked), and nobody else knows of the memory yet.
        unsafe {
            ptr::copy_nonoverlapping(
                machine.as_ptr(),
                segment.0.at.add(PAGE_BYTES),
                machine.len(),
            )
        };
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Maps the memory behind `fd`, which the launcher made.
    ///
    /// # Errors
    /// It is not such memory, or the system does not map it.
    pub fn open(fd: OwnedFd) -> Result<ModelSegment, ModelSegmentError> {
        let size = rustix::fs::fstat(&fd)
            .map_err(|e| ModelSegmentError::Refused("looking at it", e.into()))?
            .st_size as usize;
        if size < PAGE_BYTES + MACHINE_MAX_BYTES {
            return Err(ModelSegmentError::Foreign("it is too short"));
        }
        let mut first = map(fd, size, 0, 0, 0)?;
        // SAFETY: a page is there at least, and a Header is all atomics.
        let header = unsafe { &*first.at.cast::<Header>() };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(ModelSegmentError::Foreign("it does not begin as one"));
        }
        if header.version.load(Ordering::Relaxed) != VERSION {
            return Err(ModelSegmentError::Foreign("its version is another"));
        }
        let ranks = header.ranks.load(Ordering::Relaxed);
        let mapped = header.mapped_bytes.load(Ordering::Relaxed);
        let machine = header.machine_bytes.load(Ordering::Relaxed);
        let possible = (1..=RANKS_MAX).contains(&ranks)
            && mapped <= MAPPED_MAX_BYTES
            && machine <= MACHINE_MAX_BYTES as u64
            && size
                == PAGE_BYTES + MACHINE_MAX_BYTES + ranks as usize * rank_stride(mapped as usize);
        if !possible {
            return Err(ModelSegmentError::Foreign(
                "its numbers contradict each other",
            ));
        }
        first.ranks = ranks;
        (first.mapped_bytes, first.machine_bytes) = (mapped as usize, machine as usize);
        Ok(ModelSegment(Arc::new(first)))
    }

    /// The descriptor, to be handed on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.0.ranks
    }

    /// The machine's description, as it was given to [`ModelSegment::create`].
    pub fn machine(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.machine_bytes];
        // SAFETY: so many bytes are there; they were written before the memory was handed on.
        unsafe {
            ptr::copy_nonoverlapping(self.0.at.add(PAGE_BYTES), bytes.as_mut_ptr(), bytes.len())
        };
        bytes
    }

    /// Virtual time in picoseconds, and commands so far, for observers.
    pub fn progress(&self) -> (u64, u64) {
        let header = self.header();
        (
            header.now.load(Ordering::Relaxed),
            header.commands.load(Ordering::Relaxed),
        )
    }

    /// Has ranks record what they spend their time on, span by span. To be called before they
    /// start.
    pub fn enable_trace(&self) {
        self.header().traced.store(1, Ordering::Relaxed);
    }

    /// Virtual time does not run ahead of real time from when all ranks have joined. To be called
    /// before they start.
    pub fn enable_pacing(&self) {
        self.header().paced.store(1, Ordering::Relaxed);
    }

    /// A device outside the model has something for this rank, like a frame for its Ethernet
    /// interface. The rank goes on if it waits, or when it waits next.
    pub fn interrupt(&self, rank: Rank) {
        if rank < self.0.ranks {
            self.mailbox(rank).interrupted.store(1, Ordering::SeqCst);
            self.header().resume_requests.fetch_add(1, Ordering::SeqCst);
            self.wake_model();
        }
    }

    /// Ranks and model are all on the first of these CPUs, and the ranks may be spread over them.
    /// To be called before they start.
    pub fn set_cpus(&self, cpus: &[usize]) {
        let header = self.header();
        let count = cpus.len().min(CPUS_MAX);
        for (place, cpu) in header.cpus.iter().zip(cpus) {
            place.store(*cpu as u32, Ordering::Relaxed);
        }
        header.cores.store(1, Ordering::Relaxed);
        header.cpu_count.store(count as u32, Ordering::Relaxed);
    }

    /// How many CPUs [`ModelSegment::set_cpus`] was given.
    pub(super) fn cpus(&self) -> u32 {
        let count = self.header().cpu_count.load(Ordering::Relaxed);
        count.min(CPUS_MAX as u32)
    }

    /// The CPU of a rank, if ranks are spread over `cores` of them.
    pub(super) fn cpu_of(&self, rank: Rank, cores: u32) -> Option<usize> {
        let place = rank % cores.clamp(1, self.cpus().max(1));
        let known = place < self.cpus();
        known.then(|| self.header().cpus[place as usize].load(Ordering::Relaxed) as usize)
    }

    /// The process of this rank has ended, in whatever way. The model does not wait for it any
    /// more.
    pub fn mark_exited(&self, rank: Rank) {
        if rank < self.0.ranks {
            self.mailbox(rank).exited.store(1, Ordering::SeqCst);
            self.header().exited.store(1, Ordering::SeqCst);
            self.wake_model();
        }
    }

    /// The job is over. The model ends when it has done what is due.
    pub fn close(&self) {
        self.header().closing.store(1, Ordering::SeqCst);
        self.wake_model();
    }

    /// Wakes the model.
    pub(super) fn wake_model(&self) {
        let header = self.header();
        header.wakeup.fetch_add(1, Ordering::SeqCst);
        if header.asleep.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&header.wakeup, futex::Flags::empty(), 1);
        }
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: page aligned, long enough, all atomics, mapped as long as this ModelSegment is.
        unsafe { &*self.0.at.cast::<Header>() }
    }

    fn rank_base(&self, rank: Rank) -> *mut u8 {
        assert!(rank < self.0.ranks, "rank {rank} of {}", self.0.ranks);
        let at = PAGE_BYTES + MACHINE_MAX_BYTES + rank as usize * rank_stride(self.0.mapped_bytes);
        // SAFETY: within the mapping, whose length was made for that many ranks.
        unsafe { self.0.at.add(at) }
    }

    pub(super) fn mailbox(&self, rank: Rank) -> &Mailbox {
        // SAFETY: as for the header.
        unsafe { &*self.rank_base(rank).cast::<Mailbox>() }
    }

    /// Bytes that each rank's card maps.
    pub fn mapped_bytes(&self) -> usize {
        self.0.mapped_bytes
    }

    /// Start of the memory that a rank's card maps.
    pub(crate) fn mapped_memory(&self, rank: Rank) -> *mut u8 {
        // SAFETY: within the mapping, whose length was made for that many ranks.
        unsafe { self.rank_base(rank).add(MAILBOX_BYTES) }
    }

    fn copy_in(&self, rank: Rank, area: usize, room: usize, at: usize, bytes: &[u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes at {at} of {room}", bytes.len());
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            let to = self.rank_base(rank).add(area + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn copy_out(&self, rank: Rank, area: usize, room: usize, at: usize, bytes: &mut [u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes at {at} of {room}", bytes.len());
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            let from = self.rank_base(rank).add(area + at);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Puts a rank's commands into its mailbox.
    pub(super) fn put_commands(&self, rank: Rank, bytes: &[u8]) {
        self.copy_in(rank, PAGE_BYTES, BOX_MAX_BYTES, 0, bytes);
        self.mailbox(rank)
            .command_bytes
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's commands.
    pub(super) fn take_commands(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).command_bytes.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(BOX_MAX_BYTES), 0);
        self.copy_out(rank, PAGE_BYTES, BOX_MAX_BYTES, 0, out);
    }

    /// Puts events into a rank's mailbox.
    pub(super) fn put_events(&self, rank: Rank, bytes: &[u8]) {
        self.copy_in(rank, PAGE_BYTES + BOX_MAX_BYTES, BOX_MAX_BYTES, 0, bytes);
        self.mailbox(rank)
            .event_bytes
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's events.
    pub(super) fn take_events(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).event_bytes.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(BOX_MAX_BYTES), 0);
        self.copy_out(rank, PAGE_BYTES + BOX_MAX_BYTES, BOX_MAX_BYTES, 0, out);
    }

    /// Reads a word of the memory that a rank's card maps. Panics beyond its end.
    #[inline]
    pub(super) fn word(&self, rank: Rank, at: usize) -> u32 {
        let fits = at
            .checked_add(4)
            .is_some_and(|end| end <= self.0.mapped_bytes);
        assert!(fits, "a word at {at} of {}", self.0.mapped_bytes);
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            self.rank_base(rank)
                .add(MAILBOX_BYTES + at)
                .cast::<u32>()
                .read_unaligned()
        }
    }

    /// Writes into the memory that a rank's card maps. Panics beyond its end.
    pub(crate) fn write(&self, rank: Rank, at: usize, bytes: &[u8]) {
        self.copy_in(rank, MAILBOX_BYTES, self.0.mapped_bytes, at, bytes);
    }

    /// Reads the memory that a rank's card maps. Panics beyond its end.
    pub(crate) fn read(&self, rank: Rank, at: usize, bytes: &mut [u8]) {
        self.copy_out(rank, MAILBOX_BYTES, self.0.mapped_bytes, at, bytes);
    }
}

fn map(
    fd: OwnedFd,
    len: usize,
    ranks: u32,
    mapped_bytes: usize,
    machine_bytes: usize,
) -> Result<Mapping, ModelSegmentError> {
    // SAFETY: a new shared mapping, placed by the kernel, of bytes that the file has: its length
    // was set or looked at, and is sealed.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(ModelSegmentError::Refused(
            "mapping it",
            io::Error::last_os_error(),
        ));
    }
    Ok(Mapping {
        fd,
        at: at.cast(),
        len,
        ranks,
        mapped_bytes,
        machine_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn both_sides_see_the_same() {
        let segment = ModelSegment::create(3, 100, b"machine").unwrap();
        let other = ModelSegment::open(segment.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((other.ranks(), other.mapped_bytes()), (3, 4096));
        assert_eq!(other.machine(), b"machine");
        segment.put_events(2, b"to rank two");
        let mut out = Vec::new();
        other.take_events(2, &mut out);
        assert_eq!(out, b"to rank two");
        other.write(1, 4090, b"abcdef");
        let mut six = [0; 6];
        segment.read(1, 4090, &mut six);
        assert_eq!(&six, b"abcdef");
    }

    #[test]
    fn memory_that_is_no_segment_is_refused() {
        assert!(ModelSegment::create(0, 0, b"").is_err());
        assert!(ModelSegment::create(RANKS_MAX + 1, 0, b"").is_err());
        assert!(ModelSegment::create(1, u64::MAX / 2, b"").is_err());
        let segment = ModelSegment::create(2, 0, b"").unwrap();
        let clone = || segment.fd().try_clone_to_owned().unwrap();
        for (at, byte) in [(0, 1), (8, 9), (12, 200), (20, 3), (30, 1)] {
            let file = File::from(clone());
            let mut before = [0];
            file.read_exact_at(&mut before, at).unwrap();
            file.write_all_at(&[byte], at).unwrap();
            assert!(ModelSegment::open(clone()).is_err(), "byte {at}");
            file.write_all_at(&before, at).unwrap();
        }
        ModelSegment::open(clone()).unwrap();
        let null = File::open("/dev/null").unwrap();
        assert!(ModelSegment::open(null.into()).is_err());
    }
}
