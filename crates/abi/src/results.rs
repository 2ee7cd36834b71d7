//! Output arguments: places in the program's memory where results go.

// Some of these are for chapters that are not implemented yet.
#![allow(dead_code)]

use crate::args::{invalid_address, is_invalid_address, null};
use crate::constants::{MPI_SUCCESS, MPI_UNDEFINED};
use crate::handle::{self, Handle, Object};
use crate::status::Status;
use ferry_mpi::request::Outcome;
use ferry_mpi::{Datatype, Result, err};
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

/// An output argument of type `T`.
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// No pointer: the result is dropped.
    pub const NONE: Out<T> = Out(std::ptr::null_mut());

    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: *mut T, name: &str) -> Result<Out<T>> {
        if is_invalid_address(at) {
            Err(invalid_address(at, name))
        } else {
            Ok(Out(at))
        }
    }

    /// An optional output argument. If it is null, the result is dropped.
    ///
    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn maybe(at: *mut T) -> Out<T> {
        Out(at)
    }

    /// Stores the result.
    #[inline]
    pub fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: valid by the promise at `new`.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Is it null?
    pub fn is_none(&self) -> bool {
        self.0.is_null()
    }
}

/// An output flag.
#[derive(Debug)]
pub struct OutFlag(Out<i32>);

impl OutFlag {
    /// No pointer: the flag is dropped.
    pub const NONE: OutFlag = OutFlag(Out::NONE);

    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: *mut i32, name: &str) -> Result<OutFlag> {
        // SAFETY: the caller's promise.
        unsafe { Out::new(at, name) }.map(OutFlag)
    }

    /// Stores the flag.
    #[inline]
    pub fn set(&self, value: bool) {
        self.0.set(i32::from(value));
    }
}

/// A pointer to a count, of int or MPI_Count.
pub trait IntoCountPtr {
    /// The pointer with its type.
    fn count_ptr(self) -> CountPtr;
}
impl IntoCountPtr for *mut i32 {
    fn count_ptr(self) -> CountPtr {
        CountPtr::Int(self)
    }
}
impl IntoCountPtr for *mut i64 {
    fn count_ptr(self) -> CountPtr {
        CountPtr::Count(self)
    }
}

/// The address of a count.
#[derive(Clone, Copy, Debug)]
pub enum CountPtr {
    /// An int.
    Int(*mut i32),
    /// An MPI_Count or MPI_Aint.
    Count(*mut i64),
}

impl CountPtr {
    fn address(self) -> *const u8 {
        match self {
            CountPtr::Int(at) => at.cast(),
            CountPtr::Count(at) => at.cast(),
        }
    }
}

/// An output count, of int or MPI_Count.
#[derive(Debug)]
pub struct OutCount(CountPtr);

impl OutCount {
    /// No pointer: the count is dropped.
    pub const NONE: OutCount = OutCount(CountPtr::Count(std::ptr::null_mut()));

    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: impl IntoCountPtr, name: &str) -> Result<OutCount> {
        let at = at.count_ptr();
        if is_invalid_address(at.address()) {
            Err(invalid_address(at.address(), name))
        } else {
            Ok(OutCount(at))
        }
    }

    /// The result does not exist in this form of the call (num_large_counts).
    pub fn is_none(&self) -> bool {
        self.0.address().is_null()
    }

    /// Is it an int, which may be too small?
    pub fn is_int(&self) -> bool {
        matches!(self.0, CountPtr::Int(_))
    }

    /// Stores the count, or MPI_UNDEFINED if it does not fit an int.
    #[inline]
    pub fn set(&self, value: i64) {
        if self.is_none() {
            return;
        }
        // SAFETY: valid by the promise at `new`, and not null.
        unsafe {
            match self.0 {
                CountPtr::Int(at) => *at = i32::try_from(value).unwrap_or(MPI_UNDEFINED),
                CountPtr::Count(at) => at.write_unaligned(value),
            }
        }
    }

    /// Stores the count.
    ///
    /// # Errors
    /// It does not fit an int.
    pub fn fit(&self, value: i64, name: &str) -> Result<()> {
        if self.is_int() && i32::try_from(value).is_err() {
            return Err(err!(
                ValueTooLarge,
                "{name} would be {value}, which does not fit an int; use the large-count form (_c)"
            ));
        }
        self.set(value);
        Ok(())
    }
}

/// An input and output count (position).
#[derive(Debug)]
pub struct InOutCount(OutCount);

impl InOutCount {
    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: impl IntoCountPtr, name: &str) -> Result<InOutCount> {
        // SAFETY: the caller's promise.
        unsafe { OutCount::new(at, name) }.map(InOutCount)
    }

    /// The count.
    #[inline]
    pub fn value(&self) -> i64 {
        // SAFETY: valid by the promise at `new`, and not null.
        unsafe {
            match self.0.0 {
                CountPtr::Int(at) => i64::from(*at),
                CountPtr::Count(at) => at.read_unaligned(),
            }
        }
    }

    /// Stores the count.
    ///
    /// # Errors
    /// It does not fit an int.
    #[inline]
    pub fn set(&self, value: i64, name: &str) -> Result<()> {
        self.0.fit(value, name)
    }
}

/// An output pointer (`void *baseptr`, `void *attribute_val`).
#[derive(Debug)]
pub struct OutPointer(*mut *mut c_void);

impl OutPointer {
    /// # Safety
    /// `at` is null or the address of a pointer.
    #[inline]
    pub unsafe fn new(at: *mut c_void, name: &str) -> Result<OutPointer> {
        if is_invalid_address(at) {
            Err(invalid_address(at, name))
        } else {
            Ok(OutPointer(at.cast()))
        }
    }

    /// Stores the pointer.
    #[inline]
    pub fn set(&self, value: *mut c_void) {
        // SAFETY: valid by the promise at `new`.
        unsafe { self.0.write_unaligned(value) };
    }
}

/// An output handle.
#[derive(Debug)]
pub struct New<T: Object>(*mut Handle, PhantomData<T>);

#[allow(clippy::self_named_constructors)]
impl<T: Object> New<T> {
    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: *mut Handle, name: &str) -> Result<New<T>> {
        if is_invalid_address(at) {
            Err(invalid_address(at, name))
        } else {
            Ok(New(at, PhantomData))
        }
    }

    /// An optional output handle. If it is null, nothing is stored.
    ///
    /// # Safety
    /// `at` is null or valid.
    pub unsafe fn maybe(at: *mut Handle) -> New<T> {
        New(at, PhantomData)
    }

    /// Makes a handle for the object and stores it.
    pub fn set(&self, object: Arc<T>) {
        if !self.0.is_null() {
            self.set_handle(handle::insert(object));
        }
    }

    /// Stores the null handle.
    pub fn set_null(&self) {
        self.set_handle(T::NULL);
    }

    /// Stores an existing handle (a predefined one).
    pub fn set_handle(&self, handle: Handle) {
        if !self.0.is_null() {
            // SAFETY: valid by the promise at `new`.
            unsafe { *self.0 = handle };
        }
    }

    /// Makes a handle for the object, or stores the null handle.
    pub fn set_or_null(&self, object: Option<Arc<T>>) {
        match object {
            Some(object) => self.set(object),
            None => self.set_null(),
        }
    }

    /// The address of the handle, for calls that store it later (MPI_Comm_idup).
    pub fn address(&self) -> *mut Handle {
        self.0
    }
}

/// An output array of int.
#[derive(Debug)]
pub struct OutInts {
    first: *mut i32,
    length: usize,
}

impl OutInts {
    /// No array.
    pub const NONE: OutInts = OutInts {
        first: std::ptr::null_mut(),
        length: 0,
    };

    /// An array of `length` elements.
    ///
    /// # Safety
    /// `first` is null or has `length` elements.
    pub unsafe fn new(
        first: *mut i32,
        length: impl crate::args::Length,
        name: &str,
    ) -> Result<OutInts> {
        let length = length.length();
        if first.is_null() && length > 0 {
            Err(null(name))
        } else {
            Ok(OutInts { first, length })
        }
    }

    /// An array whose length depends on the call, or null.
    ///
    /// # Safety
    /// `first` is null or has the elements that the call sets.
    pub unsafe fn unbounded(first: *mut i32) -> OutInts {
        OutInts {
            first,
            length: usize::MAX,
        }
    }

    /// Is it null, or a constant for no array (MPI_UNWEIGHTED)?
    pub fn is_none(&self) -> bool {
        (self.first as usize) < 4096
    }

    /// Number of elements. `usize::MAX` if unknown.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Stores element `index`. Does nothing beyond the end or without an array.
    #[inline]
    pub fn set(&self, index: usize, value: i32) {
        if index < self.length && !self.is_none() {
            // SAFETY: inside by the promise at `new` and the test above.
            unsafe { *self.first.add(index) = value };
        }
    }

    /// Stores the values that fit.
    pub fn set_all(&self, values: impl IntoIterator<Item = i32>) {
        for (index, value) in values.into_iter().enumerate() {
            self.set(index, value);
        }
    }
}

/// An output array of datatypes.
#[derive(Debug)]
pub struct OutTypes(*mut Handle);

impl OutTypes {
    /// # Safety
    /// `first` is null or has the elements that the call sets.
    pub unsafe fn new(first: *mut Handle) -> OutTypes {
        OutTypes(first)
    }

    /// Is it null?
    pub fn is_none(&self) -> bool {
        self.0.is_null()
    }

    /// Stores a datatype: a predefined one under its own handle, others under a new handle.
    pub fn set(&self, index: usize, datatype: Arc<Datatype>) {
        let known = datatype.handle.load(std::sync::atomic::Ordering::Relaxed);
        let handle = if datatype.is_predefined() && known != 0 {
            known
        } else {
            handle::insert(datatype)
        };
        self.set_handle(index, handle);
    }

    /// Stores an existing handle.
    pub fn set_handle(&self, index: usize, handle: Handle) {
        if !self.0.is_null() {
            // SAFETY: inside by the promise at `new`.
            unsafe { *self.0.add(index) = handle };
        }
    }
}

/// An output string of limited length.
#[derive(Debug)]
pub struct OutText {
    first: *mut c_char,
    room: usize,
}

impl OutText {
    /// Room for `room` bytes, including the final null.
    ///
    /// # Safety
    /// `first` is null or has `room` bytes.
    pub unsafe fn new(first: *mut c_char, room: usize, name: &str) -> Result<OutText> {
        if is_invalid_address(first) {
            Err(invalid_address(first, name))
        } else {
            Ok(OutText { first, room })
        }
    }

    /// Stores the text, truncated to fit, with a final null. Returns its length without the null.
    pub fn set(&self, text: impl AsRef<[u8]>) -> i32 {
        let text = text.as_ref();
        let length = text.len().min(self.room - 1);
        // SAFETY: inside by the promise at `new`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.first, length);
            *self.first.add(length) = 0;
        }
        length as i32
    }
}

/// An output status, or MPI_STATUS_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct OutStatus(*mut Status);

impl OutStatus {
    /// MPI_STATUS_IGNORE.
    pub const IGNORE: OutStatus = OutStatus(std::ptr::null_mut());

    /// # Safety
    /// `at` is null or valid.
    #[inline]
    pub unsafe fn new(at: *mut Status) -> OutStatus {
        OutStatus(at)
    }

    /// Is it MPI_STATUS_IGNORE?
    #[inline]
    pub fn is_ignored(&self) -> bool {
        self.0.is_null()
    }

    /// The program's status, unless it is ignored.
    #[inline]
    #[allow(clippy::mut_from_ref)] // The status is the program's, and `self` only its address.
    pub fn get(&self) -> Option<&mut Status> {
        // SAFETY: valid by the promise at `new`; the ABI aligns it to 4, as Rust does.
        unsafe { self.0.as_mut() }
    }

    /// Stores an outcome. MPI_ERROR stays unchanged (MPI 5.0 §3.2.5).
    #[inline]
    pub fn store(&self, outcome: &Outcome) {
        if let Some(status) = self.get() {
            status.store(outcome);
        }
    }

    /// Sets MPI_ERROR to MPI_SUCCESS.
    pub fn set_success(&self) {
        if let Some(status) = self.get() {
            status.error = MPI_SUCCESS;
        }
    }

    /// Stores an outcome with MPI_ERROR.
    pub fn store_with_error(&self, outcome: &Outcome) {
        if let Some(status) = self.get() {
            status.store_with_error(outcome);
        }
    }

    /// Stores the empty status. MPI_ERROR stays unchanged.
    #[inline]
    pub fn store_empty(&self) {
        if let Some(status) = self.get() {
            *status = Status {
                error: status.error,
                ..Status::EMPTY
            };
        }
    }
}

/// An output array of statuses, or MPI_STATUSES_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct OutStatuses(*mut Status);

impl OutStatuses {
    /// # Safety
    /// `first` is null or has the elements that the call sets.
    #[inline]
    pub unsafe fn new(first: *mut Status) -> OutStatuses {
        OutStatuses(first)
    }

    /// Is it MPI_STATUSES_IGNORE?
    #[inline]
    pub fn are_ignored(&self) -> bool {
        self.0.is_null()
    }

    /// The status of operation `index`.
    #[inline]
    pub fn at(&self, index: usize) -> OutStatus {
        if self.0.is_null() {
            OutStatus::IGNORE
        } else {
            // SAFETY: inside by the promise at `new`.
            OutStatus(unsafe { self.0.add(index) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_do_not_fit_are_undefined_or_errors() {
        let (mut narrow, mut wide) = (0i32, 0i64);
        // SAFETY: valid places.
        let (n, w) = unsafe {
            (
                OutCount::new(&raw mut narrow, "n").unwrap(),
                OutCount::new(&raw mut wide, "w").unwrap(),
            )
        };
        n.set(1 << 40);
        w.set(1 << 40);
        assert_eq!((narrow, wide), (MPI_UNDEFINED, 1 << 40));
        assert!(
            n.fit(1 << 31, "size")
                .unwrap_err()
                .text()
                .contains("2147483648")
        );
        n.fit(5, "size").unwrap();
        assert_eq!(narrow, 5);
        OutCount::NONE.set(3);
    }

    #[test]
    fn texts_are_cut_to_their_room() {
        let mut room = [1 as c_char; 4];
        // SAFETY: four bytes.
        let text = unsafe { OutText::new(room.as_mut_ptr(), 4, "name") }.unwrap();
        assert_eq!(text.set("ferry"), 3);
        assert_eq!(room.map(|c| c as u8), *b"fer\0");
    }

    #[test]
    fn arrays_end_where_they_end() {
        let mut array = [0; 2];
        // SAFETY: two elements.
        let out = unsafe { OutInts::new(array.as_mut_ptr(), 2usize, "a") }.unwrap();
        out.set_all([1, 2, 3]);
        assert_eq!(array, [1, 2]);
        OutInts::NONE.set(0, 1);
        // SAFETY: null, without elements.
        assert!(unsafe { OutInts::new(std::ptr::null_mut(), 1usize, "a") }.is_err());
    }

    #[test]
    fn ignored_statuses_are_left_out() {
        let mut statuses = [Status {
            error: 7,
            ..Status::EMPTY
        }; 2];
        // SAFETY: two statuses.
        let out = unsafe { OutStatuses::new(statuses.as_mut_ptr()) };
        out.at(1).store(&Outcome {
            bytes: 9,
            ..Outcome::EMPTY
        });
        assert_eq!((statuses[1].bytes(), statuses[1].error), (9, 7));
        // SAFETY: ignored.
        let none = unsafe { OutStatuses::new(std::ptr::null_mut()) };
        assert!(none.at(5).is_ignored());
    }
}
