//! Requests as programs have them: handles of the standard ABI, or of MPICH's or Open MPI's.
//!
//! Programs start and complete requests by the hundreds. The entry points for that exist for each
//! ABI, so that its library passes requests and arrays of them on as they are. Error codes are
//! converted here, too: a call whose result needs no more work is a jump.

use super::{Handle, Object, get, remove};
use crate::constants::MPI_REQUEST_NULL;
use crate::status::Status;
use ferry_mpi::Request;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A request as a program has it, and the error codes of the program's ABI.
pub trait RequestForm: Copy + PartialEq + 'static {
    /// The form of a handle that is not predefined.
    fn of(handle: Handle) -> Self;
    /// MPI_REQUEST_NULL.
    fn null() -> Self;
    /// The request, if it is valid and not null.
    fn request(self) -> Option<&'static Arc<Request>>;
    /// Frees the handle and returns its request. `None` if it is not valid, or null.
    fn free(self) -> Option<Arc<Request>>;
    /// Where the program wants a status, or statuses: null if it wants none.
    #[inline(always)]
    fn status(status: *mut Status) -> *mut Status {
        status
    }
    /// An error code as the program knows it.
    fn code(code: i32) -> i32;
}

impl RequestForm for Handle {
    #[inline(always)]
    fn of(handle: Handle) -> Handle {
        handle
    }
    #[inline(always)]
    fn null() -> Handle {
        MPI_REQUEST_NULL
    }
    #[inline(always)]
    fn request(self) -> Option<&'static Arc<Request>> {
        get(self)
    }
    #[inline(always)]
    fn free(self) -> Option<Arc<Request>> {
        remove(self)
    }
    #[inline(always)]
    fn code(code: i32) -> i32 {
        code
    }
}

/// What the library of another ABI tells of itself when it is loaded.
pub struct OtherAbi {
    /// MPI_REQUEST_NULL.
    null_request: AtomicU64,
    /// Converts an error code.
    code: OnceLock<extern "C" fn(i32) -> i32>,
}

impl OtherAbi {
    const fn new() -> OtherAbi {
        OtherAbi {
            null_request: AtomicU64::new(0),
            code: OnceLock::new(),
        }
    }

    /// Keeps what the library tells.
    pub fn set(&self, null_request: u64, code: extern "C" fn(i32) -> i32) {
        self.null_request.store(null_request, Ordering::Relaxed);
        self.code.get_or_init(|| code);
    }

    #[cold]
    fn code(&self, code: i32) -> i32 {
        self.code.get().map_or(code, |convert| convert(code))
    }
}

/// The ABI whose requests are ints.
pub static OF_INTS: OtherAbi = OtherAbi::new();
/// The ABI whose requests are addresses.
pub static OF_ADDRESSES: OtherAbi = OtherAbi::new();

/// A request of MPICH's ABI: the index of its handle with two bits that no predefined handle has.
/// There is no room for the generation.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntRequest(u32);

impl IntRequest {
    /// MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
    const STATUS_IGNORE: usize = 1;
    /// The two bits. `ferry-abi-mpich` has the same.
    const OBJECT: u32 = 0xc000_0000;

    /// The index, if it is that of an object.
    #[inline(always)]
    fn index(self) -> Option<u32> {
        (self.0 >= IntRequest::OBJECT).then_some(self.0 & !IntRequest::OBJECT)
    }
}

impl RequestForm for IntRequest {
    #[inline(always)]
    fn of(handle: Handle) -> IntRequest {
        let index = handle as u32;
        assert!(
            index & IntRequest::OBJECT == 0,
            "more requests than handles"
        );
        IntRequest(IntRequest::OBJECT | index)
    }
    #[inline(always)]
    fn null() -> IntRequest {
        IntRequest(OF_INTS.null_request.load(Ordering::Relaxed) as u32)
    }
    #[inline(always)]
    fn request(self) -> Option<&'static Arc<Request>> {
        Request::table().get_at(self.index()?)
    }
    #[inline(always)]
    fn free(self) -> Option<Arc<Request>> {
        Request::table().remove_at_if(Request::is_exclusive(), self.index()?)
    }
    #[inline(always)]
    fn status(status: *mut Status) -> *mut Status {
        if status.addr() == IntRequest::STATUS_IGNORE {
            std::ptr::null_mut()
        } else {
            status
        }
    }
    #[cold]
    fn code(code: i32) -> i32 {
        OF_INTS.code(code)
    }
}

/// A request of Open MPI's ABI: the handle, in whose upper byte no address has anything, or the
/// address of the null request.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRequest(u64);

impl RequestForm for AddressRequest {
    #[inline(always)]
    fn of(handle: Handle) -> AddressRequest {
        AddressRequest(handle)
    }
    #[inline(always)]
    fn null() -> AddressRequest {
        AddressRequest(OF_ADDRESSES.null_request.load(Ordering::Relaxed))
    }
    #[inline(always)]
    fn request(self) -> Option<&'static Arc<Request>> {
        get(self.0)
    }
    #[inline(always)]
    fn free(self) -> Option<Arc<Request>> {
        remove(self.0)
    }
    #[cold]
    fn code(code: i32) -> i32 {
        OF_ADDRESSES.code(code)
    }
}
