//! Handles: 64-bit values that stand for objects.
//!
//! A handle is an index with a kind and a generation, never an address. So a null, foreign, freed
//! or random handle is recognised and not dereferenced. Predefined handles are small numbers (below
//! 4096) that the ABI fixes.

mod form;
mod table;

pub use form::{AddressRequest, IntRequest, OF_ADDRESSES, OF_INTS, RequestForm};
pub use table::Table;

use crate::constants;
use ferry_mpi::pt2pt::Message;
use ferry_mpi::{Comm, Datatype, Errhandler, File, Group, Info, Kind, Op, Request, Session, Win};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A handle as C passes it: the bits of a pointer.
pub type Handle = u64;

/// Handles below this are predefined (MPI 5.0 chapter 21).
const PREDEFINED: Handle = 4096;

/// A type of objects that have handles.
pub trait Object: Sized + Send + Sync + 'static {
    /// The kind in its handles, 1 to 127. Distinguishes them from handles of other types.
    const KIND: u32;
    /// The null handle.
    const NULL: Handle;
    /// The C type of its handles.
    const TYPE: &'static str;
    /// The error class for handles of no such object.
    const ERROR: Kind;
    /// The table of its objects.
    fn table() -> &'static Table<Arc<Self>>;
    /// The object behind a predefined handle.
    fn predefined(handle: u32) -> Option<&'static Arc<Self>>;
    /// Stores the handle in its object, where callbacks find it.
    fn set_handle(&self, handle: Handle);
    /// Does this thread have exclusive use of the table? True only for objects that exist while the
    /// device does, in a program with one thread.
    /// device does, in a program with one thread.
    #[inline]
    fn is_exclusive() -> bool {
        false
    }
}

/// The object behind `handle`, if it is valid and of that kind.
///
/// The reference is valid until the handle is freed. A program must not free a handle while another
/// of its threads uses it in a call (MPI 5.0 §11.6.2). A caller that needs the object longer clones
/// the `Arc`.
#[inline]
pub fn get<T: Object>(handle: Handle) -> Option<&'static Arc<T>> {
    if handle < PREDEFINED {
        T::predefined(handle as u32)
    } else {
        T::table().get(handle)
    }
}

/// Makes a handle for an object.
#[inline]
pub fn insert<T: Object>(object: Arc<T>) -> Handle {
    let reference: *const T = &*object;
    let handle = T::table().insert_if(T::is_exclusive(), T::KIND, object);
    // SAFETY: the table keeps the object alive, and no other code has the handle yet.
    unsafe { &*reference }.set_handle(handle);
    handle
}

/// Reserves a handle before its object exists. Until [`fill`], it refers to `stand_in`.
pub fn reserve<T: Object>(stand_in: Arc<T>) -> Handle {
    T::table().insert(T::KIND, stand_in)
}

/// Sets the object of a reserved handle that the program has not used yet. Does nothing if the
/// program has freed it.
pub fn fill<T: Object>(handle: Handle, object: Arc<T>) {
    object.set_handle(handle);
    T::table().replace(handle, object);
}

/// All objects of a kind that have a handle which is not predefined.
pub fn all<T: Object>() -> Vec<Arc<T>> {
    let table = T::table();
    let handles = table.handles();
    let objects = handles.into_iter().filter_map(|handle| table.get(handle));
    objects.cloned().collect()
}

/// Frees a handle and returns its object. `None` for predefined or invalid handles.
#[inline]
pub fn remove<T: Object>(handle: Handle) -> Option<Arc<T>> {
    if handle < PREDEFINED {
        None
    } else {
        T::table().remove_if(T::is_exclusive(), handle)
    }
}

/// Is this a predefined handle (which cannot be freed)?
pub fn is_predefined(handle: Handle) -> bool {
    handle < PREDEFINED
}

/// The Fortran integer of a handle: its number for predefined handles, its index above these for
/// others. An invalid handle gets that of the null handle.
pub fn to_int<T: Object>(handle: Handle) -> i32 {
    if handle < PREDEFINED {
        handle as i32
    } else if T::table().get(handle).is_some() {
        (handle as u32 as i32) + PREDEFINED as i32
    } else {
        T::NULL as i32
    }
}

/// The handle of a Fortran integer. The null handle if there is none.
pub fn from_int<T: Object>(number: i32) -> Handle {
    match u64::try_from(number) {
        Ok(small) if small < PREDEFINED => small,
        Ok(number) => T::table()
            .handle_at((number - PREDEFINED) as u32)
            .unwrap_or(T::NULL),
        Err(_) => T::NULL,
    }
}

macro_rules! object {
    ($type:ty, $kind:literal, $null:ident, $c:literal, $error:ident, $set_handle:expr,
        $predefined:expr,
        $exclusive:expr) => {
        impl Object for $type {
            const KIND: u32 = $kind;
            const NULL: Handle = constants::$null;
            const TYPE: &'static str = $c;
            const ERROR: Kind = Kind::$error;
            #[inline]
            fn table() -> &'static Table<Arc<Self>> {
                static TABLE: Table<Arc<$type>> = Table::new();
                &TABLE
            }
            #[inline]
            fn predefined(handle: u32) -> Option<&'static Arc<Self>> {
                let find: fn(u32) -> Option<&'static Arc<Self>> = $predefined;
                find(handle)
            }
            #[inline]
            fn set_handle(&self, handle: Handle) {
                let store: fn(&Self, Handle) = $set_handle;
                store(self, handle);
            }
            #[inline]
            fn is_exclusive() -> bool {
                let exclusive: fn() -> bool = $exclusive;
                exclusive()
            }
        }
    };
}

object!(
    Comm,
    1,
    MPI_COMM_NULL,
    "MPI_Comm",
    Comm,
    |c, h| c.identity.set(h),
    |h| {
        match u64::from(h) {
            constants::MPI_COMM_WORLD => ferry_mpi::process::in_world().map(|p| &p.world),
            constants::MPI_COMM_SELF => ferry_mpi::process::in_world().map(|p| &p.comm_self),
            _ => None,
        }
    },
    || false
);
object!(
    Group,
    2,
    MPI_GROUP_NULL,
    "MPI_Group",
    Group,
    |g, h| g.identity.set(h),
    |h| { (u64::from(h) == constants::MPI_GROUP_EMPTY).then(crate::calls::group::empty) },
    || false
);
object!(
    Datatype,
    3,
    MPI_DATATYPE_NULL,
    "MPI_Datatype",
    Type,
    |t, h| t.handle.store(h, Ordering::Relaxed),
    Datatype::predefined,
    || false
);
object!(
    Op,
    4,
    MPI_OP_NULL,
    "MPI_Op",
    Op,
    |o, h| o.handle.store(h, Ordering::Relaxed),
    Op::predefined,
    || false
);
object!(
    Info,
    5,
    MPI_INFO_NULL,
    "MPI_Info",
    Info,
    |i, h| i.identity.set(h),
    |h| { (u64::from(h) == constants::MPI_INFO_ENV).then(crate::calls::info::environment) },
    || false
);
object!(
    Errhandler,
    6,
    MPI_ERRHANDLER_NULL,
    "MPI_Errhandler",
    ErrhandlerArg,
    |e, h| e.identity.set(h),
    |h| {
        match u64::from(h) {
            constants::MPI_ERRORS_ARE_FATAL => Some(Errhandler::fatal()),
            constants::MPI_ERRORS_ABORT => Some(Errhandler::abort()),
            constants::MPI_ERRORS_RETURN => Some(Errhandler::returning()),
            _ => None,
        }
    },
    || false
);
object!(
    Request,
    7,
    MPI_REQUEST_NULL,
    "MPI_Request",
    Request,
    |r, h| r.identity.set(h),
    |_| None,
    ferry_mpi::device::is_alone
);
object!(
    Message,
    8,
    MPI_MESSAGE_NULL,
    "MPI_Message",
    Request,
    |_, _| {},
    |_| None,
    ferry_mpi::device::is_alone
);
object!(
    Session,
    9,
    MPI_SESSION_NULL,
    "MPI_Session",
    Session,
    |s, h| s.identity.set(h),
    |_| None,
    || false
);
object!(
    Win,
    10,
    MPI_WIN_NULL,
    "MPI_Win",
    Win,
    |w, h| w.identity.set(h),
    |_| None,
    || false
);
object!(
    File,
    11,
    MPI_FILE_NULL,
    "MPI_File",
    File,
    |f, h| f.identity.set(h),
    |_| None,
    || false
);

#[cfg(test)]
mod tests;
