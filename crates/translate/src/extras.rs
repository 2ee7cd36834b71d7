//! Functions that the standard ABI does not have: those that MPI has removed but that binaries
//! still call, and conversions between C's and Fortran's handles and statuses.

use crate::abi::{Abi, INVALID, kind};
use crate::number;
use crate::standard::function;
use smallvec::SmallVec;
use std::ffi::c_void;

/// The extent of a datatype: lower bound and extent.
///
/// # Safety
/// As for MPI_Type_get_extent.
unsafe fn extent(datatype: u64, lb: *mut i64, extent: *mut i64) -> i32 {
    type Extent = unsafe extern "C" fn(u64, *mut i64, *mut i64) -> i32;
    // SAFETY: the function is of this type.
    unsafe {
        let get: Extent = function(number::TYPE_GET_EXTENT);
        get(datatype, lb, extent)
    }
}

/// MPI_Type_extent.
pub unsafe fn type_extent<A: Abi>(datatype: A::Handle, to: *mut i64) -> i32 {
    // SAFETY: as the program's call.
    unsafe {
        let mut lb = 0;
        A::code_out(extent(
            A::handle_in::<kind::Datatype>(datatype),
            &mut lb,
            to,
        ))
    }
}

/// MPI_Type_lb.
pub unsafe fn type_lb<A: Abi>(datatype: A::Handle, to: *mut i64) -> i32 {
    // SAFETY: as the program's call.
    unsafe {
        let mut all = 0;
        A::code_out(extent(
            A::handle_in::<kind::Datatype>(datatype),
            to,
            &mut all,
        ))
    }
}

/// MPI_Type_ub.
pub unsafe fn type_ub<A: Abi>(datatype: A::Handle, to: *mut i64) -> i32 {
    // SAFETY: as the program's call.
    unsafe {
        let (mut lb, mut all) = (0, 0);
        let code = extent(A::handle_in::<kind::Datatype>(datatype), &mut lb, &mut all);
        if code == 0 {
            *to = lb + all;
        }
        A::code_out(code)
    }
}

/// MPI_Address.
pub unsafe fn address<A: Abi>(location: *const c_void, to: *mut i64) -> i32 {
    type Get = unsafe extern "C" fn(*const c_void, *mut i64) -> i32;
    // SAFETY: as the program's call.
    unsafe {
        let get: Get = function(number::GET_ADDRESS);
        A::code_out(get(location, to))
    }
}

/// Stores a new datatype.
///
/// # Safety
/// `to` is writable, or `made` is 0.
unsafe fn store<A: Abi>(code: i32, made: u64, to: *mut A::Handle) -> i32 {
    if made != 0 {
        // SAFETY: the program's place for the handle.
        unsafe { *to = A::handle_out::<kind::Datatype>(made) };
    }
    A::code_out(code)
}

/// MPI_Type_hvector.
pub unsafe fn type_hvector<A: Abi>(
    count: i32,
    blocklength: i32,
    stride: i64,
    oldtype: A::Handle,
    newtype: *mut A::Handle,
) -> i32 {
    type Create = unsafe extern "C" fn(i32, i32, i64, u64, *mut u64) -> i32;
    // SAFETY: as the program's call.
    unsafe {
        let create: Create = function(number::TYPE_CREATE_HVECTOR);
        let mut made = 0;
        let old = A::handle_in::<kind::Datatype>(oldtype);
        let code = create(count, blocklength, stride, old, &mut made);
        store::<A>(code, made, newtype)
    }
}

/// MPI_Type_hindexed.
pub unsafe fn type_hindexed<A: Abi>(
    count: i32,
    lengths: *mut i32,
    displacements: *mut i64,
    oldtype: A::Handle,
    newtype: *mut A::Handle,
) -> i32 {
    type Create = unsafe extern "C" fn(i32, *mut i32, *mut i64, u64, *mut u64) -> i32;
    // SAFETY: as the program's call.
    unsafe {
        let create: Create = function(number::TYPE_CREATE_HINDEXED);
        let mut made = 0;
        let old = A::handle_in::<kind::Datatype>(oldtype);
        let code = create(count, lengths, displacements, old, &mut made);
        store::<A>(code, made, newtype)
    }
}

/// A member of a structure that marks a bound: MPI_LB or MPI_UB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The lower one.
    Lower,
    /// The upper one.
    Upper,
}

/// MPI_Type_struct, with the markers MPI_LB and MPI_UB, which set the type's bounds (MPI 2.2
/// §4.1.7). `bound_of` tells them.
pub unsafe fn type_struct<A: Abi>(
    count: i32,
    lengths: *mut i32,
    displacements: *mut i64,
    types: *mut A::Handle,
    newtype: *mut A::Handle,
    bound_of: impl Fn(A::Handle) -> Option<Bound>,
) -> i32 {
    type Create = unsafe extern "C" fn(i32, *const i32, *const i64, *const u64, *mut u64) -> i32;
    type Resize = unsafe extern "C" fn(u64, i64, i64, *mut u64) -> i32;
    type Free = unsafe extern "C" fn(*mut u64) -> i32;
    let members = count.max(0) as usize;
    let (mut lower, mut upper) = (None, None);
    let mut kept: SmallVec<[(i32, i64, u64); 16]> = SmallVec::new();
    // SAFETY: as the program's call; the arrays have `count` elements.
    unsafe {
        for at in 0..members {
            let (length, displacement) = (*lengths.add(at), *displacements.add(at));
            match bound_of(*types.add(at)) {
                Some(_) if length == 0 => {}
                Some(Bound::Lower) => {
                    lower = Some(lower.map_or(displacement, |l: i64| l.min(displacement)));
                }
                Some(Bound::Upper) => {
                    upper = Some(upper.map_or(displacement, |u: i64| u.max(displacement)));
                }
                None => {
                    let handle = A::handle_in::<kind::Datatype>(*types.add(at));
                    kept.push((length, displacement, handle));
                }
            }
        }
        let lengths: SmallVec<[i32; 16]> = kept.iter().map(|m| m.0).collect();
        let displacements: SmallVec<[i64; 16]> = kept.iter().map(|m| m.1).collect();
        let types: SmallVec<[u64; 16]> = kept.iter().map(|m| m.2).collect();
        let create: Create = function(number::TYPE_CREATE_STRUCT);
        let mut made = 0;
        let count = if count < 0 { count } else { kept.len() as i32 };
        let code = create(
            count,
            lengths.as_ptr(),
            displacements.as_ptr(),
            types.as_ptr(),
            &mut made,
        );
        if code != 0 || (lower.is_none() && upper.is_none()) {
            return store::<A>(code, made, newtype);
        }
        let (mut lb, mut all) = (0, 0);
        extent(made, &mut lb, &mut all);
        let (first, end) = (lower.unwrap_or(lb), upper.unwrap_or(lb + all));
        let resize: Resize = function(number::TYPE_CREATE_RESIZED);
        let mut resized = 0;
        let code = resize(made, first, end - first, &mut resized);
        let free: Free = function(number::TYPE_FREE);
        free(&mut made);
        store::<A>(code, resized, newtype)
    }
}

/// MPI_Errhandler_get.
pub unsafe fn errhandler_get<A: Abi>(comm: A::Handle, errhandler: *mut A::Handle) -> i32 {
    type Get = unsafe extern "C" fn(u64, *mut u64) -> i32;
    // SAFETY: as the program's call.
    unsafe {
        let get: Get = function(number::COMM_GET_ERRHANDLER);
        let mut found = 0;
        let code = get(A::handle_in::<kind::Comm>(comm), &mut found);
        if found != 0 {
            *errhandler = A::handle_out::<kind::Errhandler>(found);
        }
        A::code_out(code)
    }
}

/// MPI_Errhandler_set.
pub unsafe fn errhandler_set<A: Abi>(comm: A::Handle, errhandler: A::Handle) -> i32 {
    type Set = unsafe extern "C" fn(u64, u64) -> i32;
    // SAFETY: as the program's call.
    unsafe {
        let set: Set = function(number::COMM_SET_ERRHANDLER);
        let comm = A::handle_in::<kind::Comm>(comm);
        A::code_out(set(comm, A::handle_in::<kind::Errhandler>(errhandler)))
    }
}

/// Fortran's int of a handle, by the standard library's table.
///
/// # Safety
/// A call of MPI.
pub unsafe fn standard_int<K: kind::Kind>(handle: u64) -> i32 {
    type ToInt = unsafe extern "C" fn(u64) -> i32;
    // SAFETY: the function is of this type.
    unsafe {
        let to_int: ToInt = function(K::TO_INT);
        to_int(handle)
    }
}

/// The handle of Fortran's int, by the standard library's table. [`INVALID`] if there is none.
///
/// # Safety
/// A call of MPI.
pub unsafe fn of_standard_int<K: kind::Kind>(number: i32) -> u64 {
    type FromInt = unsafe extern "C" fn(i32) -> u64;
    // SAFETY: the function is of this type.
    let handle = unsafe {
        let from_int: FromInt = function(K::FROM_INT);
        from_int(number)
    };
    if handle == K::NULL && number != K::NULL as i32 {
        INVALID
    } else {
        handle
    }
}

/// An address in exported data, which is compared and never read through.
#[repr(transparent)]
#[derive(Debug)]
pub struct Sentinel(*const i32);

// SAFETY: nobody reads through it.
unsafe impl Sync for Sentinel {}

impl Sentinel {
    /// The address of a variable.
    pub const fn of<T>(variable: &'static T) -> Sentinel {
        Sentinel((&raw const *variable).cast())
    }
}

/// Exports the variables by which C knows Fortran's MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
/// Their type is a pointer to a status of so many INTEGERs.
#[macro_export]
macro_rules! export_ignored_statuses {
    ($integers:literal) => {
        $crate::export_ignored_statuses! { $integers
            MPI_F_STATUS_IGNORE MPI_F_STATUSES_IGNORE
            MPI_F08_STATUS_IGNORE MPI_F08_STATUSES_IGNORE
        }
    };
    ($integers:literal $($name:ident)*) => {
        static IGNORED_STATUS: [i32; $integers] = [0; $integers];
        $(
            /// See MPI 5.0 §19.3.5.
            #[unsafe(no_mangle)]
            pub static $name: $crate::extras::Sentinel =
                $crate::extras::Sentinel::of(&IGNORED_STATUS);
        )*
    };
}

/// Exports the functions that the standard ABI does not have, as MPI_X and PMPI_X. `A` is the ABI;
/// `bound_of` tells MPI_LB and MPI_UB.
#[macro_export]
macro_rules! export_extras {
    ($bound_of:expr) => {
        $crate::exports! {
            MPI_Address PMPI_Address(location: *const c_void, address: *mut i64)
                => $crate::extras::address::<A>(location, address);
            MPI_Type_extent PMPI_Type_extent(datatype: H, extent: *mut i64)
                => $crate::extras::type_extent::<A>(datatype, extent);
            MPI_Type_lb PMPI_Type_lb(datatype: H, lb: *mut i64)
                => $crate::extras::type_lb::<A>(datatype, lb);
            MPI_Type_ub PMPI_Type_ub(datatype: H, ub: *mut i64)
                => $crate::extras::type_ub::<A>(datatype, ub);
            MPI_Type_hvector PMPI_Type_hvector(
                count: i32, length: i32, stride: i64, old: H, new: *mut H
            ) => $crate::extras::type_hvector::<A>(count, length, stride, old, new);
            MPI_Type_hindexed PMPI_Type_hindexed(
                count: i32, lengths: *mut i32, places: *mut i64, old: H, new: *mut H
            ) => $crate::extras::type_hindexed::<A>(count, lengths, places, old, new);
            MPI_Type_struct PMPI_Type_struct(
                count: i32, lengths: *mut i32, places: *mut i64, types: *mut H, new: *mut H
            ) => $crate::extras::type_struct::<A>(count, lengths, places, types, new, $bound_of);
            MPI_Errhandler_create PMPI_Errhandler_create(user: *const c_void, to: *mut H)
                => compound::comm_create_errhandler::<A>(user, to);
            MPI_Errhandler_get PMPI_Errhandler_get(comm: H, errhandler: *mut H)
                => $crate::extras::errhandler_get::<A>(comm, errhandler);
            MPI_Errhandler_set PMPI_Errhandler_set(comm: H, errhandler: H)
                => $crate::extras::errhandler_set::<A>(comm, errhandler);
            MPI_Comm_c2f PMPI_Comm_c2f(handle: H) => A::to_int::<kind::Comm>(handle);
            MPI_Type_c2f PMPI_Type_c2f(handle: H) => A::to_int::<kind::Datatype>(handle);
            MPI_Group_c2f PMPI_Group_c2f(handle: H) => A::to_int::<kind::Group>(handle);
            MPI_Op_c2f PMPI_Op_c2f(handle: H) => A::to_int::<kind::Op>(handle);
            MPI_Request_c2f PMPI_Request_c2f(handle: H) => A::to_int::<kind::Request>(handle);
            MPI_Message_c2f PMPI_Message_c2f(handle: H) => A::to_int::<kind::Message>(handle);
            MPI_Info_c2f PMPI_Info_c2f(handle: H) => A::to_int::<kind::Info>(handle);
            MPI_Errhandler_c2f PMPI_Errhandler_c2f(handle: H)
                => A::to_int::<kind::Errhandler>(handle);
            MPI_Win_c2f PMPI_Win_c2f(handle: H) => A::to_int::<kind::Win>(handle);
            MPI_Session_c2f PMPI_Session_c2f(handle: H) => A::to_int::<kind::Session>(handle);
            MPI_File_c2f PMPI_File_c2f(file: F) => A::file_to_int(file);
        }
        $crate::exports! { -> H;
            MPI_Comm_f2c PMPI_Comm_f2c(number: i32) => A::from_int::<kind::Comm>(number);
            MPI_Type_f2c PMPI_Type_f2c(number: i32) => A::from_int::<kind::Datatype>(number);
            MPI_Group_f2c PMPI_Group_f2c(number: i32) => A::from_int::<kind::Group>(number);
            MPI_Op_f2c PMPI_Op_f2c(number: i32) => A::from_int::<kind::Op>(number);
            MPI_Request_f2c PMPI_Request_f2c(number: i32) => A::from_int::<kind::Request>(number);
            MPI_Message_f2c PMPI_Message_f2c(number: i32) => A::from_int::<kind::Message>(number);
            MPI_Info_f2c PMPI_Info_f2c(number: i32) => A::from_int::<kind::Info>(number);
            MPI_Errhandler_f2c PMPI_Errhandler_f2c(number: i32)
                => A::from_int::<kind::Errhandler>(number);
            MPI_Win_f2c PMPI_Win_f2c(number: i32) => A::from_int::<kind::Win>(number);
            MPI_Session_f2c PMPI_Session_f2c(number: i32) => A::from_int::<kind::Session>(number);
        }
        $crate::exports! { -> F;
            MPI_File_f2c PMPI_File_f2c(number: i32) => A::file_from_int(number);
        }
    };
}

/// Exports the conversions of a status among C, Fortran and mpi_f08 (MPI 5.0 §19.3.5), for an ABI
/// in which it has the same bytes in all three.
#[macro_export]
macro_rules! export_status_conversions {
    ($status:ty) => {
        $crate::exports! {
            MPI_Status_c2f PMPI_Status_c2f(c: *const $status, f: *mut $status)
                => $crate::extras::copy_status(c, f);
            MPI_Status_f2c PMPI_Status_f2c(f: *const $status, c: *mut $status)
                => $crate::extras::copy_status(f, c);
            MPI_Status_c2f08 PMPI_Status_c2f08(c: *const $status, f: *mut $status)
                => $crate::extras::copy_status(c, f);
            MPI_Status_f082c PMPI_Status_f082c(f: *const $status, c: *mut $status)
                => $crate::extras::copy_status(f, c);
            MPI_Status_f082f PMPI_Status_f082f(a: *const $status, b: *mut $status)
                => $crate::extras::copy_status(a, b);
            MPI_Status_f2f08 PMPI_Status_f2f08(a: *const $status, b: *mut $status)
                => $crate::extras::copy_status(a, b);
        }
    };
}

/// Copies a status. Returns MPI_SUCCESS.
///
/// # Safety
/// `from` is a status, and `to` has room for one. A Fortran status may have the alignment of an int
/// alone.
pub unsafe fn copy_status<S>(from: *const S, to: *mut S) -> i32 {
    // SAFETY: both are valid, at whatever alignment.
    unsafe { to.write_unaligned(from.read_unaligned()) };
    0
}

/// Exports functions under two names each. They return an int unless a type is given.
#[macro_export]
macro_rules! exports {
    (-> $result:ty; $($name:ident $pname:ident($($parameter:ident: $type:ty),* $(,)?)
        => $call:expr;)*) => {$(
        /// See `ferry_translate::extras`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
            // SAFETY: the arguments are passed on as they are.
            unsafe { $pname($($parameter),*) }
        }
        /// See `ferry_translate::extras`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pname($($parameter: $type),*) -> $result {
            #[allow(unused_unsafe)]
            // SAFETY: the arguments are passed on as they are.
            unsafe { $call }
        }
    )*};
    ($($name:ident $pname:ident($($parameter:ident: $type:ty),* $(,)?) => $call:expr;)*) => {
        $crate::exports! { -> i32;
            $($name $pname($($parameter: $type),*) => $call;)*
        }
    };
}
