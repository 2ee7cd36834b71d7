//! MPI datatypes: constructors, layout, pack and unpack, external32 (MPI 5.0 §5).
//!
//! A [`Datatype`] remembers how it was made (its [`Recipe`]), and knows its size and bounds from
//! that alone. Its layout, worked out at commit or at first use, is a compact tree: a vector of 10⁹
//! elements takes as little memory as one of two, and any packed offset is found at once, so that
//! transports can ask for any piece of a message.
//!
//! This crate knows the ABI's numbers for types and constants, since they are the types' names, but
//! no handles, no errors' numbers and no communication.

mod array;
mod basic;
mod construct;
mod datatype;
mod elements;
mod envelope;
mod error;
mod external32;
mod layout;
mod quad;
mod recipe;
mod shape;
mod signature;
mod unnamed;

pub use basic::{Basic, Class, Form, LONG_DOUBLE};
pub use datatype::Datatype;
pub use envelope::{Combiner, Contents};
pub use error::TypeError;
pub use recipe::{Dimension, Distribution, Order, Recipe, Width};
pub use signature::Signature;
pub use unnamed::MatchClass;
