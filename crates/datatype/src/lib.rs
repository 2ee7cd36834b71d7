//! MPI datatypes: constructors, layout, pack and unpack, external32 (MPI 5.0 §5).
//!
//! ```text
//!   create, array   MPI_Type_vector, _create_struct, _create_subarray, …
//!        │
//!        ▼
//!   Datatype ── constructor  the call and its arguments ──► envelope (MPI_Type_get_contents)
//!            ├─ shape        size, bounds, alignment
//!            ├─ signature    its basic elements         ──► elements (MPI_Get_elements)
//!            ├─ layout       tree of runs, at commit    ──► pack, unpack, runs, external32,
//!            │                                             copy_typed, elements_at
//!            └─ encode       the type as bytes, for a process on another node
//! ```
//!
//! A [`Datatype`] keeps its [`Constructor`]: the MPI call that made it, with the arguments. Size
//! and bounds follow from that alone. The layout is made at commit or at first use. It is a compact
//! tree: a vector of 10⁹ elements takes as little memory as one of two. Any packed offset is found
//! in one descent, so transports can ask for any piece of a message.
//!
//! This crate knows the ABI's numbers for types and constants, because they are the types' names.
//! It knows no handles, no error numbers and no communication.
//!
//! # Example
//! Every second one of six numbers:
//!
//! ```
//! use ferry_datatype::{Basic, Datatype};
//!
//! let t = Datatype::vector(3, 1, 2, Datatype::basic(Basic::Int)).unwrap();
//! assert_eq!((t.size(), t.extent()), (12, 20));
//! let numbers = [1, 2, 3, 4, 5, 6i32];
//! let mut packed = [0; 12];
//! // SAFETY: one element of `t` lies within the six numbers.
//! let n = unsafe { t.pack(numbers.as_ptr().cast(), 1, 0, &mut packed) };
//! assert_eq!(n, 12);
//! assert_eq!(packed[4..8], 3i32.to_ne_bytes());
//! ```

mod array;
mod basic;
mod constructor;
mod create;
mod datatype;
mod elements;
mod encode;
mod envelope;
mod error;
mod external32;
mod layout;
mod quad;
mod representation;
mod shape;
mod signature;
mod unnamed;

pub use basic::{Basic, Class, Form, LONG_DOUBLE_BYTES, short_bytes};
pub use constructor::{Constructor, Dimension, Distribution, Order, Width};
pub use datatype::Datatype;
pub use envelope::{Combiner, Contents};
pub use error::TypeError;
pub use layout::{Elements, RegularRuns, RunOrder, copy_run};
pub use signature::Signature;
pub use unnamed::MatchClass;
