//! Functions with compound arguments: callbacks, attributes, contents of datatypes.

mod tool;

pub use tool::*;

use crate::abi::{Abi, kind};
use crate::callback::{self, Attribute, Datarep, Generalized};
use crate::constants;
use crate::convert::{rank_in, value_in, value_out};
use crate::memory::{Handles, place};
use crate::number;
use crate::standard::{self, function};
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::null;
use std::sync::atomic::{AtomicI32, Ordering};

/// The version of the standard ABI that a program has. This one has another ABI: -1 (MPI 5.0
/// chapter 21). mpi4py asks for it.
pub unsafe fn abi_get_version<A: Abi>(major: *mut i32, minor: *mut i32) -> i32 {
    for place in [major, minor] {
        if !place.is_null() {
            // SAFETY: the program's place for an int.
            unsafe { *place = -1 };
        }
    }
    0
}

/// Stores the handle that a call has made.
///
/// # Safety
/// `to` is writable, or `handle` is 0.
unsafe fn store<A: Abi, K: kind::Kind>(to: *mut A::Handle, handle: u64) {
    if handle != 0 {
        // SAFETY: the call stores a handle only where the program has a place for it.
        unsafe { *to = A::handle_out::<K>(handle) };
    }
}

/// # Safety
/// As for MPI_Op_create, or MPI_Op_create_c if `large` is not 0.
unsafe fn create_op<A: Abi>(
    large: i32,
    user_fn: *const c_void,
    commute: i32,
    op: *mut A::Handle,
) -> i32 {
    let mut made = 0;
    // SAFETY: the state is the program's function, which `reduction` calls.
    unsafe {
        let code = if user_fn.is_null() {
            let create: unsafe extern "C" fn(*const c_void, i32, *mut u64) -> i32 =
                function(number::OP_CREATE);
            create(user_fn, commute, place(op, &raw mut made))
        } else {
            let state = user_fn.cast_mut();
            let op = place(op, &raw mut made);
            standard::op_create(large, callback::reduction::<A>, state, commute, op)
        };
        store::<A, kind::Op>(op, made);
        A::code_out(code)
    }
}

pub unsafe fn op_create<A: Abi>(user_fn: *const c_void, commute: i32, op: *mut A::Handle) -> i32 {
    // SAFETY: as the program's call.
    unsafe { create_op::<A>(0, user_fn, commute, op) }
}

pub unsafe fn op_create_c<A: Abi>(user_fn: *const c_void, commute: i32, op: *mut A::Handle) -> i32 {
    // SAFETY: as the program's call.
    unsafe { create_op::<A>(1, user_fn, commute, op) }
}

/// # Safety
/// As for MPI_Comm_create_errhandler.
unsafe fn create_errhandler<A: Abi>(
    target: i32,
    between: standard::ErrorFunction,
    user: *const c_void,
    errhandler: *mut A::Handle,
) -> i32 {
    let mut made = 0;
    // SAFETY: the state is the program's function, which `between` calls.
    unsafe {
        let to = place(errhandler, &raw mut made);
        let code = if user.is_null() {
            let create: unsafe extern "C" fn(*const c_void, *mut u64) -> i32 =
                function(number::COMM_CREATE_ERRHANDLER);
            create(user, to)
        } else {
            standard::errhandler_create(target, between, user.cast_mut(), to)
        };
        store::<A, kind::Errhandler>(errhandler, made);
        A::code_out(code)
    }
}

macro_rules! errhandlers {
    ($($name:ident $target:literal $between:expr;)*) => {$(
        pub unsafe fn $name<A: Abi>(user: *const c_void, errhandler: *mut A::Handle) -> i32 {
            // SAFETY: as the program's call.
            unsafe { create_errhandler::<A>($target, $between, user, errhandler) }
        }
    )*};
}

errhandlers! {
    comm_create_errhandler 0 callback::error_handler::<A, kind::Comm>;
    win_create_errhandler 1 callback::error_handler::<A, kind::Win>;
    file_create_errhandler 2 callback::file_error_handler::<A>;
    session_create_errhandler 3 callback::error_handler::<A, kind::Session>;
}

macro_rules! keyvals {
    ($($name:ident $number:ident $kind:ident;)*) => {$(
        pub unsafe fn $name<A: Abi>(
            copy: *const c_void,
            delete: *const c_void,
            keyval: *mut i32,
            state: *mut c_void,
        ) -> i32 {
            type Create = unsafe extern "C" fn(
                *const c_void, *const c_void, *mut i32, *const c_void,
            ) -> i32;
            // SAFETY: the functions are the program's, of the types that the record has.
            unsafe {
                let [copy, delete, state] =
                    Attribute::<A>::arguments::<kind::$kind>(copy, delete, state);
                let create: Create = function(number::$number);
                // Keys of programs are the same numbers in all ABIs.
                A::code_out(create(copy, delete, keyval, state))
            }
        }
    )*};
}

keyvals! {
    keyval_create KEYVAL_CREATE Comm;
    comm_create_keyval COMM_CREATE_KEYVAL Comm;
    type_create_keyval TYPE_CREATE_KEYVAL Datatype;
    win_create_keyval WIN_CREATE_KEYVAL Win;
}

/// Values of predefined attributes that are constants of the ABI, where programs read them.
static VALUES: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// Is the value of this attribute a constant of the ABI?
fn is_constant(key: i32) -> bool {
    matches!(
        key,
        constants::MPI_HOST
            | constants::MPI_IO
            | constants::MPI_LASTUSEDCODE
            | constants::MPI_WIN_MODEL
            | constants::MPI_WIN_CREATE_FLAVOR
    )
}

/// Asks for an attribute, and replaces a pointer to a constant of the standard ABI by one to that
/// of the ABI.
///
/// # Safety
/// As for MPI_Comm_get_attr.
unsafe fn attribute<A: Abi>(
    number: u32,
    object: u64,
    key: i32,
    value: *mut c_void,
    flag: *mut i32,
) -> i32 {
    type Get = unsafe extern "C" fn(u64, i32, *mut c_void, *mut i32) -> i32;
    // SAFETY: the function is of this type; the value of a predefined attribute but MPI_WIN_BASE is
    // a pointer to an int, or to an MPI_Aint, whose lower half is not used here.
    unsafe {
        let get: Get = function(number);
        let code = get(object, key, value, flag);
        if !is_constant(key) {
            return A::code_out(code);
        }
        if code == 0 && *flag != 0 {
            let found: *mut *const AtomicI32 = value.cast();
            let of_standard = (**found).load(Ordering::Relaxed);
            // Windows have several values of a key, and each has its own place.
            let slot = match key {
                constants::MPI_HOST => 0,
                constants::MPI_IO => 1,
                constants::MPI_LASTUSEDCODE => 2,
                constants::MPI_WIN_MODEL => 4 + (of_standard & 3) as usize,
                _ => 8 + (of_standard & 3) as usize,
            };
            let of_abi = callback::attribute_value::<A>(key, of_standard);
            VALUES[slot].store(of_abi, Ordering::Relaxed);
            *found = &raw const VALUES[slot];
        }
        A::code_out(code)
    }
}

pub unsafe fn attr_get<A: Abi>(
    comm: A::Handle,
    keyval: i32,
    value: *mut c_void,
    flag: *mut i32,
) -> i32 {
    // SAFETY: as the program's call.
    unsafe { comm_get_attr::<A>(comm, keyval, value, flag) }
}

pub unsafe fn comm_get_attr<A: Abi>(
    comm: A::Handle,
    keyval: i32,
    value: *mut c_void,
    flag: *mut i32,
) -> i32 {
    // SAFETY: as the program's call.
    unsafe {
        let comm = A::handle_in::<kind::Comm>(comm);
        let key = value_in(A::TABLES.comm_keys, keyval);
        attribute::<A>(number::COMM_GET_ATTR, comm, key, value, flag)
    }
}

pub unsafe fn win_get_attr<A: Abi>(
    win: A::Handle,
    keyval: i32,
    value: *mut c_void,
    flag: *mut i32,
) -> i32 {
    // SAFETY: as the program's call.
    unsafe {
        let win = A::handle_in::<kind::Win>(win);
        let key = value_in(A::TABLES.win_keys, keyval);
        attribute::<A>(number::WIN_GET_ATTR, win, key, value, flag)
    }
}

pub unsafe fn grequest_start<A: Abi>(
    query: *const c_void,
    free: *const c_void,
    cancel: *const c_void,
    state: *mut c_void,
    request: *mut A::Handle,
) -> i32 {
    type Start = unsafe extern "C" fn(
        *const c_void,
        *const c_void,
        *const c_void,
        *mut c_void,
        *mut u64,
    ) -> i32;
    // SAFETY: the functions are the program's, of the types that MPI asks for.
    unsafe {
        let start: Start = function(number::GREQUEST_START);
        let mut made = 0;
        let to = place(request, &raw mut made);
        if query.is_null() || free.is_null() || cancel.is_null() {
            return A::code_out(start(query, free, cancel, state, to));
        }
        let record = Box::into_raw(Box::new(Generalized::<A> {
            query: transmute::<
                *const c_void,
                unsafe extern "C" fn(*mut c_void, *mut A::Status) -> i32,
            >(query),
            free: transmute::<*const c_void, unsafe extern "C" fn(*mut c_void) -> i32>(free),
            cancel: transmute::<*const c_void, unsafe extern "C" fn(*mut c_void, i32) -> i32>(
                cancel,
            ),
            state,
        }));
        let code = start(
            callback::query::<A> as *const c_void,
            callback::free::<A> as *const c_void,
            callback::cancel::<A> as *const c_void,
            record.cast(),
            to,
        );
        if code != 0 {
            drop(Box::from_raw(record));
        }
        store::<A, kind::Request>(request, made);
        A::code_out(code)
    }
}

macro_rules! datareps {
    ($($name:ident $number:ident $count:ty;)*) => {$(
        pub unsafe fn $name<A: Abi>(
            datarep: *const c_char,
            read: *const c_void,
            write: *const c_void,
            extent: *const c_void,
            state: *mut c_void,
        ) -> i32 {
            type Register = unsafe extern "C" fn(
                *const c_char, *const c_void, *const c_void, *const c_void, *mut c_void,
            ) -> i32;
            let of = |user: *const c_void, between: *const c_void| {
                if user.is_null() { null() } else { between }
            };
            let record = Box::new(Datarep::<A> { read, write, extent, state, abi: PhantomData });
            // SAFETY: the functions are the program's, of the types that MPI asks for.
            unsafe {
                let register: Register = function(number::$number);
                A::code_out(register(
                    datarep,
                    of(read, callback::convert_data::<A, $count, true> as *const c_void),
                    of(write, callback::convert_data::<A, $count, false> as *const c_void),
                    of(extent, callback::file_extent::<A> as *const c_void),
                    Box::into_raw(record).cast(),
                ))
            }
        }
    )*};
}

datareps! {
    register_datarep REGISTER_DATAREP i32;
    register_datarep_c REGISTER_DATAREP_C i64;
}

/// The part of the integers of a datatype's contents that are constants (MPI 5.0 §5.1.13).
fn constants_of<A: Abi>(combiner: i32, integers: &mut [i64]) {
    let order = |value: i64| i64::from(value_out(A::TABLES.orders, value as i32));
    match combiner {
        constants::MPI_COMBINER_SUBARRAY | constants::MPI_COMBINER_DARRAY => {
            if let Some(last) = integers.last_mut() {
                *last = order(*last);
            }
        }
        _ => {}
    }
    if combiner == constants::MPI_COMBINER_DARRAY {
        // size, rank, ndims, gsizes, distribs, dargs, psizes, order. In the large-count form the
        // sizes stand elsewhere.
        let dimensions = integers.get(2).copied().unwrap_or(0).max(0) as usize;
        let large = integers.len() < 4 * dimensions + 4;
        let first = if large { 3 } else { 3 + dimensions };
        for value in integers.iter_mut().skip(first).take(dimensions) {
            *value = i64::from(value_out(A::TABLES.distributions, *value as i32));
        }
        let arguments = integers.iter_mut().skip(first + dimensions);
        for value in arguments.take(dimensions) {
            if *value == i64::from(constants::MPI_DISTRIBUTE_DFLT_DARG) {
                *value = i64::from(value_out(A::TABLES.distributions, *value as i32));
            }
        }
    }
}

/// Converts the contents of a datatype that a call has stored.
///
/// # Safety
/// `integers` is null or has the first of `counts` elements; `datatypes` has the second, or as many
/// as are `stored`.
unsafe fn contents<A: Abi>(
    combiner: i32,
    counts: [i64; 2],
    integers: *mut i32,
    datatypes: *mut A::Handle,
    stored: &[u64],
) {
    // SAFETY: the call has stored so many.
    unsafe {
        if !integers.is_null() && counts[0] > 0 {
            let own = std::slice::from_raw_parts_mut(integers, counts[0] as usize);
            let mut values: Vec<i64> = own.iter().map(|v| i64::from(*v)).collect();
            constants_of::<A>(combiner, &mut values);
            for (place, value) in own.iter_mut().zip(&values) {
                *place = *value as i32;
            }
        }
        for (at, handle) in stored.iter().enumerate().take(counts[1].max(0) as usize) {
            *datatypes.add(at) = A::handle_out::<kind::Datatype>(*handle);
        }
    }
}

/// Handles of types that a call stores.
fn room_for_types<H>(datatypes: *mut H, max: i64) -> Vec<u64> {
    let count = if datatypes.is_null() {
        0
    } else {
        max.clamp(0, 1 << 20)
    };
    vec![0; count as usize]
}

pub unsafe fn type_get_contents<A: Abi>(
    datatype: A::Handle,
    max_integers: i32,
    max_addresses: i32,
    max_datatypes: i32,
    integers: *mut i32,
    addresses: *mut i64,
    datatypes: *mut A::Handle,
) -> i32 {
    type Contents = unsafe extern "C" fn(u64, i32, i32, i32, *mut i32, *mut i64, *mut u64) -> i32;
    type Envelope = unsafe extern "C" fn(u64, *mut i32, *mut i32, *mut i32, *mut i32) -> i32;
    let mut stored = room_for_types(datatypes, i64::from(max_datatypes));
    // SAFETY: the functions are of these types.
    unsafe {
        let datatype = A::handle_in::<kind::Datatype>(datatype);
        let get: Contents = function(number::TYPE_GET_CONTENTS);
        let to = place(datatypes, stored.as_mut_ptr());
        let maxima = (max_integers, max_addresses, max_datatypes);
        let code = get(
            datatype, maxima.0, maxima.1, maxima.2, integers, addresses, to,
        );
        if code == 0 {
            let (mut i, mut a, mut d, mut combiner) = (0, 0, 0, 0);
            let envelope: Envelope = function(number::TYPE_GET_ENVELOPE);
            envelope(datatype, &mut i, &mut a, &mut d, &mut combiner);
            let counts = [i64::from(i), i64::from(d)];
            contents::<A>(combiner, counts, integers, datatypes, &stored);
        }
        A::code_out(code)
    }
}

pub unsafe fn type_get_contents_c<A: Abi>(
    datatype: A::Handle,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: *mut i32,
    addresses: *mut i64,
    large_counts: *mut i64,
    datatypes: *mut A::Handle,
) -> i32 {
    type Contents = unsafe extern "C" fn(
        u64,
        i64,
        i64,
        i64,
        i64,
        *mut i32,
        *mut i64,
        *mut i64,
        *mut u64,
    ) -> i32;
    type Envelope =
        unsafe extern "C" fn(u64, *mut i64, *mut i64, *mut i64, *mut i64, *mut i32) -> i32;
    let mut stored = room_for_types(datatypes, max_datatypes);
    // SAFETY: the functions are of these types.
    unsafe {
        let datatype = A::handle_in::<kind::Datatype>(datatype);
        let get: Contents = function(number::TYPE_GET_CONTENTS_C);
        let code = get(
            datatype,
            max_integers,
            max_addresses,
            max_large_counts,
            max_datatypes,
            integers,
            addresses,
            large_counts,
            place(datatypes, stored.as_mut_ptr()),
        );
        if code == 0 {
            let (mut i, mut a, mut c, mut d, mut combiner) = (0, 0, 0, 0, 0);
            let envelope: Envelope = function(number::TYPE_GET_ENVELOPE_C);
            envelope(datatype, &mut i, &mut a, &mut c, &mut d, &mut combiner);
            contents::<A>(combiner, [i, d], integers, datatypes, &stored);
        }
        A::code_out(code)
    }
}

pub unsafe fn comm_spawn_multiple<A: Abi>(
    count: i32,
    commands: *mut *mut c_char,
    argv: *mut *mut *mut c_char,
    maxprocs: *const i32,
    infos: *const A::Handle,
    root: i32,
    comm: A::Handle,
    intercomm: *mut A::Handle,
    codes: *mut i32,
) -> i32 {
    type Spawn = unsafe extern "C" fn(
        i32,
        *mut *mut c_char,
        *mut *mut *mut c_char,
        *const i32,
        *const u64,
        i32,
        u64,
        *mut u64,
        *mut i32,
    ) -> i32;
    // SAFETY: the functions are of these types. What is significant at the root alone is not read
    // elsewhere.
    unsafe {
        let comm = A::handle_in::<kind::Comm>(comm);
        let rank: unsafe extern "C" fn(u64, *mut i32) -> i32 = function(number::COMM_RANK);
        let mut me = -1;
        rank(comm, &mut me);
        let length = if me == root { count as usize } else { 0 };
        let mut infos = Handles::<A, kind::Info>::new(infos, length);
        let mut made = 0;
        let spawn: Spawn = function(number::COMM_SPAWN_MULTIPLE);
        let code = spawn(
            count,
            commands,
            argv,
            maxprocs,
            infos.pointer(),
            rank_in::<A>(root),
            comm,
            place(intercomm, &raw mut made),
            codes,
        );
        store::<A, kind::Comm>(intercomm, made);
        A::code_out(code)
    }
}
