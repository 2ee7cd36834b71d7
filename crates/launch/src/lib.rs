//! mpiexec: starts the ranks of a job, watches them, passes their output on, ends the job.
//!
//! ```text
//! options   the command line            hosts, plan                which rank goes where
//! start     prepares and starts ranks   program, limits, placing   what is to be started, and whether it can be
//! run       the job's life: one loop    spawn                      one rank's clone and exec
//! hang      who waits for whom          threads                    whether a rank's threads sleep
//! output, stdin, signals                what the loop moves
//! agent     mpiexec on another host     frame                      what it and the head say to each other
//! watcher    cleans up after a killed mpiexec
//! ```
//!
//! Where all ranks are here, [`run`] has them as its own children. Otherwise each host has an
//! agent: mpiexec in a mode of its own, started through ssh or whatever `--launcher` says, which
//! has that host's ranks as its children and does what the head tells it.

mod agent;
mod forward;
mod hang;
mod hosts;
mod options;
mod plan;
mod protocol;
mod run;
mod signals;
mod start;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use options::Action;

/// mpiexec with these arguments (its own name left out); blocks until the job has ended. Must be
/// called from the only thread of its process, whose standard output and error it writes.
pub fn mpiexec(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    if arguments
        .peek()
        .is_some_and(|a| a == protocol::AGENT_OPTION)
    {
        return ExitCode::from(agent::run());
    }
    let asked = options::parse(arguments, |name| env::var(name).ok());
    match asked {
        Ok(Action::Run(options)) => {
            name_unknown_variables();
            ExitCode::from(run::run(&options))
        }
        Ok(Action::Help) => print(options::HELP),
        Ok(Action::Version) => print(&format!(
            "mpiexec (Ferry MPI) {}\n",
            env!("CARGO_PKG_VERSION")
        )),
        Err(text) => {
            complain(&text);
            ExitCode::from(2)
        }
    }
}

/// One line for each `FERRY_` variable in the environment that does not exist: a misspelt setting
/// would pass without a word. The job runs all the same.
fn name_unknown_variables() {
    for (name, _) in env::vars_os() {
        if let Some(text) = name.to_str().and_then(ferry_api::variables::complaint) {
            complain(&text);
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// One line on standard error, before there is a job.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "mpiexec: {text}");
}
