//! The standard ABI's handles that the program has been given, by kind and index.
//!
//! An int has no room for the generation of a handle. Every int of an object has been given by this
//! library, so what is kept here is found by two loads, and a call needs no other call before it.

use ferry_translate::abi::INVALID;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Kinds of objects.
const KINDS: usize = 11;
/// Bits of an index within a chunk. The kernel gives memory for those pages that are written.
const CHUNK_BITS: u32 = 15;
/// Handles of one chunk.
const CHUNK_HANDLES: usize = 1 << CHUNK_BITS;
/// Chunks of a kind: all indices of 30 bits.
const CHUNKS_MAX: usize = 1 << (30 - CHUNK_BITS);

/// The handles of each kind, 0 where none has been given. A thread has an int from the one that got
/// it, so the order of stores to different places does not matter.
static CHUNKS: [[AtomicPtr<AtomicU64>; CHUNKS_MAX]; KINDS] =
    [const { [const { AtomicPtr::new(null_mut()) }; CHUNKS_MAX] }; KINDS];

/// The chunk of an index and the place in it.
fn place(index: u32) -> (usize, usize) {
    let chunk = index >> CHUNK_BITS;
    (chunk as usize % CHUNKS_MAX, index as usize % CHUNK_HANDLES)
}

/// The handle of the object at an index, or [`INVALID`].
#[inline(always)]
pub fn standard(kind: usize, index: u32) -> u64 {
    let (chunk, at) = place(index);
    let first = CHUNKS[kind][chunk].load(Ordering::Acquire);
    if first.is_null() {
        return INVALID;
    }
    // SAFETY: a chunk is never freed and has room for each place.
    match unsafe { &*first.add(at) }.load(Ordering::Relaxed) {
        0 => INVALID,
        handle => handle,
    }
}

/// Keeps a handle that the program is given.
#[inline(always)]
pub fn store(kind: usize, index: u32, handle: u64) {
    let (chunk, at) = place(index);
    let mut first = CHUNKS[kind][chunk].load(Ordering::Acquire);
    if first.is_null() {
        first = make(&CHUNKS[kind][chunk]);
    }
    // SAFETY: as above.
    unsafe { &*first.add(at) }.store(handle, Ordering::Relaxed);
}

/// Makes a chunk.
#[cold]
fn make(chunk: &AtomicPtr<AtomicU64>) -> *mut AtomicU64 {
    let layout = const { Layout::new::<[AtomicU64; CHUNK_HANDLES]>() };
    // SAFETY: the layout has a size. Zeros are atomic numbers.
    let made = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
    if made.is_null() {
        handle_alloc_error(layout);
    }
    match chunk.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(of_other_thread) => {
            // SAFETY: of this layout, and no other code has seen it.
            unsafe { std::alloc::dealloc(made.cast(), layout) };
            of_other_thread
        }
    }
}
