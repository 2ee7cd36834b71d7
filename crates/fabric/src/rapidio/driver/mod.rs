//! The driver of a RapidIO controller, in the paper's levels.
//!
//! - [`lower`]: the lower level. Nothing else touches the card.
//! - [`physical`]: the node's physical memory.
//! - [`control`]: the control level.
//! - [`mx`]: the MX level.
//! - [`ethernet`]: frames over the control level, beside MPI's messages.
//! - [`levels`]: the levels of a node, one on the other.
//! - [`mpi`]: MPI's driver on the MX level.
//! - [`remote`]: memory of other nodes, by NREAD, NWRITE and doorbells.

pub mod control;
pub mod ethernet;
pub mod levels;
pub mod lower;
pub mod mpi;
pub mod mx;
pub mod physical;
pub mod remote;
