//! Copying a large message by both of its processes at the same time.
//!
//! The receiver writes on the pair's *copy table* what is to be copied from where to where, cut
//! into chunks, and begins: it claims one chunk after the other and reads it out of the sender's
//! memory. If the sender is in MPI as well, it claims chunks of the same copy and writes them
//! into the receiver's memory. With a core for each, a message takes half the time; a sender that
//! computes meanwhile is not kept waiting, and then the receiver copies all of it.
//!
//! ```text
//! claim     turn (32 bits), chunks (16), next chunk to claim (16)
//! done      a bit for each chunk that the helper has copied
//! refused   a bit for each chunk that the helper claimed and could not copy
//! ```
//!
//! The word `claim` is written last and names the turn, so a claim that succeeds belongs to the
//! copy whose places were read before it.

use super::super::memory::{AtomicU64, LINE_BYTES, Ordering};
use crate::ReadError;

/// Copies that one receiver can have on one sender's copy table at a time.
pub const COPIES_MAX: usize = 4;
/// Most chunks of a copy: bits of a word.
const CHUNKS_MAX: u64 = 64;
/// Below this many bytes a message is not worth sharing.
pub const COOPERATIVE_MIN_BYTES: usize = 96 * 1024;
/// Chunks end at page borders.
const PAGE: u64 = 4096;

/// One copy on a table.
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

/// What a receiver and a sender know of the copies between them; in shared memory, all zeros at
/// first.
#[repr(C)]
pub struct CopyTable {
    copies: [Copy; COPIES_MAX],
}

/// A piece of a copy: from there to there, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which one of its copy.
    pub number: u32,
    /// Address in the sender's memory.
    pub source: u64,
    /// Address in the receiver's memory.
    pub target: u64,
    /// Bytes.
    pub len: u64,
}

fn word(turn: u64, chunks: u64, next: u64) -> u64 {
    turn << 32 | chunks << 16 | next
}

/// Bytes of a chunk of a message of `len` bytes: halves of a small one, so that each side makes one
/// system call; more of a large one, so that whoever comes later still finds something to do.
fn chunk_len(len: u64) -> u64 {
    let pieces = if len < 512 << 10 {
        2
    } else if len < 4 << 20 {
        4
    } else if len < 32 << 20 {
        8
    } else {
        CHUNKS_MAX / 2
    };
    (len / pieces).next_multiple_of(PAGE)
}

impl Copy {
    /// The next chunk of the copy whose claim word is `claim`, once it is claimed. `None`: another
    /// one changed the word meanwhile.
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
        // What a peer made up gives an empty chunk, or a place that the kernel refuses.
        let offset = next.wrapping_mul(chunk).min(len);
        Some(Chunk {
            number: next as u32,
            source: source.wrapping_add(offset),
            target: target.wrapping_add(offset),
            len: chunk.min(len - offset),
        })
    }

    /// Claims the next chunk, if there is one left.
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
    /// Claims a chunk of any copy: the copy's place on the table, and the chunk.
    pub fn claim(&self) -> Option<(usize, Chunk)> {
        (0..COPIES_MAX).find_map(|at| Some((at, self.copies[at].next()?)))
    }

    /// The chunk has been copied; a full barrier.
    pub fn complete(&self, at: usize, chunk: Chunk) {
        self.copies[at]
            .done
            .fetch_or(1 << (chunk.number % 64), Ordering::SeqCst);
    }

    /// The chunk could not be copied: the receiver has to do it.
    pub fn refuse(&self, at: usize, chunk: Chunk) {
        self.copies[at]
            .refused
            .fetch_or(1 << (chunk.number % 64), Ordering::SeqCst);
    }
}

/// A copy of the receiver's that is under way.
pub struct ActiveCopy {
    at: usize,
    all: u64,
    /// Chunks that the receiver has copied, or given up.
    own: u64,
    whole: (u64, u64, u64),
    chunk: u64,
}

/// What a receiver holds of its table.
pub struct CopyReceiver {
    table: &'static CopyTable,
    turn: u64,
    free: [bool; COPIES_MAX],
}

impl CopyReceiver {
    /// The receiver's side of a copy table; there is only one.
    pub fn new(table: &'static CopyTable) -> CopyReceiver {
        CopyReceiver {
            table,
            turn: 0,
            free: [true; COPIES_MAX],
        }
    }

    /// Puts a copy on the table. `None`: the copy table is full.
    pub fn begin(&mut self, source: u64, target: u64, len: u64) -> Option<ActiveCopy> {
        let at = self.free.iter().position(|&free| free)?;
        let chunk = chunk_len(len).max(PAGE);
        let chunks = len.div_ceil(chunk);
        self.turn = (self.turn + 1) & 0xffff_ffff;
        let copy = &self.table.copies[at];
        copy.source.store(source, Ordering::Relaxed);
        copy.target.store(target, Ordering::Relaxed);
        copy.len.store(len, Ordering::Relaxed);
        copy.chunk.store(chunk, Ordering::Relaxed);
        copy.done.store(0, Ordering::Relaxed);
        copy.refused.store(0, Ordering::Relaxed);
        copy.claim
            .store(word(self.turn, chunks, 0), Ordering::SeqCst);
        self.free[at] = false;
        Some(ActiveCopy {
            at,
            all: u64::MAX >> (64 - chunks),
            own: 0,
            whole: (source, target, len),
            chunk,
        })
    }

    /// The next chunk for the receiver, which copies it at once: one that nobody has claimed, or
    /// one that the sender could not copy.
    pub fn next(&self, begun: &mut ActiveCopy) -> Option<Chunk> {
        match self.table.copies[begun.at].next() {
            Some(chunk) => {
                begun.own |= 1 << (chunk.number % 64);
                Some(chunk)
            }
            None => self.refused(begun),
        }
    }

    fn refused(&self, begun: &mut ActiveCopy) -> Option<Chunk> {
        let refused = self.table.copies[begun.at].refused.load(Ordering::Acquire) & begun.all;
        let left = refused & !begun.own;
        if left == 0 {
            return None;
        }
        let number = left.trailing_zeros();
        begun.own |= 1 << number;
        let (source, target, len) = begun.whole;
        let offset = u64::from(number) * begun.chunk;
        Some(Chunk {
            number,
            source: source + offset,
            target: target + offset,
            len: begun.chunk.min(len - offset),
        })
    }

    /// Returns whether all of it is copied. Then the place is free for the next copy, and `begun`
    /// is void.
    pub fn ended(&mut self, begun: &ActiveCopy) -> bool {
        let copy = &self.table.copies[begun.at];
        let ended = (copy.done.load(Ordering::Acquire) | begun.own) & begun.all == begun.all;
        if ended {
            self.free[begun.at] = true;
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
