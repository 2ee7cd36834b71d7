//! Errors: their numbers and texts, and the handler that gets them.

use crate::abi::ErrorHandler;
use crate::node;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Mutex;

/// Why a call failed. The texts of the fields say what was wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Failure(String),
    #[error("mx_init was called twice without mx_finalize")]
    AlreadyInitialized,
    #[error("mx_init was not called, or mx_finalize was")]
    NotInitialized,
    #[error("{0}")]
    NoDevice(String),
    #[error("{0}")]
    NoDriver(String),
    #[error("board {0}: a node has one board, 0")]
    BoardUnknown(u32),
    #[error("the endpoint is not open")]
    BadEndpoint,
    #[error("the list of segments is not valid: {0}")]
    BadSegments(&'static str),
    #[error("the request is none, or is over already")]
    BadRequest,
    #[error("match_info has ones where match_mask has zeros")]
    BadMatchMask,
    #[error("all endpoints are open")]
    NoResources,
    #[error("endpoint {0} is open already")]
    Busy(u32),
    #[error("there is no information {0}")]
    BadInfoKey(c_int),
    #[error("the answer needs {0} bytes, and there is room for {1}")]
    BadInfoValue(usize, usize),
    #[error("{0}")]
    NicNotFound(String),
    #[error("endpoint {0} of node {1} has another filter")]
    BadConnectionKey(u32, u32),
    #[error("endpoint {0} of node {1} did not open within {2} ms")]
    Timeout(u32, u32, u32),
    #[error("the endpoint address is none of this job")]
    BadAddress,
    #[error("{0}")]
    BadArgument(String),
}

impl Error {
    /// The `mx_return_t`.
    pub fn code(&self) -> c_int {
        match self {
            Error::Failure(_) => 1,
            Error::AlreadyInitialized => 2,
            Error::NotInitialized => 3,
            Error::NoDevice(_) => 4,
            Error::NoDriver(_) => 5,
            Error::BoardUnknown(_) => 6,
            Error::BadEndpoint => 7,
            Error::BadSegments(_) => 8,
            Error::BadRequest => 9,
            Error::BadMatchMask => 10,
            Error::NoResources => 11,
            Error::Busy(_) => 12,
            Error::BadInfoKey(_) => 13,
            Error::BadInfoValue(..) => 14,
            Error::NicNotFound(_) => 15,
            Error::BadConnectionKey(..) => 16,
            Error::Timeout(..) => 17,
            Error::BadAddress => 18,
            Error::BadArgument(_) => 19,
        }
    }
}

/// What `mx_strerror` says, by code.
const TEXTS: [&CStr; 20] = [
    c"success",
    c"failure",
    c"MX is initialised already",
    c"MX is not initialised",
    c"the machine's card has no MX level",
    c"the program was not started by mpiexec --machine",
    c"there is no such board",
    c"the endpoint is not open",
    c"the list of segments is not valid",
    c"the request is none, or is over already",
    c"match_info has ones where match_mask has zeros",
    c"all endpoints are open",
    c"the endpoint is open already",
    c"there is no such information",
    c"there is not enough room for the answer",
    c"there is no such node",
    c"the other endpoint has another filter",
    c"the time is over",
    c"the endpoint address is none of this job",
    c"an argument is not valid",
];

/// What `mx_strerror` says.
pub fn text(code: c_int) -> &'static CStr {
    let known = usize::try_from(code).ok().and_then(|c| TEXTS.get(c));
    known.copied().unwrap_or(c"no code of MX")
}

/// The program's handler. `None`: [`fatal`].
static HANDLER: Mutex<Option<ErrorHandler>> = Mutex::new(None);

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What was wrong when this thread's last call failed. Valid until its next call that fails.
pub fn last() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Sets the handler.
pub fn set_handler(handler: Option<ErrorHandler>) {
    *HANDLER.lock().unwrap_or_else(|e| e.into_inner()) = handler;
}

/// Gives an error to the handler. Returns what the call returns, if the handler returns.
#[cold]
pub fn raise(call: &str, error: &Error) -> c_int {
    let text = CString::new(format!("{call}: {error}")).unwrap_or_default();
    LAST.set(text.clone());
    let handler = *HANDLER.lock().unwrap_or_else(|e| e.into_inner());
    let handler = handler.unwrap_or(fatal);
    // SAFETY: the text lives during the call. The program promises that its handler is one.
    unsafe { handler(text.as_ptr().cast_mut(), error.code()) };
    error.code()
}

/// `MX_ERRORS_ARE_FATAL`.
///
/// # Safety
/// `description` is a string.
pub unsafe extern "C" fn fatal(description: *mut c_char, code: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(description) };
    node::abort(&text.to_string_lossy(), code)
}

/// `MX_ERRORS_RETURN`.
pub extern "C" fn return_code(_description: *mut c_char, code: c_int) -> c_int {
    code
}
