//! The memory that the ranks of a job and its model share: a header, and for each rank a mailbox
//! and its card's memory.
//!
//! Nothing here is used by both sides at once. A rank writes its mailbox while it runs; the model
//! reads and writes it while the rank has stopped. Who has the turn stands in the mailbox's
//! `state`.

use crate::Rank;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::futex;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, ptr};

const MAGIC: u64 = u64::from_le_bytes(*b"ferrymod");
/// Raised with each change of what lies where.
const VERSION: u32 = 5;
const PAGE: usize = 4096;
/// Room for the machine's description.
const MACHINE_MAX: usize = 64 * 1024;
/// Bytes of commands, and of events, that a mailbox holds.
pub(super) const BOX_MAX: usize = 256 * 1024;
/// Most ranks of a modelled job.
pub(crate) const RANKS_MAX: u32 = 4096;
/// Most memory of one rank's card, bytes.
const MEMORY_MAX: u64 = 1 << 32;

/// Kinds of commands whose reaction is known; that of others is 0.
pub(super) const KINDS: usize = 8;
/// Most cores that ranks are spread over.
const CPUS: usize = 64;

/// Where a rank stands.
pub(super) mod state {
    /// It has not come yet. Counts as running.
    pub const ABSENT: u32 = 0;
    /// It has the turn.
    pub const RUNNING: u32 = 1;
    /// It waits for the model to catch up with its clock.
    pub const SYNC: u32 = 2;
    /// It waits until the model has something for it.
    pub const WAITING: u32 = 3;
    /// It takes no part any more.
    pub const LEFT: u32 = 4;
    /// It waited, or had left, and wants to go on by itself.
    pub const REJOINS: u32 = 5;
    /// It looks, and waits if nothing is there.
    pub const LOOKING: u32 = 6;
}

#[repr(C)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    ranks: AtomicU32,
    memory: AtomicU64,
    machine: AtomicU64,
    /// What the model sleeps on.
    pub bell: AtomicU32,
    /// The model sleeps.
    pub asleep: AtomicU32,
    /// Ranks that have not stopped yet.
    pub running: AtomicU32,
    /// Somebody wants to go on by itself.
    pub rejoins: AtomicU32,
    /// A rank's process has ended: `running` may be too high.
    pub gone: AtomicU32,
    /// The job is over.
    pub closing: AtomicU32,
    /// Ranks say what they spend their time on, span by span.
    pub traced: AtomicU32,
    /// By kind of command: the least time from one to anything that its own rank can see of it,
    /// picoseconds.
    pub reaction: [AtomicU64; KINDS],
    /// Virtual time, for who looks on.
    pub now: AtomicU64,
    /// Commands so far, for who looks on.
    pub commands: AtomicU64,
    /// How often a rank that waits for its turn hands its core over before it sleeps.
    pub yields: AtomicU32,
    /// Of the CPUs below, those that the ranks are on: the first ones.
    pub cores: AtomicU32,
    /// CPUs that the ranks may be spread over; none: they stay where they are.
    cpus_given: AtomicU32,
    cpus: [AtomicU32; CPUS],
}

#[repr(C)]
pub(super) struct Mailbox {
    pub state: AtomicU32,
    /// How often the rank has got the turn. Only the model raises it. Who wants the turn sleeps on
    /// it: the rank's only thread, or of several that which goes on by itself.
    pub turn: AtomicU32,
    /// What the threads of a rank sleep on that has several: raised by the model behind a turn
    /// that none of them has asked for, and by the rank itself when one has something for
    /// another.
    pub bell: AtomicU32,
    /// Somebody sleeps on `turn`, or is about to.
    pub asleep: AtomicU32,
    /// Threads of the rank may call MPI at once: that it waits does not mean that it cannot go on.
    pub concurrent: AtomicU32,
    /// The process has ended.
    pub gone: AtomicU32,
    /// More events are there than the mailbox holds.
    pub more: AtomicU32,
    /// The rank goes on because something was there when it looked: it has not waited.
    pub found: AtomicU32,
    /// Bytes of commands and of events.
    pub sent: AtomicU32,
    pub came: AtomicU32,
    /// The rank's clock: when it stopped, or when it goes on.
    pub clock: AtomicU64,
    /// Nothing changes for the rank before this time unless it issues commands.
    pub horizon: AtomicU64,
    /// How often the waiting rank looks.
    pub period: AtomicU64,
}

const MAILBOX: usize = PAGE + 2 * BOX_MAX;

/// Why the shared memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// A system call was refused.
    #[error(
        "the memory of the modelled machine: {0} was refused: {1}; the limits on memory, files and address space (ulimit -v, -f, -n) may be too low"
    )]
    Refused(&'static str, io::Error),
    /// It is not what a model of this version makes.
    #[error(
        "the memory of the modelled machine is none of this version's: {0}; use the mpiexec of the same installation"
    )]
    Foreign(&'static str),
    /// More was asked for than there can be.
    #[error(
        "a modelled machine has at most {RANKS_MAX} ranks, and a card at most {MEMORY_MAX} bytes"
    )]
    TooMuch,
}

/// The shared memory, mapped here. Clones are the same.
#[derive(Clone)]
pub struct Arena(Arc<Mapping>);

struct Mapping {
    fd: OwnedFd,
    at: *mut u8,
    len: usize,
    ranks: u32,
    memory: usize,
    machine: usize,
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

fn stride(memory: usize) -> usize {
    MAILBOX + memory
}

impl Arena {
    /// Makes the memory for `ranks` ranks whose cards show each `memory` bytes; `machine` is kept
    /// for the ranks to read ([`Arena::machine`]). Pages exist only once touched.
    ///
    /// Errors: the system gives no memory, or more was asked for than there can be.
    pub fn create(ranks: u32, memory: u64, machine: &[u8]) -> Result<Arena, ArenaError> {
        let memory = memory.next_multiple_of(PAGE as u64);
        if ranks == 0 || ranks > RANKS_MAX || memory > MEMORY_MAX || machine.len() > MACHINE_MAX {
            return Err(ArenaError::TooMuch);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("ferry-machine", flags)
            .map_err(|e| ArenaError::Refused("making it", e.into()))?;
        let len = PAGE + MACHINE_MAX + ranks as usize * stride(memory as usize);
        rustix::fs::ftruncate(&fd, len as u64)
            .map_err(|e| ArenaError::Refused("giving it its size", e.into()))?;
        // Best effort, as for the node's segment.
        let _ =
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        let mapping = map(fd, len, ranks, memory as usize, machine.len())?;
        let arena = Arena(Arc::new(mapping));
        let header = arena.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.ranks.store(ranks, Ordering::Relaxed);
        header.memory.store(memory, Ordering::Relaxed);
        header
            .machine
            .store(machine.len() as u64, Ordering::Relaxed);
        header.running.store(ranks, Ordering::Relaxed);
        // SAFETY: the room is there (checked), and nobody else knows of the memory yet.
        unsafe { ptr::copy_nonoverlapping(machine.as_ptr(), arena.0.at.add(PAGE), machine.len()) };
        header.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// Maps the memory behind `fd`, which the launcher made.
    ///
    /// Errors: it is not such memory, or the system does not map it.
    pub fn open(fd: OwnedFd) -> Result<Arena, ArenaError> {
        let size = rustix::fs::fstat(&fd)
            .map_err(|e| ArenaError::Refused("looking at it", e.into()))?
            .st_size as usize;
        if size < PAGE + MACHINE_MAX {
            return Err(ArenaError::Foreign("it is too short"));
        }
        let first = map(fd, size, 0, 0, 0)?;
        let mut first = first;
        // SAFETY: a page is there at least, and a Header is all atomics.
        let header = unsafe { &*first.at.cast::<Header>() };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(ArenaError::Foreign("it does not begin as one"));
        }
        if header.version.load(Ordering::Relaxed) != VERSION {
            return Err(ArenaError::Foreign("its version is another"));
        }
        let ranks = header.ranks.load(Ordering::Relaxed);
        let memory = header.memory.load(Ordering::Relaxed);
        let machine = header.machine.load(Ordering::Relaxed);
        let possible = (1..=RANKS_MAX).contains(&ranks)
            && memory <= MEMORY_MAX
            && machine <= MACHINE_MAX as u64
            && size == PAGE + MACHINE_MAX + ranks as usize * stride(memory as usize);
        if !possible {
            return Err(ArenaError::Foreign("its numbers contradict each other"));
        }
        (first.ranks, first.memory, first.machine) = (ranks, memory as usize, machine as usize);
        Ok(Arena(Arc::new(first)))
    }

    /// The descriptor, to be handed on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.0.ranks
    }

    /// The machine's description, as it was given to [`Arena::create`].
    pub fn machine(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.machine];
        // SAFETY: so many bytes are there; they were written before the memory was handed on.
        unsafe { ptr::copy_nonoverlapping(self.0.at.add(PAGE), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// Virtual time in picoseconds, and commands so far; for who looks on.
    pub fn progress(&self) -> (u64, u64) {
        let header = self.header();
        (
            header.now.load(Ordering::Relaxed),
            header.commands.load(Ordering::Relaxed),
        )
    }

    /// Ranks are to say what they spend their time on, span by span. Before they start.
    pub fn trace(&self) {
        self.header().traced.store(1, Ordering::Relaxed);
    }

    /// Ranks and model are all on the first of these CPUs, and the ranks may be spread over them.
    /// Before they start.
    pub fn spread(&self, cpus: &[usize]) {
        let header = self.header();
        let given = cpus.len().min(CPUS);
        for (place, cpu) in header.cpus.iter().zip(cpus) {
            place.store(*cpu as u32, Ordering::Relaxed);
        }
        header.cores.store(1, Ordering::Relaxed);
        header.cpus_given.store(given as u32, Ordering::Relaxed);
    }

    /// How many CPUs [`Arena::spread`] was given.
    pub(super) fn cpus(&self) -> u32 {
        let given = self.header().cpus_given.load(Ordering::Relaxed);
        given.min(CPUS as u32)
    }

    /// The CPU of a rank, if ranks are on so many of them.
    pub(super) fn cpu_of(&self, rank: Rank, cores: u32) -> Option<usize> {
        let place = rank % cores.clamp(1, self.cpus().max(1));
        let given = place < self.cpus();
        given.then(|| self.header().cpus[place as usize].load(Ordering::Relaxed) as usize)
    }

    /// The process of this rank has ended, however that came: the model does not wait for it any
    /// more.
    pub fn gone(&self, rank: Rank) {
        if rank < self.0.ranks {
            self.mailbox(rank).gone.store(1, Ordering::SeqCst);
            self.header().gone.store(1, Ordering::SeqCst);
            self.ring();
        }
    }

    /// The job is over: the model ends when it has done what is due.
    pub fn close(&self) {
        self.header().closing.store(1, Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the model.
    pub(super) fn ring(&self) {
        let header = self.header();
        header.bell.fetch_add(1, Ordering::SeqCst);
        if header.asleep.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&header.bell, futex::Flags::empty(), 1);
        }
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: page aligned, long enough, all atomics, mapped as long as this Arena is.
        unsafe { &*self.0.at.cast::<Header>() }
    }

    fn seat(&self, rank: Rank) -> *mut u8 {
        assert!(rank < self.0.ranks, "rank {rank} of {}", self.0.ranks);
        let at = PAGE + MACHINE_MAX + rank as usize * stride(self.0.memory);
        // SAFETY: within the mapping, whose length was made for that many ranks.
        unsafe { self.0.at.add(at) }
    }

    pub(super) fn mailbox(&self, rank: Rank) -> &Mailbox {
        // SAFETY: as for the header.
        unsafe { &*self.seat(rank).cast::<Mailbox>() }
    }

    /// Bytes that a card shows its rank.
    pub fn memory(&self) -> usize {
        self.0.memory
    }

    /// Where what a card shows its rank begins.
    pub(crate) fn shown(&self, rank: Rank) -> *mut u8 {
        // SAFETY: within the mapping, whose length was made for that many ranks.
        unsafe { self.seat(rank).add(MAILBOX) }
    }

    fn copy_in(&self, rank: Rank, area: usize, room: usize, at: usize, bytes: &[u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes at {at} of {room}", bytes.len());
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            let to = self.seat(rank).add(area + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn copy_out(&self, rank: Rank, area: usize, room: usize, at: usize, bytes: &mut [u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= room);
        assert!(fits, "{} bytes at {at} of {room}", bytes.len());
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            let from = self.seat(rank).add(area + at);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Puts a rank's commands into its mailbox.
    pub(super) fn put_commands(&self, rank: Rank, bytes: &[u8]) {
        self.copy_in(rank, PAGE, BOX_MAX, 0, bytes);
        self.mailbox(rank)
            .sent
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's commands.
    pub(super) fn take_commands(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).sent.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(BOX_MAX), 0);
        self.copy_out(rank, PAGE, BOX_MAX, 0, out);
    }

    /// Puts events into a rank's mailbox.
    pub(super) fn put_events(&self, rank: Rank, bytes: &[u8]) {
        self.copy_in(rank, PAGE + BOX_MAX, BOX_MAX, 0, bytes);
        self.mailbox(rank)
            .came
            .store(bytes.len() as u32, Ordering::Relaxed);
    }

    /// Takes a rank's events.
    pub(super) fn take_events(&self, rank: Rank, out: &mut Vec<u8>) {
        let len = self.mailbox(rank).came.swap(0, Ordering::Relaxed) as usize;
        out.resize(len.min(BOX_MAX), 0);
        self.copy_out(rank, PAGE + BOX_MAX, BOX_MAX, 0, out);
    }

    /// Reads a word of what a rank's card shows. Panics beyond its end.
    #[inline]
    pub(super) fn word(&self, rank: Rank, at: usize) -> u32 {
        let fits = at.checked_add(4).is_some_and(|end| end <= self.0.memory);
        assert!(fits, "a word at {at} of {}", self.0.memory);
        // SAFETY: within this rank's part; the other side does not have the turn.
        unsafe {
            self.seat(rank)
                .add(MAILBOX + at)
                .cast::<u32>()
                .read_unaligned()
        }
    }

    /// Writes into the memory that a rank's card shows. Panics beyond its end.
    pub(crate) fn write(&self, rank: Rank, at: usize, bytes: &[u8]) {
        self.copy_in(rank, MAILBOX, self.0.memory, at, bytes);
    }

    /// Reads it. Panics beyond its end.
    pub(crate) fn read(&self, rank: Rank, at: usize, bytes: &mut [u8]) {
        self.copy_out(rank, MAILBOX, self.0.memory, at, bytes);
    }
}

fn map(
    fd: OwnedFd,
    len: usize,
    ranks: u32,
    memory: usize,
    machine: usize,
) -> Result<Mapping, ArenaError> {
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
        return Err(ArenaError::Refused(
            "mapping it",
            io::Error::last_os_error(),
        ));
    }
    Ok(Mapping {
        fd,
        at: at.cast(),
        len,
        ranks,
        memory,
        machine,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn both_sides_see_the_same() {
        let arena = Arena::create(3, 100, b"machine").unwrap();
        let other = Arena::open(arena.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((other.ranks(), other.memory()), (3, 4096));
        assert_eq!(other.machine(), b"machine");
        arena.put_events(2, b"to rank two");
        let mut out = Vec::new();
        other.take_events(2, &mut out);
        assert_eq!(out, b"to rank two");
        other.write(1, 4090, b"abcdef");
        let mut six = [0; 6];
        arena.read(1, 4090, &mut six);
        assert_eq!(&six, b"abcdef");
    }

    #[test]
    fn what_is_no_arena_is_refused() {
        assert!(Arena::create(0, 0, b"").is_err());
        assert!(Arena::create(RANKS_MAX + 1, 0, b"").is_err());
        assert!(Arena::create(1, u64::MAX / 2, b"").is_err());
        let arena = Arena::create(2, 0, b"").unwrap();
        let clone = || arena.fd().try_clone_to_owned().unwrap();
        for (at, byte) in [(0, 1), (8, 9), (12, 200), (20, 3), (30, 1)] {
            let file = File::from(clone());
            let mut before = [0];
            file.read_exact_at(&mut before, at).unwrap();
            file.write_all_at(&[byte], at).unwrap();
            assert!(Arena::open(clone()).is_err(), "byte {at}");
            file.write_all_at(&before, at).unwrap();
        }
        Arena::open(clone()).unwrap();
        let null = File::open("/dev/null").unwrap();
        assert!(Arena::open(null.into()).is_err());
    }
}
