//! Events and their sources (MPI 5.0 §15.3.8).

use super::{at, binding_of, failed, initialised, store_text, text, verbosity_of};
use crate::constants::*;
use crate::handle::Table;
use crate::prelude::*;
use ferry_mpi::tool::{
    self, EVENTS, Event, Instance, Listener, Registration, Safety, ToolError, Verbosity,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type EventFunction = unsafe extern "C" fn(Handle, Handle, i32, *mut c_void);
type FreeFunction = unsafe extern "C" fn(Handle, i32, *mut c_void);
type DroppedFunction = unsafe extern "C" fn(i64, Handle, i32, i32, *mut c_void);

/// Kinds of handles, as for [`crate::handle`] tables.
const REGISTRATION: u32 = 104;
const INSTANCE: u32 = 105;
/// Size of an event's element, bytes. Every element is an MPI_INT.
const ELEMENT_BYTES: usize = 4;

static REGISTRATIONS: Table<Registered> = Table::new();
static INSTANCES: Table<Instance> = Table::new();

/// A registration and its state.
#[derive(Clone)]
struct Registered {
    registration: Arc<Registration>,
    state: Arc<EventState>,
}

/// A callback function and its user_data.
#[derive(Clone, Copy)]
struct Callback {
    function: EventFunction,
    user_data: usize,
}

#[derive(Default)]
struct EventState {
    handle: AtomicU64,
    /// The callbacks, in the order of [`Safety::ALL`].
    callbacks: Mutex<[Option<Callback>; 4]>,
    dropped: Mutex<Option<DroppedFunction>>,
}

impl EventState {
    fn callbacks(&self) -> MutexGuard<'_, [Option<Callback>; 4]> {
        self.callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn dropped(&self) -> MutexGuard<'_, Option<DroppedFunction>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The callback for a safety requirement: the first registered one that satisfies it.
    fn callback(&self, safety: Safety) -> Option<Callback> {
        self.callbacks()[safety as usize..]
            .iter()
            .flatten()
            .next()
            .copied()
    }
}

struct CallbackListener(Arc<EventState>);

impl Listener for CallbackListener {
    fn on_event(&self, _: &Arc<Registration>, instance: &Instance, safety: Safety) {
        let Some(callback) = self.0.callback(safety) else {
            return;
        };
        let handle = INSTANCES.insert(INSTANCE, instance.clone());
        let registration = self.0.handle.load(Ordering::Relaxed);
        // SAFETY: the program's function, of the type that it must have.
        unsafe {
            (callback.function)(
                handle,
                registration,
                safety_number(safety),
                callback.user_data as *mut c_void,
            );
        }
        drop(INSTANCES.remove(handle));
    }

    fn on_dropped(&self, _: &Arc<Registration>, count: u64) {
        let function = *self.0.dropped();
        if let Some(function) = function {
            let user_data = self.0.callback(Safety::None).map_or(0, |c| c.user_data);
            // SAFETY: the tool's own function, registered for this, with the arguments of MPI 5.0
            // §15.3.8.
            unsafe {
                function(
                    count as i64,
                    self.0.handle.load(Ordering::Relaxed),
                    0,
                    safety_number(Safety::None),
                    user_data as *mut c_void,
                );
            }
        }
    }
}

fn safety_number(safety: Safety) -> i32 {
    match safety {
        Safety::None => MPI_T_CB_REQUIRE_NONE,
        Safety::Restricted => MPI_T_CB_REQUIRE_MPI_RESTRICTED,
        Safety::ThreadSafe => MPI_T_CB_REQUIRE_THREAD_SAFE,
        Safety::SignalSafe => MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
    }
}

fn safety(number: i32) -> Result<Safety> {
    let found = Safety::ALL
        .into_iter()
        .find(|&s| safety_number(s) == number);
    found.ok_or_else(|| failed(ToolError::Invalid))
}

fn registered(handle: Handle) -> Result<&'static Registered> {
    initialised()?;
    REGISTRATIONS
        .get(handle)
        .ok_or_else(|| failed(ToolError::InvalidHandle))
}

fn instance(handle: Handle) -> Result<&'static Instance> {
    initialised()?;
    INSTANCES
        .get(handle)
        .ok_or_else(|| failed(ToolError::InvalidHandle))
}

pub fn t_event_get_num(num_events: Out<i32>) -> Result<()> {
    initialised()?;
    num_events.set(EVENTS.len() as i32);
    Ok(())
}

pub fn t_event_get_index(name: &CStr, event_index: Out<i32>) -> Result<()> {
    event_index.set(Event::index(text(name)?).map_err(failed)? as i32);
    Ok(())
}

/// `num_elements`: on entry the length of the arrays, on return the number of elements.
pub fn t_event_get_info(
    event_index: i32,
    name: *mut c_char,
    name_len: Option<&mut i32>,
    verbosity: Out<i32>,
    array_of_datatypes: OutTypes,
    array_of_displacements: *mut i64,
    num_elements: Option<&mut i32>,
    enumtype: Out<Handle>,
    info: New<Info>,
    desc: *mut c_char,
    desc_len: Option<&mut i32>,
    bind: Out<i32>,
) -> Result<()> {
    let event = at(&EVENTS, event_index)?;
    store_text(event.name, name, name_len);
    verbosity.set(verbosity_of(Verbosity::UserDetail));
    if let Some(number) = num_elements {
        for i in 0..event.elements.min(usize::try_from(*number).unwrap_or(0)) {
            array_of_datatypes.set_handle(i, MPI_INT);
            if !array_of_displacements.is_null() {
                // SAFETY: the program promises that much room.
                unsafe {
                    array_of_displacements
                        .add(i)
                        .write_unaligned((i * ELEMENT_BYTES) as i64)
                };
            }
        }
        *number = event.elements as i32;
    }
    enumtype.set(MPI_T_ENUM_NULL);
    info.set(empty());
    store_text(event.description, desc, desc_len);
    bind.set(binding_of(false));
    Ok(())
}

/// Events have no hints.
fn empty() -> Arc<Info> {
    Info::of::<&str, &str>([])
}

pub fn t_event_handle_alloc(
    event_index: i32,
    _obj_handle: *mut c_void,
    _info: Option<InfoRef>,
    event_registration: Out<Handle>,
) -> Result<()> {
    at(&EVENTS, event_index)?;
    let state = Arc::<EventState>::default();
    let registration = Registration::new(
        event_index as usize,
        Box::new(CallbackListener(state.clone())),
    )
    .map_err(failed)?;
    let known = Registered {
        registration,
        state: state.clone(),
    };
    let handle = REGISTRATIONS.insert(REGISTRATION, known);
    state.handle.store(handle, Ordering::Relaxed);
    event_registration.set(handle);
    Ok(())
}

pub fn t_event_handle_free(
    event_registration: Handle,
    user_data: *mut c_void,
    free_cb_function: *const c_void,
) -> Result<()> {
    registered(event_registration)?.registration.free();
    drop(REGISTRATIONS.remove(event_registration));
    if !free_cb_function.is_null() {
        // SAFETY: the program's function, of the type that it must have.
        unsafe {
            let function = std::mem::transmute::<*const c_void, FreeFunction>(free_cb_function);
            function(event_registration, MPI_T_CB_REQUIRE_NONE, user_data);
        }
    }
    Ok(())
}

pub fn t_event_handle_get_info(event_registration: Handle, info_used: New<Info>) -> Result<()> {
    registered(event_registration)?;
    info_used.set(empty());
    Ok(())
}

pub fn t_event_handle_set_info(event_registration: Handle, _info: Option<InfoRef>) -> Result<()> {
    registered(event_registration).map(drop)
}

/// A null function removes the callback of its safety level.
pub fn t_event_register_callback(
    event_registration: Handle,
    cb_safety: i32,
    _info: Option<InfoRef>,
    user_data: *mut c_void,
    event_cb_function: *const c_void,
) -> Result<()> {
    let known = registered(event_registration)?;
    let level = safety(cb_safety)?;
    let callback = (!event_cb_function.is_null()).then(|| Callback {
        // SAFETY: the program's function, of the type that it must have.
        function: unsafe { std::mem::transmute::<*const c_void, EventFunction>(event_cb_function) },
        user_data: user_data as usize,
    });
    known.state.callbacks()[level as usize] = callback;
    Ok(())
}

pub fn t_event_callback_get_info(
    event_registration: Handle,
    cb_safety: i32,
    info_used: New<Info>,
) -> Result<()> {
    registered(event_registration)?;
    safety(cb_safety)?;
    info_used.set(empty());
    Ok(())
}

pub fn t_event_callback_set_info(
    event_registration: Handle,
    cb_safety: i32,
    _info: Option<InfoRef>,
) -> Result<()> {
    registered(event_registration)?;
    safety(cb_safety).map(drop)
}

pub fn t_event_set_dropped_handler(
    event_registration: Handle,
    dropped_cb_function: *const c_void,
) -> Result<()> {
    let function = (!dropped_cb_function.is_null()).then(|| {
        // SAFETY: the program's function, of the type that it must have.
        unsafe { std::mem::transmute::<*const c_void, DroppedFunction>(dropped_cb_function) }
    });
    *registered(event_registration)?.state.dropped() = function;
    Ok(())
}

pub fn t_event_read(event_instance: Handle, element_index: i32, buffer: *mut c_void) -> Result<()> {
    let instance = instance(event_instance)?;
    let element = *at(&instance.elements, element_index)?;
    if buffer.is_null() {
        return Err(failed(ToolError::Invalid));
    }
    // SAFETY: the program promises room for an int.
    unsafe { buffer.cast::<i32>().write_unaligned(element) };
    Ok(())
}

pub fn t_event_copy(event_instance: Handle, buffer: *mut c_void) -> Result<()> {
    let instance = instance(event_instance)?;
    if buffer.is_null() {
        return Err(failed(ToolError::Invalid));
    }
    for (i, &element) in instance.elements.iter().enumerate() {
        // SAFETY: the program promises room for all elements.
        unsafe { buffer.cast::<i32>().add(i).write_unaligned(element) };
    }
    Ok(())
}

pub fn t_event_get_timestamp(event_instance: Handle, event_timestamp: Out<i64>) -> Result<()> {
    event_timestamp.set(instance(event_instance)?.time);
    Ok(())
}

pub fn t_event_get_source(event_instance: Handle, source_index: Out<i32>) -> Result<()> {
    instance(event_instance)?;
    source_index.set(0);
    Ok(())
}

// Sources. The library is the only one. Its clock counts nanoseconds.

const SOURCES: [(&str, &str); 1] = [(
    "ferry",
    "the library, in whose calls events happen; nanoseconds since its clock was first asked",
)];

pub fn t_source_get_num(num_sources: Out<i32>) -> Result<()> {
    initialised()?;
    num_sources.set(SOURCES.len() as i32);
    Ok(())
}

pub fn t_source_get_info(
    source_index: i32,
    name: *mut c_char,
    name_len: Option<&mut i32>,
    desc: *mut c_char,
    desc_len: Option<&mut i32>,
    ordering: Out<i32>,
    ticks_per_second: Out<i64>,
    max_ticks: Out<i64>,
    info: New<Info>,
) -> Result<()> {
    let (its_name, description) = at(&SOURCES, source_index)?;
    store_text(its_name, name, name_len);
    store_text(description, desc, desc_len);
    // Callbacks of several threads may run in another order than their events.
    ordering.set(MPI_T_SOURCE_UNORDERED);
    ticks_per_second.set(1_000_000_000);
    max_ticks.set(i64::MAX);
    info.set(empty());
    Ok(())
}

pub fn t_source_get_timestamp(source_index: i32, timestamp: Out<i64>) -> Result<()> {
    at(&SOURCES, source_index)?;
    timestamp.set(tool::now());
    Ok(())
}
