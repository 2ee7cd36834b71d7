//! `ferry run`: one program without mpiexec, on Ferry's library of its ABI.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::start::libraries::{Choice, lead, library_folder};

/// Becomes the program, which runs as one process (MPI 5.0 §11.10.2), or as a rank of the job
/// whose launcher has started it: Slurm, Hydra, PRRTE. Returns only if that fails, with the status
/// that shells have for it.
pub fn run_alone(program: &OsString, arguments: &[OsString]) -> ExitCode {
    let mut environment: Vec<_> = env::vars_os().collect();
    let folder = library_folder();
    let failed = match lead(
        &mut environment,
        program,
        None,
        folder.as_deref(),
        Choice::default(),
    ) {
        Ok(led) => {
            let mut command = Command::new(&led.path);
            command.arg0(program).args(arguments).env_clear();
            let cause = command.envs(environment).exec();
            (
                format!("{} cannot be run: {cause}", led.path.display()),
                126,
            )
        }
        Err(error) => (error.text, error.status),
    };
    eprintln!("ferry run: {}", failed.0);
    ExitCode::from(failed.1)
}
