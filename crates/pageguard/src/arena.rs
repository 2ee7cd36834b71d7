//! A global allocator with its own memory, separate from the program's heap.
//!
//! The heap keeps its lists in freed memory. So a thread of the program may touch a guarded page
//! inside malloc or free, and wait there with the heap's lock held. The threads that end its wait
//! must not need that lock. So the library allocates from this arena where guards may be used.

use crate::PAGE_BYTES;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes of address space: more than the library ever uses. A page takes memory once it is touched.
const AREA_BYTES: usize = 1 << 38;
/// Base-2 logarithm of the smallest block's size: 16 bytes.
const BLOCK_MIN_LOG2: u32 = 4;
/// Number of size classes. They are the powers of two from 16 bytes to 128 GiB.
const SIZE_CLASSES: usize = 34;
/// Smallest freed block whose pages go back to the system.
const LARGE_BYTES: usize = 256 * 1024;

/// A global allocator. It uses its own area if the function given to [`Arena::new`] returns true at
/// the first allocation, otherwise the system's allocator.
pub struct Arena {
    /// 0: not decided, 1: the system's allocator until [`use_arena`] is called, 2: the own area.
    state: AtomicU8,
    use_arena_from_start: fn() -> bool,
}

/// [`use_arena`] has been called.
static ARENA_ENABLED: AtomicBool = AtomicBool::new(false);

/// Blocks whose sizes are powers of two. Each size class has a list of free blocks.
struct Area {
    base: AtomicUsize,
    used: AtomicUsize,
    free: [AtomicUsize; SIZE_CLASSES],
    locked: AtomicBool,
}

static AREA: Area = Area {
    base: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    free: [const { AtomicUsize::new(0) }; SIZE_CLASSES],
    locked: AtomicBool::new(false),
};

impl Arena {
    /// `use_arena_from_start` is called once, at the first allocation. It must not allocate.
    pub const fn new(use_arena_from_start: fn() -> bool) -> Arena {
        Arena {
            state: AtomicU8::new(0),
            use_arena_from_start,
        }
    }

    #[inline]
    fn is_own(&self) -> bool {
        match self.state.load(Relaxed) {
            0 => self.decide(),
            1 => ARENA_ENABLED.load(Relaxed),
            _ => true,
        }
    }

    #[cold]
    fn decide(&self) -> bool {
        AREA.lock();
        if self.state.load(Relaxed) == 0 {
            let own = (self.use_arena_from_start)() && AREA.map();
            self.state.store(1 + u8::from(own), Relaxed);
        }
        AREA.unlock();
        self.state.load(Relaxed) == 2
    }
}

/// Allocates all further blocks from the own area. Blocks of the system's allocator are never freed
/// after that, because freeing them could need the heap's lock. Returns false if there is no
/// address space.
pub fn use_arena() -> bool {
    AREA.lock();
    let mapped = AREA.map();
    AREA.unlock();
    ARENA_ENABLED.fetch_or(mapped, Relaxed);
    mapped
}

impl Area {
    fn lock(&self) {
        let mut turns = 0u32;
        while self.locked.swap(true, Acquire) {
            turns += 1;
            if turns.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Release);
    }

    fn map(&self) -> bool {
        if self.base.load(Relaxed) != 0 {
            return true;
        }
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new private mapping.
        let base = unsafe { libc::mmap(null_mut(), AREA_BYTES, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return false;
        }
        self.base.store(base as usize, Relaxed);
        true
    }

    fn holds(&self, address: usize) -> bool {
        let base = self.base.load(Relaxed);
        base != 0 && address.wrapping_sub(base) < AREA_BYTES
    }

    fn class(layout: &Layout) -> (usize, usize) {
        let bytes = layout
            .size()
            .max(layout.align())
            .max(1 << BLOCK_MIN_LOG2)
            .next_power_of_two();
        ((bytes.trailing_zeros() - BLOCK_MIN_LOG2) as usize, bytes)
    }

    fn take(&self, layout: &Layout) -> (*mut u8, bool) {
        let (class, bytes) = Area::class(layout);
        if class >= SIZE_CLASSES {
            return (null_mut(), false);
        }
        self.lock();
        let first = self.free[class].load(Relaxed);
        let result = if first != 0 {
            // SAFETY: a free block of this area holds the address of the next one.
            self.free[class].store(unsafe { *(first as *const usize) }, Relaxed);
            (first as *mut u8, false)
        } else {
            let base = self.base.load(Relaxed);
            // A large block shares no page, so that its pages can go back to the system.
            let at = (base + self.used.load(Relaxed))
                .next_multiple_of(bytes.min(PAGE_BYTES).max(layout.align()));
            if at + bytes > base + AREA_BYTES {
                (null_mut(), false)
            } else {
                self.used.store(at + bytes - base, Relaxed);
                (at as *mut u8, true)
            }
        };
        self.unlock();
        result
    }

    fn give(&self, address: *mut u8, layout: &Layout) {
        let (class, bytes) = Area::class(layout);
        if bytes >= LARGE_BYTES {
            // SAFETY: the block is free, and consists of whole pages.
            unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) };
        }
        self.lock();
        // SAFETY: the block is free, and at least as long as an address.
        unsafe { *address.cast::<usize>() = self.free[class].load(Relaxed) };
        self.free[class].store(address as usize, Relaxed);
        self.unlock();
    }
}

/// Releases the lock in a forked child, whose only thread does not hold it. The lists are
/// consistent at every moment, so at worst the child loses a block. The lock cannot be held during
/// the fork: the fork waits for the watching thread, which allocates.
pub(crate) fn in_child() {
    AREA.unlock();
}

// SAFETY: blocks do not overlap, and have the requested size and alignment. A block goes back to
// the allocator that its address belongs to.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.is_own() {
            AREA.take(&layout).0
        } else {
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.is_own() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let (address, fresh) = AREA.take(&layout);
        if !fresh && !address.is_null() {
            // SAFETY: the block has `layout.size()` bytes.
            unsafe { address.write_bytes(0, layout.size()) };
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if AREA.holds(address as usize) {
            AREA.give(address, &layout);
        } else if !ARENA_ENABLED.load(Relaxed) {
            // SAFETY: the caller's promise. The block came from the system's allocator.
            unsafe { System.dealloc(address, layout) };
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let own = AREA.holds(address as usize);
        if !own && !ARENA_ENABLED.load(Relaxed) {
            // SAFETY: the caller's promise. The block came from the system's allocator.
            return unsafe { System.realloc(address, layout, size) };
        }
        // SAFETY: the caller promises that the size is possible with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if own && Area::class(&new) == Area::class(&layout) {
            return address;
        }
        let to = AREA.take(&new).0;
        if !to.is_null() {
            // SAFETY: both blocks have that many bytes, and do not overlap.
            unsafe { to.copy_from_nonoverlapping(address, layout.size().min(size)) };
            if own {
                AREA.give(address, &layout);
            }
        }
        to
    }
}
