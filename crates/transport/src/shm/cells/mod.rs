//! Cells: memory of a pair for the bodies of long records, which both processes write.
//!
//! A cell belongs to one of the two processes at a time. Its owner writes a record's body there and
//! names the cell in the ring. Who reads the record owns the cell from then on, and writes its next
//! long record there. Those lines have just come to its core; the lines of its own ring were last
//! in the other's. While messages go one way only, the reader gives back the cells that it has
//! owned for longest.
//!
//! Where the reader waits, a record is *early*: it is published before its body is written. The
//! cell's first word says how much is there, and the reader copies that while the rest is written.
//!
//! ```text
//! record in a cell    number of the cell (4 bytes, bit 31: early), length of the body (4 bytes),
//!                     head
//! cell                one line: in its first word, bytes of an early body that are written; at its
//!                     end the reader puts the head of a record that is not early, in front of
//!                     the body; then the body
//! returned            in each ring's first lines: a bit for each cell that the reader gives back;
//!                     the writer takes all of them at once
//! ```

use super::memory::{Base, CELL_BYTES, CELLS_PER_PAIR, CellsMemory, LINE_BYTES, Ordering};

/// Longest head of a record in a cell, bytes: what a record's line holds besides its word and the
/// name of the cell.
pub const HEAD_MAX_BYTES: usize = LINE_BYTES - 16;
/// Longest body in a cell, bytes.
pub const CELL_BODY_MAX_BYTES: usize = CELL_BYTES - LINE_BYTES;

/// One process's side of the cells.
pub struct Cells {
    memory: CellsMemory,
    /// A bit for each cell of the pair.
    all: u64,
    /// A quarter of the pair's cells. That many are returned at a time. When all has been read, the
    /// writer owns at least that many.
    quarter: usize,
    /// The `count` cells that this process owns, the one that it has read last at the end.
    own: [u8; CELLS_PER_PAIR],
    count: usize,
    /// A bit for each cell that this process owns.
    own_bits: u64,
    /// A bit for each of them that the peer gave back: its lines are in the peer's cache.
    given_back: u64,
    /// By cell: bytes of it that have been used. Both processes count alike, since each use is a
    /// write of the one and a read of the other.
    used: [u32; CELLS_PER_PAIR],
    /// Records, read and written, that used memory for the first time.
    first_touches: u64,
}

/// The cell of a record, and the bytes of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef {
    /// The cell's number.
    cell: usize,
    /// Bytes of the body.
    len: usize,
    /// The record is published before its body is written.
    early: bool,
}

/// Set in the name of a cell whose record is early.
const EARLY: u64 = 1 << 31;

impl CellRef {
    /// Encodes it for the ring.
    pub fn word(self) -> [u8; 8] {
        let early = if self.early { EARLY } else { 0 };
        (self.cell as u64 | early | (self.len as u64) << 32).to_le_bytes()
    }

    /// Bytes of the body.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether a record in a cell is early.
    #[inline]
    pub fn is_early(record: &[u8]) -> bool {
        let word = record.first_chunk::<8>().map(|w| u64::from_le_bytes(*w));
        word.is_some_and(|word| word & EARLY != 0)
    }

    /// Bytes of the message, head and body, whose record in a cell this is; 0 if it is nonsense.
    #[inline]
    pub fn message_len(record: &[u8]) -> usize {
        record.split_first_chunk::<8>().map_or(0, |(word, head)| {
            (u64::from_le_bytes(*word) >> 32) as usize + head.len()
        })
    }

    /// Decodes what came through the ring, and the head behind it. `None`: it is none of the `all`
    /// cells, or longer than a cell.
    fn decode(record: &[u8], all: u64) -> Option<(CellRef, &[u8])> {
        let (word, head) = record.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        let cell_ref = CellRef {
            cell: (word & 0xffff_ffff & !EARLY) as usize,
            len: (word >> 32) as usize,
            early: word & EARLY != 0,
        };
        let there = cell_ref.cell < CELLS_PER_PAIR && all >> cell_ref.cell & 1 == 1;
        let sound = there && cell_ref.len <= CELL_BODY_MAX_BYTES && head.len() <= HEAD_MAX_BYTES;
        sound.then_some((cell_ref, head))
    }
}

impl Cells {
    /// This process's side of the cells, which are behind the pair's two rings: `out`, which it
    /// writes, and `into`, which it reads. `lower`: it has the lower number of the two. The pair
    /// uses `cells` of them, a multiple of four up to [`CELLS_PER_PAIR`], the same for both. At
    /// first a process owns those behind the ring that it writes.
    ///
    /// # Safety
    /// As for [`Writer::new`](super::ring::Writer::new) and
    /// [`Reader::new`](super::ring::Reader::new); each process of the pair has one side.
    pub unsafe fn new(out: Base, into: Base, lower: bool, cells: usize) -> Cells {
        debug_assert!(cells.is_multiple_of(4) && (4..=CELLS_PER_PAIR).contains(&cells));
        // SAFETY: the caller's promise.
        let memory = unsafe { CellsMemory::new(out, into, lower) };
        let first = if lower { 0 } else { CELLS_PER_PAIR / 2 };
        let half = (1 << (cells / 2)) - 1;
        Cells {
            memory,
            all: half | half << (CELLS_PER_PAIR / 2),
            quarter: cells / 4,
            // The first one is used first.
            own: std::array::from_fn(|i| (first + (cells / 2 - 1).saturating_sub(i)) as u8),
            count: cells / 2,
            own_bits: half << first,
            given_back: 0,
            used: [0; CELLS_PER_PAIR],
            first_touches: 0,
        }
    }

    /// Returns whether this process owns this many cells.
    #[inline]
    pub fn has(&mut self, count: usize) -> bool {
        if self.count < count {
            self.take_back();
        }
        self.count >= count
    }

    /// Returns whether this process owns as many cells as it is sure to have when the peer has read
    /// everything.
    #[inline]
    pub fn has_enough(&mut self) -> bool {
        self.has(self.quarter)
    }

    /// Returns whether the lines of the cell that is used next are in the peer's cache. This
    /// process must [own](Cells::has) one.
    #[inline]
    pub fn next_was_given_back(&self) -> bool {
        self.given_back >> self.own[self.count - 1] & 1 != 0
    }

    /// Records, read and written, that used memory for the first time. Its page faults cost more
    /// than a copy.
    #[inline]
    pub fn first_touches(&self) -> u64 {
        self.first_touches
    }

    /// Counts the use of a cell. Returns whether a part of it was used for the first time.
    #[inline]
    pub fn count_use(&mut self, cell_ref: CellRef) -> bool {
        let used = &mut self.used[cell_ref.cell];
        let first_touch = cell_ref.len > *used as usize;
        if first_touch {
            *used = cell_ref.len as u32;
            self.first_touches += 1;
        }
        first_touch
    }

    /// Takes the cells that the peer has given back.
    fn take_back(&mut self) {
        if self.memory.returned_by_peer().load(Ordering::Relaxed) == 0 {
            return;
        }
        // What a peer made up must not give a cell twice.
        let mut new =
            self.memory.returned_by_peer().swap(0, Ordering::SeqCst) & self.all & !self.own_bits;
        // They go in front of the others, which have been used since.
        let count = new.count_ones() as usize;
        self.own.copy_within(..self.count, count);
        self.count += count;
        self.own_bits |= new;
        self.given_back |= new;
        for at in &mut self.own[..count] {
            *at = new.trailing_zeros() as u8;
            new &= new - 1;
        }
    }

    fn push(&mut self, cell: usize) {
        self.own[self.count] = cell as u8;
        self.count += 1;
        self.own_bits |= 1 << cell;
    }

    /// Takes a cell for a body of `len` bytes. This process must [own](Cells::has) one.
    #[inline]
    fn take(&mut self, len: usize) -> CellRef {
        debug_assert!(len <= CELL_BODY_MAX_BYTES);
        self.count -= 1;
        let cell = usize::from(self.own[self.count]);
        self.own_bits &= !(1 << cell);
        self.given_back &= !(1 << cell);
        let cell_ref = CellRef {
            cell,
            len,
            early: false,
        };
        self.count_use(cell_ref);
        cell_ref
    }

    /// Writes a body of `len` bytes into a cell by `fill`. This process must [own](Cells::has) one.
    /// The record in the ring hands it to the peer.
    #[inline]
    pub fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> CellRef {
        let cell_ref = self.take(len);
        // SAFETY: the cell is this process's until its record has been written.
        unsafe { self.memory.fill(cell_ref.cell, LINE_BYTES, len, fill) };
        cell_ref
    }

    /// Takes a cell for an early record with a body of `len` bytes, which [`Cells::write_run`]
    /// writes. This process must [own](Cells::has) one.
    pub fn begin_early(&mut self, len: usize) -> CellRef {
        let cell_ref = self.take(len);
        let written = self.memory.written(cell_ref.cell);
        written.store(0, Ordering::Relaxed);
        CellRef {
            early: true,
            ..cell_ref
        }
    }

    /// Writes the next `len` bytes of an early record's body, from `at` on, by `fill`, and tells
    /// the reader.
    pub fn write_run(
        &mut self,
        cell_ref: CellRef,
        at: usize,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) {
        debug_assert!(at + len <= cell_ref.len);
        let CellRef { cell, .. } = cell_ref;
        // SAFETY: these bytes are this process's: the reader does not look beyond those that it
        // was told of.
        unsafe { self.memory.fill(cell, LINE_BYTES + at, len, fill) };
        let written = self.memory.written(cell);
        written.store((at + len) as u64, Ordering::Release);
    }

    /// Decodes an early record: its cell and its head. `None`: as for [`Cells::bytes`], or there is
    /// no body.
    pub fn early<'a>(&self, record: &'a [u8]) -> Option<(CellRef, &'a [u8])> {
        let (cell_ref, head) = CellRef::decode(record, self.all)?;
        let sound = cell_ref.len > 0 && self.own_bits >> cell_ref.cell & 1 == 0;
        sound.then_some((cell_ref, head))
    }

    /// What is there of an early record's body, from byte `from` on.
    #[inline]
    pub fn early_bytes(&self, cell_ref: CellRef, from: usize) -> &[u8] {
        let written = self.memory.written(cell_ref.cell).load(Ordering::Acquire);
        // What a peer made up must not lead out of the body.
        let from = from.min(cell_ref.len);
        let to = usize::try_from(written).map_or(from, |to| to.clamp(from, cell_ref.len));
        let offset = LINE_BYTES + from;
        // SAFETY: the peer has written these bytes and does not touch them any more.
        unsafe { self.memory.bytes(cell_ref.cell, offset, to - from) }
    }

    /// Decodes a record whose body is in a cell: the cell, head and body in one run, and whether
    /// this memory is used for the first time. `None`: it is nonsense, or this process owns the
    /// cell it names, so that the peer cannot have written there.
    #[inline]
    pub fn bytes(&mut self, record: &[u8]) -> Option<(CellRef, &[u8], bool)> {
        let (cell_ref, head) = CellRef::decode(record, self.all)?;
        if self.own_bits >> cell_ref.cell & 1 != 0 {
            return None;
        }
        let first_touch = self.count_use(cell_ref);
        let offset = LINE_BYTES - head.len();
        // SAFETY: the peer has published these bytes with the record, and the cell with them: it
        // does not look there any more.
        unsafe {
            let put = |out: &mut [u8]| out.copy_from_slice(head);
            self.memory.fill(cell_ref.cell, offset, head.len(), put);
            let bytes = self
                .memory
                .bytes(cell_ref.cell, offset, head.len() + cell_ref.len);
            Some((cell_ref, bytes, first_touch))
        }
    }

    /// Takes the cell of a record that has been read. Returns whether cells were given back to the
    /// peer, with a full barrier.
    #[inline]
    pub fn read(&mut self, cell_ref: CellRef) -> bool {
        if self.own_bits >> cell_ref.cell & 1 != 0 {
            return false;
        }
        self.push(cell_ref.cell);
        // Cells that the peer has given back count, too. Otherwise all could wait to be taken back,
        // and neither process would have any.
        self.take_back();
        self.count > 3 * self.quarter && self.give_back()
    }

    /// Gives back the cells that this process has owned for longest.
    fn give_back(&mut self) -> bool {
        let n = self.quarter;
        let oldest = self.own[..n].iter();
        let bits = oldest.fold(0, |bits, &cell| bits | 1u64 << cell);
        self.own.copy_within(n..self.count, 0);
        self.count -= n;
        self.own_bits &= !bits;
        self.given_back &= !bits;
        let returned = self.memory.returned_to_peer();
        returned.fetch_or(bits, Ordering::SeqCst);
        true
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
