//! Limits that a big job runs into: descriptors, processes.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that mpiexec needs for itself: standard streams, epoll, signals, segment, and some
/// to spare.
const OWN_DESCRIPTORS: u64 = 32;

/// Raises RLIMIT_NOFILE to `per_rank` descriptors for each rank. Returns the former limit, which
/// the ranks get.
///
/// # Errors
/// One line that names the limit and what is needed.
pub fn make_room_for_descriptors(ranks: u32, per_rank: u64) -> Result<Rlimit, String> {
    let before = getrlimit(Resource::Nofile);
    let needed = u64::from(ranks) * per_rank + OWN_DESCRIPTORS;
    let current = before.current.unwrap_or(u64::MAX);
    let most = before.maximum.unwrap_or(u64::MAX);
    if current >= needed {
        return Ok(before);
    }
    if most < needed {
        return Err(format!(
            "{ranks} ranks need {needed} file descriptors in mpiexec, but RLIMIT_NOFILE allows \
             {most}; raise it (ulimit -Hn {needed}) or start fewer ranks"
        ));
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum: before.maximum,
        },
    )
    .map_err(|e| format!("RLIMIT_NOFILE could not be raised to {needed} for {ranks} ranks: {e}"))?;
    Ok(before)
}

/// The limits on processes, for the message after a refusal.
pub fn process_limits() -> String {
    let user = getrlimit(Resource::Nproc)
        .current
        .map_or("unlimited".into(), |n| n.to_string());
    let read = |path: &str| fs::read_to_string(path).ok().map(|s| s.trim().to_string());
    let mut text = format!("RLIMIT_NPROC is {user} (ulimit -u)");
    for (name, path) in [
        ("pids.max", "/sys/fs/cgroup/pids.max"),
        ("pids.max", "/sys/fs/cgroup/pids/pids.max"),
        ("kernel.pid_max", "/proc/sys/kernel/pid_max"),
        ("kernel.threads-max", "/proc/sys/kernel/threads-max"),
    ] {
        if let Some(value) = read(path) {
            text += &format!(", {name} {value}");
        }
    }
    text
}
