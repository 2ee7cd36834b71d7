//! Calling: from a peer's business card to a connection, one address after the other.

use super::super::conn::Conn;
use super::super::peers::PeerState;
use super::super::poll::{PollInterest, Token};
use super::super::{BUSINESS_CARDS, CallStart, Candidate, Connected, MediumEvent};
use super::{business_card, describe, handshake_step, path, sealed, send_whole};
use crate::{Inbox, ProcId, TransportError};
use ferry_auth::{Handshake, HandshakeConfig, Message, Session};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long one address may take to answer while others are left to try.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Between two rounds of calls.
const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// Where all addresses refuse at once, nobody listens any more: this many rounds are enough.
const REFUSED_ROUNDS_MAX: u32 = 3;

/// Calls that were answered and came to nothing, before this process gives up: a called process
/// that was kept from MPI for long forgets a call, a pending_accept at the address never takes one.
const MISSES_MAX: u32 = 20;

/// A process that is being called.
pub struct Connecting {
    stage: Stage,
    order: Vec<Candidate>,
    next: usize,
    /// What became of each address in this round.
    tried: Vec<(Candidate, String)>,
    since: Instant,
    rounds: u32,
    /// In this round somebody answered.
    answered: bool,
    misses: u32,
    /// The other's own call, which is used if this one fails.
    pub(super) held: Option<(usize, OwnedFd, Session)>,
}

enum Stage {
    /// Its card is awaited.
    Asking,
    Connecting {
        medium: usize,
        socket: OwnedFd,
        until: Instant,
        handshake: Box<Handshake>,
        hello: Message,
    },
    /// The medium will say when it is there.
    Awaited,
    /// The handshake is under way.
    Greeting {
        medium: usize,
        socket: OwnedFd,
        handshake: Box<Handshake>,
    },
    /// The opening word is awaited.
    Greeted(Box<Conn>),
    /// Until the next round.
    Pausing(Instant),
}

/// Begins to call a process at a place: the socket, the handshake, and the hello if it has yet to
/// be said. `Ok(None)`: the medium awaits it.
#[allow(clippy::type_complexity)]
fn start_call(
    medium: &mut dyn crate::connected::Medium,
    config: &HandshakeConfig,
    process: ProcId,
    to: Candidate,
) -> Result<Option<(OwnedFd, Box<Handshake>, Option<Message>)>, String> {
    let (handshake, hello) = config.initiate(process).map_err(|e| e.to_string())?;
    Ok(match medium.call(process, &to.at, &hello)? {
        CallStart::Awaited => None,
        CallStart::Connecting(socket) => Some((socket, Box::new(handshake), Some(hello))),
        CallStart::Greeting(socket) => Some((socket, Box::new(handshake), None)),
    })
}

impl Connected {
    /// Begins to call a process that has not been spoken to.
    #[cold]
    pub(in crate::connected) fn call(&mut self, to: ProcId) -> Result<(), TransportError> {
        if to == self.me || to as usize >= self.index.len() {
            return Err(TransportError::Unreachable {
                peer: to,
                tried: self.names(),
            });
        }
        let connecting = Connecting {
            stage: Stage::Asking,
            order: Vec::new(),
            next: 0,
            tried: Vec::new(),
            since: Instant::now(),
            rounds: 0,
            answered: false,
            misses: 0,
            held: None,
        };
        let i = self.add(to, PeerState::Connecting(Box::new(connecting)));
        self.ask_card(i);
        self.set_timer();
        Ok(())
    }

    fn connecting(&mut self, i: usize) -> Option<&mut Connecting> {
        match &mut self.peers[i].state {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Asks the directory for peer `i`'s card, and calls if it is there.
    fn ask_card(&mut self, i: usize) {
        let process = self.peers[i].process;
        match self.directory.get(BUSINESS_CARDS, process) {
            Ok(None) => {
                if !self.asking
                    && let Some(fd) = self.directory.fd()
                {
                    let token = Token::Directory.data();
                    self.asking = epoll::add(&self.epoll, fd, token, epoll::EventFlags::IN).is_ok();
                }
            }
            Ok(Some(bytes)) => {
                let order = match self.places(process, &bytes) {
                    Ok(order) => order,
                    Err(what) => return self.end(i, what),
                };
                if let Some(connecting) = self.connecting(i) {
                    connecting.order = order;
                    connecting.since = Instant::now();
                }
                self.next_address(i);
            }
            Err(e) => self.end(i, format!("its addresses cannot be had: {e}")),
        }
    }

    /// The directory has an answer.
    pub(in crate::connected) fn read_directory(&mut self) {
        // Once for all who wait. What comes from here on makes the descriptor readable again.
        let heard = self.directory.hear();
        let mut asking = false;
        for i in 0..self.peers.len() {
            if self
                .connecting(i)
                .is_some_and(|c| matches!(c.stage, Stage::Asking))
            {
                match &heard {
                    Ok(()) => self.ask_card(i),
                    Err(e) => self.end(i, format!("its addresses cannot be had: {e}")),
                }
                asking |= self
                    .connecting(i)
                    .is_some_and(|c| matches!(c.stage, Stage::Asking));
            }
        }
        if !asking
            && self.asking
            && let Some(fd) = self.directory.fd()
        {
            let _ = epoll::delete(&self.epoll, fd);
            self.asking = false;
        }
    }

    /// Where the process of a card can be tried, medium by medium.
    fn places(&self, process: ProcId, card: &[u8]) -> Result<Vec<Candidate>, String> {
        let same_host = self.nodes.host_of(process) == self.nodes.host_of(self.me);
        let senseless = |why: &str| format!("what the directory says of its addresses {why}");
        let parts = business_card::decode(card).ok_or_else(|| senseless("makes no sense"))?;
        let mut order = Vec::new();
        for (number, medium) in self.media.iter().enumerate() {
            let Some((_, part)) = parts.iter().find(|(name, _)| *name == medium.name()) else {
                continue;
            };
            let found = medium.places(part, same_host).map_err(senseless)?;
            order.extend(found.into_iter().map(|at| Candidate { medium: number, at }));
        }
        if order.is_empty() {
            let theirs: Vec<&str> = parts.iter().map(|p| p.0).collect();
            return Err(format!(
                "it can be reached by {} only, and this process calls by {}: set FERRY_TRANSPORTS the same for all ranks",
                theirs.join(", "),
                self.names()
            ));
        }
        Ok(order)
    }

    /// The media's names.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.media.iter().map(|m| m.name()).collect();
        names.join(", ")
    }

    /// Tries peer `i`'s next address; after the last, pauses or gives up.
    fn next_address(&mut self, i: usize) {
        let timeout = self.timeout;
        let process = self.peers[i].process;
        loop {
            let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
                return;
            };
            let Some(&to) = connecting.order.get(connecting.next) else {
                return self.round_over(i);
            };
            connecting.next += 1;
            match start_call(
                &mut *self.media[to.medium],
                &self.handshake_config,
                process,
                to,
            ) {
                Ok(None) => {
                    connecting.stage = Stage::Awaited;
                    return;
                }
                Ok(Some((socket, handshake, hello))) => {
                    let flags = match hello {
                        Some(_) => epoll::EventFlags::OUT,
                        None => epoll::EventFlags::IN,
                    };
                    let token = Token::Peer(i).data();
                    if let Err(e) = epoll::add(&self.epoll, &socket, token, flags) {
                        connecting.tried.push((to, e.to_string()));
                        continue;
                    }
                    connecting.stage = match hello {
                        Some(hello) => Stage::Connecting {
                            medium: to.medium,
                            socket,
                            until: Instant::now() + ADDRESS_TIMEOUT.min(timeout),
                            handshake,
                            hello,
                        },
                        None => {
                            connecting.answered = true;
                            Stage::Greeting {
                                medium: to.medium,
                                socket,
                                handshake,
                            }
                        }
                    };
                    return;
                }
                Err(why) => connecting.tried.push((to, why)),
            }
        }
    }

    /// A medium has heard something of those that are being called.
    pub(in crate::connected) fn read_medium(&mut self, m: usize) {
        let news = match self.media[m].events() {
            Ok(news) => news,
            Err(fault) => {
                if let Some(fd) = self.media[m].event_fd() {
                    let _ = epoll::delete(&self.epoll, fd);
                }
                return self.faults.push_back(fault);
            }
        };
        for one in news {
            let (MediumEvent::Reachable(process) | MediumEvent::Unreachable(process, _)) = one;
            let Some(i) = self.slot(process) else {
                continue;
            };
            let Some(connecting) = self.connecting(i) else {
                continue;
            };
            let at = connecting.order.get(connecting.next.wrapping_sub(1));
            if at.is_none_or(|place| place.medium != m) {
                continue;
            }
            match (one, &connecting.stage) {
                (MediumEvent::Reachable(_), Stage::Awaited) => {
                    connecting.next -= 1;
                    self.next_address(i);
                }
                (MediumEvent::Unreachable(_, why), Stage::Awaited | Stage::Greeting { .. }) => {
                    self.address_failed(i, why);
                }
                _ => {}
            }
        }
    }

    /// Peer `i` is not being called any more.
    pub(in crate::connected) fn forget(&mut self, i: usize) {
        let process = self.peers[i].process;
        if matches!(self.peers[i].state, PeerState::Connecting(_)) {
            for medium in &mut self.media {
                medium.forget(process);
            }
        }
    }

    /// No address is left in this round.
    fn round_over(&mut self, i: usize) {
        let timeout = self.timeout;
        let Some(connecting) = self.connecting(i) else {
            return;
        };
        if let Some((medium, socket, session)) = connecting.held.take() {
            return self.adopt(i, medium, socket, session);
        }
        connecting.rounds += 1;
        if std::mem::take(&mut connecting.answered) {
            connecting.misses += 1;
            connecting.since = Instant::now();
        }
        let refusal = Errno::CONNREFUSED.to_string();
        let refused = connecting.tried.iter().all(|(_, why)| *why == refusal);
        if connecting.since.elapsed() < timeout
            && connecting.misses < MISSES_MAX
            && !(refused && connecting.rounds >= REFUSED_ROUNDS_MAX)
        {
            connecting.next = 0;
            connecting.stage = Stage::Pausing(Instant::now() + ROUND_PAUSE);
            return;
        }
        let mut what = String::from("it cannot be reached");
        if connecting.tried.is_empty() {
            what += "; it has no address";
        }
        for (n, (at, why)) in connecting.tried.iter().enumerate() {
            let sep = if n == 0 { ". Tried: " } else { "; " };
            let _ = write!(what, "{sep}{}: {why}", at.at);
        }
        for medium in &self.media {
            let _ = write!(what, ". {}", medium.local_address());
        }
        self.end(i, what);
    }

    /// This address will not do.
    fn address_failed(&mut self, i: usize, why: String) {
        if let Some(connecting) = self.connecting(i) {
            // The socket goes with its stage.
            connecting.stage = Stage::Asking;
            let at = connecting
                .order
                .get(connecting.next.wrapping_sub(1))
                .copied();
            connecting.tried.extend(at.map(|at| (at, why)));
        }
        self.next_address(i);
    }

    /// Time has passed for a process that is being called.
    pub(in crate::connected) fn hurry(&mut self, i: usize, now: Instant) {
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return;
        };
        match &connecting.stage {
            // What has answered meanwhile is heard of by the poll set.
            Stage::Connecting {
                medium,
                socket,
                until,
                ..
            } if *until <= now && self.media[*medium].connected(socket).is_none() => {
                let why = format!("no answer in {} seconds", ADDRESS_TIMEOUT.as_secs());
                self.address_failed(i, why);
            }
            Stage::Pausing(until) if *until <= now => {
                connecting.tried.clear();
                self.next_address(i);
            }
            _ => {}
        }
    }

    /// Something has happened on the socket of a process that is being called. Returns how many
    /// messages came.
    pub(in crate::connected) fn hear_connecting(
        &mut self,
        i: usize,
        inbox: &mut dyn Inbox,
    ) -> usize {
        let process = self.peers[i].process;
        let token = Token::Peer(i).data();
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return 0;
        };
        match std::mem::replace(&mut connecting.stage, Stage::Asking) {
            Stage::Connecting {
                medium,
                socket,
                until,
                handshake,
                hello,
            } => match self.media[medium].connected(&socket) {
                None => {
                    connecting.stage = Stage::Connecting {
                        medium,
                        socket,
                        until,
                        handshake,
                        hello,
                    };
                }
                Some(Err(e)) => self.address_failed(i, e.to_string()),
                Some(Ok(())) => {
                    connecting.answered = true;
                    let said = send_whole(&socket, &hello).and_then(|()| {
                        epoll::modify(&self.epoll, &socket, token, epoll::EventFlags::IN)
                    });
                    match said {
                        Ok(()) => {
                            connecting.stage = Stage::Greeting {
                                medium,
                                socket,
                                handshake,
                            }
                        }
                        Err(e) => self.address_failed(i, e.to_string()),
                    }
                }
            },
            Stage::Greeting {
                medium,
                socket,
                mut handshake,
            } => match handshake_step(&socket, &mut handshake, &self.handshake_config) {
                Ok(None) => {
                    connecting.stage = Stage::Greeting {
                        medium,
                        socket,
                        handshake,
                    };
                }
                Ok(Some(session)) => {
                    let path = path(&*self.media[medium], medium, &socket);
                    let conn = Conn::new(process, path, socket, sealed(session));
                    connecting.stage = Stage::Greeted(Box::new(conn));
                    return self.hear_connecting(i, inbox);
                }
                Err(why) => {
                    // Where hello and call are one, it may be the call that has failed.
                    let refused = match sockopt::socket_error(&socket) {
                        Ok(Err(e @ (Errno::CONNREFUSED | Errno::HOSTUNREACH))) => Some(e),
                        _ => None,
                    };
                    let why = refused.map_or(why.to_string(), |e| e.to_string());
                    self.address_failed(i, why);
                }
            },
            Stage::Greeted(mut conn) => match conn.receive(&mut self.scratch, inbox) {
                Ok(found) if found.opened => {
                    conn.interest = PollInterest::In;
                    self.forget(i);
                    self.peers[i].state = PeerState::Open(conn);
                    self.busy_poll(i);
                    return found.delivered;
                }
                Ok(found) if found.delivered == 0 && !found.farewell => {
                    connecting.stage = Stage::Greeted(conn);
                }
                Ok(_) => self.address_failed(i, "it speaks before its turn".into()),
                Err(broken) => self.address_failed(i, describe(&broken)),
            },
            other => connecting.stage = other,
        }
        0
    }
}
