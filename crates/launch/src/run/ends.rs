//! How ranks and jobs end.

use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use std::{fs, thread};

use ferry_job::RankState;
use rustix::event::epoll;
use rustix::process::{WaitOptions, WaitStatus};

use super::{Ending, GRACE, Job, PATIENCE, Rank};
use crate::output::Channel;
use crate::signals;

impl Job<'_> {
    /// Takes note of all processes that have ended.
    pub(super) fn reap(&mut self) {
        let mut ended = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(rank) = self.by_pid.remove(&pid.as_raw_nonzero().get()) {
                        ended.push((rank, status));
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        for &(rank, status) in &ended {
            self.ranks[rank].ended = Some(status);
            self.alive -= 1;
            if let Some(warden) = &self.warden {
                warden.note(rank, 0);
            }
        }
        // What they said last comes before what is said about them; and a call of MPI_Abort before the exit that follows it.
        for &(rank, _) in &ended {
            self.drain(rank);
            self.hear(rank);
        }
        // Where several died at once, a signal is nearer to the cause than an early exit.
        ended.sort_by_key(|(_, status)| !status.signaled());
        for (rank, status) in ended {
            self.judge(rank, status);
        }
    }

    /// Decides what the end of a rank means for the job.
    fn judge(&mut self, rank: usize, status: WaitStatus) {
        if self.ending.is_some() {
            return;
        }
        let state = self.state(rank);
        if let Some(signal) = status.terminating_signal() {
            let code = 128 + signal as u8;
            if self.passed_on.contains(&signal) {
                // The user asked for it; the others have had the same signal, and get their time.
                self.status = self.status.max(code);
                if self.alive > 0 && self.asked_to_end > 0 {
                    self.end("", code);
                }
                return;
            }
            let mut text = format!(
                "{} was killed by {}",
                self.named(rank),
                signals::described(signal)
            );
            // SAFETY: the macro's function form only looks at the number.
            if libc::WCOREDUMP(status.as_raw()) {
                text += ", core dumped";
            }
            text += match signal {
                libc::SIGKILL => {
                    " from outside; often that is the kernel, out of memory (see dmesg)"
                }
                libc::SIGBUS => "; shared memory or a mapped file has no room left?",
                _ => "",
            };
            self.end(&text, code);
            return;
        }
        let code = status.exit_status().unwrap_or(1) as u8;
        match state {
            RankState::Running | RankState::Aborted => {
                let hint = match code {
                    129..=192 => format!(
                        " ({code} = 128 + {})",
                        signals::described(i32::from(code) - 128)
                    ),
                    _ => String::new(),
                };
                let text = format!(
                    "{} ended without MPI_Finalize, with exit status {code}{hint}",
                    self.named(rank)
                );
                self.end(&text, code.max(1));
            }
            RankState::Started
                if code != 0
                    && self
                        .living()
                        .any(|(r, _)| self.state(r) == RankState::Running) =>
            {
                let text = format!(
                    "{} ended before MPI_Init, with exit status {code}",
                    self.named(rank)
                );
                self.end(&text, code);
            }
            _ => self.status = self.status.max(code),
        }
    }

    pub(super) fn state(&self, rank: usize) -> RankState {
        RankState::from_number(self.statuses[rank].state.load(Acquire))
    }

    pub(super) fn named(&self, rank: usize) -> String {
        let Rank { pid, program, .. } = &self.ranks[rank];
        format!("rank {rank} ({program}, pid {pid} on {})", self.host)
    }

    /// Begins to end the job, for the reason `text` (said unless empty). Later reasons are consequences of the first.
    pub(super) fn end(&mut self, text: &str, status: u8) {
        if self.ending.is_some() {
            return;
        }
        if !text.is_empty() {
            let others = self.alive;
            let ending = text.contains("ending") || others == 0;
            self.output.say(&if ending {
                text.to_string()
            } else {
                format!("{text}; ending the job")
            });
        }
        self.ending = Some(Ending {
            since: Instant::now(),
            status,
            killed: false,
        });
        self.send(libc::SIGTERM);
        self.send(libc::SIGCONT);
    }

    /// Reads all that a rank has written until now.
    pub(super) fn drain(&mut self, rank: usize) {
        for channel in [Channel::Out, Channel::Err] {
            self.output.drain(2 * rank + channel as usize);
        }
    }

    /// All ranks have ended: their last output, what they left behind, the status.
    pub(super) fn finish(&mut self, events: &mut Vec<epoll::Event>) -> u8 {
        self.warden = None;
        self.end_orphans();
        for stream in 0..2 * self.ranks.len() {
            self.output.drain(stream);
        }
        for stream in 0..2 * self.ranks.len() {
            self.output.end(stream);
        }
        self.flush();
        while !self.output.is_empty() && self.asked_to_end < 2 {
            self.turn(events);
            self.flush();
        }
        match &self.ending {
            Some(ending) => ending.status,
            None if self.output_lost => self.status.max(1),
            None => self.status,
        }
    }

    /// Ends what ranks have started and left behind: it has become mpiexec's child.
    fn end_orphans(&mut self) {
        let began = Instant::now();
        let ending = self.ending.is_some();
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
            if none || began.elapsed() > PATIENCE {
                return;
            }
            let late = ending || began.elapsed() > GRACE;
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
