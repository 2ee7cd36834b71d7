//! The command line: Hydra's options, and Open MPI's where they mean the same.
//!
//! ```text
//! parse    arguments → Action         model    Options, AppContext and what they hold
//! table    names of all options       values   one option's value, checked
//! help     what mpiexec -h prints
//! ```

mod help;
mod model;
mod parse;
mod table;
mod values;

pub use help::HELP;
pub use model::{
    Action, AppContext, Binding, InheritedEnv, MachineOptions, OnHang, Options, StdinTarget,
};
pub use parse::parse;
pub use values::RANKS_MAX;

#[cfg(test)]
mod tests;
