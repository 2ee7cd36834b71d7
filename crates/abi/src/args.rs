//! Arguments: from what C passes to what the glue gets, with every check that needs no knowledge of the call.

use crate::constants::{
    MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, MPI_IN_PLACE, MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL, MPI_PROC_NULL, MPI_ROOT, MPI_SUM,
    MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY,
};
use crate::handle::{self, Handle, Object};
use crate::status::Status;
use ferry_mpi::pt2pt::{Dest, From as Source};
use ferry_mpi::{Comm, Datatype, Error, Kind, Op, Result, err};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// The largest tag (MPI_TAG_UB): every int that is not negative.
pub const TAG_UB: i32 = i32::MAX;

// Objects.

/// The object behind a handle.
#[inline]
pub fn object<T: Object>(handle: Handle, name: &str) -> Result<&'static Arc<T>> {
    match handle::get(handle) {
        Some(object) => Ok(object),
        None => Err(no_object::<T>(handle, name)),
    }
}

/// The object behind a handle, or nothing behind the null handle.
#[inline]
pub fn object_or_null<T: Object>(handle: Handle, name: &str) -> Result<Option<&'static Arc<T>>> {
    if handle == T::NULL {
        Ok(None)
    } else {
        object(handle, name).map(Some)
    }
}

#[cold]
fn no_object<T: Object>(handle: Handle, name: &str) -> Error {
    let what = match handle {
        0 => "0, which is no handle (has it been set?)".to_string(),
        h if h == T::NULL => format!("the null handle {}", null_name::<T>()),
        h if handle::is_predefined(h) => format!("{h:#x}, which is the handle of something else"),
        h => format!("{h:#x}, which is no {} (any more)", T::TYPE),
    };
    Error::new(T::ERROR, format!("{name} is {what}"))
}

fn null_name<T: Object>() -> String {
    format!("{}_NULL", T::TYPE.to_uppercase())
}

/// A communicator.
#[inline]
pub fn comm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    object(handle, name)
}

/// A communicator with one group.
#[inline]
pub fn intracomm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    let comm = comm(handle, name)?;
    if comm.is_inter() {
        Err(err!(Comm, "{name} is an intercommunicator, which this call does not take"))
    } else {
        Ok(comm)
    }
}

/// A communicator with two groups.
#[inline]
pub fn intercomm(handle: Handle, name: &str) -> Result<&'static Arc<Comm>> {
    let comm = comm(handle, name)?;
    if comm.is_inter() {
        Ok(comm)
    } else {
        Err(err!(
            Comm,
            "{name} is an intracommunicator; this call needs an intercommunicator"
        ))
    }
}

/// A datatype for communication.
#[inline]
pub fn committed(handle: Handle, name: &str) -> Result<&'static Arc<Datatype>> {
    let datatype: &Arc<Datatype> = object(handle, name)?;
    if datatype.is_committed() {
        Ok(datatype)
    } else {
        Err(not_committed(name))
    }
}

#[cold]
fn not_committed(name: &str) -> Error {
    err!(Type, "{name} has not been committed (MPI_Type_commit)")
}

/// Is this a null datatype of a message with nobody? It is not looked at.
#[inline]
pub fn is_for_nobody(datatype: Handle, rank: i32) -> bool {
    rank == crate::constants::MPI_PROC_NULL && datatype == crate::constants::MPI_DATATYPE_NULL
}

/// What stands for a datatype that means nothing here.
pub fn unused_type() -> &'static Arc<Datatype> {
    handle::get(MPI_BYTE).expect("MPI_BYTE is predefined")
}

/// What stands for an operation that means nothing here.
pub fn unused_op() -> &'static Arc<Op> {
    handle::get(MPI_SUM).expect("MPI_SUM is predefined")
}

/// The handle at `place`, for the choice of an error handler; 0 if there is none.
///
/// # Safety
/// `place` is null or valid.
#[cold]
pub unsafe fn peek(place: *mut Handle) -> Handle {
    // SAFETY: the caller's promise.
    if place.is_null() { 0 } else { unsafe { *place } }
}

/// A valid handle in the program's memory, which the call may free.
pub struct Held<T: Object> {
    place: *mut Handle,
    object: &'static Arc<T>,
}

impl<T: Object> Held<T> {
    /// Looks the handle up.
    ///
    /// # Safety
    /// `place` is null or valid.
    pub unsafe fn new(place: *mut Handle, name: &str) -> Result<Held<T>> {
        if place.is_null() {
            return Err(null(name));
        }
        // SAFETY: the caller's promise.
        let object = object(unsafe { *place }, name)?;
        Ok(Held { place, object })
    }

    /// The object.
    pub fn object(&self) -> &'static Arc<T> {
        self.object
    }

    /// The handle.
    pub fn handle(&self) -> Handle {
        // SAFETY: checked in `new`.
        unsafe { *self.place }
    }

    /// Is the handle predefined?
    pub fn is_predefined(&self) -> bool {
        handle::is_predefined(self.handle())
    }

    /// Frees the handle, sets the program's variable to the null handle, and returns the object.
    ///
    /// # Errors
    /// Predefined handles cannot be freed.
    pub fn free(self) -> Result<Arc<T>> {
        let handle = self.handle();
        match handle::remove(handle) {
            Some(object) => {
                self.forget();
                Ok(object)
            }
            None => Err(Error::new(
                T::ERROR,
                format!("the handle {handle:#x} is predefined and cannot be freed"),
            )),
        }
    }

    /// Sets the program's variable to the null handle and leaves the object alone.
    pub fn forget(self) {
        // SAFETY: checked in `new`.
        unsafe { *self.place = T::NULL };
    }
}

// Numbers.

/// A count: not negative.
#[inline]
pub fn count(value: impl Into<i64>, name: &str) -> Result<i64> {
    let value = value.into();
    if value >= 0 {
        Ok(value)
    } else {
        Err(negative(Kind::Count, value, name))
    }
}

/// A length of an array: not negative.
#[inline]
pub fn length(value: i32, name: &str) -> Result<usize> {
    if value >= 0 {
        Ok(value as usize)
    } else {
        Err(negative(Kind::Arg, value.into(), name))
    }
}

#[cold]
fn negative(kind: Kind, value: i64, name: &str) -> Error {
    Error::new(kind, format!("{name} is {value}, which is negative"))
}

/// A rank to send to.
#[inline]
pub fn dest(value: i32, name: &str, comm: &Comm) -> Result<Dest> {
    if (value as u32) < comm.peers().size() {
        Ok(Dest::Rank(value as u32))
    } else if value == MPI_PROC_NULL {
        Ok(Dest::Nobody)
    } else {
        Err(bad_rank(value, name, comm))
    }
}

/// A rank to receive from.
#[inline]
pub fn source(value: i32, name: &str, comm: &Comm) -> Result<Source> {
    if (value as u32) < comm.peers().size() {
        return Ok(Source::Rank(value as u32));
    }
    match value {
        MPI_ANY_SOURCE => Ok(Source::Any),
        MPI_PROC_NULL => Ok(Source::Nobody),
        _ => Err(bad_rank(value, name, comm)),
    }
}

#[cold]
fn bad_rank(value: i32, name: &str, comm: &Comm) -> Error {
    let (whose, size) = (
        if comm.is_inter() {
            "the remote group"
        } else {
            "the communicator"
        },
        comm.peers().size(),
    );
    let ranks = if size == 1 {
        "1 rank".to_string()
    } else {
        format!("{size} ranks")
    };
    err!(Rank, "{name} is {value}, but {whose} has {ranks}")
}

/// A tag to send with.
#[inline]
pub fn tag(value: i32, name: &str) -> Result<u32> {
    if value >= 0 {
        Ok(value as u32)
    } else {
        Err(bad_tag(value, name))
    }
}

/// A tag to receive, or `None` for any.
#[inline]
pub fn tag_or_any(value: i32, name: &str) -> Result<Option<u32>> {
    if value >= 0 {
        Ok(Some(value as u32))
    } else if value == MPI_ANY_TAG {
        Ok(None)
    } else {
        Err(bad_tag(value, name))
    }
}

#[cold]
fn bad_tag(value: i32, name: &str) -> Error {
    let hint = match value {
        MPI_ANY_TAG => ", which is MPI_ANY_TAG; only receives may use it",
        MPI_ANY_SOURCE => ", which is MPI_ANY_SOURCE, not MPI_ANY_TAG",
        _ => "",
    };
    err!(Tag, "{name} is {value}{hint}; tags go from 0 to {TAG_UB}")
}

/// The root of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// A rank: of the communicator, or of an intercommunicator's remote group.
    Rank(u32),
    /// This process, in the root's group of an intercommunicator (MPI_ROOT).
    Itself,
    /// Another process of this group of an intercommunicator (MPI_PROC_NULL).
    Nobody,
}

/// The root of a collective on `comm`.
#[inline]
pub fn root(value: i32, comm: &Comm) -> Result<Root> {
    if (value as u32) < comm.peers().size() {
        return Ok(Root::Rank(value as u32));
    }
    match value {
        MPI_ROOT if comm.is_inter() => Ok(Root::Itself),
        MPI_PROC_NULL if comm.is_inter() => Ok(Root::Nobody),
        _ => Err(bad_root(value, comm)),
    }
}

#[cold]
fn bad_root(value: i32, comm: &Comm) -> Error {
    let whose = if comm.is_inter() {
        "the remote group"
    } else {
        "the communicator"
    };
    err!(Root, "root is {value}, but {whose} has {} ranks", comm.peers().size())
}

/// This process's part in a rooted collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// It is the root.
    pub root: bool,
    /// It is among those that the root sends to or receives from.
    pub leaf: bool,
}

impl Part {
    /// It takes part at all.
    pub fn any(&self) -> bool {
        self.root || self.leaf
    }
}

/// This process's part.
#[inline]
pub fn part(root: &Root, comm: &Comm) -> Part {
    match (root, comm.is_inter()) {
        (Root::Rank(rank), false) => Part {
            root: *rank == comm.rank(),
            leaf: true,
        },
        (Root::Rank(_), true) => Part { root: false, leaf: true },
        (Root::Itself, _) => Part { root: true, leaf: false },
        (Root::Nobody, _) => Part {
            root: false,
            leaf: false,
        },
    }
}

// Memory.

/// Addresses below this are the ABI's constants (MPI_IN_PLACE …), or null with an offset: nobody's memory.
const NOBODYS: usize = 4096;

/// Checks a buffer of `count` elements. Null is MPI_BOTTOM, which suits datatypes with absolute addresses only.
#[inline]
pub fn buffer(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
    if at as usize >= NOBODYS {
        Ok(())
    } else {
        suspicious(at, count, datatype, name)
    }
}

#[cold]
fn suspicious(at: *const u8, count: i64, datatype: &Datatype, name: &str) -> Result<()> {
    if at as usize == MPI_IN_PLACE {
        return Err(err!(Buffer, "{name} is MPI_IN_PLACE, which is not allowed here"));
    }
    if count > 0 && datatype.basic_kind().is_some() && datatype.size() > 0 {
        let what = if at.is_null() {
            "null".to_string()
        } else {
            format!("{at:?}, which is no memory")
        };
        return Err(err!(Buffer, "{name} is {what}, for a message of {count} elements"));
    }
    Ok(())
}

/// Checks the address of a buffer of which nothing more is known.
#[inline]
pub fn address(at: *const u8, name: &str) -> Result<()> {
    if at as usize == MPI_IN_PLACE {
        Err(err!(Buffer, "{name} is MPI_IN_PLACE, which is not allowed here"))
    } else {
        Ok(())
    }
}

#[cold]
fn bad_in_place(name: &str, comm: &Comm) -> Error {
    if comm.is_inter() {
        err!(Buffer, "{name} is MPI_IN_PLACE, which is not allowed on an intercommunicator")
    } else {
        err!(Buffer, "{name} is MPI_IN_PLACE, which is allowed at the root only")
    }
}

/// A buffer to send from, or `None` for MPI_IN_PLACE.
#[inline]
pub fn send_in_place(at: *const u8, name: &str, comm: &Comm, allowed: bool) -> Result<Option<*const u8>> {
    if at as usize != MPI_IN_PLACE {
        Ok(Some(at))
    } else if allowed && !comm.is_inter() {
        Ok(None)
    } else {
        Err(bad_in_place(name, comm))
    }
}

/// A buffer to receive into, or `None` for MPI_IN_PLACE.
#[inline]
pub fn receive_in_place(at: *mut u8, name: &str, comm: &Comm, allowed: bool) -> Result<Option<*mut u8>> {
    Ok(send_in_place(at, name, comm, allowed)?.map(<*const u8>::cast_mut))
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    err!(Arg, "{name} is null")
}

/// A place in the program's memory that the call reads and writes.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn place<'a, T>(at: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }.ok_or_else(|| null(name))
}

/// A status that the call reads.
///
/// # Safety
/// `at` is null or valid.
#[inline]
pub unsafe fn status<'a>(at: *const Status, name: &str) -> Result<&'a Status> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or_else(|| err!(Arg, "{name} is MPI_STATUS_IGNORE, but this call needs a status"))
}

/// A number that is a length, whatever its type.
pub trait Length {
    /// As an unsigned number; negative lengths are empty arrays here, as their own check has complained of them.
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
pub unsafe fn slice<'a, T>(at: impl Into<Pointer<T>>, length: impl Length, name: &str) -> Result<&'a [T]> {
    let (at, length) = (at.into().0, length.length());
    if length == 0 {
        Ok(&[])
    } else if at.is_null() {
        Err(null(name))
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
    } else if at.is_null() {
        Err(null(name))
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

// SAFETY: the array is lent to the call, which may hand it to the thread that completes the operation.
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

    /// Element `index`, which must be one that the standard lets the call read; 0 if there is no array.
    #[inline]
    pub fn at(&self, index: usize) -> i64 {
        if self.is_none() {
            return 0;
        }
        match self {
            // SAFETY: the program's array has the elements that the standard says.
            Ints::Narrow(at) => i64::from(unsafe { *at.add(index) }),
            // SAFETY: as above.
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
        Types { first, committed, name }
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
            None => Err(no_object::<Datatype>(handle, &format!("{}[{index}]", self.name))),
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

// Strings.

/// A string.
///
/// # Safety
/// `at` is null or a string that ends with a null byte.
#[inline]
pub unsafe fn string<'a>(at: *const c_char, name: &str) -> Result<&'a CStr> {
    if at.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(at) })
}

/// The key of an info.
///
/// # Safety
/// As for [`string`].
pub unsafe fn key<'a>(at: *const c_char) -> Result<&'a CStr> {
    // SAFETY: the caller's promise.
    let key = unsafe { string(at, "key") }.map_err(|_| err!(InfoKey, "key is null"))?;
    match key.count_bytes() {
        0 => Err(err!(InfoKey, "key is empty")),
        n if n >= MPI_MAX_INFO_KEY => Err(err!(
            InfoKey,
            "key has {n} characters; at most {} are allowed",
            MPI_MAX_INFO_KEY - 1
        )),
        _ => Ok(key),
    }
}

/// The value of a key of an info.
///
/// # Safety
/// As for [`string`].
pub unsafe fn value<'a>(at: *const c_char) -> Result<&'a CStr> {
    // SAFETY: the caller's promise.
    let value = unsafe { string(at, "value") }.map_err(|_| err!(InfoValue, "value is null"))?;
    match value.count_bytes() {
        n if n >= MPI_MAX_INFO_VAL => Err(err!(
            InfoValue,
            "value has {n} characters; at most {} are allowed",
            MPI_MAX_INFO_VAL - 1
        )),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T>(r: Result<T>) -> String {
        r.err().map(|e| e.text().to_string()).unwrap_or_default()
    }

    #[test]
    fn numbers_are_checked_and_named() {
        assert_eq!(count(7, "count").unwrap(), 7);
        assert_eq!(text(count(-1i64, "count")), "count is -1, which is negative");
        assert_eq!(length(-2, "ndims").unwrap_err().kind(), Kind::Arg);
        assert_eq!(tag(0, "tag").unwrap(), 0);
        assert_eq!(tag_or_any(MPI_ANY_TAG, "tag").unwrap(), None);
        assert!(text(tag(MPI_ANY_TAG, "tag")).contains("only receives"));
        assert!(text(tag_or_any(MPI_ANY_SOURCE, "tag")).contains("not MPI_ANY_TAG"));
    }

    #[test]
    fn arrays_of_both_widths_read_the_same() {
        let (narrow, wide) = ([1i32, -2, 3], [1i64, -2, 3]);
        for ints in [Ints::from(narrow.as_ptr()), Ints::from(wide.as_ptr())] {
            assert_eq!(ints.all(3, "a").unwrap(), [1, -2, 3]);
            assert_eq!(text(ints.counts(3, "counts")), "counts[1] is -2, which is negative");
        }
        assert_eq!(Ints::NONE.at(5), 0);
        assert_eq!(text(Ints::NONE.all(1, "displs")), "displs is null");
    }

    #[test]
    fn handles_of_nothing_are_explained() {
        assert!(text(object::<ferry_mpi::Info>(0, "info")).contains("has it been set?"));
        assert_eq!(
            text(object::<ferry_mpi::Info>(0x130, "info")),
            "info is the null handle MPI_INFO_NULL"
        );
        assert_eq!(
            object::<ferry_mpi::Errhandler>(u64::MAX, "e").unwrap_err().kind(),
            Kind::ErrhandlerArg
        );
        assert!(object_or_null::<ferry_mpi::Info>(0x130, "info").unwrap().is_none());
    }

    #[test]
    fn weights_have_two_constants() {
        assert_eq!(Weights::from(std::ptr::without_provenance::<i32>(10)), Weights::None);
        assert_eq!(Weights::from(std::ptr::without_provenance::<i32>(11)), Weights::Empty);
    }

    #[test]
    fn null_and_empty_keys_are_errors_of_their_own_class() {
        // SAFETY: null and strings.
        unsafe {
            assert_eq!(key(std::ptr::null()).unwrap_err().kind(), Kind::InfoKey);
            assert_eq!(key(c"".as_ptr()).unwrap_err().kind(), Kind::InfoKey);
            assert_eq!(key(c"k".as_ptr()).unwrap(), c"k");
            assert_eq!(value(std::ptr::null()).unwrap_err().kind(), Kind::InfoValue);
        }
    }
}
