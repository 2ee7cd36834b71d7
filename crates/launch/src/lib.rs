//! mpiexec: starts the ranks of a job on this machine, watches them, passes their output on, ends the job.
//!
//! ```text
//! options   the command line            program, limits, placing   what is to be started, and whether it can be
//! start     prepares and starts ranks   spawn                      one rank's clone and exec
//! run       the job's life: one loop    output, stdin, signals     what the loop moves
//! hang      who waits for whom          warden                     cleans up after a killed mpiexec
//! ```

mod hang;
mod limits;
mod options;
mod output;
mod placing;
mod program;
mod run;
mod signals;
mod spawn;
mod start;
mod stdin;
mod warden;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use options::Asked;

/// mpiexec with these arguments (its own name left out); blocks until the job has ended. Must be called from the only
/// thread of its process, whose standard output and error it writes.
pub fn mpiexec(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let asked = options::parse(arguments, |name| env::var(name).ok());
    match asked {
        Ok(Asked::Run(options)) => ExitCode::from(run::run(&options)),
        Ok(Asked::Help) => print(options::HELP),
        Ok(Asked::Version) => print(&format!(
            "mpiexec (Ferry MPI) {}\n",
            env!("CARGO_PKG_VERSION")
        )),
        Err(text) => {
            complain(&text);
            ExitCode::from(2)
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
