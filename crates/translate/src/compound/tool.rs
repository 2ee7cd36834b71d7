//! Functions of the tool interface (MPI 5.0 chapter 15) whose arguments are more than values.

use super::{room_for_types, store};
use crate::abi::{Abi, kind};
use crate::callback::{self, Event};
use crate::constants;
use crate::convert::value_out;
use crate::memory::place;
use crate::number;
use crate::standard::function;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

/// The object that a tool variable is bound to, in the standard ABI's form.
///
/// # Safety
/// `object` is null, or the address of a handle of the kind that `binding` names.
unsafe fn bound_object<A: Abi>(binding: i32, object: *mut c_void) -> u64 {
    let handle: *const A::Handle = object.cast_const().cast();
    if object.is_null() {
        return 0;
    }
    // SAFETY: the program passes the address of a handle of the kind that the variable is bound to.
    unsafe {
        match binding {
            constants::MPI_T_BIND_MPI_COMM => A::handle_in::<kind::Comm>(*handle),
            constants::MPI_T_BIND_MPI_DATATYPE => A::handle_in::<kind::Datatype>(*handle),
            constants::MPI_T_BIND_MPI_ERRHANDLER => A::handle_in::<kind::Errhandler>(*handle),
            constants::MPI_T_BIND_MPI_FILE => A::file_in(*object.cast::<A::File>()),
            constants::MPI_T_BIND_MPI_GROUP => A::handle_in::<kind::Group>(*handle),
            constants::MPI_T_BIND_MPI_OP => A::handle_in::<kind::Op>(*handle),
            constants::MPI_T_BIND_MPI_REQUEST => A::handle_in::<kind::Request>(*handle),
            constants::MPI_T_BIND_MPI_WIN => A::handle_in::<kind::Win>(*handle),
            constants::MPI_T_BIND_MPI_MESSAGE => A::handle_in::<kind::Message>(*handle),
            constants::MPI_T_BIND_MPI_INFO => A::handle_in::<kind::Info>(*handle),
            constants::MPI_T_BIND_MPI_SESSION => A::handle_in::<kind::Session>(*handle),
            _ => 0,
        }
    }
}

/// The object as the standard library takes it: `bound`, which gets the handle at `object`, if the
/// variable is bound to objects of MPI.
///
/// # Safety
/// As for [`bound_object`].
unsafe fn object_in<A: Abi>(binding: i32, object: *mut c_void, bound: &mut u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    *bound = unsafe { bound_object::<A>(binding, object) };
    match *bound {
        0 => object,
        _ => std::ptr::from_mut(bound).cast(),
    }
}

/// The kind of object that a variable is bound to, as MPI_T_cvar_get_info or MPI_T_pvar_get_info
/// says. `before` and `after`: what the call's other output arguments point to, before the binding
/// and behind it. They are null.
macro_rules! binding_of {
    ($info:ident, $index:expr, before: ($($before:ty),*), after: ($($after:ty),*)) => {{
        type Info =
            unsafe extern "C" fn(i32, $(*mut $before,)* *mut i32, $(*mut $after),*) -> i32;
        let mut binding = 0;
        // SAFETY: the function is of this type, and what is null is not wanted.
        unsafe {
            let info: Info = function(number::$info);
            info($index, $(null_mut::<$before>(),)* &raw mut binding, $(null_mut::<$after>()),*);
        }
        binding
    }};
}

pub unsafe fn t_cvar_handle_alloc<A: Abi>(
    index: i32,
    object: *mut c_void,
    handle: *mut u64,
    count: *mut i32,
) -> i32 {
    type Alloc = unsafe extern "C" fn(i32, *mut c_void, *mut u64, *mut i32) -> i32;
    let binding = binding_of!(
        T_CVAR_GET_INFO, index,
        before: (c_char, i32, i32, u64, u64, c_char, i32),
        after: (i32)
    );
    let mut bound = 0;
    // SAFETY: the function is of this type; the caller's promise.
    unsafe {
        let object = object_in::<A>(binding, object, &mut bound);
        let alloc: Alloc = function(number::T_CVAR_HANDLE_ALLOC);
        A::code_out(alloc(index, object, handle, count))
    }
}

pub unsafe fn t_pvar_handle_alloc<A: Abi>(
    session: u64,
    index: i32,
    object: *mut c_void,
    handle: *mut u64,
    count: *mut i32,
) -> i32 {
    type Alloc = unsafe extern "C" fn(u64, i32, *mut c_void, *mut u64, *mut i32) -> i32;
    let binding = binding_of!(
        T_PVAR_GET_INFO, index,
        before: (c_char, i32, i32, i32, u64, u64, c_char, i32),
        after: (i32, i32, i32)
    );
    let mut bound = 0;
    // SAFETY: the function is of this type; the caller's promise.
    unsafe {
        let object = object_in::<A>(binding, object, &mut bound);
        let alloc: Alloc = function(number::T_PVAR_HANDLE_ALLOC);
        A::code_out(alloc(session, index, object, handle, count))
    }
}

pub unsafe fn t_event_handle_alloc<A: Abi>(
    index: i32,
    object: *mut c_void,
    info: A::Handle,
    registration: *mut u64,
) -> i32 {
    type Alloc = unsafe extern "C" fn(i32, *mut c_void, u64, *mut u64) -> i32;
    // SAFETY: the function is of this type. Ferry's events are bound to no object.
    unsafe {
        let alloc: Alloc = function(number::T_EVENT_HANDLE_ALLOC);
        let info = A::handle_in::<kind::Info>(info);
        A::code_out(alloc(index, object, info, registration))
    }
}

pub unsafe fn t_event_handle_free<A: Abi>(
    registration: u64,
    data: *mut c_void,
    user: *const c_void,
) -> i32 {
    type Free = unsafe extern "C" fn(u64, *mut c_void, *const c_void) -> i32;
    // SAFETY: the function is of this type; the program's is called by `event_free`.
    unsafe {
        let free: Free = function(number::T_EVENT_HANDLE_FREE);
        A::code_out(if user.is_null() {
            free(registration, data, user)
        } else {
            let record = Box::new(Event {
                function: user,
                data,
            });
            let between = callback::event_free::<A> as *const c_void;
            free(registration, Box::into_raw(record).cast(), between)
        })
    }
}

pub unsafe fn t_event_register_callback<A: Abi>(
    registration: u64,
    safety: i32,
    info: A::Handle,
    data: *mut c_void,
    user: *const c_void,
) -> i32 {
    type Register = unsafe extern "C" fn(u64, i32, u64, *mut c_void, *const c_void) -> i32;
    // SAFETY: the function is of this type; the program's is called by `event`.
    unsafe {
        let register: Register = function(number::T_EVENT_REGISTER_CALLBACK);
        let safety = callback::safety_in::<A>(safety);
        let info = A::handle_in::<kind::Info>(info);
        A::code_out(if user.is_null() {
            register(registration, safety, info, data, user)
        } else {
            let record = Box::new(Event {
                function: user,
                data,
            });
            let between = callback::event::<A> as *const c_void;
            register(
                registration,
                safety,
                info,
                Box::into_raw(record).cast(),
                between,
            )
        })
    }
}

pub unsafe fn t_event_set_dropped_handler<A: Abi>(registration: u64, user: *const c_void) -> i32 {
    type Set = unsafe extern "C" fn(u64, *const c_void) -> i32;
    // SAFETY: the function is of this type. The handler has no handle of an object among its
    // arguments; its level of safety is passed as the standard ABI has it.
    unsafe {
        let set: Set = function(number::T_EVENT_SET_DROPPED_HANDLER);
        A::code_out(set(registration, user))
    }
}

pub unsafe fn t_event_get_info<A: Abi>(
    index: i32,
    name: *mut c_char,
    name_len: *mut i32,
    verbosity: *mut i32,
    datatypes: *mut A::Handle,
    displacements: *mut i64,
    num_elements: *mut i32,
    enumtype: *mut u64,
    info: *mut A::Handle,
    desc: *mut c_char,
    desc_len: *mut i32,
    bind: *mut i32,
) -> i32 {
    type Info = unsafe extern "C" fn(
        i32,
        *mut c_char,
        *mut i32,
        *mut i32,
        *mut u64,
        *mut i64,
        *mut i32,
        *mut u64,
        *mut u64,
        *mut c_char,
        *mut i32,
        *mut i32,
    ) -> i32;
    // SAFETY: the function is of this type.
    unsafe {
        let room = if num_elements.is_null() {
            0
        } else {
            *num_elements
        };
        let mut stored = room_for_types(datatypes, i64::from(room));
        let mut made = 0;
        let get: Info = function(number::T_EVENT_GET_INFO);
        let code = get(
            index,
            name,
            name_len,
            verbosity,
            place(datatypes, stored.as_mut_ptr()),
            displacements,
            num_elements,
            enumtype,
            place(info, &raw mut made),
            desc,
            desc_len,
            bind,
        );
        store::<A, kind::Info>(info, made);
        for (at, handle) in stored
            .iter()
            .enumerate()
            .filter(|(_, handle)| **handle != 0)
        {
            *datatypes.add(at) = A::handle_out::<kind::Datatype>(*handle);
        }
        if code == 0 {
            if !verbosity.is_null() {
                *verbosity = value_out(A::TABLES.verbosity, *verbosity);
            }
            if !bind.is_null() {
                *bind = value_out(A::TABLES.bindings, *bind);
            }
        }
        A::code_out(code)
    }
}
