//! Messages from agents.

use std::time::Instant;

use ferry_job::{RankState, RankStatus};

use super::super::{Backend, Job, WaitStatus};
use crate::forward::{Channel, Input};
use crate::hang::view_of;
use crate::protocol::{self, Opening, PREAMBLE, ToAgent, ToMpiexec};

impl Job<'_> {
    /// Reads once from an agent and handles the whole messages.
    pub(in crate::run) fn read_agent(&mut self, number: usize) {
        let Some(remote) = self.remote() else { return };
        let buffer = &mut remote.buffer;
        let link = &mut remote.agents[number];
        let Some(from) = &link.from else { return };
        // Once only: other events wait, too.
        match rustix::io::read(from, buffer.as_mut_slice()) {
            Ok(0) => self.agent_disconnected(number),
            Ok(n) => {
                link.last_received = Instant::now();
                link.received.extend_from_slice(&buffer[..n]);
                self.read_frames(number);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.agent_disconnected(number),
        }
    }

    pub(super) fn agent_disconnected(&mut self, number: usize) {
        let shutdown = self.shutdown.is_some();
        let Some(remote) = self.remote() else { return };
        let link = &mut remote.agents[number];
        link.from = None;
        link.closed_at = Some(Instant::now());
        if link.done || shutdown && !link.connected {
            link.to = None;
        }
    }

    pub(super) fn read_frames(&mut self, number: usize) {
        let shutdown = self.shutdown.is_some();
        let Some(remote) = self.remote() else { return };
        let link = &mut remote.agents[number];
        if !link.connected {
            match protocol::opening(&link.received) {
                Opening::Waiting => return,
                Opening::Wrong(text) => return self.lose_agent(number, &text),
                Opening::Open(at) => {
                    link.connected = true;
                    link.received.drain(..at);
                    if shutdown {
                        // It has not been told to start ranks, and ends with its input.
                        link.to = None;
                        return;
                    }
                    link.send_queue.push_raw(&PREAMBLE);
                    link.send_queue.push_raw(&protocol::PROTOCOL.to_le_bytes());
                    let mut spec = remote.spec.clone();
                    spec.host = number as u32;
                    link.send_queue.push(&ToAgent::Launch(Box::new(spec)));
                }
            }
        }
        let mut at = 0;
        let bytes = match self.remote() {
            Some(remote) => std::mem::take(&mut remote.agents[number].received),
            None => return,
        };
        loop {
            match protocol::decode::<ToMpiexec>(&bytes[at..]) {
                Ok(Some((message, len))) => {
                    at += len;
                    if let Err(text) = self.handle_message(number, message) {
                        return self.lose_agent(number, &text);
                    }
                }
                Ok(None) => break,
                Err(text) => return self.lose_agent(number, &format!("it sends {text}")),
            }
        }
        if let Some(remote) = self.remote() {
            remote.agents[number].received = bytes[at..].to_vec();
        }
    }

    /// Handles one message of an agent.
    ///
    /// # Errors
    /// The message names a rank that is not on the agent's host.
    pub(super) fn handle_message(
        &mut self,
        number: usize,
        message: ToMpiexec,
    ) -> Result<(), String> {
        match message {
            ToMpiexec::Started { rank, pid, binding } => {
                let rank = self.checked_rank(number, rank)?;
                self.ranks[rank].pid = pid.max(1);
                self.report_binding(rank, &binding);
            }
            ToMpiexec::StartFailed { text, status } => {
                let host = self.host_name(number);
                self.end(&format!("{text} (on {host})"), status.max(1));
            }
            ToMpiexec::Output { rank, error, bytes } => {
                let channel = if error { Channel::Err } else { Channel::Out };
                let rank = self.checked_rank(number, rank)?;
                self.output.append(rank, channel, &bytes);
            }
            ToMpiexec::Pages(pages) => {
                let now = RankStatus::now();
                for page in pages {
                    let rank = self.checked_rank(number, page.rank)?;
                    if let Some(remote) = self.remote() {
                        remote.states[rank] = RankState::from_number(page.state);
                        remote.awake[rank] = page.awake;
                        remote.views[rank] = view_of(&page, now.saturating_sub(page.age));
                    }
                }
            }
            ToMpiexec::PagesConfirmed(question) => {
                if let Some(remote) = self.remote() {
                    remote.agents[number].confirmed = question;
                }
            }
            ToMpiexec::Abort { rank, code, text } => {
                let rank = self.checked_rank(number, rank)?;
                self.abort(rank, code, &text);
            }
            ToMpiexec::Log { rank, text } => {
                let rank = self.checked_rank(number, rank)?;
                self.log_for(rank, &text);
            }
            ToMpiexec::Put { medium, rank, card } => {
                let rank = self.checked_rank(number, rank)? as u32;
                for asker in self.business_cards.put(&medium, rank, card) {
                    self.send_card(&medium, rank, asker);
                }
            }
            ToMpiexec::Spawn { number: socket } => self.start_launcher_for(number, socket),
            ToMpiexec::Relay {
                number: socket,
                bytes,
            } => self.write_relay(number, socket, &bytes),
            ToMpiexec::Name {
                number: question,
                bytes,
            } => {
                let bytes = self.answer(&bytes).unwrap_or_else(|e| {
                    self.complain_of_names(&e);
                    Vec::new()
                });
                let answer = ToAgent::NameAnswer {
                    number: question,
                    bytes,
                };
                self.send_to_agent(number, &answer);
            }
            ToMpiexec::Get { medium, rank } => self.send_card(&medium, rank, number),
            ToMpiexec::Ended {
                rank,
                status,
                state,
            } => {
                let rank = self.checked_rank(number, rank)?;
                if let Some(remote) = self.remote() {
                    remote.states[rank] = RankState::from_number(state);
                }
                if self.ranks[rank].ended.replace(WaitStatus(status)).is_none() {
                    self.alive -= 1;
                    self.on_rank_exit(rank, WaitStatus(status));
                }
            }
            ToMpiexec::StdinTaken => {
                if let Input::Sent(sender) = &mut self.input {
                    sender.outstanding_acks = sender.outstanding_acks.saturating_sub(1);
                }
            }
            ToMpiexec::Heartbeat => {}
            ToMpiexec::Done => {
                // Ranks that were never started.
                let there = self.living_ranks_of(number);
                self.give_up_ranks(there.into_iter());
                if let Some(remote) = self.remote() {
                    let link = &mut remote.agents[number];
                    link.done = true;
                    link.to = None;
                }
            }
        }
        self.enable_stdin();
        Ok(())
    }

    /// The rank that an agent names, if it is on the agent's host.
    pub(super) fn checked_rank(&self, number: usize, rank: u32) -> Result<usize, String> {
        let host = match &self.backend {
            Backend::Remote(remote) => remote.spec.host_of.get(rank as usize),
            Backend::Local(_) => None,
        };
        match host {
            Some(&host) if host as usize == number => Ok(rank as usize),
            _ => Err(format!("it speaks of rank {rank}, which is not there")),
        }
    }

    /// The ranks of a host that have not ended.
    pub(super) fn living_ranks_of(&self, number: usize) -> Vec<usize> {
        (0..self.ranks.len())
            .filter(|&r| {
                self.ranks[r].ended.is_none() && self.checked_rank(number, r as u32).is_ok()
            })
            .collect()
    }

    pub(super) fn host_name(&mut self, number: usize) -> String {
        self.remote()
            .map_or_else(String::new, |a| a.agents[number].host.clone())
    }

    pub(super) fn send_card(&mut self, medium: &str, rank: u32, host: usize) {
        let Ok(card) = self.business_cards.get(medium, rank, host) else {
            return;
        };
        let message = ToAgent::Card {
            medium: medium.into(),
            rank,
            card: card.to_vec(),
        };
        self.send_to_agent(host, &message);
    }

    /// Queues a message for a host's agent.
    pub(in crate::run) fn send_to_agent(&mut self, host: usize, message: &ToAgent) {
        if let Some(remote) = self.remote() {
            remote.agents[host].send_queue.push(message);
        }
    }

    /// Counts these ranks as ended.
    pub(super) fn give_up_ranks(&mut self, ranks: impl Iterator<Item = usize>) {
        for rank in ranks {
            if self.ranks[rank].ended.is_none() {
                self.ranks[rank].ended = Some(WaitStatus(0));
                self.alive -= 1;
            }
        }
    }
}
