//! Ranks that are children of this process.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use ferry_job::{RankSocket, RankStatus, Received, ToLauncher, ToRank};
use rustix::event::epoll;
use rustix::process::WaitOptions;

use super::{Backend, EVENT_RANK, Job, WaitStatus};
use crate::forward::Channel;
use crate::forward::{Input, standard_input};
use crate::start::ParentDeathWatcher;
use crate::start::RankStarter;

/// The ranks of this host.
pub(super) struct LocalRanks {
    pub(super) starter: RankStarter,
    pub(super) statuses: &'static [RankStatus],
    pub(super) sockets: Vec<Option<RankSocket>>,
    pub(super) by_pid: HashMap<i32, usize>,
    pub(super) watcher: Option<ParentDeathWatcher>,
}

impl LocalRanks {
    pub(super) fn new(starter: RankStarter) -> LocalRanks {
        LocalRanks {
            statuses: starter.node.segment.statuses(),
            sockets: (0..starter.ranks()).map(|_| None).collect(),
            by_pid: HashMap::new(),
            watcher: None,
            starter,
        }
    }

    /// Starts the process that cleans up if this one is killed. To be called early, while this
    /// process has little memory to copy.
    pub(super) fn watch_parent(&mut self) -> io::Result<()> {
        self.watcher = Some(ParentDeathWatcher::start(self.sockets.len() as u32)?);
        Ok(())
    }
}

impl Job<'_> {
    /// Starts all ranks on this host. If one cannot be started, the others are ended.
    pub(super) fn start_local_ranks(&mut self) {
        for rank in 0..self.ranks.len() {
            if let Err(error) = self.start_rank(rank) {
                self.end(&error.text, error.status);
                return;
            }
        }
    }

    fn start_rank(&mut self, rank: usize) -> Result<(), crate::start::StartError> {
        let Backend::Local(local) = &mut self.backend else {
            return Ok(());
        };
        let Some(watcher) = &local.watcher else {
            return Ok(());
        };
        let copied = match &mut self.streams.input {
            Input::Copied(pump) => pump.reader(rank as u32).map_err(|e| {
                crate::start::StartError::new(format!(
                    "rank {rank} cannot be started: making a pipe for its stdin: {e}"
                ))
            })?,
            _ => None,
        };
        let stdin = match (&copied, &self.streams.input) {
            (Some(reader), _) => Some(reader.as_fd()),
            (None, Input::Inherited(reader)) if *reader as usize == rank => Some(standard_input()),
            _ => None,
        };
        let started = local.starter.start(rank, stdin, &self.signals, watcher)?;
        let _ = epoll::add(
            &self.poll,
            started.socket.fd(),
            epoll::EventData::new_u64(EVENT_RANK | rank as u64),
            epoll::EventFlags::IN,
        );
        local.sockets[rank] = Some(started.socket);
        local.by_pid.insert(started.pid, rank);
        let binding = local.starter.binding_of(rank);
        let [out, err] = started.output;
        for (channel, pipe) in [(Channel::Out, out), (Channel::Err, err)] {
            let stream = self.streams.output.add(rank, channel, pipe);
            self.poll_stream(stream);
        }
        self.ranks[rank].pid = started.pid;
        self.alive += 1;
        self.report_binding(rank, &binding);
        Ok(())
    }

    fn socket(&mut self, rank: usize) -> Option<&mut RankSocket> {
        match &mut self.backend {
            Backend::Local(local) => local.sockets[rank].as_mut(),
            Backend::Remote(_) => None,
        }
    }

    /// Handles all messages of a rank.
    pub(super) fn read_rank_messages(&mut self, rank: usize) {
        loop {
            let Some(socket) = self.socket(rank) else {
                return;
            };
            match socket.receive() {
                Received::Empty => return,
                Received::Closed => {
                    if let Backend::Local(local) = &mut self.backend {
                        local.sockets[rank] = None;
                    }
                }
                Received::Message(ToLauncher::Put { medium, card }) => {
                    for asker in self.business_cards.put(&medium, rank as u32, card) {
                        self.send_card_to(&medium, rank as u32, asker);
                    }
                }
                Received::Message(ToLauncher::Get {
                    medium,
                    rank: whose,
                }) => self.send_card_to(&medium, whose, rank),
                Received::Message(ToLauncher::Spawn) => {
                    if let Some(end) = socket.take_descriptor() {
                        self.start_launcher(end);
                    }
                }
                Received::Message(ToLauncher::Name) => {
                    if let Some(end) = socket.take_descriptor() {
                        self.answer_name(end);
                    }
                }
                Received::Message(ToLauncher::Log { text }) => self.log_for(rank, &text),
                Received::Message(ToLauncher::Abort { code, text }) => {
                    socket.confirm_abort();
                    self.drain(rank);
                    self.abort(rank, code, &text);
                }
            }
        }
    }

    /// Sends a rank's business card to another rank, if it is there.
    fn send_card_to(&mut self, medium: &str, rank: u32, to: usize) {
        let Ok(card) = self.business_cards.get(medium, rank, to) else {
            return;
        };
        let reply = ToRank::Card {
            medium: medium.into(),
            rank,
            card: card.to_vec(),
        };
        if let Some(socket) = self.socket(to) {
            socket.send(&reply);
            self.poll_rank_socket(to);
        }
    }

    /// Polls a rank's socket. For writing, too, while replies wait for room.
    pub(super) fn poll_rank_socket(&mut self, rank: usize) {
        if let Backend::Local(local) = &mut self.backend
            && let Some(socket) = &mut local.sockets[rank]
        {
            let flags = if socket.flush() {
                epoll::EventFlags::IN
            } else {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            };
            let token = epoll::EventData::new_u64(EVENT_RANK | rank as u64);
            let _ = epoll::modify(&self.poll, socket.fd(), token, flags);
        }
    }

    /// Collects the wait statuses of all processes that have ended: ranks, or launchers of agents.
    pub(super) fn reap(&mut self) {
        let mut ended = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get();
                    if self.spawned.ended(pid) {
                        let code = WaitStatus(status.as_raw()).exit_status().unwrap_or(1);
                        self.status = self.status.max(code);
                        continue;
                    }
                    match &mut self.backend {
                        Backend::Local(local) => {
                            if let Some(rank) = local.by_pid.remove(&pid) {
                                ended.push((rank, WaitStatus(status.as_raw())));
                            }
                        }
                        Backend::Remote(remote) => {
                            remote.launcher_exited(pid, WaitStatus(status.as_raw()))
                        }
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        for &(rank, end) in &ended {
            self.ranks[rank].ended = Some(end);
            if let Some(modelled) = &self.modelled {
                modelled.report_exit(rank);
            }
            self.alive -= 1;
            if let Backend::Local(local) = &self.backend
                && let Some(watcher) = &local.watcher
            {
                watcher.ended(rank);
            }
        }
        // A rank's last output is printed before its exit is reported. MPI_Abort comes before the
        // exit that follows it.
        for &(rank, _) in &ended {
            self.drain(rank);
            self.read_rank_messages(rank);
        }
        // If several ranks have ended at once, those killed by a signal come first: they are nearer
        // to the cause.
        ended.sort_by_key(|(_, end)| end.signal().is_none());
        for (rank, end) in ended {
            self.on_rank_exit(rank, end);
        }
    }
}
