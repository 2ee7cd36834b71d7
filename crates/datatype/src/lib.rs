//! MPI datatypes: constructors, layout, pack and unpack.
/// A datatype.
#[derive(Debug)]
pub struct Datatype {}
