//! Arrays of handles and statuses, and strings.

use crate::abi::{Abi, INVALID, kind};
use crate::constants;
use crate::number;
use crate::standard::{Status, function};
use smallvec::SmallVec;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Where the standard library stores a handle, or null if the program has no place for it.
#[inline(always)]
pub fn place<T>(of_program: *const T, own: *mut u64) -> *mut u64 {
    if of_program.is_null() {
        null_mut()
    } else {
        own
    }
}

/// Arrays of this length need no memory from the heap.
const INLINE: usize = 32;

/// An array of handles of the program, as the standard ABI has it.
pub struct Handles<A: Abi, K> {
    values: SmallVec<[u64; INLINE]>,
    of_program: *mut A::Handle,
    kind: PhantomData<K>,
}

impl<A: Abi, K: kind::Kind> Handles<A, K> {
    /// The array at `first`. Nothing is read if it is null or the length is negative.
    ///
    /// # Safety
    /// The program's array has that many handles.
    pub unsafe fn new(first: *const A::Handle, count: usize) -> Self {
        let count = if first.is_null() || count > i32::MAX as usize {
            0
        } else {
            count
        };
        let handle = |at| {
            // SAFETY: the caller's promise.
            unsafe { A::handle_in::<K>(*first.add(at)) }
        };
        Handles {
            values: (0..count).map(handle).collect(),
            of_program: first.cast_mut(),
            kind: PhantomData,
        }
    }

    /// Its address; null if the program's is.
    pub fn pointer(&mut self) -> *mut u64 {
        place(self.of_program, self.values.as_mut_ptr())
    }

    /// Stores in the program's array what has changed.
    ///
    /// # Safety
    /// The array is as it was when this was made.
    pub unsafe fn store(&self) {
        for (at, value) in self.values.iter().enumerate() {
            if *value != INVALID {
                let handle = A::handle_out::<K>(*value);
                // SAFETY: the caller's promise.
                unsafe {
                    let place = self.of_program.add(at);
                    if *place != handle {
                        *place = handle;
                    }
                }
            }
        }
    }
}

/// Does the program want no status?
#[inline(always)]
pub fn is_ignored<A: Abi>(status: *const A::Status) -> bool {
    status.addr() == A::STATUS_IGNORE || status.is_null()
}

/// A status of the program. An untouched one if there is none.
///
/// # Safety
/// `status` is valid, null or MPI_STATUS_IGNORE.
pub unsafe fn status_in<A: Abi>(status: *const A::Status) -> Status {
    if is_ignored::<A>(status) {
        Status::UNTOUCHED
    } else {
        // SAFETY: neither null nor the constant.
        A::status_in(unsafe { &*status })
    }
}

/// Stores a status that a call has stored to.
///
/// # Safety
/// `to` is valid, null or MPI_STATUS_IGNORE.
#[inline(always)]
pub unsafe fn store_status<A: Abi>(status: &Status, to: *mut A::Status) {
    if status.source != Status::NOT_STORED && !is_ignored::<A>(to) {
        // SAFETY: neither null nor the constant.
        unsafe { A::store_status(status, to) };
    }
}

/// A status that a call stores to, if the program wants one.
pub struct NewStatus<A> {
    value: MaybeUninit<Status>,
    abi: PhantomData<A>,
}

impl<A: Abi> NewStatus<A> {
    /// Nothing is written until it is known that there is one.
    #[inline(always)]
    pub fn unwritten() -> Self {
        NewStatus {
            value: MaybeUninit::uninit(),
            abi: PhantomData,
        }
    }

    /// Its address, or the standard ABI's MPI_STATUS_IGNORE for a program that wants none.
    #[inline(always)]
    pub fn pointer(&mut self, of_program: *const A::Status) -> *mut Status {
        if is_ignored::<A>(of_program) {
            null_mut()
        } else {
            self.value.write(Status::UNTOUCHED)
        }
    }

    /// Stores what the call has stored.
    ///
    /// # Safety
    /// `to` is what `pointer` was told, and valid, null or MPI_STATUS_IGNORE.
    #[inline(always)]
    pub unsafe fn store(&self, to: *mut A::Status) {
        if !is_ignored::<A>(to) {
            // SAFETY: `pointer` has written the value, and the rest is the caller's promise.
            unsafe { store_status::<A>(self.value.assume_init_ref(), to) };
        }
    }
}

/// An array of statuses that a call stores to.
pub struct Statuses<A: Abi> {
    values: SmallVec<[Status; INLINE]>,
    of_program: *mut A::Status,
}

impl<A: Abi> Statuses<A> {
    /// For the array at `first`, which may be MPI_STATUSES_IGNORE.
    pub fn new(first: *mut A::Status, count: usize) -> Self {
        let count = if is_ignored::<A>(first) || count > i32::MAX as usize {
            0
        } else {
            count
        };
        Statuses {
            values: SmallVec::from_elem(Status::UNTOUCHED, count),
            of_program: first,
        }
    }

    /// Its address; MPI_STATUSES_IGNORE of the standard ABI if the program wants none.
    pub fn pointer(&mut self) -> *mut Status {
        if is_ignored::<A>(self.of_program) {
            null_mut()
        } else {
            self.values.as_mut_ptr()
        }
    }

    /// Stores what the call has stored.
    ///
    /// # Safety
    /// The program's array has as many statuses as `new` was told.
    pub unsafe fn store(&mut self) {
        for (at, status) in self.values.iter_mut().enumerate() {
            if status.source == Status::NOT_STORED && status.error != Status::NOT_STORED {
                // A request that failed before it had a source.
                status.source = constants::MPI_ANY_SOURCE;
            }
            // SAFETY: the caller's promise.
            unsafe { store_status::<A>(status, self.of_program.add(at)) };
        }
    }
}

/// A string for which the standard ABI promises `N` bytes of room.
pub struct Text<const N: usize> {
    buffer: MaybeUninit<[u8; N]>,
    of_program: *mut c_char,
    room: usize,
}

impl<const N: usize> Text<N> {
    /// For the program's memory of `room` bytes.
    pub fn new(of_program: *mut c_char, room: usize) -> Self {
        Text {
            buffer: MaybeUninit::uninit(),
            of_program,
            room,
        }
    }

    /// Where the call stores: the program's memory if that is as large as it must be.
    pub fn pointer(&mut self) -> *mut c_char {
        if self.of_program.is_null() || self.room >= N {
            self.of_program
        } else {
            self.buffer.as_mut_ptr().cast()
        }
    }

    /// Stores as much as fits, and the length without the final null.
    ///
    /// # Safety
    /// The call has stored a string; `length` is null or valid.
    pub unsafe fn store(&self, length: *mut i32) {
        if self.of_program.is_null() || self.room >= N {
            return;
        }
        let text: *const c_char = self.buffer.as_ptr().cast();
        // SAFETY: a string ends within the buffer, and the program's memory has `room` bytes.
        unsafe {
            let bytes = std::ffi::CStr::from_ptr(text).to_bytes();
            let fits = bytes.len().min(self.room - 1);
            std::ptr::copy_nonoverlapping(text, self.of_program, fits);
            *self.of_program.add(fits) = 0;
            if !length.is_null() && *length > fits as i32 {
                *length = fits as i32;
            }
        }
    }
}

/// Number of processes to which (`sends`), or from which, a collective of `comm` sends: the length
/// of its arrays. 0 if the communicator is invalid.
///
/// # Safety
/// As a call of MPI.
pub unsafe fn peers<A: Abi>(comm: A::Handle, neighbours: bool, sends: bool) -> usize {
    type Query = unsafe extern "C" fn(u64, *mut i32) -> i32;
    // SAFETY: the numbers are those of functions of this type.
    unsafe {
        let comm = A::handle_in::<kind::Comm>(comm);
        let ask = |number| {
            let mut value = 0;
            let query: Query = function(number);
            if query(comm, &mut value) == 0 {
                value
            } else {
                0
            }
        };
        let peers = if !neighbours {
            let remote = ask(number::COMM_TEST_INTER) != 0;
            ask(if remote {
                number::COMM_REMOTE_SIZE
            } else {
                number::COMM_SIZE
            })
        } else {
            match ask(number::TOPO_TEST) {
                constants::MPI_CART => 2 * ask(number::CARTDIM_GET),
                constants::MPI_GRAPH => {
                    let rank = ask(number::COMM_RANK);
                    let count: unsafe extern "C" fn(u64, i32, *mut i32) -> i32 =
                        function(number::GRAPH_NEIGHBORS_COUNT);
                    let mut neighbours = 0;
                    count(comm, rank, &mut neighbours);
                    neighbours
                }
                constants::MPI_DIST_GRAPH => {
                    let count: unsafe extern "C" fn(u64, *mut i32, *mut i32, *mut i32) -> i32 =
                        function(number::DIST_GRAPH_NEIGHBORS_COUNT);
                    let (mut sources, mut targets, mut weighted) = (0, 0, 0);
                    count(comm, &mut sources, &mut targets, &mut weighted);
                    if sends { targets } else { sources }
                }
                _ => 0,
            }
        };
        peers.max(0) as usize
    }
}
