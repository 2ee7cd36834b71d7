//! How ranks and jobs end.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Acquire;
use std::time::Instant;

use ferry_job::RankState;
use rustix::event::epoll;

use super::{Backend, Job, Rank, STATUS_HANG, Shutdown};
use crate::forward::Channel;
use crate::signals;
use crate::start::kill_orphans;

/// How a process has ended: its wait status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitStatus(pub(super) i32);

impl WaitStatus {
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
    pub(super) fn on_rank_exit(&mut self, rank: usize, end: WaitStatus) {
        if self.shutdown.is_some() {
            return;
        }
        let state = self.state(rank);
        if state == RankState::Started && self.parent.as_ref().is_some_and(|p| !p.is_connected()) {
            let text = format!(
                "{} {} before MPI_Init; MPI_Comm_spawn starts MPI programs only",
                self.rank_label(rank),
                end.described()
            );
            return self.end(&text, end.exit_status().unwrap_or(1));
        }
        match end.signal() {
            Some(signal) => self.on_rank_killed(rank, signal, libc::WCOREDUMP(end.0)),
            None => self.on_rank_ended(rank, state, end.exit_status().unwrap_or(1)),
        }
    }

    /// Decides what it means for the job that a signal has killed a rank.
    fn on_rank_killed(&mut self, rank: usize, signal: c_int, dumped_core: bool) {
        let code = 128 + signal as u8;
        if self.forwarded_signals.contains(&signal) {
            // The user asked for it. The other ranks have got the same signal and are given time.
            self.status = self.status.max(code);
            if self.alive > 0 && self.end_requests > 0 {
                self.end("", code);
            }
            return;
        }
        let mut text = format!(
            "{} was killed by {}",
            self.rank_label(rank),
            signals::described(signal)
        );
        if dumped_core {
            text += ", core dumped";
        }
        text += match signal {
            libc::SIGKILL => " from outside; often that is the kernel, out of memory (see dmesg)",
            libc::SIGBUS => "; shared memory or a mapped file has no room left?",
            _ => "",
        };
        self.end(&text, code);
    }

    /// Decides what it means for the job that a rank has ended by itself, in this state.
    fn on_rank_ended(&mut self, rank: usize, state: RankState, code: u8) {
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
                    "{} ended without MPI_Finalize (of a session: MPI_Session_finalize), with exit \
                     status {code}{hint}",
                    self.rank_label(rank)
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
                    self.rank_label(rank)
                );
                self.end(&text, code);
            }
            _ => self.status = self.status.max(code),
        }
    }

    pub(super) fn state(&self, rank: usize) -> RankState {
        match &self.backend {
            Backend::Local(local) => {
                RankState::from_number(local.statuses[rank].state.load(Acquire))
            }
            Backend::Remote(remote) => remote.state(rank),
        }
    }

    pub(super) fn rank_label(&self, rank: usize) -> String {
        let Rank {
            pid, program, host, ..
        } = &self.ranks[rank];
        format!("rank {rank} ({program}, pid {pid} on {host})")
    }

    /// Begins to end the job. `text` is the reason; nothing is printed if it is empty. Only the
    /// first reason counts: later ones are its consequences.
    pub(super) fn end(&mut self, text: &str, status: u8) {
        if self.shutdown.is_some() {
            return;
        }
        let found = self.announced_hang_text();
        let (text, status) = match &found {
            Some(text) => (text.as_str(), STATUS_HANG),
            None => (text, status),
        };
        self.read_parent();
        let mut prints = !text.is_empty();
        if let Some(parent) = &mut self.parent {
            // Before they have connected, their start fails, which is the parent's to report.
            prints &= parent.is_connected();
            let why = text.lines().next().unwrap_or("it was ended");
            parent.failed(if prints { why } else { text });
        }
        if prints {
            let others = self.alive;
            let shutdown = text.contains("ending") || others == 0;
            self.streams.output.print_message(&if shutdown {
                text.to_string()
            } else {
                format!("{text}; ending the job")
            });
        }
        self.shutdown = Some(Shutdown {
            since: Instant::now(),
            status,
            killed: false,
        });
        self.signal_ranks(libc::SIGTERM);
        self.signal_ranks(libc::SIGCONT);
    }

    /// Reads all output that a rank has written until now.
    pub(super) fn drain(&mut self, rank: usize) {
        for channel in [Channel::Out, Channel::Err] {
            self.streams.output.drain(2 * rank + channel as usize);
        }
    }

    /// After the last rank has ended: writes the last output, ends orphans, and returns the exit
    /// status.
    pub(super) fn finish(&mut self, events: &mut Vec<epoll::Event>) -> u8 {
        if let Backend::Local(local) = &mut self.backend {
            local.watcher = None;
        }
        if self.shutdown.is_none()
            && let Some(parent) = &mut self.parent
        {
            parent.ended();
        }
        self.stop_model();
        self.shut_down_agents(events);
        kill_orphans(self.shutdown.is_some());
        for stream in 0..self.streams.output.streams() {
            self.streams.output.drain(stream);
        }
        for stream in 0..self.streams.output.streams() {
            self.streams.output.end(stream);
        }
        self.peers.announce_end();
        self.note_other_mpi();
        self.flush();
        while !self.streams.output.is_empty() && self.end_requests < 2 {
            self.poll_once(events);
            self.flush();
        }
        self.print_machine_report();
        match &self.shutdown {
            _ if self.parent.as_ref().is_some_and(|p| p.has_failed()) => 0,
            Some(shutdown) => shutdown.status,
            None if self.streams.output_broken => self.status.max(1),
            None => self.status,
        }
    }
}
