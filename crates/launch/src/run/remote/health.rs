//! Agents that are lost, and the end of all agents.

use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::super::{Backend, Job};
use super::{AGENT_START_TIMEOUT, AgentLink, LAUNCHER_EXIT_WAIT};
use crate::protocol::ToAgent;
use crate::start::REAP_TIMEOUT;

impl AgentLink {
    /// Why the host is lost whose connection has closed `since` ago. `None`: the launcher may still
    /// end and tell.
    fn why_closed(&self, since: Duration) -> Option<String> {
        match self.launcher_exit {
            Some(end) => {
                let what = if self.connected {
                    "its agent's connection has closed; what started it"
                } else {
                    "what was to start mpiexec there"
                };
                Some(format!("{what} {}", end.described()))
            }
            None if since > LAUNCHER_EXIT_WAIT => Some("its agent's connection has closed".into()),
            None => None,
        }
    }

    /// Why the host is lost of which nothing was heard for so long. `None`: it is not.
    fn why_silent(&self, silent: Duration, limit: Duration) -> Option<String> {
        let start_limit = AGENT_START_TIMEOUT.max(limit);
        if self.connected && silent > limit {
            let seconds = limit.as_secs_f64();
            Some(format!(
                "nothing has been heard of it for {seconds} s (--host-timeout)"
            ))
        } else if !self.connected && silent > start_limit {
            let seconds = start_limit.as_secs_f64();
            Some(format!("no agent has answered for {seconds} s"))
        } else {
            None
        }
    }
}

impl Job<'_> {
    /// Gives up an agent: its ranks are lost, and the job is ended.
    pub(in crate::run) fn lose_agent(&mut self, number: usize, why: &str) {
        let size = self.ranks.len();
        self.streams.output.drain(2 * (size + number) + 1);
        let Some(remote) = self.remote() else { return };
        let link = &mut remote.agents[number];
        if std::mem::replace(&mut link.lost, true) {
            return;
        }
        link.to = None;
        link.from = None;
        let (connected, host, launcher_pid) =
            (link.connected, link.host.clone(), link.launcher_pid);
        if link.launcher_exit.is_none() {
            // SAFETY: a child of ours that has not been waited for, in a group of its own.
            unsafe { libc::kill(-launcher_pid, libc::SIGKILL) };
        }
        let gone = self.living_ranks_of(number);
        let named = crate::hang::ranks_named(&gone);
        self.give_up_ranks(gone.into_iter());
        let text = if connected {
            format!("host {host} is lost with {named}: {why}")
        } else {
            format!("host {host} cannot be used for {named}: {why}")
        };
        self.end(&format!("{text}; ending the job"), 1);
    }

    /// Sends heartbeats. Gives up hosts that are silent or have closed their connection.
    pub(in crate::run) fn check_agents(&mut self, now: Instant) {
        let shutdown = self.shutdown.is_some();
        let Some(remote) = self.remote() else { return };
        let heartbeat_interval = remote.heartbeat_interval();
        if now.duration_since(remote.last_check) > heartbeat_interval * 2 {
            // mpiexec itself did not run, so silence says nothing about the agents.
            remote.agents.iter_mut().for_each(|l| l.last_received = now);
        }
        remote.last_check = now;
        let due = now >= remote.next_heartbeat;
        if due {
            remote.next_heartbeat = now + heartbeat_interval;
        }
        let silence_limit = remote.silence_limit;
        let mut lost = Vec::new();
        for (number, link) in remote.agents.iter_mut().enumerate() {
            if link.done || link.lost {
                continue;
            }
            if let Some(closed_at) = link.closed_at {
                match link.why_closed(now.duration_since(closed_at)) {
                    Some(why) => lost.push((number, why)),
                    None => {
                        remote.next_heartbeat =
                            remote.next_heartbeat.min(closed_at + LAUNCHER_EXIT_WAIT)
                    }
                }
                continue;
            }
            let silent = now.duration_since(link.last_received);
            if let Some(why) = silence_limit.and_then(|limit| link.why_silent(silent, limit)) {
                lost.push((number, why));
            }
            if !link.connected && shutdown {
                lost.push((number, "it was not needed any more".into()));
            } else if due && link.connected && link.send_queue.len() == 0 {
                link.send_queue.push(&ToAgent::Heartbeat);
            }
        }
        for (number, why) in lost {
            self.lose_agent(number, &why);
        }
        self.flush_agents();
    }

    /// After mpiexec was stopped and continued: silence says nothing about the agents.
    pub(in crate::run) fn reset_agent_timers(&mut self) {
        let now = Instant::now();
        if let Some(remote) = self.remote() {
            remote.agents.iter_mut().for_each(|l| l.last_received = now);
        }
    }

    /// After the last rank has ended: waits for the agents to clean up, and kills those that do
    /// not.
    pub(in crate::run) fn shut_down_agents(&mut self, events: &mut Vec<epoll::Event>) {
        let started_at = Instant::now();
        while let Backend::Remote(remote) = &mut self.backend {
            for link in &mut remote.agents {
                if link.lost || link.closed_at.is_some() {
                    link.to = None;
                }
            }
            let all_gone = remote
                .agents
                .iter()
                .all(|l| l.launcher_exit.is_some() || l.lost);
            if all_gone || started_at.elapsed() > REAP_TIMEOUT {
                for link in &remote.agents {
                    if link.launcher_exit.is_none() {
                        // SAFETY: a child of ours that has not been waited for, in a group of its
                        // own.
                        unsafe { libc::kill(-link.launcher_pid, libc::SIGKILL) };
                    }
                }
                return;
            }
            self.poll_once(events);
            self.flush();
        }
    }
}
