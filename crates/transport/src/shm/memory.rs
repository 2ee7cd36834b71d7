//! Shared memory as the protocols of rings and fastboxes see it: atomic words, and bytes that
//! belong to one side at a time. `tests/loom.rs` puts a model of this module under the same
//! protocols.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// Bytes of records in a ring; a power of two.
pub const RING_DATA_BYTES: usize = 512 * 1024;
/// Bytes of a ring with its head lines and its half of the pair's cells.
pub const RING: usize = CELLS_AT + CELLS / 2 * CELL_STRIDE_BYTES;
/// Where, in the ring of the lower-numbered to the higher-numbered process, the pair's fastbox
/// lies.
pub const FASTBOX_AT: usize = 2 * LINE_BYTES;
/// Bytes of a fastbox: 16 KiB of a body, a line for a head, and one for the word.
pub const FASTBOX_BYTES: usize = 258 * LINE_BYTES;
/// Where in a ring its records lie.
pub const RECORDS_AT: usize = FASTBOX_AT + FASTBOX_BYTES;
/// Cells of a pair, half of them behind each of its rings; at most 64.
pub const CELLS: usize = 16;
/// Bytes of a cell: 128 KiB of a body, behind a line for a head.
pub const CELL_BYTES: usize = LINE_BYTES + 128 * 1024;
/// From one cell to the next behind a ring.
const CELL_STRIDE_BYTES: usize = CELL_BYTES.next_multiple_of(4096);
/// Where the cells behind a ring begin.
const CELLS_AT: usize = (RECORDS_AT + RING_DATA_BYTES).next_multiple_of(4096);

/// The bodies of longer records than this, bytes, begin on the line behind their word's. The reader
/// polls the word's line, and what is written there while it does costs a trip of the line for each
/// time it looks.
pub const SEPARATE_MIN_BYTES: usize = 4 * LINE_BYTES - 8;

/// Phases of a board that can be under way at a time.
pub const PHASES: usize = 8;

/// Where a ring or a fastbox lies.
pub type Base = *mut u8;

#[repr(C)]
struct Header {
    head: AtomicU64,
    _line0: [u64; 7],
    starved: AtomicU32,
    _word: u32,
    given: AtomicU64,
    _line1: [u64; 6],
}

const _: () = assert!(size_of::<Header>() == FASTBOX_AT);

/// The memory of a ring, mapped in this process for as long as the job lasts.
pub struct RingMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the ring's protocol.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// The ring at `base`.
    ///
    /// # Safety
    /// RING bytes of shared memory, page aligned, never unmapped.
    pub unsafe fn new(base: Base) -> RingMemory {
        RingMemory(base)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is RING bytes, page aligned, and lives as long as the process; Header
        // is all atomics.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// How far the reader has read, published now and then.
    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        &self.header().head
    }

    /// Not 0: the writer sleeps until there is room.
    #[inline]
    pub fn starved(&self) -> &AtomicU32 {
        &self.header().starved
    }

    /// Where position `at`, a multiple of LINE_BYTES, lies.
    #[inline]
    fn at(&self, at: u64) -> *mut u8 {
        // SAFETY: the masked position lies within the mapping.
        unsafe {
            self.0
                .add(RECORDS_AT + (at as usize & (RING_DATA_BYTES - 1)))
        }
    }

    /// A hint: the `len` bytes at `at` will next be read by another core.
    #[inline]
    pub fn hand_over(&self, at: u64, len: u64) {
        for line in (0..len).step_by(LINE_BYTES) {
            hint::hand_over(self.at(at + line));
        }
    }

    /// A hint: the `len` bytes at `at` will next be written by this core.
    #[inline]
    pub fn take_over(&self, at: u64, len: u64) {
        for line in (0..len).step_by(LINE_BYTES) {
            hint::take_over(self.at(at + line));
        }
    }

    /// The word at ring position `at`.
    #[inline]
    pub fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: positions are multiples of LINE_BYTES, so the word is aligned and within the
        // mapping.
        unsafe { &*self.at(at).cast::<AtomicU64>() }
    }

    /// Writes the `len` bytes that begin `lead` bytes behind the word at `at` by `fill`.
    ///
    /// # Safety
    /// This side owns them: the reader has passed them and does not look there before the word is
    /// published. They do not cross the ring's end.
    #[inline]
    pub unsafe fn fill(&self, at: u64, lead: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: within the mapping, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.at(at).add(lead), len) });
    }

    /// The `len` bytes that begin `lead` bytes behind the word at `at`.
    ///
    /// # Safety
    /// This side owns them: the writer has published them and does not touch them before `head`
    /// passes them. They do not cross the ring's end.
    #[inline]
    pub unsafe fn bytes(&self, at: u64, lead: usize, len: usize) -> &[u8] {
        // SAFETY: within the mapping, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(at).add(lead), len) }
    }
}

/// What a core is told about lines of its cache. Hints change no value; a processor that does not
/// know one passes over it.
mod hint {
    /// The line goes to the cache that the cores share, where the next reader finds it sooner than
    /// in this core's own.
    #[inline]
    pub fn hand_over(line: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: touches no value, faults on no address; older processors take its code for an
        // instruction that does nothing.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// The line comes to this core's cache, as its alone.
    #[inline]
    pub fn take_over(line: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: touches no value and faults on no address.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// The lines of a fastbox.
pub struct FastboxMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the turns.
unsafe impl Send for FastboxMemory {}

impl FastboxMemory {
    /// The fastbox at `base`.
    ///
    /// # Safety
    /// FASTBOX_BYTES bytes of shared memory, aligned to 64, never unmapped.
    pub unsafe fn new(base: Base) -> FastboxMemory {
        FastboxMemory(base)
    }

    /// A hint: its first `len` bytes, behind the word's line, will next be read by another core.
    #[inline]
    pub fn hand_over(&self, len: usize) {
        for at in (LINE_BYTES..len).step_by(LINE_BYTES) {
            hint::hand_over(self.0.wrapping_add(at));
        }
    }

    /// Its first word.
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        // SAFETY: aligned, mapped for the life of the process.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }

    /// Writes the `len` bytes that begin `lead` bytes from the word's beginning by `fill`.
    ///
    /// # Safety
    /// It is this side's turn, and `lead` and `len` together are at most FASTBOX_BYTES.
    #[inline]
    pub unsafe fn fill(&self, lead: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: within the front, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.0.add(lead), len) });
    }

    /// The `len` bytes that begin `lead` bytes from the word's beginning.
    ///
    /// # Safety
    /// It is this side's turn, and `lead` and `len` together are at most FASTBOX_BYTES.
    #[inline]
    pub unsafe fn bytes(&self, lead: usize, len: usize) -> &[u8] {
        // SAFETY: within the front, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.0.add(lead), len) }
    }
}

/// The cells behind a pair's two rings.
pub struct CellsMemory {
    out: RingMemory,
    into: RingMemory,
    lower: bool,
}

impl CellsMemory {
    /// Those behind the ring that this process writes and the one that it reads. `lower`: its cells
    /// have the lower numbers.
    ///
    /// # Safety
    /// As for [`RingMemory::new`].
    pub unsafe fn new(out: Base, into: Base, lower: bool) -> CellsMemory {
        CellsMemory {
            out: RingMemory(out),
            into: RingMemory(into),
            lower,
        }
    }

    /// Cells that the peer gives back, as bits.
    #[inline]
    pub fn given_back(&self) -> &AtomicU64 {
        &self.out.header().given
    }

    /// Cells that this process gives back.
    #[inline]
    pub fn given(&self) -> &AtomicU64 {
        &self.into.header().given
    }

    /// Where a cell lies; `number` is below [`CELLS`].
    #[inline]
    fn at(&self, number: usize) -> *mut u8 {
        let half = CELLS / 2;
        let ring = if (number < half) == self.lower {
            &self.out
        } else {
            &self.into
        };
        // SAFETY: behind the ring's records, within the mapping.
        unsafe { ring.0.add(CELLS_AT + number % half * CELL_STRIDE_BYTES) }
    }

    /// Writes the `len` bytes that begin `lead` bytes behind a cell's beginning by `fill`.
    ///
    /// # Safety
    /// The cell is this side's, and `lead` and `len` together are at most CELL_BYTES.
    #[inline]
    pub unsafe fn fill(
        &self,
        number: usize,
        lead: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        // SAFETY: within the cell, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.at(number).add(lead), len) });
    }

    /// The `len` bytes that begin `lead` bytes behind a cell's beginning.
    ///
    /// # Safety
    /// A record of the peer's says so that has not been released, and `lead` and `len` together are
    /// at most CELL_BYTES.
    #[inline]
    pub unsafe fn bytes(&self, number: usize, lead: usize, len: usize) -> &[u8] {
        // SAFETY: within the cell, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(number).add(lead), len) }
    }
}

/// A flat board's words, each in the first line of what it belongs to, and its members' slots.
pub struct FlatBoardMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the board's phases.
unsafe impl Send for FlatBoardMemory {}

impl FlatBoardMemory {
    /// The first page's line with the first member's word; those of a board with as many members as
    /// it may have stand before.
    const DONE: usize = PHASES + 3;
    /// Where the slots begin.
    const SLOTS: usize = 4096;

    /// The flat board at `base`.
    ///
    /// # Safety
    /// Shared memory of a board's length, page aligned, never unmapped.
    pub unsafe fn new(base: Base) -> FlatBoardMemory {
        FlatBoardMemory(base)
    }

    /// Members that have left for good: the same word as a board's.
    #[inline]
    pub fn left(&self) -> &AtomicU64 {
        self.word(PHASES + 2)
    }

    /// What member `i` is done with.
    #[inline]
    pub fn done(&self, i: usize) -> &AtomicU64 {
        self.word(FlatBoardMemory::DONE + i)
    }

    #[inline]
    fn word(&self, line: usize) -> &AtomicU64 {
        // SAFETY: the first lines of a page that is mapped for the life of the process.
        unsafe { &*self.0.add(line * LINE_BYTES).cast::<AtomicU64>() }
    }

    /// The word of the slot that begins `at` bytes, a multiple of LINE_BYTES, behind the first one.
    #[inline]
    pub fn slot(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned.
        unsafe { &*self.0.add(FlatBoardMemory::SLOTS + at).cast::<AtomicU64>() }
    }

    /// What stands behind that word.
    #[inline]
    pub fn data(&self, at: usize) -> *mut u8 {
        self.0.wrapping_add(FlatBoardMemory::SLOTS + at + 8)
    }

    /// A hint: the first line of the slot there will next be written by this core.
    #[inline]
    pub fn take_over(&self, at: usize) {
        hint::take_over(self.0.wrapping_add(FlatBoardMemory::SLOTS + at));
    }
}

/// A board: five words, each in a line of its own, and the members' slots.
pub struct CounterBoardMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the board's phases.
unsafe impl Send for CounterBoardMemory {}

impl CounterBoardMemory {
    /// Where the slots begin.
    const SLOTS: usize = 4096;

    /// The board at `base`.
    ///
    /// # Safety
    /// Shared memory of a board's length, page aligned, never unmapped.
    pub unsafe fn new(base: Base) -> CounterBoardMemory {
        CounterBoardMemory(base)
    }

    #[inline]
    fn word(&self, line: usize) -> &AtomicU64 {
        // SAFETY: the first lines of a page that is mapped for the life of the process.
        unsafe { &*self.0.add(line * LINE_BYTES).cast::<AtomicU64>() }
    }

    /// The counter of a part.
    #[inline]
    pub fn counter(&self, part: usize) -> &AtomicU64 {
        self.word(part % PHASES)
    }

    /// The last phase whose data are there for all.
    #[inline]
    pub fn open(&self) -> &AtomicU64 {
        self.word(PHASES)
    }

    /// Members that wait.
    #[inline]
    pub fn waiting(&self) -> &AtomicU64 {
        self.word(PHASES + 1)
    }

    /// Members that have left for good.
    #[inline]
    pub fn left(&self) -> &AtomicU64 {
        self.word(PHASES + 2)
    }

    /// Byte `at` of the slots.
    #[inline]
    pub fn slots(&self, at: usize) -> *mut u8 {
        self.0.wrapping_add(CounterBoardMemory::SLOTS + at)
    }
}
