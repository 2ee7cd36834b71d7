//! The command line: Hydra's options, and Open MPI's where they mean the same.
//!
//! ```text
//! parse    arguments → Action         model    Options, AppContext and what they hold
//! table    all options, described     values   one option's value, checked
//! help     what mpiexec -h prints      config_file    the words of a file of programs
//! option_id  what an option does
//! ```

mod config_file;
mod help;
mod model;
mod option_id;
mod parse;
mod table;
mod values;

pub use help::{ABOUT, EXIT_STATUS, USAGE, text as help};
pub use model::{
    Action, AppContext, Binding, InheritedEnv, MachineOptions, OnHang, Options, StdinTarget,
};
pub use parse::parse;
pub use table::{OPTIONS, OptionSpec, Section};
pub use values::{RANKS_MAX, host_file, host_list};

#[cfg(test)]
mod tests;
