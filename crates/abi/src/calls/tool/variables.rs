//! Control and performance variables (MPI 5.0 §15.3.6, §15.3.7).

use super::{
    at, binding_of, bound, datatype_of, enum_handle, failed, initialised, store_text, text,
    verbosity_of,
};
use crate::constants::*;
use crate::handle::Table;
use crate::prelude::*;
use ferry_mpi::tool::{
    Class, Control, Performance, PerformanceHandle, Scope as ControlScope, Session as Measuring,
    ToolError, Type, Value,
};
use std::sync::Weak;

/// Kinds of handles, as for [`crate::handle`] tables.
const CONTROL: u32 = 101;
const SESSION: u32 = 102;
const PERFORMANCE: u32 = 103;

type BoundControl = (&'static Control, Option<Arc<Comm>>);

static CONTROLS: Table<BoundControl> = Table::new();
static SESSIONS: Table<Arc<Measuring>> = Table::new();
/// The sessions own the performance handles.
static PERFORMANCES: Table<Weak<PerformanceHandle>> = Table::new();

/// Maximum length of a text with its null, bytes. A choice.
const TEXT_MAX_BYTES: usize = 512;

/// # Safety
/// `from` has a value of that type.
unsafe fn load(value_type: Type, from: *const u8) -> Value {
    // SAFETY: the caller's promise.
    unsafe {
        match value_type {
            Type::Int => Value::Int(from.cast::<i32>().read_unaligned()),
            Type::Unsigned => Value::Unsigned(from.cast::<u32>().read_unaligned()),
            Type::Large => Value::Large(from.cast::<u64>().read_unaligned()),
            Type::Double => Value::Double(from.cast::<f64>().read_unaligned()),
            // No variable of this type can be written yet.
            Type::Text => Value::Text(String::new()),
        }
    }
}

/// # Safety
/// `to` has room for the value.
unsafe fn store(value: Value, to: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        match value {
            Value::Int(v) => to.cast::<i32>().write_unaligned(v),
            Value::Unsigned(v) => to.cast::<u32>().write_unaligned(v),
            Value::Large(v) => to.cast::<u64>().write_unaligned(v),
            Value::Double(v) => to.cast::<f64>().write_unaligned(v),
            Value::Text(v) => store_text(&v, to.cast(), Some(&mut (TEXT_MAX_BYTES as i32))),
        }
    }
}

fn check_buffer<T>(buffer: *const T) -> Result<()> {
    if buffer.is_null() {
        Err(failed(ToolError::Invalid))
    } else {
        Ok(())
    }
}

// Control variables.

pub fn t_cvar_get_num(num_cvar: Out<i32>) -> Result<()> {
    initialised()?;
    num_cvar.set(Control::all().len() as i32);
    Ok(())
}

pub fn t_cvar_get_index(name: &CStr, cvar_index: Out<i32>) -> Result<()> {
    cvar_index.set(Control::index(text(name)?).map_err(failed)? as i32);
    Ok(())
}

pub fn t_cvar_get_info(
    cvar_index: i32,
    name: *mut c_char,
    name_len: Option<&mut i32>,
    verbosity: Out<i32>,
    datatype: New<Datatype>,
    enumtype: Out<Handle>,
    desc: *mut c_char,
    desc_len: Option<&mut i32>,
    bind: Out<i32>,
    scope: Out<i32>,
) -> Result<()> {
    let control = at(Control::all(), cvar_index)?;
    store_text(&control.name, name, name_len);
    verbosity.set(verbosity_of(control.verbosity));
    datatype.set_handle(datatype_of(control.value_type()));
    enumtype.set(enum_handle(control.enumeration()));
    store_text(&control.description, desc, desc_len);
    bind.set(binding_of(control.is_of_comm()));
    scope.set(match control.scope() {
        ControlScope::Local => MPI_T_SCOPE_LOCAL,
        ControlScope::GroupEqual => MPI_T_SCOPE_GROUP_EQ,
        ControlScope::ReadOnly => MPI_T_SCOPE_READONLY,
    });
    Ok(())
}

pub fn t_cvar_handle_alloc(
    cvar_index: i32,
    obj_handle: *mut c_void,
    handle: Out<Handle>,
    count: Out<i32>,
) -> Result<()> {
    let control = at(Control::all(), cvar_index)?;
    let comm = bound(control.is_of_comm(), obj_handle)?;
    handle.set(CONTROLS.insert(CONTROL, (control, comm)));
    let is_text = control.value_type() == Type::Text;
    count.set(if is_text { TEXT_MAX_BYTES as i32 } else { 1 });
    Ok(())
}

fn control(handle: Handle) -> Result<&'static BoundControl> {
    initialised()?;
    CONTROLS
        .get(handle)
        .ok_or_else(|| failed(ToolError::InvalidHandle))
}

pub fn t_cvar_handle_free(handle: &mut Handle) -> Result<()> {
    control(*handle)?;
    drop(CONTROLS.remove(*handle));
    *handle = MPI_T_CVAR_HANDLE_NULL;
    Ok(())
}

pub fn t_cvar_read(handle: Handle, buf: *mut c_void) -> Result<()> {
    let (control, comm) = control(handle)?;
    check_buffer(buf)?;
    let value = control.read(comm.as_deref()).map_err(failed)?;
    // SAFETY: the program passes room for a value of the variable's type.
    unsafe { store(value, buf) };
    Ok(())
}

pub fn t_cvar_write(handle: Handle, buf: *const u8) -> Result<()> {
    let (control, comm) = control(handle)?;
    check_buffer(buf)?;
    // SAFETY: the program passes a value of the variable's type.
    let value = unsafe { load(control.value_type(), buf) };
    control.write(comm.as_deref(), value).map_err(failed)
}

// Performance variables.

const CLASSES: [(Class, i32); 5] = [
    (Class::Level, MPI_T_PVAR_CLASS_LEVEL),
    (Class::HighWatermark, MPI_T_PVAR_CLASS_HIGHWATERMARK),
    (Class::Counter, MPI_T_PVAR_CLASS_COUNTER),
    (Class::Aggregate, MPI_T_PVAR_CLASS_AGGREGATE),
    (Class::Timer, MPI_T_PVAR_CLASS_TIMER),
];

fn class_of(class: Class) -> i32 {
    let found = CLASSES.iter().find(|c| c.0 == class);
    found.map_or(MPI_T_PVAR_CLASS_GENERIC, |c| c.1)
}

pub fn t_pvar_get_num(num_pvar: Out<i32>) -> Result<()> {
    initialised()?;
    num_pvar.set(Performance::all().len() as i32);
    Ok(())
}

pub fn t_pvar_get_index(name: &CStr, var_class: i32, pvar_index: Out<i32>) -> Result<()> {
    let name = text(name)?;
    let class = CLASSES.iter().find(|c| c.1 == var_class);
    // A class without variables has no variable of that name.
    let (class, _) = class.ok_or_else(|| failed(ToolError::InvalidName))?;
    pvar_index.set(Performance::index(*class, name).map_err(failed)? as i32);
    Ok(())
}

pub fn t_pvar_get_info(
    pvar_index: i32,
    name: *mut c_char,
    name_len: Option<&mut i32>,
    verbosity: Out<i32>,
    var_class: Out<i32>,
    datatype: New<Datatype>,
    enumtype: Out<Handle>,
    desc: *mut c_char,
    desc_len: Option<&mut i32>,
    bind: Out<i32>,
    readonly: Out<i32>,
    continuous: Out<i32>,
    atomic: Out<i32>,
) -> Result<()> {
    let variable = at(Performance::all(), pvar_index)?;
    store_text(&variable.name, name, name_len);
    verbosity.set(verbosity_of(variable.verbosity));
    var_class.set(class_of(variable.class));
    datatype.set_handle(datatype_of(variable.value_type()));
    enumtype.set(MPI_T_ENUM_NULL);
    store_text(&variable.description, desc, desc_len);
    bind.set(binding_of(variable.is_of_comm()));
    readonly.set(i32::from(variable.is_read_only()));
    continuous.set(i32::from(variable.is_continuous()));
    atomic.set(i32::from(variable.is_atomic()));
    Ok(())
}

pub fn t_pvar_session_create(session: Out<Handle>) -> Result<()> {
    initialised()?;
    session.set(SESSIONS.insert(SESSION, Arc::default()));
    Ok(())
}

fn session_at(handle: Handle) -> Result<&'static Arc<Measuring>> {
    initialised()?;
    SESSIONS
        .get(handle)
        .ok_or_else(|| failed(ToolError::InvalidSession))
}

/// The session's handles become invalid.
pub fn t_pvar_session_free(session: &mut Handle) -> Result<()> {
    session_at(*session)?;
    drop(SESSIONS.remove(*session));
    *session = MPI_T_PVAR_SESSION_NULL;
    Ok(())
}

pub fn t_pvar_handle_alloc(
    session: Handle,
    pvar_index: i32,
    obj_handle: *mut c_void,
    handle: Out<Handle>,
    count: Out<i32>,
) -> Result<()> {
    let session = session_at(session)?;
    let variable = at(Performance::all(), pvar_index)?;
    let comm = bound(variable.is_of_comm(), obj_handle)?;
    let made = session.handle(variable, comm);
    handle.set(PERFORMANCES.insert(PERFORMANCE, Arc::downgrade(&made)));
    count.set(1);
    Ok(())
}

/// A performance handle of a session.
fn measured(session: Handle, handle: Handle) -> Result<Arc<PerformanceHandle>> {
    let session = session_at(session)?;
    PERFORMANCES
        .get(handle)
        .and_then(Weak::upgrade)
        .filter(|h| session.has(h))
        .ok_or_else(|| failed(ToolError::InvalidHandle))
}

pub fn t_pvar_handle_free(session: Handle, handle: &mut Handle) -> Result<()> {
    session_at(session)?.forget(&measured(session, *handle)?);
    drop(PERFORMANCES.remove(*handle));
    *handle = MPI_T_PVAR_HANDLE_NULL;
    Ok(())
}

pub fn t_pvar_start(session: Handle, handle: Handle) -> Result<()> {
    if handle == MPI_T_PVAR_ALL_HANDLES {
        session_at(session)?.start_all();
        return Ok(());
    }
    measured(session, handle)?.start().map_err(failed)
}

pub fn t_pvar_stop(session: Handle, handle: Handle) -> Result<()> {
    if handle == MPI_T_PVAR_ALL_HANDLES {
        session_at(session)?.stop_all();
        return Ok(());
    }
    measured(session, handle)?.stop().map_err(failed)
}

pub fn t_pvar_reset(session: Handle, handle: Handle) -> Result<()> {
    if handle == MPI_T_PVAR_ALL_HANDLES {
        session_at(session)?.reset_all();
        return Ok(());
    }
    measured(session, handle)?.reset().map_err(failed)
}

pub fn t_pvar_read(session: Handle, handle: Handle, buf: *mut c_void) -> Result<()> {
    let handle = measured(session, handle)?;
    check_buffer(buf)?;
    // SAFETY: the program passes room for a value of the variable's type.
    unsafe { store(handle.read(), buf) };
    Ok(())
}

pub fn t_pvar_readreset(session: Handle, handle: Handle, buf: *mut c_void) -> Result<()> {
    let handle = measured(session, handle)?;
    check_buffer(buf)?;
    // SAFETY: the program passes room for a value of the variable's type, as to MPI_T_pvar_read.
    unsafe { store(handle.read_reset().map_err(failed)?, buf) };
    Ok(())
}

pub fn t_pvar_write(session: Handle, handle: Handle, buf: *const u8) -> Result<()> {
    let handle = measured(session, handle)?;
    check_buffer(buf)?;
    // SAFETY: the program passes a value of the variable's type.
    let value = unsafe { load(handle.variable().value_type(), buf) };
    handle.write(value).map_err(failed)
}
