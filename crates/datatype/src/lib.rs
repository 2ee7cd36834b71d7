//! MPI datatypes: constructors, layout, pack and unpack (MPI 5.0 §5).

mod basic;

pub use basic::{Basic, Class, Form};
/// A datatype.
#[derive(Debug)]
pub struct Datatype {}
impl Datatype {
    /// Which predefined type this is, if it is one.
    pub fn basic_kind(&self) -> Option<Basic> {
        None
    }
    /// The value's and the index's type, if MPI_Type_get_value_index made this type and it has no name.
    pub fn value_index(&self) -> Option<(Basic, Basic)> {
        None
    }
}
