//! The standard's objects and their meaning: groups, communicators, requests, collectives,
//! topologies, attributes.
//!
//! This layer has no handle values, no error numbers and no C types: those are the abi layer's. It
//! never depends on which transport carries a message.
//!
//! ```text
//! process, session      the models by which a program uses MPI
//! dynamic               processes of other jobs: ports, spawn, names
//! comm, group, topo     communicators and what is attached to them: attr, info, errhandler
//! pt2pt, partitioned    messages from buffers (buffer), completed by request
//! win                   windows and one-sided operations
//! file                  files: MPI-IO
//! coll                  collectives: select an algorithm, execute its schedule, or node memory
//! overlap               blocking collectives in the background, behind page guards
//! tool                  MPI_T
//! ```
//!
//! ```
//! use ferry_mpi::Group;
//! let world = Group::first(4, 2); // four processes; this one is process 2
//! let odd = world.include(&[1, 3]).unwrap();
//! assert_eq!((odd.size(), odd.rank(), odd.process(1)), (2, None, 3));
//! ```

pub mod attr;
pub mod buffer;
pub mod coll;
pub mod comm;
mod crash;
pub mod dynamic;
pub mod errhandler;
pub mod error;
pub mod file;
mod flush_stdio;
pub mod group;
pub mod identity;
pub mod info;
pub mod overlap;
pub mod partitioned;
pub mod process;
pub mod pt2pt;
pub mod request;
pub mod session;
mod state_lock;
pub mod tool;
pub mod topo;
mod unreceived;
pub mod win;

pub use comm::Comm;
pub use errhandler::{Errhandler, ErrhandlerSlot};
pub use error::{Error, ErrorScope, Kind, Result};
pub use ferry_datatype::Datatype;
pub use ferry_device::{self as device, ProcId};
pub use ferry_op::Op;
pub use file::File;
pub use group::Group;
pub use identity::Identity;
pub use info::Info;
pub use request::Request;
pub use session::Session;
pub use win::Win;
