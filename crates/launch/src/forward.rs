//! What mpiexec moves between its own standard input and output and the ranks'.

mod output;
mod sink;
mod stdin;

pub use output::{Channel, Output};
pub use stdin::{Input, StdinCopier, WaitFor, standard_input};
