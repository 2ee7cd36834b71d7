//! The glue: one function for each MPI function, which calls the mpi layer. Their signatures:
//! `cargo run -p ferry-api -- glue CHAPTER`.

pub mod attr;
pub mod coll;
pub mod comm;
pub mod datatype;
pub mod dpm;
pub mod env;
pub mod errhandler;
pub mod group;
pub mod info;
pub mod io;
pub mod op;
pub mod part;
pub mod pt2pt;
pub mod request;
pub mod rma;
pub mod session;
pub mod tool;
pub mod topo;
