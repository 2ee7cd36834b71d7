//! Arrays of handles and statuses, and strings.

use crate::abi::{Abi, INVALID, kind};
use crate::constants;
use crate::number;
use crate::standard::{Status, function};
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

/// Memory for the elements of an array: within this value for up to `N` of them, so that calls with
/// few elements take none from the heap. It is written where it lies, and not to be moved after: a
/// vector that keeps its elements within itself is copied whole when it is returned.
struct Room<T, const N: usize> {
    few: MaybeUninit<[T; N]>,
    many: Vec<T>,
    length: usize,
}

impl<T: Copy, const N: usize> Room<T, N> {
    /// For `length` elements, which `fill` writes.
    #[inline(always)]
    fn new(length: usize) -> Self {
        Room {
            few: MaybeUninit::uninit(),
            many: Vec::new(),
            length,
        }
    }

    /// Writes the elements, each from its place. The address of the first.
    #[inline(always)]
    fn fill(&mut self, mut element: impl FnMut(usize) -> T) -> *mut T {
        if self.length > N {
            self.many = (0..self.length).map(element).collect();
            return self.many.as_mut_ptr();
        }
        let first: *mut T = self.few.as_mut_ptr().cast();
        for at in 0..self.length {
            // SAFETY: there is room for so many.
            unsafe { first.add(at).write(element(at)) };
        }
        first
    }

    /// The elements, as they are now.
    ///
    /// # Safety
    /// `fill` has written them.
    #[inline(always)]
    unsafe fn elements(&mut self) -> &mut [T] {
        if self.length > N {
            return &mut self.many;
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.few.as_mut_ptr().cast(), self.length) }
    }
}

/// The length of a program's array; 0 if it has none, or one that is negative.
#[inline(always)]
fn length_of(is_there: bool, count: usize) -> usize {
    if is_there && count <= i32::MAX as usize {
        count
    } else {
        0
    }
}

/// An array of handles of the program, as the standard ABI has it.
pub struct Handles<A: Abi, K> {
    values: Room<u64, 128>,
    of_program: *mut A::Handle,
    kind: PhantomData<K>,
}

impl<A: Abi, K: kind::Kind> Handles<A, K> {
    /// For the array at `first`, which is not read yet.
    ///
    /// # Safety
    /// The program's array has that many handles, unless `first` is null or the count negative.
    #[inline(always)]
    pub unsafe fn new(first: *const A::Handle, count: usize) -> Self {
        Handles {
            values: Room::new(length_of(!first.is_null(), count)),
            of_program: first.cast_mut(),
            kind: PhantomData,
        }
    }

    /// Reads the program's array. The address of its conversion; null if there is none.
    #[inline(always)]
    pub fn pointer(&mut self) -> *mut u64 {
        let of_program = self.of_program;
        let values = self.values.fill(|at| {
            // SAFETY: the promise to `new`.
            unsafe { A::handle_in::<K>(*of_program.add(at)) }
        });
        place(of_program, values)
    }

    /// Stores in the program's array what has changed.
    ///
    /// # Safety
    /// `pointer` has read the array, and it is as it was then.
    #[inline(always)]
    pub unsafe fn store(&mut self) {
        // SAFETY: `pointer` has filled it.
        let values = unsafe { self.values.elements() };
        for (at, value) in values.iter().enumerate() {
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
    values: Room<Status, 32>,
    of_program: *mut A::Status,
}

impl<A: Abi> Statuses<A> {
    /// For the array at `first`, which may be MPI_STATUSES_IGNORE.
    #[inline(always)]
    pub fn new(first: *mut A::Status, count: usize) -> Self {
        Statuses {
            values: Room::new(length_of(!is_ignored::<A>(first), count)),
            of_program: first,
        }
    }

    /// Where the call stores; MPI_STATUSES_IGNORE of the standard ABI if the program wants none.
    #[inline(always)]
    pub fn pointer(&mut self) -> *mut Status {
        if is_ignored::<A>(self.of_program) {
            null_mut()
        } else {
            self.values.fill(|_| Status::UNTOUCHED)
        }
    }

    /// Stores what the call has stored.
    ///
    /// # Safety
    /// `pointer` was called, and the program's array has as many statuses as `new` was told.
    #[inline(always)]
    pub unsafe fn store(&mut self) {
        // SAFETY: `pointer` has filled it.
        let values = unsafe { self.values.elements() };
        for (at, status) in values.iter_mut().enumerate() {
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
