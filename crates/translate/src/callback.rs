//! Functions that stand between the standard library and the program's callbacks.
//!
//! Reductions and error handlers have no state of their own in MPI, so the standard library keeps
//! the program's function as their state. Other callbacks have an extra state; theirs is replaced
//! by a record of the program's functions and its own state. A record of attributes, data
//! representations and events is never freed: no call says when it is used for the last time.

use crate::abi::{Abi, kind};
use crate::constants;
use crate::convert::{value_in, value_out};
use crate::standard::Status;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::transmute;

/// A reduction whose count is int or MPI_Count; the state is the program's function.
///
/// # Safety
/// Called by the standard library alone.
pub unsafe extern "C" fn reduction<A: Abi>(
    state: *mut c_void,
    input: *mut c_void,
    inout: *mut c_void,
    count: *mut c_void,
    datatype: *mut u64,
) {
    type User<H> = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut H);
    // SAFETY: the state is a function of this type, and the library passes what it expects.
    unsafe {
        let user: User<A::Handle> = transmute(state);
        let mut datatype = A::handle_out::<kind::Datatype>(*datatype);
        user(input, inout, count, &raw mut datatype);
    }
}

/// An error handler of objects that are not files; the state is the program's function.
///
/// # Safety
/// Called by the standard library alone.
pub unsafe extern "C" fn error_handler<A: Abi, K: kind::Kind>(
    state: *mut c_void,
    object: *mut u64,
    code: *mut i32,
) {
    type User<H> = unsafe extern "C" fn(*mut H, *mut i32, ...);
    // SAFETY: the state is a function of this type, and the library passes what it expects.
    unsafe {
        let user: User<A::Handle> = transmute(state);
        let mut object = A::handle_out::<K>(*object);
        let raised = A::code_out(*code);
        let mut left = raised;
        user(&raw mut object, &raw mut left);
        if left != raised {
            *code = A::code_in(left);
        }
    }
}

/// An error handler of files.
///
/// # Safety
/// Called by the standard library alone.
pub unsafe extern "C" fn file_error_handler<A: Abi>(
    state: *mut c_void,
    file: *mut u64,
    code: *mut i32,
) {
    type User<F> = unsafe extern "C" fn(*mut F, *mut i32, ...);
    // SAFETY: the state is a function of this type, and the library passes what it expects.
    unsafe {
        let user: User<A::File> = transmute(state);
        let mut file = A::file_out(*file);
        let raised = A::code_out(*code);
        let mut left = raised;
        user(&raw mut file, &raw mut left);
        if left != raised {
            *code = A::code_in(left);
        }
    }
}

/// The type of a copy function of attributes.
pub type Copy<H> =
    unsafe extern "C" fn(H, i32, *mut c_void, *mut c_void, *mut c_void, *mut i32) -> i32;
/// The type of a delete function of attributes.
pub type Delete<H> = unsafe extern "C" fn(H, i32, *mut c_void, *mut c_void) -> i32;

/// The program's functions of an attribute, and its extra state.
pub struct Attribute<A: Abi> {
    copy: Option<Copy<A::Handle>>,
    delete: Option<Delete<A::Handle>>,
    state: *mut c_void,
}

impl<A: Abi> Attribute<A> {
    /// The arguments with which the standard library makes the key: copy function, delete function
    /// and extra state.
    ///
    /// # Safety
    /// `copy` and `delete` are null or functions of these types.
    pub unsafe fn arguments<K: kind::Kind>(
        copy: *const c_void,
        delete: *const c_void,
        state: *mut c_void,
    ) -> [*const c_void; 3] {
        // SAFETY: the caller's promise; null becomes None.
        let attribute = unsafe {
            Attribute::<A> {
                copy: transmute::<*const c_void, Option<Copy<A::Handle>>>(copy),
                delete: transmute::<*const c_void, Option<Delete<A::Handle>>>(delete),
                state,
            }
        };
        let of = |is_some: bool, function: *const c_void| {
            if is_some { function } else { std::ptr::null() }
        };
        [
            of(
                attribute.copy.is_some(),
                copy_attribute::<A, K> as *const c_void,
            ),
            of(
                attribute.delete.is_some(),
                delete_attribute::<A, K> as *const c_void,
            ),
            Box::into_raw(Box::new(attribute)).cast_const().cast(),
        ]
    }
}

/// The key of an attribute as the program knows it.
fn key_out<A: Abi, K: kind::Kind>(key: i32) -> i32 {
    if K::INDEX == <kind::Win as kind::Kind>::INDEX {
        value_out(A::TABLES.win_keys, key)
    } else {
        value_out(A::TABLES.comm_keys, key)
    }
}

/// # Safety
/// `state` is a record of this attribute. The values are those that its functions expect.
unsafe extern "C" fn copy_attribute<A: Abi, K: kind::Kind>(
    object: u64,
    key: i32,
    state: *mut c_void,
    value: *mut c_void,
    new_value: *mut c_void,
    flag: *mut i32,
) -> i32 {
    // SAFETY: the state is a record that `arguments` has made.
    unsafe {
        let attribute = &*state.cast::<Attribute<A>>();
        let Some(copy) = attribute.copy else { return 0 };
        let object = A::handle_out::<K>(object);
        let key = key_out::<A, K>(key);
        A::code_in(copy(object, key, attribute.state, value, new_value, flag))
    }
}

/// # Safety
/// As for [`copy_attribute`].
unsafe extern "C" fn delete_attribute<A: Abi, K: kind::Kind>(
    object: u64,
    key: i32,
    value: *mut c_void,
    state: *mut c_void,
) -> i32 {
    // SAFETY: the state is a record that `arguments` has made.
    unsafe {
        let attribute = &*state.cast::<Attribute<A>>();
        let Some(delete) = attribute.delete else {
            return 0;
        };
        let object = A::handle_out::<K>(object);
        let key = key_out::<A, K>(key);
        A::code_in(delete(object, key, value, attribute.state))
    }
}

/// The program's functions of a generalised request, and its extra state. Freed with the request.
pub struct Generalized<A: Abi> {
    /// MPI_Grequest_query_function.
    pub query: unsafe extern "C" fn(*mut c_void, *mut A::Status) -> i32,
    /// MPI_Grequest_free_function.
    pub free: unsafe extern "C" fn(*mut c_void) -> i32,
    /// MPI_Grequest_cancel_function.
    pub cancel: unsafe extern "C" fn(*mut c_void, i32) -> i32,
    /// The extra state.
    pub state: *mut c_void,
}

/// MPI_Grequest_query_function.
///
/// # Safety
/// Called by the standard library alone, with a [`Generalized`] as state.
pub unsafe extern "C" fn query<A: Abi>(state: *mut c_void, status: *mut Status) -> i32 {
    // SAFETY: the caller's promise; the status is one of the standard ABI. A status of any ABI is
    // made of integers, for which zero bytes are a value.
    unsafe {
        let request = &*state.cast::<Generalized<A>>();
        let mut own: A::Status = std::mem::zeroed();
        A::store_status(&*status, &raw mut own);
        let code = (request.query)(request.state, &raw mut own);
        *status = A::status_in(&own);
        A::code_in(code)
    }
}

/// MPI_Grequest_free_function.
///
/// # Safety
/// As [`query`]. The state is not used again.
pub unsafe extern "C" fn free<A: Abi>(state: *mut c_void) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let request = Box::from_raw(state.cast::<Generalized<A>>());
        A::code_in((request.free)(request.state))
    }
}

/// MPI_Grequest_cancel_function.
///
/// # Safety
/// As [`query`].
pub unsafe extern "C" fn cancel<A: Abi>(state: *mut c_void, complete: i32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let request = &*state.cast::<Generalized<A>>();
        A::code_in((request.cancel)(request.state, complete))
    }
}

/// The program's functions of a data representation, and its extra state.
pub struct Datarep<A: Abi> {
    /// Reads.
    pub read: *const c_void,
    /// Writes.
    pub write: *const c_void,
    /// The extent in the file.
    pub extent: *const c_void,
    /// The extra state.
    pub state: *mut c_void,
    /// The ABI.
    pub abi: PhantomData<A>,
}

/// The conversion function of a data representation, with counts of type `N`. `READ`: from the
/// file.
///
/// # Safety
/// Called by the standard library alone, with a [`Datarep`] as state.
pub unsafe extern "C" fn convert_data<A: Abi, N, const READ: bool>(
    buffer: *mut c_void,
    datatype: u64,
    count: N,
    file_buffer: *mut c_void,
    position: i64,
    state: *mut c_void,
) -> i32 {
    type User<H, N> = unsafe extern "C" fn(*mut c_void, H, N, *mut c_void, i64, *mut c_void) -> i32;
    // SAFETY: the caller's promise; the record holds functions of this type.
    unsafe {
        let datarep = &*state.cast::<Datarep<A>>();
        let user: User<A::Handle, N> = transmute(if READ { datarep.read } else { datarep.write });
        let datatype = A::handle_out::<kind::Datatype>(datatype);
        A::code_in(user(
            buffer,
            datatype,
            count,
            file_buffer,
            position,
            datarep.state,
        ))
    }
}

/// The extent function of a data representation.
///
/// # Safety
/// As [`convert_data`].
pub unsafe extern "C" fn file_extent<A: Abi>(
    datatype: u64,
    extent: *mut i64,
    state: *mut c_void,
) -> i32 {
    type User<H> = unsafe extern "C" fn(H, *mut i64, *mut c_void) -> i32;
    // SAFETY: as above.
    unsafe {
        let datarep = &*state.cast::<Datarep<A>>();
        let user: User<A::Handle> = transmute(datarep.extent);
        let datatype = A::handle_out::<kind::Datatype>(datatype);
        A::code_in(user(datatype, extent, datarep.state))
    }
}

/// A function of the program that gets events, and its data.
pub struct Event {
    /// The function.
    pub function: *const c_void,
    /// The program's data.
    pub data: *mut c_void,
}

/// MPI_T_event_cb_function.
///
/// # Safety
/// Called by the standard library alone, with an [`Event`] as data.
pub unsafe extern "C" fn event<A: Abi>(
    instance: u64,
    registration: u64,
    safety: i32,
    data: *mut c_void,
) {
    type User = unsafe extern "C" fn(u64, u64, i32, *mut c_void);
    // SAFETY: the caller's promise.
    unsafe {
        let event = &*data.cast::<Event>();
        let user: User = transmute(event.function);
        let safety = value_out(A::TABLES.callback_safety, safety);
        user(instance, registration, safety, event.data);
    }
}

/// MPI_T_event_free_cb_function.
///
/// # Safety
/// As [`event`].
pub unsafe extern "C" fn event_free<A: Abi>(registration: u64, safety: i32, data: *mut c_void) {
    type User = unsafe extern "C" fn(u64, i32, *mut c_void);
    // SAFETY: the caller's promise.
    unsafe {
        let event = &*data.cast::<Event>();
        let user: User = transmute(event.function);
        user(
            registration,
            value_out(A::TABLES.callback_safety, safety),
            event.data,
        );
    }
}

/// The level of safety that a program names.
pub fn safety_in<A: Abi>(safety: i32) -> i32 {
    value_in(A::TABLES.callback_safety, safety)
}

/// Value of an attribute that is a constant of the ABI.
pub fn attribute_value<A: Abi>(key: i32, value: i32) -> i32 {
    match key {
        constants::MPI_HOST | constants::MPI_IO => crate::convert::rank_out::<A>(value),
        constants::MPI_LASTUSEDCODE => A::code_out(value),
        constants::MPI_WIN_CREATE_FLAVOR => value_out(A::TABLES.flavors, value),
        constants::MPI_WIN_MODEL => value_out(A::TABLES.models, value),
        _ => value,
    }
}
