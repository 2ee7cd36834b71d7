//! MPI reduction operations on every predefined type.
/// A reduction operation.
#[derive(Debug)]
pub struct Op {}
