//! What the libraries of other ABIs have in common.
//!
//! A program that was linked with MPICH's `libmpi.so.12` or Open MPI's `libmpi.so.40` gets a
//! library of that name which converts each call to the standard ABI (MPI 5.0 chapter 21) and its
//! results back. The entry points are made from `crates/api/mpi.api`; they use what stands here.
//!
//! In names and comments *the ABI* is that of the program. A function `…_in` converts its value
//! to the standard ABI's, and `…_out` converts back. A value that the ABI does not define becomes
//! one that the standard ABI does not define either, so that the library raises the right error.
//!
//! ```text
//! program    MPI_Send(buf, 2, MPI_INT, 1, 7, MPI_COMM_WORLD)   handles as MPICH has them
//!   │
//! entries    generated; in ferry-abi-mpich and ferry-abi-openmpi
//!   ├ abi        the trait: handles, statuses, codes and tables of an ABI
//!   ├ convert    ranks, tags, sentinels, enumerations
//!   ├ memory     arrays of handles and statuses, strings
//!   ├ compound   functions that take callbacks, attributes, contents of datatypes
//!   ├ callback   the functions that stand between the program's callbacks and the library
//!   ├ extras     removed functions, and conversions to Fortran's handles
//!   │
//! standard   the table of libmpi_abi.so.1's functions
//! ```

pub mod abi;
pub mod callback;
#[allow(missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]
// As the functions of MPI.
pub mod compound;
pub mod convert;
#[allow(clippy::missing_safety_doc)] // As the functions of MPI.
pub mod extras;
pub mod memory;
pub mod standard;

/// Numbers of all functions, as the table of the standard library counts them.
pub mod number {
    include!(concat!(env!("OUT_DIR"), "/number.rs"));
}

/// Constants of the standard ABI.
pub mod constants {
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

/// The exported functions of an ABI, made from `crates/api/mpi.api` by the crate's build script.
/// `$abi` is the type in the calling module that is [`abi::Abi`].
#[macro_export]
macro_rules! entries {
    ($abi:ident) => {
        #[allow(
            non_snake_case,
            unused_variables,
            unused_mut,
            unused_unsafe,
            clippy::all
        )]
        mod entries {
            use super::$abi as A;
            use $crate::prelude::*;

            type H = <A as Abi>::Handle;
            type F = <A as Abi>::File;
            type S = <A as Abi>::Status;

            include!(concat!(env!("OUT_DIR"), "/entries.rs"));
        }
    };
}

/// What the generated entry points use.
pub mod prelude {
    pub use crate::abi::{Abi, kind};
    pub use crate::compound;
    pub use crate::convert::*;
    pub use crate::memory::{Handles, NewStatus, Statuses, Text, is_ignored, place, status_in};
    pub use crate::standard::{Status, abi_function, function};
    pub use std::ffi::{c_char, c_void};
    pub use std::ptr::{null, null_mut};
}
