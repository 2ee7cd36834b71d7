//! The model of `shm::memory`: loom's memory below the transport's own code.

use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

pub const LINE_BYTES: usize = 64;
pub const RING_DATA_BYTES: usize = 16 * LINE_BYTES;
/// Short: the number of lines does not change the order of steps. Longer messages go by the ring.
pub const FASTBOX_BYTES: usize = 2 * LINE_BYTES;
/// No record keeps its body apart: where its bytes are does not change the order of steps.
pub const INLINE_MAX_BYTES: usize = usize::MAX;

/// Few, so that a model soon uses one again.
pub const CELLS_PER_PAIR: usize = 4;
/// Lines of a cell: the head's, and two runs of an early record's body.
const CELL_LINES: usize = 3;
/// Short, as the fastbox.
pub const CELL_BYTES: usize = CELL_LINES * LINE_BYTES;

/// Few, so that a model soon uses a part again.
pub const PHASES: usize = 2;

/// A ring, a fastbox, and half of a pair's cells.
pub struct Shared {
    head: AtomicU64,
    wakeup_requested: AtomicU32,
    returned: AtomicU64,
    words: Vec<AtomicU64>,
    /// The first words of the cells.
    written: [AtomicU64; CELLS_PER_PAIR / 2],
    /// A marker for the bytes of each line, then one for the fastbox, then one for each line of a
    /// cell.
    owners: Vec<UnsafeCell<()>>,
    fastbox: AtomicU64,
    board: [AtomicU64; 2 * PHASES + 3],
    /// Two members' words of a flat board by part, and those of their slots.
    flat_board: [AtomicU64; 4 * PHASES],
    bytes: std::cell::UnsafeCell<Vec<u8>>,
}

// SAFETY: `owners` has loom check that the bytes are never used by both sides at once.
unsafe impl Send for Shared {}
// SAFETY: what is not atomic is what `owners` watches.
unsafe impl Sync for Shared {}

pub type Base = Arc<Shared>;

pub fn shared() -> Base {
    let lines = RING_DATA_BYTES / LINE_BYTES;
    Arc::new(Shared {
        head: AtomicU64::new(0),
        wakeup_requested: AtomicU32::new(0),
        returned: AtomicU64::new(0),
        words: (0..lines).map(|_| AtomicU64::new(0)).collect(),
        written: std::array::from_fn(|_| AtomicU64::new(0)),
        owners: (0..=lines + CELLS_PER_PAIR / 2 * CELL_LINES)
            .map(|_| UnsafeCell::new(()))
            .collect(),
        fastbox: AtomicU64::new(0),
        board: std::array::from_fn(|_| AtomicU64::new(0)),
        flat_board: std::array::from_fn(|_| AtomicU64::new(0)),
        bytes: std::cell::UnsafeCell::new(vec![
            0;
            RING_DATA_BYTES
                + FASTBOX_BYTES
                + CELLS_PER_PAIR / 2 * CELL_BYTES
        ]),
    })
}

impl Shared {
    fn pointer(&self) -> *mut u8 {
        // SAFETY: the vector is never resized.
        unsafe { (*self.bytes.get()).as_mut_ptr() }
    }
    fn touch(&self, lines: std::ops::RangeInclusive<usize>, write: bool) {
        for line in lines {
            if write {
                self.owners[line].with_mut(|_| ());
            } else {
                self.owners[line].with(|_| ());
            }
        }
    }
}

/// loom's atomic word, with exchanges that are full barriers, as on x86-64.
pub struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub fn new(v: u64) -> AtomicU64 {
        AtomicU64(loom::sync::atomic::AtomicU64::new(v))
    }
    pub fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    pub fn store(&self, v: u64, order: Ordering) {
        self.0.store(v, order);
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
    }
    pub fn fetch_add(&self, v: u64, order: Ordering) -> u64 {
        fence(Ordering::SeqCst);
        let old = self.0.fetch_add(v, order);
        fence(Ordering::SeqCst);
        old
    }
    pub fn swap(&self, v: u64, order: Ordering) -> u64 {
        fence(Ordering::SeqCst);
        let old = self.0.swap(v, order);
        fence(Ordering::SeqCst);
        old
    }
    pub fn fetch_or(&self, v: u64, order: Ordering) -> u64 {
        fence(Ordering::SeqCst);
        let old = self.0.fetch_or(v, order);
        fence(Ordering::SeqCst);
        old
    }
}

pub struct RingMemory(Base);

impl RingMemory {
    pub unsafe fn new(base: Base) -> RingMemory {
        RingMemory(base)
    }
    pub fn head(&self) -> &AtomicU64 {
        &self.0.head
    }
    pub fn wakeup_requested(&self) -> &AtomicU32 {
        &self.0.wakeup_requested
    }
    pub fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at % LINE_BYTES as u64 == 0);
        &self.0.words[at as usize % RING_DATA_BYTES / LINE_BYTES]
    }
    fn run(&self, at: u64, len: usize, write: bool) -> *mut u8 {
        let at = at as usize % RING_DATA_BYTES;
        assert!(
            at + 8 + len <= RING_DATA_BYTES,
            "a record crosses the ring's end"
        );
        self.0
            .touch(at / LINE_BYTES..=(at + 7 + len) / LINE_BYTES, write);
        // SAFETY: within the bytes, by the check above.
        unsafe { self.0.pointer().add(at + 8) }
    }
    pub fn demote(&self, _at: u64, _len: u64) {}
    pub fn prefetch_for_write(&self, _at: u64, _len: u64) {}
    pub unsafe fn fill(
        &self,
        at: u64,
        _payload_offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        // SAFETY: loom has checked that nobody else uses these bytes.
        fill(unsafe { std::slice::from_raw_parts_mut(self.run(at, len, true), len) });
    }
    pub unsafe fn bytes(&self, at: u64, _payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: loom has checked that nobody writes these bytes.
        unsafe { std::slice::from_raw_parts(self.run(at, len, false), len) }
    }
}

pub struct FastboxMemory(Base);

impl FastboxMemory {
    pub unsafe fn new(base: Base) -> FastboxMemory {
        FastboxMemory(base)
    }
    pub fn word(&self) -> &AtomicU64 {
        &self.0.fastbox
    }
    pub fn demote(&self, _len: usize) {}
    fn run(&self, payload_offset: usize, len: usize, write: bool) -> *mut u8 {
        assert!(payload_offset + len <= FASTBOX_BYTES);
        self.0.touch(
            RING_DATA_BYTES / LINE_BYTES..=RING_DATA_BYTES / LINE_BYTES,
            write,
        );
        // SAFETY: within what lies behind the ring's bytes, by the check above.
        unsafe { self.0.pointer().add(RING_DATA_BYTES + payload_offset) }
    }
    pub unsafe fn fill(&self, payload_offset: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: as for the ring.
        fill(unsafe { std::slice::from_raw_parts_mut(self.run(payload_offset, len, true), len) });
    }
    pub unsafe fn bytes(&self, payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: as for the ring.
        unsafe { std::slice::from_raw_parts(self.run(payload_offset, len, false), len) }
    }
}

pub struct CellsMemory {
    out: Base,
    into: Base,
    lower: bool,
}

impl CellsMemory {
    pub unsafe fn new(out: Base, into: Base, lower: bool) -> CellsMemory {
        CellsMemory { out, into, lower }
    }
    pub fn returned_by_peer(&self) -> &AtomicU64 {
        &self.out.returned
    }
    pub fn returned_to_peer(&self) -> &AtomicU64 {
        &self.into.returned
    }
    fn base(&self, cell: usize) -> &Base {
        let half = CELLS_PER_PAIR / 2;
        if (cell < half) == self.lower {
            &self.out
        } else {
            &self.into
        }
    }
    pub fn written(&self, cell: usize) -> &AtomicU64 {
        &self.base(cell).written[cell % (CELLS_PER_PAIR / 2)]
    }
    fn run(&self, cell: usize, payload_offset: usize, len: usize, write: bool) -> *mut u8 {
        assert!(cell < CELLS_PER_PAIR && payload_offset + len <= CELL_BYTES);
        let half = CELLS_PER_PAIR / 2;
        let base = self.base(cell);
        if len > 0 {
            let first = RING_DATA_BYTES / LINE_BYTES + 1 + cell % half * CELL_LINES;
            let (from, to) = (payload_offset, payload_offset + len - 1);
            base.touch(first + from / LINE_BYTES..=first + to / LINE_BYTES, write);
        }
        // SAFETY: within what lies behind the fastbox's bytes, by the check above.
        unsafe {
            base.pointer()
                .add(RING_DATA_BYTES + FASTBOX_BYTES + cell % half * CELL_BYTES + payload_offset)
        }
    }
    pub unsafe fn fill(
        &self,
        cell: usize,
        payload_offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        // SAFETY: as for the ring.
        fill(unsafe {
            std::slice::from_raw_parts_mut(self.run(cell, payload_offset, len, true), len)
        });
    }
    pub unsafe fn bytes(&self, cell: usize, payload_offset: usize, len: usize) -> &[u8] {
        // SAFETY: as for the ring.
        unsafe { std::slice::from_raw_parts(self.run(cell, payload_offset, len, false), len) }
    }
}

/// The words of a counter board. The tests watch its slots.
pub struct CounterBoardMemory(Base);

impl CounterBoardMemory {
    pub unsafe fn new(base: Base) -> CounterBoardMemory {
        CounterBoardMemory(base)
    }
    pub fn counter(&self, part: usize) -> &AtomicU64 {
        &self.0.board[part]
    }
    pub fn open(&self, part: usize) -> &AtomicU64 {
        &self.0.board[PHASES + 3 + part]
    }
    pub fn waiting(&self) -> &AtomicU64 {
        &self.0.board[PHASES + 1]
    }
    pub fn departed(&self) -> &AtomicU64 {
        &self.0.board[PHASES + 2]
    }
    pub fn slots(&self, _at: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
}

/// The words of a flat board of two. The tests watch its slots.
pub struct FlatBoardMemory(Base);

impl FlatBoardMemory {
    pub unsafe fn new(base: Base) -> FlatBoardMemory {
        FlatBoardMemory(base)
    }
    pub fn departed(&self) -> &AtomicU64 {
        &self.0.board[PHASES + 2]
    }
    pub fn done(&self, i: usize) -> &AtomicU64 {
        self.done_in(i, 0)
    }
    pub fn done_in(&self, i: usize, part: usize) -> &AtomicU64 {
        &self.0.flat_board[i * PHASES + part]
    }
    pub fn slot(&self, at: usize) -> &AtomicU64 {
        &self.0.flat_board[2 * PHASES + at / super::counter_board::SLOT_MAX_BYTES]
    }
    /// An address that says which slot it is.
    pub fn data(&self, at: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(at)
    }
    pub fn prefetch_for_write(&self, _at: usize) {}
}
