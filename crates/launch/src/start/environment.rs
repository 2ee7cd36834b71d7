//! The environment of a program's ranks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use ferry_job::LAUNCH_FD;

use super::libraries::LIBRARY_PATH;
use super::program;
use crate::options::{AppContext, InheritedEnv};
use crate::protocol::Program;

/// Puts together what agents or this host start a program from. `remote`: for another host, where
/// variables that describe this one are left out.
pub fn program_of(app: &AppContext, remote: bool) -> Program {
    let environment = environment(app)
        .into_iter()
        .filter(|(name, _)| !remote || !describes_this_host(name))
        .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
        .collect();
    Program {
        program: program::in_folders(&app.program, app.wdir.as_deref(), &app.path)
            .as_os_str()
            .into(),
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
