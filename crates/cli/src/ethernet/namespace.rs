//! Network namespaces with names, as `ip netns` has them, and the processes in them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CapabilitySet, UnshareFlags};

/// Where `ip netns` keeps the names.
const FOLDER: &str = "/run/netns";
/// How long processes in the namespaces have to end by themselves. Servers close their connections
/// within it.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the system has to end processes that are killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks that this process may make namespaces and interfaces.
///
/// # Errors
/// It may not.
pub fn check_capabilities() -> Result<(), String> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    let held = rustix::thread::capabilities(None).map_err(|e| format!("capabilities: {e}"))?;
    match held.effective.contains(needed) {
        true => Ok(()),
        false => Err(
            "network namespaces need root (CAP_NET_ADMIN and CAP_SYS_ADMIN): sudo ferry \
                      ethernet ..."
                .into(),
        ),
    }
}

/// A network namespace with a name. Both go with this value, and with them all processes that are
/// left in it.
pub struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// Makes a namespace that `ip netns exec NAME` finds. This thread is in it afterwards.
    ///
    /// # Errors
    /// What was tried, the system's answer, and what helps.
    pub fn create(name: &str) -> Result<Namespace, String> {
        let path = Path::new(FOLDER).join(name);
        let at = |what: &str, e: io::Error| format!("{what} {} was refused: {e}", path.display());
        fs::create_dir_all(FOLDER).map_err(|e| at("making the folder of", e))?;
        let place = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o000)
            .open(&path);
        match place {
            Ok(_) => {}
            Err(e) => return Err(at("making", e)),
        }
        // From here on the name goes if anything fails.
        let name = Name(path.clone());
        // SAFETY: the caller's thread shares its file system and descriptors with the others as
        // before; only its network is its own from here on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| {
            format!(
                "a network namespace was refused: {e}; this needs root (CAP_SYS_ADMIN), and a \
                 kernel with network namespaces"
            )
        })?;
        let own = "/proc/thread-self/ns/net";
        mount_bind(own, &path).map_err(|e| at("the mount of", e.into()))?;
        let file = File::open(own).map_err(|e| format!("{own} cannot be opened: {e}"))?;
        std::mem::forget(name);
        Ok(Namespace { path, file })
    }

    /// Takes over the namespace that another process has made. `None`: there is none of this name.
    pub fn adopt(name: &str) -> Option<Namespace> {
        let path = Path::new(FOLDER).join(name);
        let file = File::open(&path).ok()?;
        Some(Namespace { path, file })
    }

    /// Returns whether there is something of this name already.
    pub fn exists(name: &str) -> bool {
        Path::new(FOLDER).join(name).symlink_metadata().is_ok()
    }

    /// A descriptor of it, to enter it by.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its number.
    fn inode(&self) -> Option<u64> {
        self.file.metadata().ok().map(|m| m.ino())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Name(self.path.clone()));
    }
}

/// A name in [`FOLDER`]. It goes with this value.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // It may not be mounted, or somebody else may have removed it.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        let _ = fs::remove_file(&self.0);
    }
}

/// Ends all processes in the namespaces: those that do not end when asked are killed.
pub fn end_processes(namespaces: &[Namespace]) {
    for (signal, limit) in [(Signal::TERM, END_TIMEOUT), (Signal::KILL, KILL_TIMEOUT)] {
        let deadline = Instant::now() + limit;
        // What they start meanwhile is found in the next round.
        loop {
            let processes = processes(namespaces);
            for process in &processes {
                // It may have ended.
                let _ = pidfd_send_signal(process, signal);
            }
            if !await_ends(processes, deadline) {
                break;
            }
        }
    }
}

/// Descriptors of the processes in the namespaces.
fn processes(namespaces: &[Namespace]) -> Vec<OwnedFd> {
    let inodes: Vec<u64> = namespaces.iter().filter_map(Namespace::inode).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let inside = |pid: Pid| {
        // The descriptor first: the number may be another process's by the time of the signal.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let network = fs::metadata(format!("/proc/{}/ns/net", pid.as_raw_nonzero())).ok()?;
        inodes.contains(&network.ino()).then_some(process)
    };
    numbers
        .filter_map(Pid::from_raw)
        .filter_map(inside)
        .collect()
}

/// Waits until all of these processes have ended. Returns false if there are none, or if some are
/// left at the deadline.
fn await_ends(mut processes: Vec<OwnedFd>, deadline: Instant) -> bool {
    let any = !processes.is_empty();
    while let Some(process) = processes.last() {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(0) => return false,
            Ok(_) => {
                processes.pop();
            }
            // A signal to this process.
            Err(_) => {}
        }
    }
    any
}
