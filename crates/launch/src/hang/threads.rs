//! What the kernel says about the threads of a rank: do they sleep?
//!
//! If several threads may call MPI, one that waits in MPI proves nothing: another may compute and
//! send later. But if all threads sleep in system calls without a timeout that only another thread
//! can end, they sleep until one of them wakes another.

use ferry_job::RankStatus;
use std::fs;
use std::sync::atomic::Ordering::Relaxed;

/// Compares what the kernel says at two moments, for the ranks of a node.
#[derive(Default)]
pub struct SleepCheck {
    /// The last answer for each local rank.
    last: Vec<Option<ThreadSwitches>>,
}

impl SleepCheck {
    /// Is local rank `local`, process `pid`, awake? A rank that was woken or stopped counts as
    /// awake, although it has not said so. A rank with several threads in MPI sleeps if no thread
    /// has run since the last call, and none can wake by itself.
    pub fn awake(&mut self, local: usize, pid: i32, status: &RankStatus) -> bool {
        if status.concurrent.load(Relaxed) == 0 {
            return is_awake(pid);
        }
        if self.last.len() <= local {
            self.last.resize(local + 1, None);
        }
        let now = all_asleep(status);
        let before = std::mem::replace(&mut self.last[local], now);
        before.is_none() || before != self.last[local]
    }
}

/// Is a process running or stopped?
fn is_awake(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
    matches!(state, Some('R' | 'T' | 't'))
}

/// Context switches of each thread, voluntary and not. They stay the same while no thread runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ThreadSwitches(Vec<(u32, [u64; 2])>);

/// What threads of a process sleep on in MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MpiSleep {
    /// Address of the wakeup word in the process.
    word: u64,
    /// The epoll descriptor, or -1.
    epoll_fd: i32,
}

/// What `/proc/PID/task/TID/syscall` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    /// Sleeps in MPI until a peer or another thread wakes it.
    InMpi,
    /// Sleeps until another thread of the process wakes it, without a timeout.
    ForThread,
    /// Runs, or may wake by itself or by something outside of the job.
    MayRun,
}

/// The context switches of a rank's threads, if all of them sleep until another one wakes them, and
/// at least one sleeps in MPI. Ferry's own threads do not count. Two equal answers mean that none
/// has run in between. `None` also if the kernel does not tell: `/proc/PID/task/TID/syscall` needs
/// the right to trace the process, which its parent has.
fn all_asleep(status: &RankStatus) -> Option<ThreadSwitches> {
    let mpi_sleep = MpiSleep {
        word: status.wakeup_word.load(Relaxed),
        epoll_fd: status.epoll_fd.load(Relaxed),
    };
    let process = format!("/proc/{}", status.pid.load(Relaxed));
    let (mut all, mut in_mpi) = (Vec::new(), false);
    let shared = |address| {
        let maps = fs::read_to_string(format!("{process}/maps"));
        maps.map_or(true, |maps| is_shared(&maps, address))
    };
    for entry in fs::read_dir(format!("{process}/task")).ok()? {
        let folder = entry.ok()?.path();
        let tid = folder.file_name()?.to_str()?.parse().ok()?;
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        if read("comm")?.starts_with(ferry_job::THREAD_PREFIX) {
            continue;
        }
        match waits(&read("syscall")?, mpi_sleep, shared) {
            ThreadState::MayRun => return None,
            ThreadState::InMpi => in_mpi = true,
            ThreadState::ForThread => {}
        }
        let status = read("status")?;
        // A thread that was woken while it is stopped still shows its system call.
        if !is_sleeping(&status) {
            return None;
        }
        all.push((tid, switches(&status)?));
    }
    all.sort_unstable();
    in_mpi.then_some(ThreadSwitches(all))
}

/// Reads the line of a thread's system call: its number and arguments. `shared` tells whether other
/// processes share the memory at an address.
fn waits(line: &str, mpi_sleep: MpiSleep, shared: impl Fn(u64) -> bool) -> ThreadState {
    let mut words = line.split_ascii_whitespace();
    let number: Option<i64> = words.next().and_then(|w| w.parse().ok());
    let arguments: Vec<u64> = words
        .map_while(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok())
        .collect();
    let (Some(number), &[first, second, _, fourth, ..]) = (number, &arguments[..]) else {
        return ThreadState::MayRun;
    };
    let forever = fourth as i32 == -1;
    match number {
        libc::SYS_futex => {
            // pthread_join waits without FUTEX_PRIVATE_FLAG.
            let private = || second as i32 & libc::FUTEX_PRIVATE_FLAG != 0 || !shared(first);
            let operation = second as i32 & libc::FUTEX_CMD_MASK;
            let waits = operation == libc::FUTEX_WAIT || operation == libc::FUTEX_WAIT_BITSET;
            match waits && fourth == 0 {
                true if first == mpi_sleep.word => ThreadState::InMpi,
                true if private() => ThreadState::ForThread,
                _ => ThreadState::MayRun,
            }
        }
        libc::SYS_epoll_pwait if forever && first as i32 == mpi_sleep.epoll_fd => {
            ThreadState::InMpi
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait if forever && first as i32 == mpi_sleep.epoll_fd => ThreadState::InMpi,
        libc::SYS_epoll_pwait2 if fourth == 0 && first as i32 == mpi_sleep.epoll_fd => {
            ThreadState::InMpi
        }
        _ => ThreadState::MayRun,
    }
}

/// Is the memory at this address shared with other processes, by the process's memory map? `true`
/// if it does not say.
fn is_shared(maps: &str, address: u64) -> bool {
    let holds = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let inside = (number(from)?..number(to)?).contains(&address);
        inside.then(|| rest.as_bytes().get(3) != Some(&b'p'))
    };
    maps.lines().find_map(holds).unwrap_or(true)
}

/// Does a thread sleep, by its status? `false` if it runs or is stopped.
fn is_sleeping(status: &str) -> bool {
    let state = status.lines().find_map(|l| l.strip_prefix("State:"));
    state.is_some_and(|s| s.trim_start().starts_with('S'))
}

/// Voluntary and involuntary context switches, from a thread's status.
fn switches(status: &str) -> Option<[u64; 2]> {
    let of = |name| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some([
        of("voluntary_ctxt_switches:")?,
        of("nonvoluntary_ctxt_switches:")?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, mpsc};

    /// With a process that shares nothing below 64 KiB.
    fn waits(line: &str) -> ThreadState {
        let mpi_sleep = MpiSleep {
            word: 0x7f00_0000_1040,
            epoll_fd: 9,
        };
        super::waits(line, mpi_sleep, |address| address >= 0x10000)
    }

    #[test]
    fn a_futex_without_a_limit_is_a_sleep_that_another_thread_ends() {
        let line = |word: &str, operation: i32, limit: &str| {
            format!(
                "{} {word} {operation:#x} 0x1 {limit} 0x0 0x1 0x7ffe00 0x7f00\n",
                libc::SYS_futex
            )
        };
        let (wait, bitset) = (libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET);
        let private = libc::FUTEX_PRIVATE_FLAG;
        let own = "0x7f0000001040";
        assert_eq!(waits(&line(own, bitset, "0x0")), ThreadState::InMpi);
        assert_eq!(waits(&line(own, bitset, "0x7ffe10")), ThreadState::MayRun);
        assert_eq!(
            waits(&line("0x5500", wait | private, "0x0")),
            ThreadState::ForThread
        );
        assert_eq!(waits(&line("0x5500", wait, "0x0")), ThreadState::ForThread);
        // A word that other processes share may belong to any of them.
        assert_eq!(waits(&line("0x15500", wait, "0x0")), ThreadState::MayRun);
        let wake = libc::FUTEX_WAKE | private;
        assert_eq!(waits(&line("0x5500", wake, "0x0")), ThreadState::MayRun);
    }

    #[test]
    fn an_epoll_is_mpis_if_it_is_the_door() {
        let line = |fd: i32, limit: &str| {
            let number = libc::SYS_epoll_pwait;
            format!("{number} {fd:#x} 0x7ffe00 0x4 {limit} 0x0 0x8 0x7ffe00 0x7f00")
        };
        assert_eq!(waits(&line(9, "0xffffffff")), ThreadState::InMpi);
        assert_eq!(waits(&line(9, "0xffffffffffffffff")), ThreadState::InMpi);
        assert_eq!(waits(&line(8, "0xffffffff")), ThreadState::MayRun);
        assert_eq!(waits(&line(9, "0x64")), ThreadState::MayRun);
    }

    #[test]
    fn whatever_else_a_thread_does_it_may_go_on() {
        for line in [
            "running\n",
            "-1 0x7ffe00 0x7f00\n",
            "",
            "0 0x0 0x7ffe00 0x1 0x0 0x0 0x0 0x7ffe00 0x7f00",
            "202 nonsense",
            "202 0x1 0x2",
        ] {
            assert_eq!(waits(line), ThreadState::MayRun, "{line}");
        }
    }

    #[test]
    fn memory_is_shared_unless_the_map_says_no() {
        let maps = "00400000-00401000 r-xp 00000000 fe:00 12 /bin/x\n\
                    7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /memfd:y (deleted)\n\
                    7f0000001000-7f0000003000 rw-p 00000000 00:00 0 \n";
        for (address, shared) in [
            (0x40_0fff, false),
            (0x40_1000, true),
            (0x7f00_0000_0010, true),
            (0x7f00_0000_1000, false),
        ] {
            assert_eq!(is_shared(maps, address), shared, "{address:#x}");
        }
        assert!(is_shared("nonsense", 0));
    }

    #[test]
    fn who_is_stopped_does_not_sleep() {
        let status = |state| format!("Name:\tx\nState:\t{state}\nTgid:\t1\n");
        assert!(is_sleeping(&status("S (sleeping)")));
        for state in [
            "R (running)",
            "T (stopped)",
            "t (tracing stop)",
            "D (disk sleep)",
        ] {
            assert!(!is_sleeping(&status(state)), "{state}");
        }
        assert!(!is_sleeping(""));
    }

    #[test]
    fn switches_are_read() {
        let text = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(text), Some([12, 3]));
        assert_eq!(switches("voluntary_ctxt_switches:\t12\n"), None);
    }

    /// This process has a thread that runs: the one that asks.
    #[test]
    fn a_process_that_runs_is_awake() {
        let status = RankStatus::default();
        status.pid.store(std::process::id() as i32, Relaxed);
        let (ready, (end, ended)) = (Arc::new(Barrier::new(2)), mpsc::channel::<()>());
        let other = {
            let ready = ready.clone();
            std::thread::spawn(move || {
                ready.wait();
                let _ = ended.recv();
            })
        };
        ready.wait();
        assert_eq!(all_asleep(&status), None);
        drop(end);
        other.join().unwrap();
        status.pid.store(i32::MAX, Relaxed);
        assert_eq!(all_asleep(&status), None);
    }
}
