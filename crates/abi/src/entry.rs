//! The exported symbols, and what each of them does first.

use ferry_mpi::device::CALL;
use ferry_mpi::{Error, Result, err};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where this process stands between MPI_Init and MPI_Finalize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Life {
    /// MPI_Init has not returned.
    Before = 0,
    /// Between the two.
    Running = 1,
    /// MPI_Finalize has been called.
    Finalized = 2,
}

static LIFE: AtomicU32 = AtomicU32::new(Life::Before as u32);

/// Where this process stands.
pub fn life() -> Life {
    match LIFE.load(Ordering::Acquire) {
        0 => Life::Before,
        1 => Life::Running,
        _ => Life::Finalized,
    }
}

/// It stands there from now on.
pub fn set_life(life: Life) {
    LIFE.store(life as u32, Ordering::Release);
}

/// Notes the call for the launcher's table of who waits for whom.
#[inline]
pub fn note(call: u32) {
    CALL.store(call, Ordering::Relaxed);
}

/// Notes the call, and checks that MPI is there.
#[inline]
pub fn enter(call: u32) -> Result<()> {
    note(call);
    if LIFE.load(Ordering::Relaxed) == Life::Running as u32 {
        Ok(())
    } else {
        Err(absent())
    }
}

#[cold]
fn absent() -> Error {
    match life() {
        Life::Finalized => err!(Other, "it was called after MPI_Finalize"),
        _ => err!(Other, "it was called before MPI_Init"),
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
