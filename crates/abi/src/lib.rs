//! libmpi_abi.so.1: the entry points of the MPI 5.0 standard ABI.
//!
//! Handles become objects, arguments are checked, errors are raised. What a call means stands in
//! `ferry-mpi`.
//!
//! ```text
//! program   MPI_Send(buf, 2, MPI_INT, 1, 7, comm)
//!   │
//! entry     the exported symbols, generated from crates/api/mpi.api
//!   ├ fast_path one-sided operations on a few bytes, without all that follows
//!   ├ args      checks arguments, turns them into Rust values
//!   ├ handle    handles to objects, by tables with generations
//!   │
//! calls     one function of glue for each MPI function, a file for each chapter
//!   ├ results   where results go in the program's memory; status: MPI_Status
//!   ├ callback  C functions that the program passed
//!   │
//! raise     an error becomes a code (codes) and goes to its error handler
//! ```
//!
//! An example of what the generator makes of one line of `mpi.api` is on `ferry_api`'s front page.

use ferry_mpi::overlap;
use ferry_pageguard::Arena;

/// Some threads wait at a guarded page while they are inside malloc. The library must not need
/// malloc's locks then.
#[global_allocator]
static MEMORY: Arena = Arena::new(overlap::separates_memory);

mod args;
mod callback;
#[allow(clippy::too_many_arguments)] // MPI decides how many.
mod calls;
mod codes;
mod constants;
mod entry;
#[allow(clippy::too_many_arguments)] // As above.
mod fast_path;
mod handle;
mod leaks;
mod prelude;
mod raise;
mod results;
mod status;
mod translation;
