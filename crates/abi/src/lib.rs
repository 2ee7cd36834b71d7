//! libmpi_abi.so.1: the entry points of the MPI 5.0 standard ABI.
//!
//! Handles become objects, arguments are checked, errors are raised; what a call means stands in
//! `ferry-mpi`. The entry points are made from `crates/api/mpi.api` ([`entry`]) and call the glue
//! in [`calls`].

use ferry_mpi::overlap;
use ferry_pageguard::Arena;

/// Where a thread of the program may wait at a guarded page in the middle of malloc, the library
/// must not need malloc's locks.
#[global_allocator]
static MEMORY: Arena = Arena::new(overlap::own_memory);

mod args;
mod callback;
#[allow(clippy::too_many_arguments)] // MPI decides how many.
mod calls;
mod codes;
mod constants;
mod entry;
mod handle;
mod prelude;
mod raise;
mod results;
mod status;
