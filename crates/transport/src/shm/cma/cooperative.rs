//! Cooperative copy: both processes of a large message copy parts of it at the same time.
//!
//! The receiver puts the copy on the pair's *copy table*: addresses and length, divided into
//! chunks. It claims one chunk after the other and reads it out of the sender's memory. If the
//! sender is in MPI as well, it assists: it claims chunks of the same copy and writes them into the
//! receiver's memory. With a core for each, a message takes half the time. A sender that computes
//! is not disturbed; then the receiver copies all chunks.
//!
//! ```text
//! claim     generation (32 bits), chunks (16), next chunk to claim (16)
//! done      a bit for each chunk that the sender has copied
//! refused   a bit for each chunk that the sender has claimed and could not copy
//! ```
//!
//! The word `claim` is written last and has the copy's generation. So a claim that succeeds belongs
//! to the copy whose addresses were read before it.

use super::super::memory::{AtomicU64, LINE_BYTES, Ordering};
use crate::ReadError;

/// Most copies on one copy table at a time. A choice: further ones are made by the receiver alone.
pub const COPIES_MAX: usize = 4;
/// Most chunks of a copy: the bits of a word.
const CHUNKS_MAX: u64 = 64;
/// Shortest message that is copied cooperatively, bytes. A choice: below it the request to the
/// sender costs more than the receiver gains.
pub const COOPERATIVE_MIN_BYTES: usize = 48 * 1024;
/// Bytes of a page, on x86-64 and most arm64 systems. Chunks end at its multiples.
const PAGE_BYTES: u64 = 4096;

/// A slot of a copy table, with one copy.
#[repr(C, align(128))]
struct Copy {
    source: AtomicU64,
    target: AtomicU64,
    len: AtomicU64,
    chunk: AtomicU64,
    _line0: [u64; LINE_BYTES / 8 - 4],
    claim: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    _line1: [u64; LINE_BYTES / 8 - 3],
}

/// The copies of one receiver from one sender. In shared memory, all zeros at first.
#[repr(C)]
pub struct CopyTable {
    copies: [Copy; COPIES_MAX],
}

/// A part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number within the copy.
    pub number: u32,
    /// Address in the sender's memory.
    pub source: u64,
    /// Address in the receiver's memory.
    pub target: u64,
    /// Bytes.
    pub len: u64,
}

/// Encodes the word `claim`.
fn claim_word(generation: u64, chunks: u64, next: u64) -> u64 {
    generation << 32 | chunks << 16 | next
}

/// Bytes of a chunk of a message of `len` bytes. A small message has two, so that each side makes
/// one system call. A large one has more, so that a sender that comes later still finds some. The
/// steps are a choice.
fn chunk_len(len: u64) -> u64 {
    let chunks = if len < 512 << 10 {
        2
    } else if len < 4 << 20 {
        4
    } else if len < 32 << 20 {
        8
    } else {
        CHUNKS_MAX / 2
    };
    (len / chunks).next_multiple_of(PAGE_BYTES)
}

impl Copy {
    /// Claims the next chunk of the copy whose claim word is `claim`. `None`: the other process has
    /// changed the word meanwhile.
    fn claim(&self, claim: u64) -> Option<Chunk> {
        let next = claim & 0xffff;
        let (source, target) = (
            self.source.load(Ordering::Relaxed),
            self.target.load(Ordering::Relaxed),
        );
        let (len, chunk) = (
            self.len.load(Ordering::Relaxed),
            self.chunk.load(Ordering::Relaxed),
        );
        self.claim
            .compare_exchange(claim, claim + 1, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        // Nonsense from a peer gives an empty chunk, or an address that the kernel refuses.
        let offset = next.wrapping_mul(chunk).min(len);
        Some(Chunk {
            number: next as u32,
            source: source.wrapping_add(offset),
            target: target.wrapping_add(offset),
            len: chunk.min(len - offset),
        })
    }

    /// Claims the next chunk, if one is left.
    fn next(&self) -> Option<Chunk> {
        loop {
            let claim = self.claim.load(Ordering::Acquire);
            let (chunks, next) = (claim >> 16 & 0xffff, claim & 0xffff);
            if next >= chunks.min(CHUNKS_MAX) {
                return None;
            }
            if let Some(chunk) = self.claim(claim) {
                return Some(chunk);
            }
        }
    }
}

/// The sender's side.
impl CopyTable {
    /// Claims a chunk of any copy. Returns the copy's slot, and the chunk.
    pub fn claim(&self) -> Option<(usize, Chunk)> {
        (0..COPIES_MAX).find_map(|at| Some((at, self.copies[at].next()?)))
    }

    /// Tells the receiver that the chunk has been copied, with a full barrier.
    pub fn complete(&self, at: usize, chunk: Chunk) {
        self.copies[at]
            .done
            .fetch_or(1 << (chunk.number % 64), Ordering::SeqCst);
    }

    /// Tells the receiver that the chunk could not be copied, so that the receiver copies it.
    pub fn refuse(&self, at: usize, chunk: Chunk) {
        self.copies[at]
            .refused
            .fetch_or(1 << (chunk.number % 64), Ordering::SeqCst);
    }
}

/// A receiver's copy that is under way.
pub struct ActiveCopy {
    /// Its slot on the table.
    slot: usize,
    /// A bit for each chunk.
    all: u64,
    /// A bit for each chunk that the receiver has copied, or given up.
    own: u64,
    /// Source, target and length of the whole copy.
    whole: (u64, u64, u64),
    /// Bytes of a chunk.
    chunk: u64,
}

/// The receiver's side of a copy table.
pub struct CopyReceiver {
    table: &'static CopyTable,
    /// The last copy's generation.
    generation: u64,
    /// By slot: no copy is in it.
    free: [bool; COPIES_MAX],
}

impl CopyReceiver {
    /// The receiver's side of a copy table. There must be only one.
    pub fn new(table: &'static CopyTable) -> CopyReceiver {
        CopyReceiver {
            table,
            generation: 0,
            free: [true; COPIES_MAX],
        }
    }

    /// Puts a copy on the table. `None`: the copy table is full.
    pub fn begin(&mut self, source: u64, target: u64, len: u64) -> Option<ActiveCopy> {
        let at = self.free.iter().position(|&free| free)?;
        let chunk = chunk_len(len).max(PAGE_BYTES);
        let chunks = len.div_ceil(chunk);
        self.generation = (self.generation + 1) & 0xffff_ffff;
        let copy = &self.table.copies[at];
        copy.source.store(source, Ordering::Relaxed);
        copy.target.store(target, Ordering::Relaxed);
        copy.len.store(len, Ordering::Relaxed);
        copy.chunk.store(chunk, Ordering::Relaxed);
        copy.done.store(0, Ordering::Relaxed);
        copy.refused.store(0, Ordering::Relaxed);
        copy.claim
            .store(claim_word(self.generation, chunks, 0), Ordering::SeqCst);
        self.free[at] = false;
        Some(ActiveCopy {
            slot: at,
            all: u64::MAX >> (64 - chunks),
            own: 0,
            whole: (source, target, len),
            chunk,
        })
    }

    /// The next chunk for the receiver to copy: one that nobody has claimed, or one that the sender
    /// could not copy.
    pub fn next(&self, copy: &mut ActiveCopy) -> Option<Chunk> {
        match self.table.copies[copy.slot].next() {
            Some(chunk) => {
                copy.own |= 1 << (chunk.number % 64);
                Some(chunk)
            }
            None => self.refused(copy),
        }
    }

    /// A chunk that the sender could not copy, if there is one left.
    fn refused(&self, copy: &mut ActiveCopy) -> Option<Chunk> {
        let refused = self.table.copies[copy.slot].refused.load(Ordering::Acquire) & copy.all;
        let left = refused & !copy.own;
        if left == 0 {
            return None;
        }
        let number = left.trailing_zeros();
        copy.own |= 1 << number;
        let (source, target, len) = copy.whole;
        let offset = u64::from(number) * copy.chunk;
        Some(Chunk {
            number,
            source: source + offset,
            target: target + offset,
            len: copy.chunk.min(len - offset),
        })
    }

    /// Returns whether all of a copy is done. If so, its slot is free for the next copy, and `copy`
    /// is not to be used any more.
    pub fn ended(&mut self, copy: &ActiveCopy) -> bool {
        let done = self.table.copies[copy.slot].done.load(Ordering::Acquire);
        let ended = (done | copy.own) & copy.all == copy.all;
        if ended {
            self.free[copy.slot] = true;
        }
        ended
    }
}

/// The cooperative copies between this process and a peer.
pub struct CooperativeCopies {
    /// This process's own copy table, on which it puts its copies as a receiver.
    pub own: CopyReceiver,
    /// The peer's copy table, on which this process assists.
    pub peers_table: &'static CopyTable,
    /// The numbers of this process's copies that are under way, and their faults.
    pub under_way: Vec<(u32, ActiveCopy, Option<ReadError>)>,
    /// The number of the last copy.
    pub last_number: u32,
}

impl CooperativeCopies {
    /// With this process's own table and the peer's.
    pub fn new(own: &'static CopyTable, peers_table: &'static CopyTable) -> CooperativeCopies {
        CooperativeCopies {
            own: CopyReceiver::new(own),
            peers_table,
            under_way: Vec::new(),
            last_number: 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "cooperative/tests.rs"]
mod tests;
