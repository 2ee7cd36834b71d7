//! Shared memory as the protocols above it see it: atomic words, and bytes that belong to one side
//! at a time. `tests/loom/memory.rs` is a model of this module, below the same protocols.
//!
//! ```text
//! a ring's memory    line 0, line 1 │ fastbox │ records │ cells (half of the pair's)
//!                    0              FASTBOX_AT  RECORDS_AT  CELLS_AT        RING_BYTES
//! ```

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of a cache line, on x86-64 and most arm64 processors.
pub const LINE_BYTES: usize = 64;
/// Bytes of records in a ring; a power of two. Measured (docs/measured/shm.md): with fragments of
/// 60 KiB, beside 256 KiB with fragments of 16 KiB.
pub const RING_DATA_BYTES: usize = 512 * 1024;
/// Bytes of a ring with its first lines, its fastbox and its half of the pair's cells.
pub const RING_BYTES: usize = CELLS_AT + CELLS_PER_PAIR / 2 * CELL_STRIDE_BYTES;
/// Offset of the pair's fastbox in a ring, bytes. Used in the ring from the lower-numbered to the
/// higher-numbered process.
pub const FASTBOX_AT: usize = 2 * LINE_BYTES;
/// Bytes of a fastbox: 16 KiB of body, a line for the head, and one for the word. Measured
/// (docs/measured/shm.md): up to 16 KiB it is faster than the ring.
pub const FASTBOX_BYTES: usize = 258 * LINE_BYTES;
/// Offset of a ring's records, bytes.
pub const RECORDS_AT: usize = FASTBOX_AT + FASTBOX_BYTES;
/// Cells of a pair, half of them behind each of its rings; at most 64, the bits of a word. A
/// choice: 2 MiB a pair, four messages of 512 KiB in flight.
pub const CELLS_PER_PAIR: usize = 16;
/// Bytes of a cell: 128 KiB of body, behind a line for the head. A choice; what cells gain is
/// measured (docs/measured/shm.md).
pub const CELL_BYTES: usize = LINE_BYTES + 128 * 1024;
/// Bytes from one cell to the next behind a ring: whole pages.
const CELL_STRIDE_BYTES: usize = CELL_BYTES.next_multiple_of(PAGE_BYTES);
/// Offset of a ring's cells, bytes.
pub const CELLS_AT: usize = (RECORDS_AT + RING_DATA_BYTES).next_multiple_of(PAGE_BYTES);
/// Bytes of a page, on x86-64 and most arm64 systems. Only for alignment.
const PAGE_BYTES: usize = 4096;

/// Longest record, bytes, whose body begins right behind its word. Longer ones begin on the next
/// line: the reader polls the word's line, and would take it from the writer while it fills it. A
/// choice: four lines, where a further line costs less than that.
pub const INLINE_MAX_BYTES: usize = 4 * LINE_BYTES - 8;

/// Phases of a board that can be under way at a time. A choice: a broadcast's root can be this many
/// phases ahead of the other members.
pub const PHASES: usize = 8;

/// The address of a ring or a fastbox.
pub type Base = *mut u8;

#[repr(C)]
struct Header {
    head: AtomicU64,
    _line0: [u64; 7],
    wakeup_requested: AtomicU32,
    _word: u32,
    returned: AtomicU64,
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
    /// RING_BYTES of shared memory, page aligned, never unmapped.
    pub unsafe fn new(base: Base) -> RingMemory {
        RingMemory(base)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is RING_BYTES long, page aligned, and lives as long as the process;
        // Header is all atomics.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// The reader's position, published now and then.
    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        &self.header().head
    }

    /// Not 0: the writer sleeps until there is room.
    #[inline]
    pub fn wakeup_requested(&self) -> &AtomicU32 {
        &self.header().wakeup_requested
    }

    /// The address of position `at`, a multiple of LINE_BYTES.
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
    pub fn demote(&self, at: u64, len: u64) {
        for line in (0..len).step_by(LINE_BYTES) {
            hint::demote(self.at(at + line));
        }
    }

    /// A hint: the `len` bytes at `at` will next be written by this core.
    #[inline]
    pub fn prefetch_for_write(&self, at: u64, len: u64) {
        for line in (0..len).step_by(LINE_BYTES) {
            hint::prefetch_for_write(self.at(at + line));
        }
    }

    /// The word at ring position `at`.
    #[inline]
    pub fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: positions are multiples of LINE_BYTES, so the word is aligned and within the
        // mapping.
        unsafe { &*self.at(at).cast::<AtomicU64>() }
    }

    /// Writes by `fill` the `len` bytes that begin `payload_offset` bytes behind the word at `at`.
    ///
    /// # Safety
    /// This side owns them: the reader has passed them and does not read there before the word is
    /// published. They do not cross the ring's end.
    #[inline]
    pub unsafe fn fill(
        &self,
        at: u64,
        payload_offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        // SAFETY: within the mapping, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.at(at).add(payload_offset), len) });
    }

    /// The `len` bytes that begin `payload_offset` bytes behind the word at `at`.
    ///
    /// # Safety
    /// This side owns them: the writer has published them and does not touch them before `head`
    /// passes them. They do not cross the ring's end.
    #[inline]
    pub unsafe fn bytes(&self, at: u64, payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: within the mapping, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(at).add(payload_offset), len) }
    }
}

/// Hints to a core about lines of its cache. They change no value; a processor that does not know
/// one ignores it.
mod hint {
    /// Moves the line to the cache that the cores share, where another core finds it sooner than in
    /// this core's own.
    #[inline]
    pub fn demote(line: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: touches no value and faults on no address; on older processors it is an
        // instruction that does nothing.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Fetches the line into this core's cache, for writing.
    #[inline]
    pub fn prefetch_for_write(line: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: touches no value and faults on no address.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// The memory of a fastbox.
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
    pub fn demote(&self, len: usize) {
        for at in (LINE_BYTES..len).step_by(LINE_BYTES) {
            hint::demote(self.0.wrapping_add(at));
        }
    }

    /// Its first word.
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        // SAFETY: aligned, mapped for the life of the process.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }

    /// Writes by `fill` the `len` bytes that begin `payload_offset` bytes behind the word's start.
    ///
    /// # Safety
    /// It is this side's turn, and `payload_offset` and `len` together are at most FASTBOX_BYTES.
    #[inline]
    pub unsafe fn fill(&self, payload_offset: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: within the fastbox, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.0.add(payload_offset), len) });
    }

    /// The `len` bytes that begin `payload_offset` bytes behind the word's start.
    ///
    /// # Safety
    /// It is this side's turn, and `payload_offset` and `len` together are at most FASTBOX_BYTES.
    #[inline]
    pub unsafe fn bytes(&self, payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: within the fastbox, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.0.add(payload_offset), len) }
    }
}

/// The cells behind a pair's two rings.
pub struct CellsMemory {
    out: RingMemory,
    into: RingMemory,
    lower: bool,
}

impl CellsMemory {
    /// The cells behind the ring that this process writes and behind the one that it reads.
    /// `lower`: this process's cells have the lower numbers.
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

    /// A bit for each cell that the peer gives back to this process.
    #[inline]
    pub fn returned_by_peer(&self) -> &AtomicU64 {
        &self.out.header().returned
    }

    /// A bit for each cell that this process gives back to the peer.
    #[inline]
    pub fn returned_to_peer(&self) -> &AtomicU64 {
        &self.into.header().returned
    }

    /// The address of a cell. `number` is below [`CELLS_PER_PAIR`].
    #[inline]
    fn at(&self, number: usize) -> *mut u8 {
        let half = CELLS_PER_PAIR / 2;
        let ring = if (number < half) == self.lower {
            &self.out
        } else {
            &self.into
        };
        // SAFETY: behind the ring's records, within the mapping.
        unsafe { ring.0.add(CELLS_AT + number % half * CELL_STRIDE_BYTES) }
    }

    /// A cell's first word: bytes of an early record's body that are written.
    #[inline]
    pub fn written(&self, number: usize) -> &AtomicU64 {
        // SAFETY: page aligned, mapped for the life of the process.
        unsafe { &*self.at(number).cast::<AtomicU64>() }
    }

    /// Writes by `fill` the `len` bytes that begin `payload_offset` bytes behind a cell's start.
    ///
    /// # Safety
    /// The cell is this side's, and `payload_offset` and `len` together are at most CELL_BYTES.
    #[inline]
    pub unsafe fn fill(
        &self,
        number: usize,
        payload_offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        // SAFETY: within the cell, and this side's, by the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.at(number).add(payload_offset), len) });
    }

    /// The `len` bytes that begin `payload_offset` bytes behind a cell's start.
    ///
    /// # Safety
    /// The cell is named by a record of the peer's that has not been released. `payload_offset` and
    /// `len` together are at most CELL_BYTES.
    #[inline]
    pub unsafe fn bytes(&self, number: usize, payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: within the cell, and this side's, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(number).add(payload_offset), len) }
    }
}

/// The memory of a flat board: words, each in a line of its own or at the head of a slot, and the
/// members' slots.
pub struct FlatBoardMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the board's phases.
unsafe impl Send for FlatBoardMemory {}

impl FlatBoardMemory {
    /// The line of the first member's word, behind the words of a counter board.
    const DONE_LINE: usize = PHASES + 3;
    /// Offset of the slots, bytes: the second page.
    const SLOTS_AT: usize = PAGE_BYTES;

    /// The flat board at `base`.
    ///
    /// # Safety
    /// Shared memory of a board's length, page aligned, never unmapped.
    pub unsafe fn new(base: Base) -> FlatBoardMemory {
        FlatBoardMemory(base)
    }

    /// Members that have left for good, in the same word as on a counter board.
    #[inline]
    pub fn departed(&self) -> &AtomicU64 {
        self.word(PHASES + 2)
    }

    /// The last phase that member `i` is done with.
    #[inline]
    pub fn done(&self, i: usize) -> &AtomicU64 {
        self.done_in(i, 0)
    }

    /// The last phase of a part that member `i` is done with. A member's words share a line.
    #[inline]
    pub fn done_in(&self, i: usize, part: usize) -> &AtomicU64 {
        const { assert!(PHASES * size_of::<AtomicU64>() <= LINE_BYTES) };
        let line = (FlatBoardMemory::DONE_LINE + i) * LINE_BYTES;
        let at = line + part % PHASES * size_of::<AtomicU64>();
        // SAFETY: the first lines of a page that is mapped for the life of the process, aligned.
        unsafe { &*self.0.add(at).cast::<AtomicU64>() }
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
        unsafe {
            &*self
                .0
                .add(FlatBoardMemory::SLOTS_AT + at)
                .cast::<AtomicU64>()
        }
    }

    /// Byte `at` of the slots.
    #[inline]
    pub fn data(&self, at: usize) -> *mut u8 {
        self.0.wrapping_add(FlatBoardMemory::SLOTS_AT + at)
    }

    /// A hint: the first line of the slot there will next be written by this core.
    #[inline]
    pub fn prefetch_for_write(&self, at: usize) {
        hint::prefetch_for_write(self.0.wrapping_add(FlatBoardMemory::SLOTS_AT + at));
    }
}

/// The memory of a counter board: two words for each part and two more, each in a line of its own,
/// and the members' slots.
pub struct CounterBoardMemory(Base);

// SAFETY: the memory is shared between processes by design; all access follows the board's phases.
unsafe impl Send for CounterBoardMemory {}

impl CounterBoardMemory {
    /// Offset of the slots, bytes: the second page.
    const SLOTS_AT: usize = PAGE_BYTES;

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

    /// The last phase of a part whose data are complete.
    #[inline]
    pub fn open(&self, part: usize) -> &AtomicU64 {
        self.word(PHASES + 3 + part % PHASES)
    }

    /// Members that wait.
    #[inline]
    pub fn waiting(&self) -> &AtomicU64 {
        self.word(PHASES + 1)
    }

    /// Members that have left for good.
    #[inline]
    pub fn departed(&self) -> &AtomicU64 {
        self.word(PHASES + 2)
    }

    /// Byte `at` of the slots.
    #[inline]
    pub fn slots(&self, at: usize) -> *mut u8 {
        self.0.wrapping_add(CounterBoardMemory::SLOTS_AT + at)
    }
}
