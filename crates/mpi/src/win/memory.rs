//! A process's own memory in a window.

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

impl Memory {
    /// Memory that somebody else owns.
    pub fn at(base: *mut u8, size: u64, disp_unit: i64) -> Memory {
        Memory {
            base,
            size,
            disp_unit,
            _allocation: None,
        }
    }

    /// Memory of the heap.
    pub fn owned(allocation: Allocation, size: u64, disp_unit: i64) -> Memory {
        Memory {
            base: allocation.at.as_ptr(),
            size,
            disp_unit,
            _allocation: Some(allocation),
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
