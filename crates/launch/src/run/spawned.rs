//! Launchers of the jobs that ranks of this job order (MPI_Comm_spawn): mpiexec once more, a child
//! of this one. The rank and its launcher speak through a socket of their own.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsString, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use ferry_job::{ParentSocket, SPAWN_OPTION};

use super::{Backend, EVENT_RELAY, Job};
use crate::names::NAMES;
use crate::options::Options;
use crate::protocol::ToAgent;
use crate::relay::Relays;
use crate::signals::Signals;

/// The launchers that run.
#[derive(Default)]
pub(super) struct SpawnedLaunchers {
    pids: HashSet<i32>,
    /// Ends of sockets of ranks on other hosts.
    relays: Relays,
    /// By relay: the host of the rank, and the socket's number there.
    hosts: HashMap<u32, (usize, u32)>,
}

impl SpawnedLaunchers {
    /// Does one run?
    pub(super) fn any(&self) -> bool {
        !self.pids.is_empty()
    }

    /// Forgets a child that has ended. Returns whether it was a launcher.
    pub(super) fn ended(&mut self, pid: i32) -> bool {
        self.pids.remove(&pid)
    }

    /// Sends a signal to all of them.
    pub(super) fn signal(&self, signal: c_int) {
        for &pid in &self.pids {
            // SAFETY: a plain system call; the child has not been waited for.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Job<'_> {
    /// What MPI_UNIVERSE_SIZE says in this job.
    fn universe(&self) -> u32 {
        match &self.backend {
            Backend::Local(local) => local.starter.node.info().universe,
            Backend::Remote(remote) => remote.universe(),
        }
    }

    /// Reads from the end of a socket that belongs to a rank on another host.
    pub(super) fn read_relay(&mut self, relay: u32) {
        let Some(bytes) = self.spawned.relays.read(relay) else {
            return;
        };
        let Some(&(host, number)) = self.spawned.hosts.get(&relay) else {
            return;
        };
        if bytes.is_empty() {
            self.spawned.hosts.remove(&relay);
        }
        self.send_to_agent(host, &ToAgent::Relay { number, bytes });
    }

    /// Starts a launcher for a rank on another host. Its agent calls the rank's socket `number`.
    pub(super) fn start_launcher_for(&mut self, host: usize, number: u32) {
        let Ok((near, far)) = std::os::unix::net::UnixStream::pair() else {
            let bytes = Vec::new();
            return self.send_to_agent(host, &ToAgent::Relay { number, bytes });
        };
        let relay = self
            .spawned
            .relays
            .add(near.into(), &self.poll, EVENT_RELAY);
        self.spawned.hosts.insert(relay, (host, number));
        self.start_launcher(far.into());
    }

    /// Bytes for the launcher of a rank on another host.
    pub(super) fn write_relay(&mut self, host: usize, number: u32, bytes: &[u8]) {
        let of = |&(_, at): &(&u32, &(usize, u32))| *at == (host, number);
        let found = self.spawned.hosts.iter().find(of).map(|(relay, _)| *relay);
        if let Some(relay) = found {
            self.spawned.relays.write(relay, bytes);
            if bytes.is_empty() {
                self.spawned.hosts.remove(&relay);
            }
        }
    }

    /// Starts a launcher that gets `socket`, the end of a rank's.
    pub(super) fn start_launcher(&mut self, socket: OwnedFd) {
        if self.shutdown.is_some() {
            return;
        }
        let names = self.names.variable(&self.poll);
        let universe = self.universe();
        let started = names.and_then(|names| {
            let downstream = self.peers.link_to_spawned()?;
            let order = [socket.as_raw_fd(), downstream.as_raw_fd()];
            let options = inherited(self.options, universe);
            start(order, self.peers.family(), options, &self.signals, &names)
        });
        match started {
            Ok(pid) => {
                self.spawned.pids.insert(pid);
            }
            Err(e) => {
                let why = format!("mpiexec cannot start a launcher for them: {e}");
                ParentSocket::new(socket).failed(&why);
            }
        }
    }
}

/// The options of this job that hold for others, too.
fn inherited(options: &Options, universe: u32) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["-usize".into(), universe.to_string().into()];
    if let Some(launcher) = &options.launcher {
        out.extend(["--launcher".into(), launcher.into()]);
    }
    if let Some(path) = &options.launcher_path {
        out.extend(["--launcher-path".into(), path.into()]);
    }
    if options.allow_other_mpi {
        out.push("--allow-other-mpi".into());
    }
    out.extend(["--on-hang".into(), options.on_hang.word().into()]);
    out
}

/// `sockets`: those to the rank and to this launcher, which it inherits.
fn start(
    sockets: [RawFd; 2],
    family: u64,
    options: Vec<OsString>,
    signals: &Signals,
    names: &str,
) -> io::Result<i32> {
    let mask = signals.original_mask;
    let parent = std::process::id() as i32;
    let [rank, downstream] = sockets;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("mpiexec")
        .arg(SPAWN_OPTION)
        .arg(format!("{rank},{downstream},{family}"))
        .args(options)
        .env(NAMES, names)
        .stdin(Stdio::null());
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if sockets
                .iter()
                .any(|fd| libc::fcntl(*fd, libc::F_SETFD, 0) < 0)
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
