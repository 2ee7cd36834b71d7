//! The standard's objects and their meaning: groups, communicators, requests, collectives,
//! topologies, attributes.
//!
//! This floor knows no handle values, no error numbers and no C: those are the abi floor's. It
//! never asks which transport carries a message.

pub mod attr;
pub mod buffer;
pub mod coll;
pub mod comm;
pub mod errhandler;
pub mod error;
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
pub mod tool;
pub mod topo;
mod unreceived;

pub use comm::Comm;
pub use errhandler::{Errhandler, ErrhandlerPlace};
pub use error::{Error, Kind, Result};
pub use ferry_datatype::Datatype;
pub use ferry_device::{self as device, ProcId};
pub use ferry_op::Op;
pub use group::Group;
pub use identity::Identity;
pub use info::Info;
pub use request::Request;
pub use session::Session;
