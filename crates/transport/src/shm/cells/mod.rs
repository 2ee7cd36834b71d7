//! Cells: where the bytes of a pair's long records lie, so that both processes write the same
//! memory.
//!
//! A cell belongs to one of the two processes at a time. Whoever has it writes a record's bytes
//! there and says so in the ring; whoever has read them has the cell from then on, and writes its
//! next long record there: into lines that have just come to its core, in place of lines of its own
//! ring that the other's core had last. While messages go one way only, the reader gives back those
//! cells that it has had for longest.
//!
//! ```text
//! a record that    which cell (4 bytes), how long the body is (4 bytes), head
//! lies in a cell
//! cell             a line at whose end the reader puts the head, so that it stands before the
//!                  body; then the body
//! given            in each ring's head: a bit for each cell that the reader gives back to the
//!                  writer, who takes them all at once
//! ```

use super::memory::{Base, CELL_BYTES, CELLS, CellsMemory, LINE_BYTES, Ordering};

/// Longest head of what lies in a cell, bytes: it goes with its record's line.
pub const HEAD_MAX: usize = LINE_BYTES - 16;
/// Longest body, bytes.
pub const CELL_BODY_MAX_BYTES: usize = CELL_BYTES - LINE_BYTES;

/// One process's side of the cells.
pub struct Cells {
    memory: CellsMemory,
    /// The pair's cells, as bits.
    all: u64,
    /// A fourth of them: so many are given back at a time, and so many at least are always the
    /// writer's when all has been read.
    fourth: usize,
    /// Those that are this process's, the one that it has read last at the end.
    own: [u8; CELLS],
    count: usize,
    /// The same as bits.
    has: u64,
    /// By cell: how much of it has been used. Both processes know the same, as each use is a write
    /// of the one and a read of the other.
    used: [u32; CELLS],
    /// Records that lay in memory that had not been used before, read and written.
    cold: u64,
}

/// Where a record's body lies that a peer has put into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef {
    /// Which cell.
    cell: usize,
    /// Bytes of the body.
    len: usize,
}

impl CellRef {
    /// As it goes through the ring.
    pub fn word(self) -> [u8; 8] {
        (self.cell as u64 | (self.len as u64) << 32).to_le_bytes()
    }

    /// What came through the ring, and the head behind it. `None`: not one of the `all` cells, or
    /// more than one holds.
    fn read(record: &[u8], all: u64) -> Option<(CellRef, &[u8])> {
        let (word, head) = record.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        let lies = CellRef {
            cell: (word & 0xffff_ffff) as usize,
            len: (word >> 32) as usize,
        };
        let there = lies.cell < CELLS && all >> lies.cell & 1 == 1;
        let sound = there && lies.len <= CELL_BODY_MAX_BYTES && head.len() <= HEAD_MAX;
        sound.then_some((lies, head))
    }
}

impl Cells {
    /// This process's side of the cells behind the two rings of a pair, the one that it writes and
    /// the one that it reads; `lower`: it has the lower number of the two. The
    /// pair uses `cells` of them, a multiple of four up to [`CELLS`], the same for both; at first
    /// those behind the ring that a process writes are its own.
    ///
    /// # Safety
    /// As for [`Writer::new`](super::ring::Writer::new) and
    /// [`Reader::new`](super::ring::Reader::new); each process of the pair has one side.
    pub unsafe fn new(out: Base, into: Base, lower: bool, cells: usize) -> Cells {
        debug_assert!(cells.is_multiple_of(4) && (4..=CELLS).contains(&cells));
        // SAFETY: the caller's promise.
        let memory = unsafe { CellsMemory::new(out, into, lower) };
        let first = if lower { 0 } else { CELLS / 2 };
        let half = (1 << (cells / 2)) - 1;
        Cells {
            memory,
            all: half | half << (CELLS / 2),
            fourth: cells / 4,
            // The first one is used first.
            own: std::array::from_fn(|i| (first + (cells / 2 - 1).saturating_sub(i)) as u8),
            count: cells / 2,
            has: half << first,
            used: [0; CELLS],
            cold: 0,
        }
    }

    /// Returns whether this many cells are this process's.
    #[inline]
    pub fn has(&mut self, wanted: usize) -> bool {
        if self.count < wanted {
            self.take_back();
        }
        self.count >= wanted
    }

    /// As many as the peer can count on when it has read everything.
    #[inline]
    pub fn has_enough(&mut self) -> bool {
        self.has(self.fourth)
    }

    /// In how many cells a message may lie whose reader waits for it.
    #[inline]
    pub fn several(&self) -> usize {
        self.fourth
    }

    /// How many records have been read and written that lay, in part, in memory that had not been
    /// used before: its pages cost more than a copy.
    #[inline]
    pub fn cold(&self) -> u64 {
        self.cold
    }

    /// So much of a cell is used now. Returns whether it had not been so far.
    #[inline]
    fn note_used(&mut self, lies: CellRef) -> bool {
        let used = &mut self.used[lies.cell];
        let is_cold = lies.len > *used as usize;
        if is_cold {
            *used = lies.len as u32;
            self.cold += 1;
        }
        is_cold
    }

    /// Takes what the peer has given back.
    fn take_back(&mut self) {
        if self.memory.given_back().load(Ordering::Relaxed) == 0 {
            return;
        }
        // What a peer made up must not give a cell twice.
        let mut new = self.memory.given_back().swap(0, Ordering::SeqCst) & self.all & !self.has;
        // They go before the others, which have been used since.
        let count = new.count_ones() as usize;
        self.own.copy_within(..self.count, count);
        self.count += count;
        self.has |= new;
        for at in &mut self.own[..count] {
            *at = new.trailing_zeros() as u8;
            new &= new - 1;
        }
    }

    fn push(&mut self, cell: usize) {
        self.own[self.count] = cell as u8;
        self.count += 1;
        self.has |= 1 << cell;
    }

    /// Writes a body of `len` bytes into a cell by `fill`. There must be [one](Cells::has). Its
    /// record in the ring makes it the peer's.
    #[inline]
    pub fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> CellRef {
        debug_assert!(len <= CELL_BODY_MAX_BYTES);
        self.count -= 1;
        let cell = usize::from(self.own[self.count]);
        self.has &= !(1 << cell);
        // SAFETY: the cell is this process's until its record has been written.
        unsafe { self.memory.fill(cell, LINE_BYTES, len, fill) };
        let lies = CellRef { cell, len };
        self.note_used(lies);
        lies
    }

    /// Head and body of what lies in a cell as its record says, and whether that memory had not
    /// been used before. `None`: nonsense, or the peer has not got that cell, so that it cannot
    /// have written there.
    #[inline]
    pub fn bytes(&mut self, record: &[u8]) -> Option<(CellRef, &[u8], bool)> {
        let (lies, head) = CellRef::read(record, self.all)?;
        if self.has >> lies.cell & 1 != 0 {
            return None;
        }
        let is_cold = self.note_used(lies);
        let lead = LINE_BYTES - head.len();
        // SAFETY: the peer has published these bytes with the record, and the cell with them: it
        // does not look there any more.
        unsafe {
            let put = |out: &mut [u8]| out.copy_from_slice(head);
            self.memory.fill(lies.cell, lead, head.len(), put);
            let bytes = self.memory.bytes(lies.cell, lead, head.len() + lies.len);
            Some((lies, bytes, is_cold))
        }
    }

    /// The record there has been read: the cell is this process's. Returns whether some were given
    /// back to the peer, with a full barrier.
    #[inline]
    pub fn read(&mut self, lies: CellRef) -> bool {
        if self.has >> lies.cell & 1 != 0 {
            return false;
        }
        self.push(lies.cell);
        // What the peer has given back counts, too: otherwise all could be waiting to be taken
        // back, and none be free.
        self.take_back();
        self.count > 3 * self.fourth && self.give()
    }

    /// Gives back those that it has had for longest.
    fn give(&mut self) -> bool {
        let gives = self.fourth;
        let oldest = self.own[..gives].iter();
        let given = oldest.fold(0, |bits, &cell| bits | 1u64 << cell);
        self.own.copy_within(gives..self.count, 0);
        self.count -= gives;
        self.has &= !given;
        self.memory.given().fetch_or(given, Ordering::SeqCst);
        true
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
