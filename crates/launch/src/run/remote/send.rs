//! Messages to agents.

use std::os::fd::AsFd;

use rustix::event::epoll;

use super::super::{Backend, EVENT_AGENT_WRITABLE, Job};
use crate::forward::Input;
use crate::protocol::ToAgent;

impl Job<'_> {
    /// Sends a message to all agents that run ranks.
    pub(in crate::run) fn broadcast(&mut self, message: &ToAgent) {
        if let Some(remote) = self.remote() {
            for link in remote.agents.iter_mut().filter(|l| l.connected && !l.done) {
                link.send_queue.push(message);
            }
        }
        self.flush_agents();
    }

    /// Have all agents that run ranks answered this question about their status pages? Asks it
    /// once.
    pub(in crate::run) fn pages_confirmed(&mut self, question: u64) -> bool {
        let Some(remote) = self.remote() else {
            return true;
        };
        let asks = std::mem::replace(&mut remote.pages_question, question) != question;
        let mut running = remote.agents.iter().filter(|l| l.connected && !l.done);
        let confirmed = running.all(|l| l.confirmed == question);
        if asks {
            self.broadcast(&ToAgent::ConfirmPages(question));
        }
        confirmed
    }

    /// Writes what is queued for agents, and polls for room where not all could be written.
    pub(in crate::run) fn flush_agents(&mut self) {
        let Backend::Remote(remote) = &mut self.backend else {
            return;
        };
        for (number, link) in remote.agents.iter_mut().enumerate() {
            let Some(to) = &link.to else { continue };
            if link.send_queue.flush(to).is_err() {
                // It is gone. Reading from it tells so.
                link.to = None;
                continue;
            }
            let waits = link.send_queue.len() > 0;
            if waits != link.write_polled {
                let token = epoll::EventData::new_u64(EVENT_AGENT_WRITABLE | number as u64);
                let done = if waits {
                    epoll::add(&self.poll, to, token, epoll::EventFlags::OUT)
                } else {
                    epoll::delete(&self.poll, to.as_fd())
                };
                link.write_polled = waits == done.is_ok();
            }
        }
    }

    /// Begins to read standard input once all ranks that read it run.
    pub(super) fn enable_stdin(&mut self) {
        let Backend::Remote(remote) = &self.backend else {
            return;
        };
        if let Input::Sent(sender) = &mut self.streams.input
            && !sender.enabled
        {
            sender.enabled = remote
                .readers
                .iter()
                .all(|&r| self.ranks[r as usize].pid != 0);
        }
    }

    /// Sends a chunk of standard input to the hosts whose ranks read it.
    pub(in crate::run) fn send_stdin(&mut self, bytes: Vec<u8>) {
        let Backend::Remote(remote) = &mut self.backend else {
            return;
        };
        let mut hosts: Vec<u32> = remote
            .readers
            .iter()
            .map(|&r| remote.spec.host_of[r as usize])
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let message = ToAgent::Stdin(bytes);
        let mut outstanding_acks = 0;
        for host in hosts {
            let link = &mut remote.agents[host as usize];
            if !link.done && !link.lost {
                link.send_queue.push(&message);
                outstanding_acks += 1;
            }
        }
        if let Input::Sent(sender) = &mut self.streams.input {
            sender.outstanding_acks = outstanding_acks;
        }
        self.flush_agents();
    }
}
