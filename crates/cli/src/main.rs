//! `ferry`: looks at the machine or a program (`doctor`), runs one process (`run`), shows modelled
//! machines (`machines`), installs (`install`) and removes (`uninstall`).

mod collectives;
mod doctor;
mod ethernet;
mod install;
mod machines;
mod manual;
mod mpi4py;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
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
    /// Say what Ferry finds on this machine, what that means for jobs, and what to change; or, of a
    /// program, which MPI it was linked with and which library it gets
    Doctor {
        /// A program or library to look at
        #[arg(conflicts_with_all = ["coverage", "variables", "collectives"],
              value_hint = clap::ValueHint::CommandName)]
        program: Option<OsString>,
        /// List the MPI functions that are not there yet instead
        #[arg(long)]
        coverage: bool,
        /// List the environment variables that Ferry reads instead
        #[arg(long)]
        variables: bool,
        /// List instead which algorithms collectives of this many ranks use
        #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
        collectives: Option<u32>,
    },
    /// Run a program as one process without mpiexec, on Ferry's library of the MPI that it was
    /// linked with. Under another launcher (srun, Hydra, prterun) it becomes a rank of that
    /// launcher's job
    Run {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true,
              value_hint = clap::ValueHint::CommandWithArguments)]
        program: Vec<OsString>,
    },
    /// List the modelled machines for mpiexec --machine, or show one of them
    Machines {
        #[command(subcommand)]
        what: Option<Machines>,
    },
    /// List which algorithms collectives use, or simulate them for many ranks
    Collectives(collectives::Options),
    /// Join network namespaces by an Ethernet that crosses the channel of a modelled machine
    Ethernet(ethernet::Options),
    /// Keep the names of MPI_Publish_name for jobs that mpiexec --names starts
    Names {
        /// Where to listen; the port 0 is any that is free
        #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
        listen: String,
        /// The file of names; by default beside the key, ~/.ferry-names.list
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Copy programs, library, header, pkg-config files, manual pages and completions to a prefix
    Install {
        /// Where to: bin, include, lib and share go below it
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// The folder with cargo's products; by default the one that this program is in
        #[arg(long)]
        from: Option<PathBuf>,
        /// Put before the prefix, for packagers
        #[arg(long, env = "DESTDIR")]
        destdir: Option<PathBuf>,
    },
    /// Remove what `ferry install` wrote to a prefix, and nothing else
    Uninstall {
        /// Where Ferry is installed
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
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
    let task = Ferry::parse().task;
    if let Task::Ethernet(options) = &task {
        return match ethernet::run(options) {
            Ok(status) => ExitCode::from(status),
            Err(text) => {
                eprintln!("ferry: {text}");
                ExitCode::FAILURE
            }
        };
    }
    if let Task::Collectives(options) = &task {
        return match collectives::run(options, &mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("ferry: collectives: {text}");
                ExitCode::FAILURE
            }
        };
    }
    if let Task::Names { listen, file } = task {
        return match ferry_launch::serve_names(&listen, file) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("ferry: names: {e}");
                ExitCode::FAILURE
            }
        };
    }
    if let Task::Run { program } = &task
        && let Some((program, arguments)) = program.split_first()
    {
        return ferry_launch::run_alone(program, arguments);
    }
    let report = match run(task) {
        Ok(report) => report,
        Err(text) => {
            eprintln!("ferry: {text}");
            return ExitCode::FAILURE;
        }
    };
    match std::io::stdout().write_all(report.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Does a task and returns what it prints.
fn run(task: Task) -> Result<String, String> {
    match task {
        Task::Doctor { coverage: true, .. } => Ok(coverage()),
        Task::Doctor {
            variables: true, ..
        } => Ok(ferry_api::variables::listing()),
        Task::Doctor {
            collectives: Some(ranks),
            ..
        } => Ok(collectives::report(
            ranks,
            ferry_job::Cores::counted().usable() as u32,
        )),
        Task::Doctor {
            program: Some(program),
            ..
        } => doctor::program::report(&program),
        Task::Doctor { .. } => Ok(doctor::report()),
        Task::Machines { what } => match what {
            None => Ok(machines::list()),
            Some(Machines::Show { name, file }) => machines::show(&name, file),
            Some(Machines::Measure { name }) => machines::measure(&name),
        },
        Task::Ethernet(_) | Task::Collectives(_) | Task::Names { .. } | Task::Run { .. } => {
            Ok(String::new())
        }
        Task::Install {
            prefix,
            from,
            destdir,
        } => install_from(prefix, from, destdir),
        Task::Uninstall { prefix, destdir } => uninstall_from(&prefix, destdir),
    }
}

/// The folder to work in: the prefix, below DESTDIR if there is one.
fn install_root(prefix: &Path, destdir: Option<PathBuf>) -> Result<PathBuf, String> {
    let prefix =
        std::path::absolute(prefix).map_err(|e| format!("the prefix cannot be used: {e}"))?;
    Ok(match destdir {
        Some(top) => top.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix,
    })
}

fn install_from(
    prefix: PathBuf,
    from: Option<PathBuf>,
    destdir: Option<PathBuf>,
) -> Result<String, String> {
    let from = match from {
        Some(from) => from,
        None => {
            let exe = std::env::current_exe()
                .map_err(|e| format!("its own path cannot be found: {e}"))?;
            exe.parent().map(PathBuf::from).unwrap_or_default()
        }
    };
    let root = install_root(&prefix, destdir)?;
    let mut text = String::new();
    let others = install::other_abis(&from);
    let products = ferry_cli::fortran::products(&from.join("libmpi_abi.so"), &others);
    let products = products.map_err(|why| text += &format!("without Fortran: {why}\n"));
    let files = install::install(&from, &root, products.as_ref().ok())?;
    for (folder, names) in by_folder(&files) {
        text += &format!("{folder}: {}\n", names.join(" "));
    }
    text += &format!("{} files installed in {}\n", files.len(), root.display());
    let bin = std::path::absolute(prefix.join("bin")).unwrap_or_default();
    let known =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|p| p == bin));
    if !known {
        text += &format!("put it into PATH: export PATH={}:$PATH\n", bin.display());
    }
    Ok(text)
}

/// Names of files by their folders, in the order in which the folders come first.
fn by_folder(files: &[PathBuf]) -> Vec<(String, Vec<String>)> {
    let mut folders: Vec<(String, Vec<String>)> = Vec::new();
    for file in files {
        let shown = |p: Option<&Path>| p.map(|p| p.display().to_string()).unwrap_or_default();
        let folder = shown(file.parent());
        let name = shown(file.file_name().map(Path::new));
        match folders.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, names)) => names.push(name),
            None => folders.push((folder, vec![name])),
        }
    }
    folders
}

fn uninstall_from(prefix: &Path, destdir: Option<PathBuf>) -> Result<String, String> {
    let root = install_root(prefix, destdir)?;
    let removed = install::uninstall(&root)?;
    // The list of what was installed is a file, too.
    let count = removed.files + 1;
    let mut text = format!("{count} files removed from {}\n", root.display());
    for file in removed.changed {
        text += &format!("{} is not as it was installed: left\n", file.display());
    }
    Ok(text)
}

fn coverage() -> String {
    let missing = ferry_api::missing();
    let all: usize = ferry_api::functions()
        .iter()
        .map(|f| f.forms().count())
        .sum();
    let mut text = format!(
        "{} of {all} functions of the MPI 5.0 standard ABI are there. These raise \
         MPI_ERR_UNSUPPORTED_OPERATION:\n",
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
