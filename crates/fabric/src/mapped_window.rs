//! The window of a rank: memory that its card maps, in which it allocates segments.

use crate::address_allocator::AddressAllocator;
use crate::kernel::Client;
use std::ops::Range;

/// Largest alignment in the window, bytes. The mapped memory begins at a page.
const ALIGNMENT_MAX_BYTES: usize = 4096;

/// Allocates memory of the window.
pub(crate) struct MappedWindow {
    /// Allocates offsets in it.
    allocator: AddressAllocator,
}

impl MappedWindow {
    /// A window of this many bytes.
    pub fn new(bytes: u64) -> MappedWindow {
        MappedWindow {
            allocator: AddressAllocator::new(0, bytes),
        }
    }

    /// Its addresses in this process.
    pub fn range(c: &Client) -> Range<usize> {
        let (memory, bytes) = c.mapped_memory();
        memory.addr()..memory.addr() + bytes
    }

    /// Allocates `bytes` bytes at a multiple of `alignment`, a power of two. Returns the address.
    pub fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        if alignment > ALIGNMENT_MAX_BYTES {
            return None;
        }
        let at = self.allocator.allocate(bytes as u64, alignment as u64)?;
        Some(MappedWindow::range(c).start + at as usize)
    }

    /// Frees memory of the window. Returns false if it was not allocated.
    pub fn release(&mut self, c: &Client, address: usize) -> bool {
        let offset = address.checked_sub(MappedWindow::range(c).start);
        offset.is_some_and(|at| self.allocator.free(at as u64))
    }

    /// Where in the window these bytes lie. `None`: they are not all there.
    pub fn offset(c: &Client, address: usize, bytes: usize) -> Option<u64> {
        let range = MappedWindow::range(c);
        let within = address.checked_add(bytes)? <= range.end;
        let offset = address.checked_sub(range.start)?;
        within.then_some(offset as u64)
    }
}
