//! mpiexec: starts the ranks of a job, watches them, passes their output on, ends the job.
//!
//! ```text
//!  options  the command line        hosts, plan  which rank runs where
//!     └───────────────┬──────────────────┘
//!                    run   one event loop: local, remote, modelled, hang_check, exit, signals
//!         ┌───────────┼────────────┬───────────────┐
//!       start      forward        hang         protocol ── agent
//!    processes   stdin, output   who waits     messages    mpiexec on another host
//!                                for whom      to agents   (uses start, forward, hang)
//! ```
//!
//! If all ranks are on this host, they are children of mpiexec. Otherwise each host has an agent:
//! mpiexec in a mode of its own, started through ssh or what `--launcher` says. The ranks of a host
//! are its agent's children, and the agent does what mpiexec tells it.
//!
//! ```
//! // What `mpiexec --version` does.
//! let status = ferry_launch::mpiexec(["--version".into()]);
//! assert_eq!(status, std::process::ExitCode::SUCCESS);
//! ```

mod agent;
pub mod diagnosis;
mod forward;
mod hang;
mod hosts;
mod names;
mod options;
mod plan;
mod protocol;
mod relay;
mod run;
mod run_alone;
mod secure_stream;
mod signals;
mod start;
mod watch;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

pub use names::serve as serve_names;
use options::{Action, AppContext, InheritedEnv};
pub use run_alone::run_alone;
pub use signals::Signals;

/// What `ferry install` writes manual pages and completions from.
pub mod manual {
    pub use crate::options::{ABOUT, EXIT_STATUS, OPTIONS, OptionSpec, Section, USAGE};
}

/// Runs mpiexec with these arguments, without its own name. Blocks until the job has ended. To be
/// called from the only thread of the process, whose standard output and error it writes.
pub fn mpiexec(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    if arguments
        .peek()
        .is_some_and(|a| a == protocol::AGENT_OPTION)
    {
        return ExitCode::from(agent::run());
    }
    if let Some(option) = arguments.peek()
        && (option == ferry_job::SPAWN_OPTION || option == ferry_job::SPAWN_DETACHED_OPTION)
    {
        let detached = option == ferry_job::SPAWN_DETACHED_OPTION;
        return ExitCode::from(run::run_spawned(arguments.skip(1), detached));
    }
    if arguments
        .peek()
        .is_some_and(|a| a == ferry_job::NAME_OPTION)
    {
        return ExitCode::from(run::answer_name(arguments.nth(1)));
    }
    if arguments
        .peek()
        .is_some_and(|a| a == ferry_job::WATCH_OPTION)
    {
        return ExitCode::from(watch::watch(arguments.skip(1)));
    }
    let asked = options::parse(arguments, |name| env::var(name).ok());
    match asked {
        Ok(Action::Run(options)) => {
            name_unknown_variables();
            if let Err(text) = options.apps.iter().try_for_each(check_settings) {
                complain(&text);
                return ExitCode::from(2);
            }
            ExitCode::from(run::run(&options))
        }
        Ok(Action::Help) => print(&options::help()),
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

/// Prints a line for each `FERRY_` variable in the environment that does not exist. The job runs
/// all the same.
fn name_unknown_variables() {
    for (name, _) in env::vars_os() {
        if let Some(text) = name.to_str().and_then(ferry_api::variables::complaint) {
            complain(&text);
        }
    }
}

/// Checks the settings that the ranks of a program will find in their environment.
///
/// # Errors
/// One line about a value that makes no sense.
fn check_settings(app: &AppContext) -> Result<(), String> {
    ferry_job::settings::check(|name| {
        let given = app.set_env.iter().rev().find(|(n, _)| n == name);
        let is_inherited = match &app.inherited_env {
            InheritedEnv::All => true,
            InheritedEnv::Only(names) => names.iter().any(|n| n == name),
        };
        match given {
            Some((_, value)) => Some(value.clone()),
            None => env::var_os(name).filter(|_| is_inherited),
        }
    })
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints a line on standard error, before there is a job.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "mpiexec: {text}");
}
