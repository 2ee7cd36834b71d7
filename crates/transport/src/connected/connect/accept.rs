//! Accepting: connections that others have opened, from accept(2) to the end of the handshake.

use super::super::ConnTransport;
use super::super::peers::{PeerState, PendingAccept};
use super::super::poll::Token;
use super::handshake_step;
use ferry_auth::{Rejected, Session};
use rustix::event::epoll;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Most connections accepted in one poll. A choice: a flood must leave room for messages.
const ACCEPTS_PER_POLL_MAX: usize = 64;

impl ConnTransport {
    /// Accepts the connections that wait at listener `l` of medium `m`.
    pub(in crate::connected) fn accept_pending(&mut self, m: usize, l: usize) {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let Some(medium) = self.media.get(m) else {
                return;
            };
            let Some(listener) = medium.listeners().get(l) else {
                return;
            };
            // If the process has no descriptor left, the connection stays in the system's queue.
            let Ok(Some(socket)) = medium.accept(listener) else {
                break;
            };
            let now = Instant::now();
            let pending_accept = PendingAccept {
                medium: m,
                socket,
                handshake: self.local.handshake_config.respond(),
            };
            let (ticket, evicted) = self.accepting.pending.push(pending_accept, now);
            if let Some(evicted) = evicted {
                self.reject(Rejected::BacklogFull, &evicted);
            }
            let Some(pending_accept) = self.accepting.pending.get_mut(ticket) else {
                continue;
            };
            let token = Token::PendingAccept(ticket).data();
            if epoll::add(
                &self.poll_set.epoll,
                &pending_accept.socket,
                token,
                epoll::EventFlags::IN,
            )
            .is_err()
            {
                self.accepting.pending.remove(ticket);
            }
        }
        self.set_timer();
    }

    /// Continues the handshake of an accepted connection that can be read.
    pub(in crate::connected) fn continue_accept(&mut self, ticket: u64) {
        let Some(pending_accept) = self.accepting.pending.get_mut(ticket) else {
            return;
        };
        let configs: Vec<_> = std::iter::once(&self.local.handshake_config)
            .chain(self.foreign.configs())
            .collect();
        match handshake_step(
            &pending_accept.socket,
            &mut pending_accept.handshake,
            &configs,
        ) {
            Ok(None) => {
                if pending_accept.handshake.hello_verified() {
                    self.accepting.pending.mark_verified(ticket);
                }
            }
            Ok(Some(session)) => {
                if let Some(pending_accept) = self.accepting.pending.remove(ticket) {
                    self.admit(pending_accept, session);
                }
            }
            Err(why) => {
                if let Some(pending_accept) = self.accepting.pending.remove(ticket) {
                    self.reject(why, &pending_accept);
                }
            }
        }
    }

    /// Counts a rejected connection. The first, tenth, hundredth … of each reason is told in the
    /// job's log.
    pub(in crate::connected) fn reject(&mut self, why: Rejected, pending_accept: &PendingAccept) {
        let to_be_logged = self.accepting.rejections.count(why);
        crate::connected::REFUSED.store(self.accepting.rejections.total(), Relaxed);
        // These three happen between honest ranks. A rank gives its connect up when the other
        // connects to it at the same time. A rank that finds another process at an address tries
        // the next.
        if to_be_logged
            && !matches!(
                why,
                Rejected::Closed | Rejected::Process | Rejected::Crossed
            )
        {
            let from = self.media[pending_accept.medium].peer_address(&pending_accept.socket);
            let from = from.unwrap_or("an address that is gone".into());
            let times = self.accepting.rejections.of(why);
            let so_far = if times > 1 {
                format!(" (the {times}th for this reason)")
            } else {
                String::new()
            };
            self.cards.directory.log(&format!(
                "a connection from {from} was refused: {why}{so_far}"
            ));
        }
    }

    /// The handshake is done: a process of this job has connected, or one of another job by a link.
    /// One that has come to a closed port gets a close notification.
    fn admit(&mut self, pending_accept: PendingAccept, session: Session) {
        let is_dismissed = self.foreign.is_of_closed_port(&session);
        let process = if session.job() == self.local.handshake_config.local().job {
            Some(session.peer())
                .filter(|&p| p != self.local.me && p < self.local.size && self.local.serves_job)
        } else {
            let host = self.media[pending_accept.medium].peer_address(&pending_accept.socket);
            self.foreign.admitted(&session, host.unwrap_or_default())
        };
        let Some(process) = process else {
            return self.reject(Rejected::Process, &pending_accept);
        };
        // From here on the poll set knows it as a peer or not at all.
        let _ = epoll::delete(&self.poll_set.epoll, &pending_accept.socket);
        let comes_before = self.comes_before(process);
        match self.slot(process) {
            None => {
                let i = self.add(process, PeerState::Lost(String::new()));
                self.establish(i, pending_accept.medium, pending_accept.socket, session);
            }
            Some(i) => match &mut self.peers[i].state {
                PeerState::Connecting(connecting) if comes_before => {
                    connecting.crossing =
                        Some((pending_accept.medium, pending_accept.socket, session));
                }
                PeerState::Connecting(_) => {
                    self.establish(i, pending_accept.medium, pending_accept.socket, session)
                }
                // It has a connection already, or has been given up.
                _ => self.reject(Rejected::Crossed, &pending_accept),
            },
        }
        if is_dismissed {
            self.dismiss(process);
        }
    }
}
