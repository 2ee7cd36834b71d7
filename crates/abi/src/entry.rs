//! The exported symbols, and the checks at the entry of each call.

use ferry_mpi::device::CURRENT_CALL;
use ferry_mpi::overlap;
use ferry_mpi::{Error, Result, err};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// State of the world model in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WorldState {
    /// MPI_Init has not returned.
    NotInitialized = 0,
    /// Between MPI_Init and MPI_Finalize.
    Running = 1,
    /// MPI_Finalize has been called.
    Finalized = 2,
}

static WORLD_STATE: AtomicU32 = AtomicU32::new(WorldState::NotInitialized as u32);
/// Number of active models: the world model and each open session. Calls are valid while it is not
/// 0.
static MODELS: AtomicU32 = AtomicU32::new(0);
/// Set once a session has been opened.
static SESSIONS_SEEN: AtomicBool = AtomicBool::new(false);

/// State of the world model in this process.
pub fn world_state() -> WorldState {
    match WORLD_STATE.load(Ordering::Acquire) {
        0 => WorldState::NotInitialized,
        1 => WorldState::Running,
        _ => WorldState::Finalized,
    }
}

/// Called when MPI_Init is about to return.
pub fn world_begins() {
    MODELS.fetch_add(1, Ordering::AcqRel);
    WORLD_STATE.store(WorldState::Running as u32, Ordering::Release);
}

/// Called when MPI_Finalize is about to return.
pub fn world_ends() {
    WORLD_STATE.store(WorldState::Finalized as u32, Ordering::Release);
    MODELS.fetch_sub(1, Ordering::AcqRel);
}

/// Called when MPI_Session_init is about to return.
pub fn session_begins() {
    SESSIONS_SEEN.store(true, Ordering::Relaxed);
    MODELS.fetch_add(1, Ordering::AcqRel);
}

/// Called when MPI_Session_finalize is about to return.
pub fn session_ends() {
    MODELS.fetch_sub(1, Ordering::AcqRel);
}

/// Records the call for the launcher's report of what each rank waits for.
#[inline]
pub fn record_call(call: u32) {
    CURRENT_CALL.store(call, Ordering::Relaxed);
}

/// Records the call and checks that MPI is initialised.
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

/// Is MPI initialised, and does nothing else have to be done first? If not, [`enter`] does it.
#[inline(always)]
pub fn is_ordinary() -> bool {
    MODELS.load(Ordering::Relaxed) != 0 && !overlap::is_pending()
}

/// Calls that neither block nor access a user buffer. Overlapped collectives may continue during
/// them.
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

/// Completes the collectives that run in the background. Returns their first error.
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
pub mod symbols {
    use crate::prelude::*;
    use crate::{calls, entry};

    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}
