//! The exported symbols, and what each of them does first.

use ferry_mpi::device::CURRENT_CALL;
use ferry_mpi::overlap;
use ferry_mpi::{Error, Result, err};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Where this process stands in the world model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WorldState {
    /// MPI_Init has not returned.
    NotInitialized = 0,
    /// Between the two.
    Running = 1,
    /// MPI_Finalize has been called.
    Finalized = 2,
}

static WORLD_STATE: AtomicU32 = AtomicU32::new(WorldState::NotInitialized as u32);
/// The world model and the sessions that are there: while there is one, calls may be made.
static MODELS: AtomicU32 = AtomicU32::new(0);
/// There has been a session.
static SESSIONS_SEEN: AtomicBool = AtomicBool::new(false);

/// Where this process stands in the world model.
pub fn world_state() -> WorldState {
    match WORLD_STATE.load(Ordering::Acquire) {
        0 => WorldState::NotInitialized,
        1 => WorldState::Running,
        _ => WorldState::Finalized,
    }
}

/// MPI_Init is about to return.
pub fn world_begins() {
    MODELS.fetch_add(1, Ordering::AcqRel);
    WORLD_STATE.store(WorldState::Running as u32, Ordering::Release);
}

/// MPI_Finalize is about to return.
pub fn world_ends() {
    WORLD_STATE.store(WorldState::Finalized as u32, Ordering::Release);
    MODELS.fetch_sub(1, Ordering::AcqRel);
}

/// MPI_Session_init is about to return.
pub fn session_begins() {
    SESSIONS_SEEN.store(true, Ordering::Relaxed);
    MODELS.fetch_add(1, Ordering::AcqRel);
}

/// MPI_Session_finalize is about to return.
pub fn session_ends() {
    MODELS.fetch_sub(1, Ordering::AcqRel);
}

/// Notes the call for the launcher's table of who waits for whom.
#[inline]
pub fn record_call(call: u32) {
    CURRENT_CALL.store(call, Ordering::Relaxed);
}

/// Notes the call, and checks that MPI is there.
#[inline]
pub fn enter(call: u32) -> Result<()> {
    record_call(call);
    if MODELS.load(Ordering::Relaxed) != 0 {
        if overlap::is_pending() {
            return complete_overlapped(call);
        }
        Ok(())
    } else {
        Err(not_initialized())
    }
}

/// Calls that neither wait nor touch a buffer of the program's while they hold anything:
/// collectives in the background may go on behind them.
const LOCAL_CALLS: [&str; 12] = [
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Comm_remote_size",
    "MPI_Comm_test_inter",
    "MPI_Type_size",
    "MPI_Type_size_c",
    "MPI_Type_get_extent",
    "MPI_Type_get_extent_c",
    "MPI_Get_address",
    "MPI_Get_processor_name",
    "MPI_Query_thread",
    "MPI_Is_thread_main",
];

/// Waits for the collectives that go on in the background; raises what went wrong in them.
#[cold]
fn complete_overlapped(call: u32) -> Result<()> {
    if LOCAL_CALLS.contains(&name_of(call)) {
        return Ok(());
    }
    overlap::complete_pending()
}

#[cold]
fn not_initialized() -> Error {
    match world_state() {
        WorldState::Finalized => err!(Other, "it was called after MPI_Finalize"),
        _ if SESSIONS_SEEN.load(Ordering::Relaxed) => err!(
            Other,
            "it was called after the last MPI_Session_finalize, and MPI_Init has not been called"
        ),
        _ => err!(Other, "it was called before MPI_Init (or MPI_Session_init)"),
    }
}

/// The C name of function `number`.
pub fn name_of(number: u32) -> &'static str {
    (number as usize)
        .checked_sub(1)
        .and_then(|at| symbols::NAMES.get(at))
        .copied()
        .unwrap_or("MPI")
}

/// The exported symbols, made from `crates/api/mpi.api`.
#[allow(non_snake_case, unused_variables, unused_unsafe, clippy::all)]
mod symbols {
    use crate::prelude::*;
    use crate::{calls, entry};

    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}
