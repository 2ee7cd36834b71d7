//! Ends orphans: processes that ranks have started and left behind.

use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::WaitOptions;

/// Delay between SIGTERM and SIGKILL. A job must end within a second of MPI_Abort or a crash.
pub const KILL_DELAY: Duration = Duration::from_millis(300);

/// How long killed processes are waited for. One that stays longer hangs in the kernel, say on a
/// dead file server, and is left.
pub const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the orphans of the ranks. They are children of this process, which is a subreaper
/// (prctl(2)). `by_force`: kills them at once.
pub fn kill_orphans(by_force: bool) {
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
        let kill = by_force || began.elapsed() > KILL_DELAY;
        for child in children() {
            if kill || !known.contains(&child) {
                known.push(child);
                // SAFETY: a child of ours that has not been waited for, so the pid is its.
                unsafe { libc::kill(child, if kill { libc::SIGKILL } else { libc::SIGTERM }) };
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Children of this process that have not ended.
fn children() -> Vec<i32> {
    let pid = std::process::id();
    if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{pid}/children")) {
        return list
            .split_whitespace()
            .filter_map(|p| p.parse().ok())
            .collect();
    }
    // Without CONFIG_PROC_CHILDREN: ask every process for its parent.
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
