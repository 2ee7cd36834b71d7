//! Ranks, tags, sentinels and enumerations.

use crate::abi::{Abi, Pairs};
use crate::constants;
use smallvec::SmallVec;

/// The standard ABI's value of an enumeration's value in the program. One that the program's ABI
/// does not define stays as it is.
pub fn value_in(pairs: Pairs, value: i32) -> i32 {
    let found = pairs.iter().find(|pair| pair.0 == value);
    found.map_or(value, |pair| pair.1)
}

/// The program's value of an enumeration's value in the standard ABI. One that the program's ABI
/// does not define stays as it is.
pub fn value_out(pairs: Pairs, value: i32) -> i32 {
    let found = pairs.iter().find(|pair| pair.1 == value);
    found.map_or(value, |pair| pair.0)
}

/// Bits of the ABI as those of the standard one. Bits that the ABI does not define stay as they
/// are: the standard ABI does not define them either, as both use the same range.
pub fn bits_in(pairs: Pairs, bits: i32) -> i32 {
    let mut standard = 0;
    let mut rest = bits;
    for (own, of_standard) in pairs {
        if bits & own == *own {
            standard |= of_standard;
            rest &= !own;
        }
    }
    standard | rest
}

/// Bits of the standard ABI as the ABI's.
pub fn bits_out(pairs: Pairs, bits: i32) -> i32 {
    let set = pairs.iter().filter(|pair| bits & pair.1 != 0);
    set.fold(0, |all, pair| all | pair.0)
}

/// In the place of a negative rank or tag of the program that happens to be a constant of the
/// standard ABI: it is none of them, and no rank or tag.
const NO_RANK: i32 = -1_000_000;

/// A rank, or a constant in the place of one.
#[inline(always)]
pub fn rank_in<A: Abi>(rank: i32) -> i32 {
    if rank >= 0 {
        rank
    } else {
        special_rank::<A>(rank)
    }
}

/// A constant in the place of a rank. Inline: before a call, the registers of all arguments would
/// be saved on every path.
#[inline(always)]
fn special_rank<A: Abi>(rank: i32) -> i32 {
    match rank {
        _ if rank == A::PROC_NULL => constants::MPI_PROC_NULL,
        _ if rank == A::ANY_SOURCE => constants::MPI_ANY_SOURCE,
        _ if rank == A::ROOT => constants::MPI_ROOT,
        constants::MPI_ANY_SOURCE | constants::MPI_PROC_NULL | constants::MPI_ROOT => NO_RANK,
        _ => rank,
    }
}

/// A rank of the standard ABI, or a constant in the place of one, as the program knows it.
#[inline(always)]
pub fn rank_out<A: Abi>(rank: i32) -> i32 {
    match rank {
        constants::MPI_PROC_NULL => A::PROC_NULL,
        constants::MPI_ANY_SOURCE => A::ANY_SOURCE,
        constants::MPI_ROOT => A::ROOT,
        _ => rank,
    }
}

/// A tag, or MPI_ANY_TAG.
#[inline(always)]
pub fn tag_in<A: Abi>(tag: i32) -> i32 {
    if tag >= 0 { tag } else { special_tag::<A>(tag) }
}

#[inline(always)]
fn special_tag<A: Abi>(tag: i32) -> i32 {
    match tag {
        _ if tag == A::ANY_TAG => constants::MPI_ANY_TAG,
        constants::MPI_ANY_TAG => NO_RANK,
        _ => tag,
    }
}

/// A tag of the standard ABI as the program knows it.
#[inline(always)]
pub fn tag_out<A: Abi>(tag: i32) -> i32 {
    if tag == constants::MPI_ANY_TAG {
        A::ANY_TAG
    } else {
        tag
    }
}

/// A pointer to a buffer.
pub trait Buffer: Copy {
    /// Its address.
    fn address(self) -> usize;
    /// One with this address, which is none of memory.
    fn without_memory(address: usize) -> Self;
}

impl Buffer for *const u8 {
    fn address(self) -> usize {
        self.addr()
    }
    fn without_memory(address: usize) -> Self {
        std::ptr::without_provenance(address)
    }
}

impl Buffer for *mut u8 {
    fn address(self) -> usize {
        self.addr()
    }
    fn without_memory(address: usize) -> Self {
        std::ptr::without_provenance_mut(address)
    }
}

/// A buffer or MPI_IN_PLACE.
#[inline(always)]
pub fn in_place<A: Abi, B: Buffer>(buffer: B) -> B {
    if buffer.address() == A::IN_PLACE {
        B::without_memory(constants::MPI_IN_PLACE)
    } else {
        buffer
    }
}

/// Is it MPI_IN_PLACE?
pub fn is_in_place<A: Abi>(buffer: *const u8) -> bool {
    buffer.addr() == A::IN_PLACE
}

/// A buffer to attach, or MPI_BUFFER_AUTOMATIC.
pub fn automatic<A: Abi>(buffer: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
    if buffer.addr() == A::BUFFER_AUTOMATIC {
        std::ptr::without_provenance_mut(constants::MPI_BUFFER_AUTOMATIC)
    } else {
        buffer
    }
}

/// The address of a detached buffer, which may be MPI_BUFFER_AUTOMATIC.
///
/// # Safety
/// `place` is where the call has stored it.
pub unsafe fn automatic_out<A: Abi>(place: *mut std::ffi::c_void) {
    let place: *mut usize = place.cast();
    // SAFETY: the caller's promise.
    unsafe {
        if place.read() == constants::MPI_BUFFER_AUTOMATIC {
            place.write(A::BUFFER_AUTOMATIC);
        }
    }
}

/// Weights, MPI_UNWEIGHTED or MPI_WEIGHTS_EMPTY.
pub fn weights_in<A: Abi>(weights: *mut i32) -> *mut i32 {
    let [unweighted, empty] = A::weights();
    match weights {
        _ if weights == unweighted => std::ptr::without_provenance_mut(constants::MPI_UNWEIGHTED),
        _ if weights == empty => std::ptr::without_provenance_mut(constants::MPI_WEIGHTS_EMPTY),
        _ => weights,
    }
}

/// A displacement or MPI_DISPLACEMENT_CURRENT.
pub fn displacement<A: Abi>(displacement: i64) -> i64 {
    if displacement == A::DISPLACEMENT_CURRENT {
        constants::MPI_DISPLACEMENT_CURRENT
    } else if displacement == constants::MPI_DISPLACEMENT_CURRENT {
        // Invalid, and must stay so.
        i64::MIN
    } else {
        displacement
    }
}

/// Arguments of the distributions of an array: numbers, or MPI_DISTRIBUTE_DFLT_DARG.
///
/// # Safety
/// `first` is null or has `count` elements.
pub unsafe fn distribution_arguments<A: Abi>(
    first: *const i32,
    count: usize,
) -> SmallVec<[i32; 8]> {
    let default = value_out(A::TABLES.distributions, constants::MPI_DISTRIBUTE_DFLT_DARG);
    let convert = |value| match value {
        _ if value == default => constants::MPI_DISTRIBUTE_DFLT_DARG,
        // The number that the standard ABI has given to the default cannot be said: an error.
        constants::MPI_DISTRIBUTE_DFLT_DARG => i32::MIN,
        _ => value,
    };
    // SAFETY: the caller's promise.
    unsafe { converted(first, count, convert) }
}

/// Distributions of the dimensions of an array.
///
/// # Safety
/// `first` is null or has `count` elements.
pub unsafe fn distributions<A: Abi>(first: *const i32, count: usize) -> SmallVec<[i32; 8]> {
    // SAFETY: the caller's promise.
    unsafe { converted(first, count, |v| value_in(A::TABLES.distributions, v)) }
}

/// Ranks of a group, with MPI_PROC_NULL.
///
/// # Safety
/// `first` is null or has `count` elements.
pub unsafe fn ranks_in<A: Abi>(first: *const i32, count: usize) -> SmallVec<[i32; 8]> {
    // SAFETY: the caller's promise.
    unsafe { converted(first, count, rank_in::<A>) }
}

/// Ranks of a group as the program knows them.
///
/// # Safety
/// `first` is null or has `count` elements.
pub unsafe fn ranks_out<A: Abi>(first: *mut i32, count: usize) {
    if !first.is_null() {
        for at in 0..count {
            // SAFETY: the caller's promise.
            unsafe { *first.add(at) = rank_out::<A>(*first.add(at)) };
        }
    }
}

/// The elements of an array, converted one by one. Empty if `first` is null.
///
/// # Safety
/// `first` is null or has `count` elements.
unsafe fn converted(
    first: *const i32,
    count: usize,
    how: impl Fn(i32) -> i32,
) -> SmallVec<[i32; 8]> {
    if first.is_null() || count > i32::MAX as usize {
        return SmallVec::new();
    }
    // SAFETY: the caller's promise.
    let values = unsafe { std::slice::from_raw_parts(first, count) };
    values.iter().map(|v| how(*v)).collect()
}

pub use crate::memory::peers;
