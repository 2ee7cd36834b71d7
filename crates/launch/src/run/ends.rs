//! How ranks and jobs end.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use std::{fs, thread};

use ferry_job::RankState;
use rustix::event::epoll;
use rustix::process::WaitOptions;

use super::{Crew, Ending, GRACE, Job, PATIENCE, Rank};
use crate::output::Channel;
use crate::signals;

/// How a process has ended: its wait status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End(pub(super) i32);

impl End {
    /// The signal that killed it.
    pub(super) fn signal(self) -> Option<c_int> {
        libc::WIFSIGNALED(self.0).then(|| libc::WTERMSIG(self.0))
    }
    /// Its exit status, if it has ended by itself.
    pub(super) fn exit_status(self) -> Option<u8> {
        libc::WIFEXITED(self.0).then(|| libc::WEXITSTATUS(self.0) as u8)
    }
    /// In words.
    pub(super) fn described(self) -> String {
        match (self.signal(), self.exit_status()) {
            (Some(signal), _) => format!("was killed by {}", signals::described(signal)),
            (None, Some(status)) => format!("ended with exit status {status}"),
            (None, None) => "ended".into(),
        }
    }
}

impl Job<'_> {
    /// Decides what the end of a rank means for the job.
    pub(super) fn judge(&mut self, rank: usize, end: End) {
        if self.ending.is_some() {
            return;
        }
        let state = self.state(rank);
        if let Some(signal) = end.signal() {
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
            if libc::WCOREDUMP(end.0) {
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
        let code = end.exit_status().unwrap_or(1);
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
                    "{} ended without MPI_Finalize (of a session: MPI_Session_finalize), with exit status {code}{hint}",
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
        match &self.crew {
            Crew::Here(here) => RankState::from_number(here.statuses[rank].state.load(Acquire)),
            Crew::Afar(afar) => afar.state(rank),
        }
    }

    pub(super) fn named(&self, rank: usize) -> String {
        let Rank {
            pid, program, host, ..
        } = &self.ranks[rank];
        format!("rank {rank} ({program}, pid {pid} on {host})")
    }

    /// Begins to end the job, for the reason `text` (said unless empty). Later reasons are
    /// consequences of the first.
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
        if let Crew::Here(here) = &mut self.crew {
            here.warden = None;
        }
        self.end_model();
        self.dismiss_agents(events);
        end_orphans(self.ending.is_some());
        for stream in 0..self.output.streams() {
            self.output.drain(stream);
        }
        for stream in 0..self.output.streams() {
            self.output.end(stream);
        }
        self.flush();
        while !self.output.is_empty() && self.asked_to_end < 2 {
            self.turn(events);
            self.flush();
        }
        self.print_machine_report();
        match &self.ending {
            Some(ending) => ending.status,
            None if self.output_lost => self.status.max(1),
            None => self.status,
        }
    }
}

/// Ends what ranks have started and left behind: it has become this process's child. `ending`: at
/// once, by force.
pub fn end_orphans(ending: bool) {
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
