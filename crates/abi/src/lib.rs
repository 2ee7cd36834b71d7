//! libmpi_abi.so.1: the entry points of the MPI 5.0 standard ABI.
//!
//! Handles become objects, arguments are checked, errors are raised; what a call means stands in `ferry-mpi`. The
//! entry points are made from `crates/api/mpi.api` ([`entry`]) and call the glue in [`calls`].

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
