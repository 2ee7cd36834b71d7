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

mod layout;
mod mapping;

pub(super) use layout::{COMMAND_KINDS, Header, Mailbox, QUEUE_MAX_BYTES, state};

use super::Rank;
use layout::{
    CPUS_MAX, MACHINE_MAX_BYTES, MAGIC, MAILBOX_BYTES, MAPPED_MAX_BYTES, PAGE_BYTES, RANKS_MAX,
    VERSION, rank_stride,
};
use mapping::{Mapping, map};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::futex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{io, ptr};

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
        self.copy_in(rank, PAGE_BYTES, QUEUE_MAX_BYTES, 0, bytes);
        self.mailbox(rank)
            .command_bytes
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's commands.
    pub(super) fn take_commands(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).command_bytes.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(QUEUE_MAX_BYTES), 0);
        self.copy_out(rank, PAGE_BYTES, QUEUE_MAX_BYTES, 0, out);
    }

    /// Puts events into a rank's mailbox.
    pub(super) fn put_events(&self, rank: Rank, bytes: &[u8]) {
        self.copy_in(
            rank,
            PAGE_BYTES + QUEUE_MAX_BYTES,
            QUEUE_MAX_BYTES,
            0,
            bytes,
        );
        self.mailbox(rank)
            .event_bytes
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's events.
    pub(super) fn take_events(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).event_bytes.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(QUEUE_MAX_BYTES), 0);
        self.copy_out(rank, PAGE_BYTES + QUEUE_MAX_BYTES, QUEUE_MAX_BYTES, 0, out);
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
