//! An arena: the library's own memory, apart from the program's heap.
//!
//! A thread of the program may wait at a guarded page in the middle of malloc or free, with the
//! heap's lock held, because the heap keeps its lists in freed memory. The threads that end its
//! wait must not need that lock. So the library allocates here where guards may be used.

use crate::PAGE;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes of address space, which is more than a library ever uses. Pages exist once touched.
const AREA_BYTES: usize = 1 << 38;
/// Logarithm of the smallest block's bytes.
const BLOCK_MIN_LOG2: u32 = 4;
/// Size classes, powers of two: 16 bytes to 128 GiB.
const SIZE_CLASSES: usize = 34;
/// Freed blocks of this size and more give their pages back to the system.
const LARGE_BYTES: usize = 256 * 1024;

/// A global allocator: the system's, or an area of its own if the function given to [`Arena::new`]
/// says so at the first use.
pub struct Arena {
    /// 0: not decided, 1: the system's allocator, 2: the own area.
    state: AtomicU8,
    wanted: fn() -> bool,
}

/// [`keep_apart`] has been called.
static APART: AtomicBool = AtomicBool::new(false);

/// Blocks of powers of two. Free ones are in lists, one for each size class.
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
    /// `wanted` is called once, at the first allocation, and must not allocate.
    pub const fn new(wanted: fn() -> bool) -> Arena {
        Arena {
            state: AtomicU8::new(0),
            wanted,
        }
    }

    #[inline]
    fn is_own(&self) -> bool {
        match self.state.load(Relaxed) {
            0 => self.decide(),
            1 => APART.load(Relaxed),
            _ => true,
        }
    }

    #[cold]
    fn decide(&self) -> bool {
        AREA.lock();
        if self.state.load(Relaxed) == 0 {
            let own = (self.wanted)() && AREA.map();
            self.state.store(1 + u8::from(own), Relaxed);
        }
        AREA.unlock();
        self.state.load(Relaxed) == 2
    }
}

/// Has all blocks come from the own area from now on. Blocks that came from the system are never
/// freed, because that could need the heap's lock. Returns false if there is no address space.
pub fn keep_apart() -> bool {
    AREA.lock();
    let mapped = AREA.map();
    AREA.unlock();
    APART.fetch_or(mapped, Relaxed);
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
        // SAFETY: new memory.
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
            // A large block has its pages to itself, so that they can be given back.
            let at = (base + self.used.load(Relaxed))
                .next_multiple_of(bytes.min(PAGE).max(layout.align()));
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
            // SAFETY: the block is nobody's any more, and lies on whole pages.
            unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) };
        }
        self.lock();
        // SAFETY: the block is nobody's any more, and as long as an address at least.
        unsafe { *address.cast::<usize>() = self.free[class].load(Relaxed) };
        self.free[class].store(address as usize, Relaxed);
        self.unlock();
    }
}

/// A forked child has one thread, and nobody there holds the lock. The lists are whole at every
/// moment, so at worst a block is lost to the child. (The lock cannot be taken for the time of the
/// fork: the fork waits for the watching thread, which allocates.)
pub(crate) fn in_child() {
    AREA.unlock();
}

// SAFETY: blocks are distinct, as long and aligned as asked for; a block goes back to where its
// address says that it came from.
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
            // SAFETY: a block of so many bytes.
            unsafe { address.write_bytes(0, layout.size()) };
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if AREA.holds(address as usize) {
            AREA.give(address, &layout);
        } else if !APART.load(Relaxed) {
            // SAFETY: the caller's promise; it came from the system.
            unsafe { System.dealloc(address, layout) };
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let own = AREA.holds(address as usize);
        if !own && !APART.load(Relaxed) {
            // SAFETY: the caller's promise; it came from the system.
            return unsafe { System.realloc(address, layout, size) };
        }
        // SAFETY: the caller promises that the size is possible with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if own && Area::class(&new) == Area::class(&layout) {
            return address;
        }
        let to = AREA.take(&new).0;
        if !to.is_null() {
            // SAFETY: both blocks are at least so long, and apart.
            unsafe { to.copy_from_nonoverlapping(address, layout.size().min(size)) };
            if own {
                AREA.give(address, &layout);
            }
        }
        to
    }
}
