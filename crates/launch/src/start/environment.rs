//! The environment of a program's ranks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use ferry_job::LAUNCH_FD;

use crate::options::{AppContext, InheritedEnv};
use crate::protocol::Program;

/// Puts a folder first in LD_LIBRARY_PATH.
pub(super) fn put_first(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    match environment
        .iter_mut()
        .find(|(name, _)| name == LIBRARY_PATH)
    {
        Some((_, value)) if !value.is_empty() => {
            let mut longer = library.to_owned();
            longer.push(":");
            longer.push(&value);
            *value = longer;
        }
        Some((_, value)) => *value = library.to_owned(),
        None => environment.push((LIBRARY_PATH.into(), library.to_owned())),
    }
}

/// Puts a library before all others that a program loads (ld.so(8)).
pub(super) fn preload(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    match environment
        .iter_mut()
        .find(|(name, _)| name == "LD_PRELOAD")
    {
        Some((_, value)) if !value.is_empty() => {
            value.push(":");
            value.push(library);
        }
        Some((_, value)) => *value = library.to_owned(),
        None => environment.push(("LD_PRELOAD".into(), library.to_owned())),
    }
}

/// The variable by which users of mpi4py's wheels choose one of the ABIs that these have. Without
/// it mpi4py takes the first MPI library that it finds, in Python's own folder at first, and loads
/// that, wherever LD_LIBRARY_PATH leads (mpi4py, "MPI ABI").
const MPI4PY_ABI: &str = "MPI4PY_MPIABI";

/// Has mpi4py use MPICH's ABI, and so Ferry's library of it, unless the user has chosen.
pub(super) fn choose_mpi4py(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    let chosen = [MPI4PY_ABI, "MPI4PY_LIBMPI"];
    let is_chosen = environment
        .iter()
        .any(|(name, _)| chosen.iter().any(|c| name == c));
    if !is_chosen && PathBuf::from(library).join("libmpi.so.12").exists() {
        environment.push((MPI4PY_ABI.into(), "mpich".into()));
    }
}

/// Puts together what agents or this host start a program from. `remote`: for another host, where
/// variables that describe this one are left out.
pub fn program_of(app: &AppContext, remote: bool) -> Program {
    let environment = environment(app)
        .into_iter()
        .filter(|(name, _)| !remote || !describes_this_host(name))
        .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
        .collect();
    Program {
        program: app.program.as_os_str().into(),
        arguments: app.arguments.iter().map(|a| a.as_os_str().into()).collect(),
        wdir: app.wdir.as_ref().map(|d| d.as_os_str().into()),
        environment,
        own_library_path: app.set_env.iter().any(|(name, _)| name == LIBRARY_PATH),
        allow_other_mpi: false,
    }
}

/// Variables that describe mpiexec's host, terminal or Slurm task, and are wrong on another host.
fn describes_this_host(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let whole: [&[u8]; 12] = [
        b"HOSTNAME",
        b"HOST",
        b"DISPLAY",
        b"XAUTHORITY",
        b"XDG_RUNTIME_DIR",
        b"DBUS_SESSION_BUS_ADDRESS",
        b"SLURMD_NODENAME",
        b"SLURM_NODEID",
        b"SLURM_PROCID",
        b"SLURM_LOCALID",
        b"SLURM_TASK_PID",
        b"SLURM_TOPOLOGY_ADDR",
    ];
    whole.contains(&name) || name.starts_with(b"SSH_")
}

/// Variables that differ between ranks. If mpiexec itself runs inside a job, its own values must
/// not reach the ranks.
const PER_RANK: [&str; 7] = [
    LAUNCH_FD,
    "FERRY_RANK",
    "FERRY_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
];

/// The environment that all ranks of a program share.
fn environment(app: &AppContext) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = match &app.inherited_env {
        InheritedEnv::All => env::vars_os().collect(),
        InheritedEnv::Only(names) => env::vars_os()
            .filter(|(name, _)| names.contains(name))
            .collect(),
    };
    all.retain(|(name, _)| {
        !PER_RANK.iter().any(|own| name == own) && !app.set_env.iter().any(|(set, _)| set == name)
    });
    for (at, (name, value)) in app.set_env.iter().enumerate() {
        if !app.set_env[at + 1..].iter().any(|(later, _)| later == name) {
            all.push((name.clone(), value.clone()));
        }
    }
    all
}

pub(super) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The folder of the installation that holds Ferry's libraries under the names that programs of the
/// standard ABI, MPICH and Open MPI ask for. First in LD_LIBRARY_PATH, it makes programs run on
/// Ferry that were built with another MPI's compiler wrapper.
pub(super) fn library_folder() -> Option<OsString> {
    let folder: PathBuf = env::current_exe()
        .ok()?
        .parent()?
        .parent()?
        .join("lib/ferry");
    folder
        .join("libmpi_abi.so.1")
        .exists()
        .then(|| folder.as_os_str().as_bytes().to_vec())
        .map(OsString::from_vec)
}
