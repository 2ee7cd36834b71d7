//! The tool interface (MPI 5.0 chapter 15.3). Ferry has no control or performance variables, events or categories yet: every
//! count is zero, and every index, name and handle is refused with the code that the standard gives it.

use crate::constants::*;
use crate::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Calls of MPI_T_init_thread without their MPI_T_finalize.
static USERS: AtomicU32 = AtomicU32::new(0);
/// Sessions made so far: the next one's handle.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// An error code of the tool interface, which calls no error handler.
fn code(code: i32) -> Error {
    Error::new(Kind::Code(code), String::new())
}

/// What every call but the first needs.
fn initialised() -> Result<()> {
    if USERS.load(Ordering::Acquire) > 0 {
        Ok(())
    } else {
        Err(code(MPI_T_ERR_NOT_INITIALIZED))
    }
}

/// The answer to every index, name and handle.
fn refuse(why: i32) -> Result<()> {
    initialised()?;
    Err(code(why))
}

pub fn t_init_thread(required: i32, provided: Out<i32>) -> Result<()> {
    match required {
        MPI_THREAD_SINGLE | MPI_THREAD_FUNNELED | MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE => {
            provided.set(required)
        }
        _ => return Err(code(MPI_T_ERR_INVALID)),
    }
    USERS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub fn t_finalize() -> Result<()> {
    let fewer = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
    fewer.map(drop).map_err(|_| code(MPI_T_ERR_NOT_INITIALIZED))
}

pub fn t_cvar_get_num(num_cvar: Out<i32>) -> Result<()> {
    initialised()?;
    num_cvar.set(0);
    Ok(())
}

pub fn t_pvar_get_num(num_pvar: Out<i32>) -> Result<()> {
    initialised()?;
    num_pvar.set(0);
    Ok(())
}

pub fn t_category_get_num(num_cat: Out<i32>) -> Result<()> {
    initialised()?;
    num_cat.set(0);
    Ok(())
}

pub fn t_event_get_num(num_events: Out<i32>) -> Result<()> {
    initialised()?;
    num_events.set(0);
    Ok(())
}

pub fn t_source_get_num(num_sources: Out<i32>) -> Result<()> {
    initialised()?;
    num_sources.set(0);
    Ok(())
}

pub fn t_category_changed(update_number: Out<i32>) -> Result<()> {
    initialised()?;
    update_number.set(0);
    Ok(())
}

pub fn t_pvar_session_create(session: Out<Handle>) -> Result<()> {
    initialised()?;
    session.set(SESSIONS.fetch_add(1, Ordering::Relaxed) + 1);
    Ok(())
}

pub fn t_pvar_session_free(session: Out<Handle>) -> Result<()> {
    initialised()?;
    session.set(MPI_T_PVAR_SESSION_NULL);
    Ok(())
}

// Indices.

pub fn t_category_get_categories(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    let _ = (cat_index, len, indices);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_category_get_cvars(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    let _ = (cat_index, len, indices);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_category_get_events(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    let _ = (cat_index, len, indices);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_category_get_info(
    cat_index: i32,
    name: *mut c_char,
    name_len: &mut i32,
    desc: *mut c_char,
    desc_len: &mut i32,
    num_cvars: Out<i32>,
    num_pvars: Out<i32>,
    num_categories: Out<i32>,
) -> Result<()> {
    let _ = (
        cat_index,
        name,
        name_len,
        desc,
        desc_len,
        num_cvars,
        num_pvars,
        num_categories,
    );
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_category_get_num_events(cat_index: i32, num_events: Out<i32>) -> Result<()> {
    let _ = (cat_index, num_events);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_category_get_pvars(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    let _ = (cat_index, len, indices);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_cvar_get_info(
    cvar_index: i32,
    name: *mut c_char,
    name_len: &mut i32,
    verbosity: Out<i32>,
    datatype: New<Datatype>,
    enumtype: Out<Handle>,
    desc: *mut c_char,
    desc_len: &mut i32,
    bind: Out<i32>,
    scope: Out<i32>,
) -> Result<()> {
    let _ = (
        cvar_index, name, name_len, verbosity, datatype, enumtype, desc, desc_len, bind, scope,
    );
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_cvar_handle_alloc(
    cvar_index: i32,
    obj_handle: *mut c_void,
    handle: Out<Handle>,
    count: Out<i32>,
) -> Result<()> {
    let _ = (cvar_index, obj_handle, handle, count);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_event_get_info(
    event_index: i32,
    name: *mut c_char,
    name_len: &mut i32,
    verbosity: Out<i32>,
    array_of_datatypes: OutTypes,
    array_of_displacements: *mut i64,
    num_elements: Out<i32>,
    enumtype: Out<Handle>,
    info: New<Info>,
    desc: *mut c_char,
    desc_len: &mut i32,
    bind: Out<i32>,
) -> Result<()> {
    let _ = (
        event_index,
        name,
        name_len,
        verbosity,
        array_of_datatypes,
        array_of_displacements,
        num_elements,
        enumtype,
        info,
        desc,
        desc_len,
        bind,
    );
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_event_handle_alloc(
    event_index: i32,
    obj_handle: *mut c_void,
    info: Option<&'static Arc<Info>>,
    event_registration: Out<Handle>,
) -> Result<()> {
    let _ = (event_index, obj_handle, info, event_registration);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_pvar_get_info(
    pvar_index: i32,
    name: *mut c_char,
    name_len: &mut i32,
    verbosity: Out<i32>,
    var_class: Out<i32>,
    datatype: New<Datatype>,
    enumtype: Out<Handle>,
    desc: *mut c_char,
    desc_len: &mut i32,
    bind: Out<i32>,
    readonly: Out<i32>,
    continuous: Out<i32>,
    atomic: Out<i32>,
) -> Result<()> {
    let _ = (
        pvar_index, name, name_len, verbosity, var_class, datatype, enumtype, desc, desc_len, bind,
        readonly, continuous, atomic,
    );
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_pvar_handle_alloc(
    session: Handle,
    pvar_index: i32,
    obj_handle: *mut c_void,
    handle: Out<Handle>,
    count: Out<i32>,
) -> Result<()> {
    let _ = (session, pvar_index, obj_handle, handle, count);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_source_get_info(
    source_index: i32,
    name: *mut c_char,
    name_len: &mut i32,
    desc: *mut c_char,
    desc_len: &mut i32,
    ordering: Out<i32>,
    ticks_per_second: Out<i64>,
    max_ticks: Out<i64>,
    info: New<Info>,
) -> Result<()> {
    let _ = (
        source_index,
        name,
        name_len,
        desc,
        desc_len,
        ordering,
        ticks_per_second,
        max_ticks,
        info,
    );
    refuse(MPI_T_ERR_INVALID_INDEX)
}

pub fn t_source_get_timestamp(source_index: i32, timestamp: Out<i64>) -> Result<()> {
    let _ = (source_index, timestamp);
    refuse(MPI_T_ERR_INVALID_INDEX)
}

// Names.

pub fn t_category_get_index(name: &CStr, cat_index: Out<i32>) -> Result<()> {
    let _ = (name, cat_index);
    refuse(MPI_T_ERR_INVALID_NAME)
}

pub fn t_cvar_get_index(name: &CStr, cvar_index: Out<i32>) -> Result<()> {
    let _ = (name, cvar_index);
    refuse(MPI_T_ERR_INVALID_NAME)
}

pub fn t_event_get_index(name: &CStr, event_index: Out<i32>) -> Result<()> {
    let _ = (name, event_index);
    refuse(MPI_T_ERR_INVALID_NAME)
}

pub fn t_pvar_get_index(name: &CStr, var_class: i32, pvar_index: Out<i32>) -> Result<()> {
    let _ = (name, var_class, pvar_index);
    refuse(MPI_T_ERR_INVALID_NAME)
}

// Handles.

pub fn t_cvar_handle_free(handle: Out<Handle>) -> Result<()> {
    let _ = handle;
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_cvar_read(handle: Handle, buf: *mut c_void) -> Result<()> {
    let _ = (handle, buf);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_cvar_write(handle: Handle, buf: *const u8) -> Result<()> {
    let _ = (handle, buf);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_callback_get_info(
    event_registration: Handle,
    cb_safety: i32,
    info_used: New<Info>,
) -> Result<()> {
    let _ = (event_registration, cb_safety, info_used);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_callback_set_info(
    event_registration: Handle,
    cb_safety: i32,
    info: Option<&'static Arc<Info>>,
) -> Result<()> {
    let _ = (event_registration, cb_safety, info);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_copy(event_instance: Handle, buffer: *mut c_void) -> Result<()> {
    let _ = (event_instance, buffer);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_get_source(event_instance: Handle, source_index: Out<i32>) -> Result<()> {
    let _ = (event_instance, source_index);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_get_timestamp(event_instance: Handle, event_timestamp: Out<i64>) -> Result<()> {
    let _ = (event_instance, event_timestamp);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_handle_free(
    event_registration: Handle,
    user_data: *mut c_void,
    free_cb_function: *const c_void,
) -> Result<()> {
    let _ = (event_registration, user_data, free_cb_function);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_handle_get_info(event_registration: Handle, info_used: New<Info>) -> Result<()> {
    let _ = (event_registration, info_used);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_handle_set_info(
    event_registration: Handle,
    info: Option<&'static Arc<Info>>,
) -> Result<()> {
    let _ = (event_registration, info);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_read(event_instance: Handle, element_index: i32, buffer: *mut c_void) -> Result<()> {
    let _ = (event_instance, element_index, buffer);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_register_callback(
    event_registration: Handle,
    cb_safety: i32,
    info: Option<&'static Arc<Info>>,
    user_data: *mut c_void,
    event_cb_function: *const c_void,
) -> Result<()> {
    let _ = (
        event_registration,
        cb_safety,
        info,
        user_data,
        event_cb_function,
    );
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_event_set_dropped_handler(
    event_registration: Handle,
    dropped_cb_function: *const c_void,
) -> Result<()> {
    let _ = (event_registration, dropped_cb_function);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_handle_free(session: Handle, handle: Out<Handle>) -> Result<()> {
    let _ = (session, handle);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_read(session: Handle, handle: Handle, buf: *mut c_void) -> Result<()> {
    let _ = (session, handle, buf);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_readreset(session: Handle, handle: Handle, buf: *mut c_void) -> Result<()> {
    let _ = (session, handle, buf);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_reset(session: Handle, handle: Handle) -> Result<()> {
    let _ = (session, handle);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_start(session: Handle, handle: Handle) -> Result<()> {
    let _ = (session, handle);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_stop(session: Handle, handle: Handle) -> Result<()> {
    let _ = (session, handle);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

pub fn t_pvar_write(session: Handle, handle: Handle, buf: *const u8) -> Result<()> {
    let _ = (session, handle, buf);
    refuse(MPI_T_ERR_INVALID_HANDLE)
}

// Enumerations.

pub fn t_enum_get_info(
    enumtype: Handle,
    num: Out<i32>,
    name: *mut c_char,
    name_len: &mut i32,
) -> Result<()> {
    let _ = (enumtype, num, name, name_len);
    refuse(MPI_T_ERR_INVALID)
}

pub fn t_enum_get_item(
    enumtype: Handle,
    indx: i32,
    value: Out<i32>,
    name: *mut c_char,
    name_len: &mut i32,
) -> Result<()> {
    let _ = (enumtype, indx, value, name, name_len);
    refuse(MPI_T_ERR_INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_works_before_init_and_all_is_empty_after() {
        let mut number = 7;
        let at = &raw mut number;
        // SAFETY: a valid place.
        let place = || unsafe { Out::new(at, "num") }.unwrap();
        assert_eq!(
            t_cvar_get_num(place()).unwrap_err().kind(),
            Kind::Code(MPI_T_ERR_NOT_INITIALIZED)
        );
        assert_eq!(
            t_finalize().unwrap_err().kind(),
            Kind::Code(MPI_T_ERR_NOT_INITIALIZED)
        );
        t_init_thread(MPI_THREAD_SINGLE, place()).unwrap();
        t_cvar_get_num(place()).unwrap();
        assert_eq!(
            t_pvar_get_index(c"x", 1, place()).unwrap_err().kind(),
            Kind::Code(MPI_T_ERR_INVALID_NAME)
        );
        t_finalize().unwrap();
        assert_eq!(number, 0);
    }
}
