//! Launchers of the jobs that ranks of this job order (MPI_Comm_spawn): mpiexec once more, a child
//! of this one. The rank and its launcher speak through a socket of their own.

use std::collections::HashSet;
use std::ffi::{OsString, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use ferry_job::{ParentSocket, SPAWN_OPTION};

use super::Job;
use crate::options::Options;
use crate::signals::Signals;

/// The launchers that run.
#[derive(Default)]
pub(super) struct SpawnedLaunchers(HashSet<i32>);

impl SpawnedLaunchers {
    /// Is there one?
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// A child has ended. Was it a launcher?
    pub(super) fn ended(&mut self, pid: i32) -> bool {
        self.0.remove(&pid)
    }

    /// Sends them a signal.
    pub(super) fn signal(&self, signal: c_int) {
        for &pid in &self.0 {
            // SAFETY: a plain system call; the child has not been waited for.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Job<'_> {
    /// Starts a launcher that gets `socket`, the end of a rank's.
    pub(super) fn start_launcher(&mut self, socket: OwnedFd) {
        if self.shutdown.is_some() {
            return;
        }
        match start(&socket, self.options, &self.signals) {
            Ok(pid) => {
                self.spawned.0.insert(pid);
            }
            Err(e) => {
                let why = format!("mpiexec cannot start a launcher for them: {e}");
                ParentSocket::new(socket).failed(&why);
            }
        }
    }
}

/// The options of this job that hold for others, too.
fn inherited(options: &Options) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    if let Some(launcher) = &options.launcher {
        out.extend(["--launcher".into(), launcher.into()]);
    }
    if let Some(path) = &options.launcher_path {
        out.extend(["--launcher-path".into(), path.into()]);
    }
    if options.allow_other_mpi {
        out.push("--allow-other-mpi".into());
    }
    out
}

fn start(socket: &OwnedFd, options: &Options, signals: &Signals) -> io::Result<i32> {
    let number = socket.as_raw_fd();
    let mask = signals.original_mask;
    let parent = std::process::id() as i32;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("mpiexec")
        .arg(SPAWN_OPTION)
        .arg(number.to_string())
        .args(inherited(options))
        .stdin(Stdio::null());
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(number, libc::F_SETFD, 0) < 0
                || libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) < 0
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) < 0
            {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    };
    command.spawn().map(|child| child.id() as i32)
}
