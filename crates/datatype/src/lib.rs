//! MPI datatypes: constructors, layout, pack and unpack (MPI 5.0 §5).

mod basic;

pub use basic::{Basic, Class, Form};
/// A datatype.
#[derive(Debug)]
pub struct Datatype {}
