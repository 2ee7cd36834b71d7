//! RapidIO: the controller of the 1890VM6Ya system-on-chip, and the message stack on it.
//!
//! The paper is A. S. Kuleshov, "MPI support in Linux OS for RapidIO-based multiprocessor computer
//! systems" (docs/machines/rapidio.md).
//!
//! - [`command`]: what driver and card say to each other.
//! - [`driver`]: the software, in the paper's levels.

pub mod command;
pub mod driver;
pub mod figures;

pub use figures::Figures;
