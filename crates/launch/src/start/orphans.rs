//! Ending what ranks have started and left behind.

use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::WaitOptions;

/// Between asking the ranks to end and killing them. MPI_Abort and crashes are to end a job within
/// a second.
pub const KILL_DELAY: Duration = Duration::from_millis(300);

/// A killed process that has not gone after this stands in the kernel, say on a dead file server;
/// mpiexec goes without it.
pub const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends what ranks have started and left behind: it has become this process's child. `ending`: at
/// once, by force.
pub fn kill_orphans(ending: bool) {
    let began = Instant::now();
    let mut known = Vec::new();
    loop {
        let mut none = false;
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => {
                    none = true;
                    break;
                }
            }
        }
        if none || began.elapsed() > REAP_TIMEOUT {
            return;
        }
        let late = ending || began.elapsed() > KILL_DELAY;
        for child in children() {
            if late || !known.contains(&child) {
                known.push(child);
                // SAFETY: a child of ours that has not been waited for, so the pid is its.
                unsafe { libc::kill(child, if late { libc::SIGKILL } else { libc::SIGTERM }) };
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Living children of this process.
fn children() -> Vec<i32> {
    let pid = std::process::id();
    if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{pid}/children")) {
        return list
            .split_whitespace()
            .filter_map(|p| p.parse().ok())
            .collect();
    }
    // A kernel without that file: ask every process for its parent.
    let parent_of = |pid: i32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')')
            .next()?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&p| parent_of(p) == Some(pid)).collect()
}
