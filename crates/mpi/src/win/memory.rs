//! A process's own memory in a window.

use crate::device::{self, SegmentKey};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{NonNull, null_mut};

/// Alignment of memory that Ferry allocates for a window, bytes: a page.
pub(super) const ALIGN_BYTES: usize = 4096;

/// The memory of one process in a window.
pub(super) struct Memory {
    base: *mut u8,
    size: u64,
    disp_unit: i64,
    /// Memory of the heap that the window owns.
    _allocation: Option<Allocation>,
    card: Option<CardMemory>,
}

// SAFETY: the address is the program's or Ferry's memory; MPI's rules protect what is there.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Zeroed memory of the heap.
pub(super) struct Allocation {
    at: NonNull<u8>,
    layout: Layout,
}

impl Allocation {
    /// `bytes` zeros, at a page. `None`: there is not so much memory.
    pub fn new(bytes: u64) -> Option<Allocation> {
        let bytes = usize::try_from(bytes.max(1)).ok()?;
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok()?;
        // SAFETY: the layout has at least one byte.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Allocation { at, layout })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

/// Memory of this process that other processes' cards reach, on a modelled machine: a segment.
#[derive(Clone, Copy)]
pub(super) struct CardMemory {
    base: *mut u8,
    key: SegmentKey,
    /// It was allocated for the window.
    owned: bool,
}

impl CardMemory {
    /// `bytes` zeros. `None`: no card reaches other processes' memory, or there is not so much.
    pub fn allocate(bytes: usize) -> Option<CardMemory> {
        let d = &mut *device::device();
        let memory = d.remote_memory().filter(|_| bytes > 0)?;
        let base = memory.allocate(bytes, ALIGN_BYTES)?;
        // SAFETY: just allocated, with so many bytes.
        unsafe { base.write_bytes(0, bytes) };
        let key = memory.register(base.addr(), bytes);
        if key.is_none() {
            memory.release(base.addr());
        }
        Some(CardMemory {
            base,
            key: key?,
            owned: true,
        })
    }

    /// Memory of the program. `None`: no card reaches it.
    pub fn register(base: *mut u8, bytes: usize) -> Option<CardMemory> {
        let d = &mut *device::device();
        let memory = d.remote_memory().filter(|_| bytes > 0)?;
        let key = memory.register(base.addr(), bytes)?;
        Some(CardMemory {
            base,
            key,
            owned: false,
        })
    }

    /// Names it to other processes.
    pub fn key(&self) -> SegmentKey {
        self.key
    }

    /// Nobody accesses it any more.
    fn leave(self) {
        let d = &mut *device::device();
        let Some(memory) = d.remote_memory() else {
            return;
        };
        memory.deregister(self.key);
        if self.owned {
            memory.release(self.base.addr());
        }
    }
}

impl Memory {
    /// Memory that somebody else owns.
    pub fn at(base: *mut u8, size: u64, disp_unit: i64) -> Memory {
        Memory {
            base,
            size,
            disp_unit,
            _allocation: None,
            card: None,
        }
    }

    /// Memory that other processes' cards reach.
    pub fn on_card(card: CardMemory, size: u64, disp_unit: i64) -> Memory {
        Memory {
            card: Some(card),
            ..Memory::at(card.base, size, disp_unit)
        }
    }

    /// No other process accesses it any more, and nor does the program if the window owns it.
    pub fn leave_card(&self) {
        if let Some(card) = self.card {
            card.leave();
        }
    }

    /// Memory of the heap.
    pub fn owned(allocation: Allocation, size: u64, disp_unit: i64) -> Memory {
        let base = allocation.at.as_ptr();
        Memory {
            _allocation: Some(allocation),
            ..Memory::at(base, size, disp_unit)
        }
    }

    /// None: a dynamic window's.
    pub fn none() -> Memory {
        Memory::at(null_mut(), 0, 1)
    }

    /// Its address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Displacement unit, bytes.
    pub fn disp_unit(&self) -> i64 {
        self.disp_unit
    }
}
