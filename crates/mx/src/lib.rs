//! `libferry_mx.so`: message passing by match bits, with the calls of Myrinet Express.
//!
//! It runs on the MX level of a modelled machine's driver. A rank of the job is a node with one
//! board. The header is `include/ferry_mx.h`.
//!
//! - [`abi`]: types and numbers of the header.
//! - [`calls`]: the entry points.
//! - [`node`]: this rank's node, with its endpoints and requests.
//! - [`connect`]: who may connect, asked and answered between nodes.
//! - [`error`]: errors, and what is done with them.

mod abi;
mod calls;
mod connect;
mod error;
mod node;
