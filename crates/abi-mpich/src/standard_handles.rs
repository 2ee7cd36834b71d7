//! The standard ABI's handle of each object that the program has a handle of, by kind and index.
//!
//! An int has no room for the generation of a handle. Every int of an object has been given by this
//! library, so what is kept here is found by one load, and a call needs no other call before it.
//! Requests are not kept: most calls pass their ints on as they are.

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

/// The first chunk of each kind; 0 where there is no handle. A thread has an int from the one
/// that got it, so the order of stores to different places does not matter.
static FIRST: [[AtomicU64; CHUNK_HANDLES]; KINDS] =
    [const { [const { AtomicU64::new(0) }; CHUNK_HANDLES] }; KINDS];

/// All further chunks, each made when it is needed.
static FURTHER: [[AtomicPtr<AtomicU64>; CHUNKS_MAX]; KINDS] =
    [const { [const { AtomicPtr::new(null_mut()) }; CHUNKS_MAX] }; KINDS];

/// The chunk of an index and the place in it.
#[inline(always)]
fn place(index: u32) -> (usize, usize) {
    let chunk = index >> CHUNK_BITS;
    (chunk as usize % CHUNKS_MAX, index as usize % CHUNK_HANDLES)
}

/// The handle of the object at an index, or [`INVALID`].
#[inline(always)]
pub fn look_up(kind: usize, index: u32) -> u64 {
    let handle = match FIRST[kind].get(index as usize) {
        Some(place) => place.load(Ordering::Relaxed),
        None => further(kind, index),
    };
    // 0 becomes INVALID.
    handle.max(INVALID)
}

/// The handle at an index that is not in the first chunk, or 0. Inline: where a conversion calls
/// nothing, an entry point saves no registers.
#[inline(always)]
fn further(kind: usize, index: u32) -> u64 {
    let (chunk, at) = place(index);
    let first = FURTHER[kind][chunk].load(Ordering::Acquire);
    if first.is_null() {
        return 0;
    }
    // SAFETY: a chunk is never freed and has room for each place.
    unsafe { &*first.add(at) }.load(Ordering::Relaxed)
}

/// Keeps the handle of an object that the program gets a handle of.
#[inline(always)]
pub fn store(kind: usize, index: u32, handle: u64) {
    match FIRST[kind].get(index as usize) {
        Some(place) => place.store(handle, Ordering::Relaxed),
        None => store_further(kind, index, handle),
    }
}

/// Keeps a handle whose index is not in the first chunk.
#[cold]
fn store_further(kind: usize, index: u32, handle: u64) {
    let (chunk, at) = place(index);
    let mut first = FURTHER[kind][chunk].load(Ordering::Acquire);
    if first.is_null() {
        first = make(&FURTHER[kind][chunk]);
    }
    // SAFETY: as in `further`.
    unsafe { &*first.add(at) }.store(handle, Ordering::Relaxed);
}

/// Makes a chunk.
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
