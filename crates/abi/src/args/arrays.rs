//! Array arguments.

use super::{
    invalid_address, invalid_handle, is_invalid_address, not_committed, null, unused_type,
};
use crate::constants::{MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use crate::handle::{self, Handle};
use ferry_mpi::{Datatype, Result, err};
use std::sync::Arc;

/// An array's length, of any integer type.
pub trait Length {
    /// As an unsigned number. A negative length is 0 here; its own check has reported it.
    fn length(self) -> usize;
}
impl Length for usize {
    fn length(self) -> usize {
        self
    }
}
impl Length for i64 {
    fn length(self) -> usize {
        self.max(0) as usize
    }
}
impl Length for i32 {
    fn length(self) -> usize {
        self.max(0) as usize
    }
}

/// An array that the call reads.
///
/// # Safety
/// `at` is null or has `length` elements.
#[inline]
pub unsafe fn slice<'a, T>(
    at: impl Into<Pointer<T>>,
    length: impl Length,
    name: &str,
) -> Result<&'a [T]> {
    let (at, length) = (at.into().0, length.length());
    if length == 0 {
        Ok(&[])
    } else if is_invalid_address(at) {
        Err(invalid_address(at, name))
    } else {
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(at, length) })
    }
}

/// An array that the call reads and writes.
///
/// # Safety
/// `at` is null or has `length` elements.
#[inline]
pub unsafe fn slice_mut<'a, T>(at: *mut T, length: impl Length, name: &str) -> Result<&'a mut [T]> {
    let length = length.length();
    if length == 0 {
        Ok(&mut [])
    } else if is_invalid_address(at) {
        Err(invalid_address(at, name))
    } else {
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(at, length) })
    }
}

/// A pointer for reading, const or not in C.
pub struct Pointer<T>(*const T);
impl<T> From<*const T> for Pointer<T> {
    fn from(at: *const T) -> Pointer<T> {
        Pointer(at)
    }
}
impl<T> From<*mut T> for Pointer<T> {
    fn from(at: *mut T) -> Pointer<T> {
        Pointer(at)
    }
}

/// An array of int, MPI_Aint or MPI_Count of unknown length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ints {
    /// Of int.
    Narrow(*const i32),
    /// Of MPI_Aint or MPI_Count.
    Wide(*const i64),
}

// SAFETY: the program lends the array to the call. The thread that completes the operation may read
// it.
unsafe impl Send for Ints {}

impl Ints {
    /// An array that has no meaning in this call.
    pub const NONE: Ints = Ints::Narrow(std::ptr::null());

    /// Is it null?
    pub fn is_none(&self) -> bool {
        match self {
            Ints::Narrow(at) => at.is_null(),
            Ints::Wide(at) => at.is_null(),
        }
    }

    /// Element `index`, which the standard must allow the call to read. 0 if the array is null.
    #[inline]
    pub fn at(&self, index: usize) -> i64 {
        if self.is_none() {
            return 0;
        }
        match self {
            // SAFETY: the program's array has the elements that the standard requires.
            Ints::Narrow(at) => i64::from(unsafe { *at.add(index) }),
            // SAFETY: the program's array has the elements that the standard requires. They may be
            // unaligned.
            Ints::Wide(at) => unsafe { at.add(index).read_unaligned() },
        }
    }

    /// The first `length` elements.
    ///
    /// # Errors
    /// The array is null and `length` is not 0.
    pub fn all(&self, length: usize, name: &str) -> Result<Vec<i64>> {
        if self.is_none() && length > 0 {
            return Err(null(name));
        }
        Ok((0..length).map(|i| self.at(i)).collect())
    }

    /// The first `length` elements, as counts.
    ///
    /// # Errors
    /// The array is null, or an element is negative.
    pub fn counts(&self, length: usize, name: &str) -> Result<Vec<i64>> {
        let all = self.all(length, name)?;
        match all.iter().position(|&c| c < 0) {
            Some(i) => Err(err!(Count, "{name}[{i}] is {}, which is negative", all[i])),
            None => Ok(all),
        }
    }
}

impl From<*const i32> for Ints {
    fn from(at: *const i32) -> Ints {
        Ints::Narrow(at)
    }
}
impl From<*const i64> for Ints {
    fn from(at: *const i64) -> Ints {
        Ints::Wide(at)
    }
}

/// The weights of a graph's edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// No weights (MPI_UNWEIGHTED).
    None,
    /// No edges here (MPI_WEIGHTS_EMPTY).
    Empty,
    /// An array.
    At(*const i32),
}

impl From<*const i32> for Weights {
    fn from(at: *const i32) -> Weights {
        match at as usize {
            MPI_UNWEIGHTED => Weights::None,
            MPI_WEIGHTS_EMPTY => Weights::Empty,
            _ => Weights::At(at),
        }
    }
}

/// An array of datatypes of unknown length.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    first: *const Handle,
    committed: bool,
    name: &'static str,
}

impl Types {
    /// An array that has no meaning in this call.
    pub const NONE: Types = Types {
        first: std::ptr::null(),
        committed: false,
        name: "",
    };

    /// The array at `first`. With `committed`, the types must be committed.
    pub fn new(first: *const Handle, committed: bool, name: &'static str) -> Types {
        Types {
            first,
            committed,
            name,
        }
    }

    /// Element `index`, which the standard must allow the call to read.
    ///
    /// # Errors
    /// The element is not a valid datatype, or is not committed but should be.
    pub fn at(&self, index: usize) -> Result<&'static Arc<Datatype>> {
        if self.first.is_null() {
            return if self.name.is_empty() {
                Ok(unused_type())
            } else {
                Err(null(self.name))
            };
        }
        // SAFETY: the program's array has the elements that the standard requires.
        let handle = unsafe { *self.first.add(index) };
        match handle::get::<Datatype>(handle) {
            Some(t) if !self.committed || t.is_committed() => Ok(t),
            Some(_) => Err(not_committed(&format!("{}[{index}]", self.name))),
            None => Err(invalid_handle::<Datatype>(
                handle,
                &format!("{}[{index}]", self.name),
            )),
        }
    }

    /// The first `length` elements.
    ///
    /// # Errors
    /// As for [`Types::at`].
    pub fn all(&self, length: usize) -> Result<Vec<Arc<Datatype>>> {
        (0..length).map(|i| self.at(i).cloned()).collect()
    }
}
