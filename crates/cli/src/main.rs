//! `ferry`: looks at the machine (`doctor`), shows modelled ones (`machines`) and installs
//! (`install`).

mod collectives;
mod doctor;
mod install;
mod machines;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Ferry MPI: runs MPI programs on this machine. Programs are started with mpiexec and compiled
/// with mpicc.
#[derive(Parser)]
#[command(name = "ferry", version)]
struct Ferry {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Say what Ferry finds on this machine, what that means for jobs, and what to change
    Doctor {
        /// List the MPI functions that are not there yet instead
        #[arg(long)]
        coverage: bool,
        /// List the environment variables that Ferry reads instead
        #[arg(long)]
        variables: bool,
        /// List by which algorithms collectives of so many ranks go instead
        #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
        collectives: Option<u32>,
    },
    /// List the modelled machines for mpiexec --machine, or show one of them
    Machines {
        #[command(subcommand)]
        what: Option<Machines>,
    },
    /// Copy programs, library, header and pkg-config files to a prefix
    Install {
        /// Where to: bin, include and lib go below it
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// The folder with cargo's products; by default the one that this program is in
        #[arg(long)]
        from: Option<PathBuf>,
        /// Put before the prefix, for packagers
        #[arg(long, env = "DESTDIR")]
        destdir: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum Machines {
    /// Say what each figure of a machine means and where it comes from
    Show {
        /// One that comes with Ferry, or a file
        name: String,
        /// Print its file instead, to copy and change
        #[arg(long)]
        file: bool,
    },
    /// Measure what the hardware of a machine and its driver can do without MPI (remote write,
    /// DIMMnet-2)
    Measure {
        /// One that comes with Ferry, or a file
        name: String,
    },
}

fn main() -> ExitCode {
    let said = match Ferry::parse().task {
        Task::Doctor { coverage: true, .. } => coverage(),
        Task::Doctor {
            variables: true, ..
        } => ferry_api::variables::listing(),
        Task::Doctor {
            collectives: Some(ranks),
            ..
        } => collectives::report(ranks, ferry_job::Cores::counted().usable() as u32),
        Task::Doctor { .. } => doctor::report(),
        Task::Machines { what } => {
            let said = match what {
                None => Ok(machines::list()),
                Some(Machines::Show { name, file }) => machines::show(&name, file),
                Some(Machines::Measure { name }) => machines::measure(&name),
            };
            match said {
                Ok(text) => text,
                Err(text) => {
                    eprintln!("ferry: {text}");
                    return ExitCode::FAILURE;
                }
            }
        }
        Task::Install {
            prefix,
            from,
            destdir,
        } => match installed(prefix, from, destdir) {
            Ok(text) => text,
            Err(text) => {
                eprintln!("ferry: {text}");
                return ExitCode::FAILURE;
            }
        },
    };
    match std::io::stdout().write_all(said.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn installed(
    prefix: PathBuf,
    from: Option<PathBuf>,
    destdir: Option<PathBuf>,
) -> Result<String, String> {
    let from = match from {
        Some(from) => from,
        None => {
            let exe = std::env::current_exe()
                .map_err(|e| format!("its own place cannot be found: {e}"))?;
            exe.parent().map(PathBuf::from).unwrap_or_default()
        }
    };
    let prefix =
        std::path::absolute(prefix).map_err(|e| format!("the prefix cannot be used: {e}"))?;
    let place = match destdir {
        Some(top) => top.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix.clone(),
    };
    let files = install::install(&from, &place)?;
    let bin = prefix.join("bin");
    let known =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|p| p == bin));
    let path = if known {
        String::new()
    } else {
        format!("\nput it into PATH: export PATH={}:$PATH", bin.display())
    };
    Ok(format!(
        "{} files installed in {}{path}\n",
        files.len(),
        place.display()
    ))
}

fn coverage() -> String {
    let missing = ferry_api::missing();
    let all: usize = ferry_api::functions()
        .iter()
        .map(|f| f.forms().count())
        .sum();
    let mut text = format!(
        "{} of {all} functions of the MPI 5.0 standard ABI are there. These raise MPI_ERR_UNSUPPORTED_OPERATION:\n",
        all - missing.len()
    );
    for name in &missing {
        text += &format!("  {name}\n");
    }
    if missing.is_empty() {
        text = format!("All {all} functions of the MPI 5.0 standard ABI are there.\n");
    }
    text
}
