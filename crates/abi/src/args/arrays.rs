//! Arrays.

use super::{no_object, no_place, not_committed, nowhere, null, unused_type};
use crate::constants::{MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use crate::handle::{self, Handle};
use ferry_mpi::{Datatype, Result, err};
use std::sync::Arc;

/// A number that is a length, whatever its type.
pub trait Length {
    /// As an unsigned number; negative lengths are empty arrays here, as their own check has
    /// complained of them.
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
/// `at` is null or has so many elements.
#[inline]
pub unsafe fn slice<'a, T>(
    at: impl Into<Pointer<T>>,
    length: impl Length,
    name: &str,
) -> Result<&'a [T]> {
    let (at, length) = (at.into().0, length.length());
    if length == 0 {
        Ok(&[])
    } else if nowhere(at) {
        Err(no_place(at, name))
    } else {
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(at, length) })
    }
}

/// An array that the call reads and writes.
///
/// # Safety
/// `at` is null or has so many elements.
#[inline]
pub unsafe fn slice_mut<'a, T>(at: *mut T, length: impl Length, name: &str) -> Result<&'a mut [T]> {
    let length = length.length();
    if length == 0 {
        Ok(&mut [])
    } else if nowhere(at) {
        Err(no_place(at, name))
    } else {
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(at, length) })
    }
}

/// A pointer for reading, whether C says const or not.
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

// SAFETY: the array is lent to the call, which may hand it to the thread that completes the
// operation.
unsafe impl Send for Ints {}

impl Ints {
    /// An array that means nothing here.
    pub const NONE: Ints = Ints::Narrow(std::ptr::null());

    /// Is there no array?
    pub fn is_none(&self) -> bool {
        match self {
            Ints::Narrow(at) => at.is_null(),
            Ints::Wide(at) => at.is_null(),
        }
    }

    /// Element `index`, which must be one that the standard lets the call read; 0 if there is no
    /// array.
    #[inline]
    pub fn at(&self, index: usize) -> i64 {
        if self.is_none() {
            return 0;
        }
        match self {
            // SAFETY: the program's array has the elements that the standard says.
            Ints::Narrow(at) => i64::from(unsafe { *at.add(index) }),
            // SAFETY: the program's array has the elements that the standard says; they need not be
            // aligned.
            Ints::Wide(at) => unsafe { at.add(index).read_unaligned() },
        }
    }

    /// The first `length` elements.
    ///
    /// # Errors
    /// There is no array, but elements are asked for.
    pub fn all(&self, length: usize, name: &str) -> Result<Vec<i64>> {
        if self.is_none() && length > 0 {
            return Err(null(name));
        }
        Ok((0..length).map(|i| self.at(i)).collect())
    }

    /// The first `length` elements, which are counts.
    ///
    /// # Errors
    /// There is no array, or an element is negative.
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
    /// All edges weigh the same (MPI_UNWEIGHTED).
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
    /// An array that means nothing here.
    pub const NONE: Types = Types {
        first: std::ptr::null(),
        committed: false,
        name: "",
    };

    /// The array at `first`; `committed`: for communication.
    pub fn new(first: *const Handle, committed: bool, name: &'static str) -> Types {
        Types {
            first,
            committed,
            name,
        }
    }

    /// Element `index`, which must be one that the standard lets the call read.
    ///
    /// # Errors
    /// No valid datatype stands there, or it should be committed and is not.
    pub fn at(&self, index: usize) -> Result<&'static Arc<Datatype>> {
        if self.first.is_null() {
            return if self.name.is_empty() {
                Ok(unused_type())
            } else {
                Err(null(self.name))
            };
        }
        // SAFETY: the program's array has the elements that the standard says.
        let handle = unsafe { *self.first.add(index) };
        match handle::get::<Datatype>(handle) {
            Some(t) if !self.committed || t.is_committed() => Ok(t),
            Some(_) => Err(not_committed(&format!("{}[{index}]", self.name))),
            None => Err(no_object::<Datatype>(
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
