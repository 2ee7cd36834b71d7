//! Messages from agents. There is one for each host; `host` is its index.

use std::time::Instant;

use ferry_job::{RankState, RankStatus};

use super::super::{Backend, Job, WaitStatus};
use crate::forward::{Channel, Input};
use crate::hang::view_of;
use crate::protocol::{self, Opening, PREAMBLE, StatusPage, ToAgent, ToMpiexec};

impl Job<'_> {
    /// Reads once from an agent and handles the whole messages.
    pub(in crate::run) fn read_agent(&mut self, host: usize) {
        let Some(remote) = self.remote() else { return };
        let buffer = &mut remote.buffer;
        let link = &mut remote.agents[host];
        let Some(from) = &link.from else { return };
        // Once only: other events wait, too.
        match rustix::io::read(from, buffer.as_mut_slice()) {
            Ok(0) => self.agent_disconnected(host),
            Ok(n) => {
                link.last_received = Instant::now();
                link.received.extend_from_slice(&buffer[..n]);
                self.read_frames(host);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.agent_disconnected(host),
        }
    }

    /// The connection to an agent has ended.
    pub(super) fn agent_disconnected(&mut self, host: usize) {
        let shutdown = self.shutdown.is_some();
        let Some(remote) = self.remote() else { return };
        let link = &mut remote.agents[host];
        link.from = None;
        link.closed_at = Some(Instant::now());
        if link.done || shutdown && !link.connected {
            link.to = None;
        }
    }

    /// Handles the whole messages of what has been received. The first is the opening; it is
    /// answered with the launch message.
    pub(super) fn read_frames(&mut self, host: usize) {
        let shutdown = self.shutdown.is_some();
        let Some(remote) = self.remote() else { return };
        let link = &mut remote.agents[host];
        if !link.connected {
            match protocol::opening(&link.received) {
                Opening::Waiting => return,
                Opening::Wrong(text) => return self.lose_agent(host, &text),
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
                    spec.host = host as u32;
                    link.send_queue.push(&ToAgent::Launch(Box::new(spec)));
                }
            }
        }
        let mut at = 0;
        let bytes = match self.remote() {
            Some(remote) => std::mem::take(&mut remote.agents[host].received),
            None => return,
        };
        loop {
            match protocol::decode::<ToMpiexec>(&bytes[at..]) {
                Ok(Some((message, len))) => {
                    at += len;
                    if let Err(text) = self.handle_message(host, message) {
                        return self.lose_agent(host, &text);
                    }
                }
                Ok(None) => break,
                Err(text) => return self.lose_agent(host, &format!("it sends {text}")),
            }
        }
        if let Some(remote) = self.remote() {
            remote.agents[host].received = bytes[at..].to_vec();
        }
    }

    /// Handles one message of an agent.
    ///
    /// # Errors
    /// The message names a rank that is not on the agent's host.
    pub(super) fn handle_message(&mut self, host: usize, message: ToMpiexec) -> Result<(), String> {
        match message {
            ToMpiexec::Started { rank, pid, binding } => {
                let rank = self.checked_rank(host, rank)?;
                self.ranks[rank].pid = pid.max(1);
                self.report_binding(rank, &binding);
            }
            ToMpiexec::StartFailed { text, status } => {
                let name = self.host_name(host);
                self.end(&format!("{text} (on {name})"), status.max(1));
            }
            ToMpiexec::Output { rank, error, bytes } => {
                let channel = if error { Channel::Err } else { Channel::Out };
                let rank = self.checked_rank(host, rank)?;
                self.streams.output.append(rank, channel, &bytes);
            }
            ToMpiexec::Pages(pages) => self.note_pages(host, &pages)?,
            ToMpiexec::PagesConfirmed(question) => {
                if let Some(remote) = self.remote() {
                    remote.agents[host].confirmed = question;
                }
            }
            ToMpiexec::Abort { rank, code, text } => {
                let rank = self.checked_rank(host, rank)?;
                self.abort(rank, code, &text);
            }
            ToMpiexec::Log { rank, text } => {
                let rank = self.checked_rank(host, rank)?;
                self.log_for(rank, &text);
            }
            ToMpiexec::Put { medium, rank, card } => {
                let rank = self.checked_rank(host, rank)? as u32;
                for asker in self.business_cards.put(&medium, rank, card) {
                    self.send_card(&medium, rank, asker);
                }
            }
            ToMpiexec::Spawn { number: socket } => self.start_launcher_for(host, socket),
            ToMpiexec::Relay {
                number: socket,
                bytes,
            } => self.write_relay(host, socket, &bytes),
            ToMpiexec::Name {
                number: question,
                bytes,
            } => self.answer_name_question(host, question, &bytes),
            ToMpiexec::Get { medium, rank } => self.send_card(&medium, rank, host),
            ToMpiexec::Ended {
                rank,
                status,
                state,
            } => {
                let rank = self.checked_rank(host, rank)?;
                self.note_end(rank, WaitStatus(status), RankState::from_number(state));
            }
            ToMpiexec::StdinTaken => {
                if let Input::Sent(sender) = &mut self.streams.input {
                    sender.outstanding_acks = sender.outstanding_acks.saturating_sub(1);
                }
            }
            ToMpiexec::Heartbeat => {}
            ToMpiexec::Done => self.note_agent_done(host),
        }
        self.enable_stdin();
        Ok(())
    }

    /// Stores what the status pages of ranks say, for the hang report.
    fn note_pages(&mut self, host: usize, pages: &[StatusPage]) -> Result<(), String> {
        let now = RankStatus::now();
        for page in pages {
            let rank = self.checked_rank(host, page.rank)?;
            if let Some(remote) = self.remote() {
                remote.states[rank] = RankState::from_number(page.state);
                remote.awake[rank] = page.awake;
                remote.views[rank] = view_of(page, now.saturating_sub(page.age));
            }
        }
        Ok(())
    }

    /// Answers a rank that publishes or looks up a service name. No bytes: there is no answer.
    fn answer_name_question(&mut self, host: usize, question: u32, bytes: &[u8]) {
        let bytes = self.answer(bytes).unwrap_or_else(|e| {
            self.complain_of_names(&e);
            Vec::new()
        });
        let answer = ToAgent::NameAnswer {
            number: question,
            bytes,
        };
        self.send_to_agent(host, &answer);
    }

    /// A rank's process has ended, and its status page was last in `state`.
    fn note_end(&mut self, rank: usize, status: WaitStatus, state: RankState) {
        if let Some(remote) = self.remote() {
            remote.states[rank] = state;
        }
        if self.ranks[rank].ended.replace(status).is_none() {
            self.alive -= 1;
            self.on_rank_exit(rank, status);
        }
    }

    /// An agent has reported the end of each rank that it has started, and ends itself.
    fn note_agent_done(&mut self, host: usize) {
        let never_started = self.living_ranks_of(host);
        self.give_up_ranks(never_started.into_iter());
        if let Some(remote) = self.remote() {
            let link = &mut remote.agents[host];
            link.done = true;
            link.to = None;
        }
    }

    /// The rank that an agent names, if it is on the agent's host.
    pub(super) fn checked_rank(&self, host: usize, rank: u32) -> Result<usize, String> {
        let host_of_rank = match &self.backend {
            Backend::Remote(remote) => remote.spec.host_of.get(rank as usize),
            Backend::Local(_) => None,
        };
        match host_of_rank {
            Some(&h) if h as usize == host => Ok(rank as usize),
            _ => Err(format!("it speaks of rank {rank}, which is not there")),
        }
    }

    /// The ranks of a host that have not ended.
    pub(super) fn living_ranks_of(&self, host: usize) -> Vec<usize> {
        (0..self.ranks.len())
            .filter(|&r| self.ranks[r].ended.is_none() && self.checked_rank(host, r as u32).is_ok())
            .collect()
    }

    /// A host's name.
    pub(super) fn host_name(&mut self, host: usize) -> String {
        self.remote()
            .map_or_else(String::new, |a| a.agents[host].host.clone())
    }

    /// Sends a rank's business card to a host, or notes that the host waits for it.
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
