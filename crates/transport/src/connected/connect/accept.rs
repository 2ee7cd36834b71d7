//! Accepting: connections that have come, until they have proved which process they are from.

use super::super::Connected;
use super::super::peers::{PeerState, PendingAccept};
use super::super::poll::Token;
use super::handshake_step;
use ferry_auth::{Rejected, Session};
use rustix::event::epoll;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Connections accepted at a time.
const ACCEPTS_PER_LOOK: usize = 64;

impl Connected {
    /// Lets in who ring_open_requests at listener `l` of a medium.
    pub(in crate::connected) fn accept_pending(&mut self, m: usize, l: usize) {
        for _ in 0..ACCEPTS_PER_LOOK {
            let Some(medium) = self.media.get(m) else {
                return;
            };
            let Some(listener) = medium.listeners().get(l) else {
                return;
            };
            // Without a descriptor left for it, a caller waits in the system's queue until there is
            // one.
            let Ok(Some(socket)) = medium.accept(listener) else {
                break;
            };
            let now = Instant::now();
            let pending_accept = PendingAccept {
                medium: m,
                socket,
                handshake: self.handshake_config.respond(),
            };
            let (ticket, crowded) = self.pending.push(pending_accept, now);
            if let Some(out) = crowded {
                self.refuse(Rejected::BacklogFull, &out);
            }
            let Some(pending_accept) = self.pending.get_mut(ticket) else {
                continue;
            };
            let token = Token::PendingAccept(ticket).data();
            if epoll::add(
                &self.epoll,
                &pending_accept.socket,
                token,
                epoll::EventFlags::IN,
            )
            .is_err()
            {
                self.pending.remove(ticket);
            }
        }
        self.set_timer();
    }

    /// A pending_accept has said something.
    pub(in crate::connected) fn hear_pending(&mut self, ticket: u64) {
        let Some(pending_accept) = self.pending.get_mut(ticket) else {
            return;
        };
        match handshake_step(
            &pending_accept.socket,
            &mut pending_accept.handshake,
            &self.handshake_config,
        ) {
            Ok(None) => {
                if pending_accept.handshake.hello_verified() {
                    self.pending.mark_verified(ticket);
                }
            }
            Ok(Some(session)) => {
                if let Some(pending_accept) = self.pending.remove(ticket) {
                    self.admit(pending_accept, session);
                }
            }
            Err(why) => {
                if let Some(pending_accept) = self.pending.remove(ticket) {
                    self.refuse(why, &pending_accept);
                }
            }
        }
    }

    /// Counts a connection that is sent away; and says so in the job's log, the first, tenth,
    /// hundredth … time for each reason.
    pub(in crate::connected) fn refuse(&mut self, why: Rejected, pending_accept: &PendingAccept) {
        let worth_saying = self.rejections.count(why);
        crate::connected::REFUSED.store(self.rejections.total(), Relaxed);
        // A call that crosses one from the other side is given up before it is over, and a rank
        // that has proved the key and asks for another one calls that one next: no
        // pending_accept's doing.
        if worth_saying
            && !matches!(
                why,
                Rejected::Closed | Rejected::Process | Rejected::Crossed
            )
        {
            let from = self.media[pending_accept.medium].who(&pending_accept.socket);
            let from = from.unwrap_or("an address that is gone".into());
            let times = self.rejections.of(why);
            let so_far = if times > 1 {
                format!(" (the {times}th for this reason)")
            } else {
                String::new()
            };
            self.directory.say(&format!(
                "a connection from {from} was refused: {why}{so_far}"
            ));
        }
    }

    /// A process of this job has called.
    fn admit(&mut self, pending_accept: PendingAccept, session: Session) {
        let process = session.peer();
        if process == self.me || process as usize >= self.index.len() {
            return self.refuse(Rejected::Process, &pending_accept);
        }
        // From here on the poll set hears of it as a peer or not at all.
        let _ = epoll::delete(&self.epoll, &pending_accept.socket);
        let me = self.me;
        match self.slot(process) {
            None => {
                let gone = PeerState::Lost(String::new());
                let i = self.add(process, gone);
                self.adopt(i, pending_accept.medium, pending_accept.socket, session);
            }
            Some(i) => match &mut self.peers[i].state {
                PeerState::Connecting(connecting) if me < process => {
                    connecting.held = Some((pending_accept.medium, pending_accept.socket, session));
                }
                PeerState::Connecting(_) => {
                    self.adopt(i, pending_accept.medium, pending_accept.socket, session)
                }
                // It has one connection already, or has been given up.
                _ => self.refuse(Rejected::Crossed, &pending_accept),
            },
        }
    }
}
