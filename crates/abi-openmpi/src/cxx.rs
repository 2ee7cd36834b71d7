//! Functions of Open MPI's inside that its C++ bindings (`libmpi_cxx.so.40`) call. Programs in C++
//! need that library, and extensions of Python are loaded with all their functions at once.
//!
//! The types are those of Open MPI 4, the last with these bindings.

use crate::objects::{self, Object};
use crate::{OpenMpi as A, entries};
use ferry_translate::abi::{Abi, INVALID};
use ferry_translate::standard;
use std::ffi::{CStr, c_char, c_int, c_void};

type H = <A as Abi>::Handle;

/// Makes a key of attributes. The copy function gets one argument fewer than Open MPI passes: the
/// new communicator, which the bindings do not read.
///
/// # Safety
/// As MPI_Comm_create_keyval. `kind` is 1 for communicators, 2 for datatypes, 3 for windows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_attr_create_keyval(
    kind: c_int,
    copy: *const c_void,
    delete: *const c_void,
    keyval: *mut c_int,
    extra_state: *mut c_void,
    _flags: c_int,
    _bindings_extra_state: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            1 => entries::MPI_Comm_create_keyval(copy, delete, keyval, extra_state),
            2 => entries::MPI_Type_create_keyval(copy, delete, keyval, extra_state),
            _ => entries::MPI_Win_create_keyval(copy, delete, keyval, extra_state),
        }
    }
}

/// Calls a handler of C++: object, code, message, the program's function.
type Dispatch = unsafe extern "C" fn(*mut H, *mut c_int, *const c_char, *const c_void);

/// Room for the text of an error code: more than MPI_MAX_ERROR_STRING.
const MAX_ERROR_STRING: usize = 1024;
/// Where the bindings store [`Dispatch`] in an error handler that they have made.
const DISPATCH_OFFSET: usize = 0x78;

/// An error handler of C++. Its address is its handle, as with predefined objects.
#[repr(C)]
struct ErrorHandler {
    object: Object,
    unused: [u64; (DISPATCH_OFFSET - size_of::<Object>()) / 8],
    dispatch: Option<Dispatch>,
    function: *const c_void,
}

const _: () = assert!(std::mem::offset_of!(ErrorHandler, dispatch) == DISPATCH_OFFSET);

/// Makes an error handler whose function the bindings call, by what they store in it. It stays
/// until the process ends. `kind` is 1 for communicators, 2 for windows, 3 for files.
///
/// # Safety
/// `function` is a function of the bindings' program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_errhandler_create(
    kind: c_int,
    function: *const c_void,
    _language: c_int,
) -> *mut c_void {
    let made = Box::into_raw(Box::new(ErrorHandler {
        object: Object::new(INVALID),
        unused: [0; _],
        dispatch: None,
        function,
    }));
    let mut standard = 0;
    // SAFETY: `standard` is writable, and `made` stays.
    unsafe {
        let code = standard::errhandler_create(kind - 1, failed, made.cast(), &mut standard);
        if code == 0 {
            (*made).object = Object::new(standard);
        }
    }
    made.cast()
}

/// Calls the program's function of an error handler.
///
/// # Safety
/// Called by the standard library, with the [`ErrorHandler`] as the state.
unsafe extern "C" fn failed(state: *mut c_void, object: *mut u64, code: *mut i32) {
    let handler: *const ErrorHandler = state.cast_const().cast();
    let mut text = [0 as c_char; MAX_ERROR_STRING];
    let mut length = 0;
    // SAFETY: the caller's promise; the others are writable and long enough.
    unsafe {
        let mut object = objects::of_standard(*object);
        let raised = A::code_out(*code);
        let mut left = raised;
        entries::MPI_Error_string(raised, text.as_mut_ptr(), &mut length);
        if let Some(dispatch) = (*handler).dispatch {
            dispatch(&mut object, &mut left, text.as_ptr(), (*handler).function);
        }
        if left != raised {
            *code = A::code_in(left);
        }
    }
}

/// Called where a call of the bindings fails that is none of MPI: calls the object's error handler.
///
/// # Safety
/// `object` is a communicator (`kind` 1), window (2) or file (3); `message` null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_errhandler_invoke(
    _errhandler: *const c_void,
    object: H,
    kind: c_int,
    code: c_int,
    message: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !message.is_null() {
            let text = CStr::from_ptr(message).to_string_lossy();
            eprintln!("Ferry MPI: Open MPI's C++ bindings: {text}");
        }
        match kind {
            1 => entries::MPI_Comm_call_errhandler(object, code),
            2 => entries::MPI_Win_call_errhandler(object, code),
            _ => entries::MPI_File_call_errhandler(object, code),
        };
    }
    code
}
