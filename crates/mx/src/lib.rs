//! `libferry_mx.so`: message passing by match bits, with the calls of Myrinet Express.
//!
//! It runs on the MX level of a modelled machine's driver ([`ferry_fabric::rapidio`]). A rank of
//! the job is a node with one board. The header is `include/ferry_mx.h`.
//!
//! ```text
//! program   mx_isend(endpoint, segments, …)
//!   │
//! calls     the entry points: pointers are checked, errors go to the program's handler
//!   ├ abi       types and numbers of the header
//!   ├ error     errors, and what is done with them
//!   │
//! node      this rank's node: endpoints by handle, requests by handle, waiting
//!   ├ connect   mx_connect: a node asks another one about an endpoint
//!   │
//! ferry_fabric::rapidio::driver::mx   matching and protocols, on the modelled card
//! ```

mod abi;
mod calls;
mod connect;
mod error;
mod node;
