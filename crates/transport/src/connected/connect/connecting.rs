//! Connecting: from a peer's business card to a connection, one address after the other.

use super::super::conn::Conn;
use super::super::peers::PeerState;
use super::super::poll::{PollInterest, Token};
use super::super::{BUSINESS_CARDS, Candidate, ConnTransport, ConnectStart, MediumEvent};
use super::{business_card, describe, handshake_step, path, sealed, send_whole};
use crate::{Inbox, ProcId, TransportError};
use ferry_auth::{Handshake, HandshakeConfig, Message, Session};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long one address may take to answer while others are left to try. A choice: a host that
/// answers at all does so within a second, after one lost packet as well.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two rounds through all addresses. A choice: a process that starts late is found
/// without much delay.
const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// Rounds in which all addresses refuse at once before this process gives up. Then nobody listens
/// any more.
const REFUSED_ROUNDS_MAX: u32 = 3;

/// Rounds in which an address answered and no handshake succeeded, before this process gives up. A
/// process of the job that has made no MPI call for long drops a few connections. Another program
/// at the address drops all of them.
const UNFINISHED_ROUNDS_MAX: u32 = 20;

/// A peer that this process is connecting to.
pub struct Connecting {
    stage: Stage,
    candidates: Vec<Candidate>,
    /// Index of the candidate that is tried next.
    next: usize,
    /// Why each candidate of this round failed.
    failures: Vec<(Candidate, String)>,
    /// When the card was read, or when an address last answered.
    since: Instant,
    rounds: u32,
    /// Whether an address answered in this round.
    answered: bool,
    /// Rounds in which an address answered and no handshake succeeded.
    unfinished_rounds: u32,
    /// A connection that the peer has opened at the same time: medium, socket, session. It is used
    /// if this one fails.
    pub(super) crossing: Option<(usize, OwnedFd, Session)>,
}

enum Stage {
    /// The directory is asked for the peer's card.
    Card,
    /// The system connects the socket.
    Connecting {
        medium: usize,
        socket: OwnedFd,
        until: Instant,
        handshake: Box<Handshake>,
        hello: Message,
    },
    /// The medium will report when the peer can be reached.
    Unreachable,
    /// The hello is sent.
    Handshake {
        medium: usize,
        socket: OwnedFd,
        handshake: Box<Handshake>,
    },
    /// The handshake is done. The peer has not sent `Open` yet.
    Unopened(Box<Conn>),
    /// Until the next round begins.
    Pause(Instant),
}

/// Begins to connect to a process at one address. Returns the socket, the handshake, and the hello
/// if it is still to be sent. `Ok(None)`: the medium waits for the process.
#[allow(clippy::type_complexity)]
fn start_connect(
    medium: &mut dyn crate::connected::Medium,
    config: &HandshakeConfig,
    process: ProcId,
    to: Candidate,
) -> Result<Option<(OwnedFd, Box<Handshake>, Option<Message>)>, String> {
    let (handshake, hello) = config.initiate(process).map_err(|e| e.to_string())?;
    Ok(match medium.connect(process, &to.at, &hello)? {
        ConnectStart::Deferred => None,
        ConnectStart::Connecting(socket) => Some((socket, Box::new(handshake), Some(hello))),
        ConnectStart::HelloSent(socket) => Some((socket, Box::new(handshake), None)),
    })
}

impl ConnTransport {
    /// Begins to connect to a process for the first time.
    #[cold]
    pub(in crate::connected) fn connect(&mut self, to: ProcId) -> Result<(), TransportError> {
        if !crate::Transport::reaches(self, to) {
            return Err(TransportError::Unreachable {
                peer: to,
                tried: self.names(),
            });
        }
        let connecting = Connecting {
            stage: Stage::Card,
            candidates: Vec::new(),
            next: 0,
            failures: Vec::new(),
            since: Instant::now(),
            rounds: 0,
            answered: false,
            unfinished_rounds: 0,
            crossing: None,
        };
        let i = self.add(to, PeerState::Connecting(Box::new(connecting)));
        self.look_up_card(i);
        self.set_timer();
        Ok(())
    }

    /// Peer `i`, if this process is connecting to it.
    fn connecting(&mut self, i: usize) -> Option<&mut Connecting> {
        match &mut self.peers[i].state {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Looks peer `i`'s card up in the directory, and tries its first address if it is there.
    fn look_up_card(&mut self, i: usize) {
        let process = self.peers[i].process;
        let card = match self.foreign.process(process) {
            Some(foreign) => Ok(Some(foreign.card.clone())),
            None => self.cards.directory.get(BUSINESS_CARDS, process),
        };
        match card {
            Ok(None) => {
                if !self.cards.is_awaited
                    && let Some(fd) = self.cards.directory.fd()
                {
                    let token = Token::Directory.data();
                    self.cards.is_awaited =
                        epoll::add(&self.poll_set.epoll, fd, token, epoll::EventFlags::IN).is_ok();
                }
            }
            Ok(Some(bytes)) => {
                let candidates = match self.candidates(process, &bytes) {
                    Ok(candidates) => candidates,
                    Err(what) => return self.end(i, what),
                };
                if let Some(connecting) = self.connecting(i) {
                    connecting.candidates = candidates;
                    connecting.since = Instant::now();
                }
                self.try_next_address(i);
            }
            Err(e) => self.end(i, format!("its addresses cannot be had: {e}")),
        }
    }

    /// Reads the directory's answers and continues with the peers whose cards were awaited.
    pub(in crate::connected) fn read_directory(&mut self) {
        // Once for all peers. What comes from here on makes the descriptor readable again.
        let read = self.cards.directory.receive_answers();
        let mut asking = false;
        for i in 0..self.peers.len() {
            if self
                .connecting(i)
                .is_some_and(|c| matches!(c.stage, Stage::Card))
            {
                match &read {
                    Ok(()) => self.look_up_card(i),
                    Err(e) => self.end(i, format!("its addresses cannot be had: {e}")),
                }
                asking |= self
                    .connecting(i)
                    .is_some_and(|c| matches!(c.stage, Stage::Card));
            }
        }
        if !asking
            && self.cards.is_awaited
            && let Some(fd) = self.cards.directory.fd()
        {
            let _ = epoll::delete(&self.poll_set.epoll, fd);
            self.cards.is_awaited = false;
        }
    }

    /// The addresses on a process's card, medium by medium.
    fn candidates(&self, process: ProcId, card: &[u8]) -> Result<Vec<Candidate>, String> {
        let foreign = self.foreign.process(process);
        let same_host = match foreign {
            Some(foreign) => foreign.same_host,
            None => self.local.nodes.host_of(process) == self.local.nodes.host_of(self.local.me),
        };
        let senseless = |why: &str| format!("what the directory says of its addresses {why}");
        let parts = business_card::decode(card).ok_or_else(|| senseless("makes no sense"))?;
        let mut candidates = Vec::new();
        for (number, medium) in self.media.iter().enumerate() {
            // TIPC finds processes by their number in the job.
            if foreign.is_some() && !medium.serves_other_jobs() {
                continue;
            }
            let Some((_, part)) = parts.iter().find(|(name, _)| *name == medium.name()) else {
                continue;
            };
            let found = medium.addresses(part, same_host).map_err(senseless)?;
            let found = found.into_iter();
            candidates.extend(found.map(|at| Candidate { medium: number, at }));
        }
        if candidates.is_empty() {
            let theirs: Vec<&str> = parts.iter().map(|p| p.0).collect();
            return Err(format!(
                "it can be reached by {} only, and this process calls by {}: \
                 set FERRY_TRANSPORTS the same for all ranks",
                theirs.join(", "),
                self.names()
            ));
        }
        Ok(candidates)
    }

    /// The names of all media.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.media.iter().map(|m| m.name()).collect();
        names.join(", ")
    }

    /// Tries peer `i`'s next address. After the last one, pauses or gives up.
    fn try_next_address(&mut self, i: usize) {
        let timeout = self.local.timeout;
        let process = self.peers[i].process;
        loop {
            let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
                return;
            };
            let Some(&to) = connecting.candidates.get(connecting.next) else {
                return self.end_round(i);
            };
            connecting.next += 1;
            let (config, number) = self
                .foreign
                .config_of(process)
                .unwrap_or((&self.local.handshake_config, process));
            match start_connect(&mut *self.media[to.medium], config, number, to) {
                Ok(None) => {
                    connecting.stage = Stage::Unreachable;
                    return;
                }
                Ok(Some((socket, handshake, hello))) => {
                    let flags = match hello {
                        Some(_) => epoll::EventFlags::OUT,
                        None => epoll::EventFlags::IN,
                    };
                    let token = Token::Peer(i).data();
                    if let Err(e) = epoll::add(&self.poll_set.epoll, &socket, token, flags) {
                        connecting.failures.push((to, e.to_string()));
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
                            Stage::Handshake {
                                medium: to.medium,
                                socket,
                                handshake,
                            }
                        }
                    };
                    return;
                }
                Err(why) => connecting.failures.push((to, why)),
            }
        }
    }

    /// Reads the events of medium `m`: peers that can be reached now, or not.
    pub(in crate::connected) fn read_medium(&mut self, m: usize) {
        let events = match self.media[m].events() {
            Ok(events) => events,
            Err(fault) => {
                if let Some(fd) = self.media[m].event_fd() {
                    let _ = epoll::delete(&self.poll_set.epoll, fd);
                }
                return self.faults.push_back(fault);
            }
        };
        for event in events {
            let (MediumEvent::Reachable(process) | MediumEvent::Unreachable(process, _)) = event;
            let Some(i) = self.slot(process) else {
                continue;
            };
            let Some(connecting) = self.connecting(i) else {
                continue;
            };
            let at = connecting.candidates.get(connecting.next.wrapping_sub(1));
            if at.is_none_or(|at| at.medium != m) {
                continue;
            }
            match (event, &connecting.stage) {
                (MediumEvent::Reachable(_), Stage::Unreachable) => {
                    connecting.next -= 1;
                    self.try_next_address(i);
                }
                (
                    MediumEvent::Unreachable(_, why),
                    Stage::Unreachable | Stage::Handshake { .. },
                ) => {
                    self.address_failed(i, why);
                }
                _ => {}
            }
        }
    }

    /// Tells the media that this process is not connecting to peer `i` any more.
    pub(in crate::connected) fn forget(&mut self, i: usize) {
        let process = self.peers[i].process;
        if matches!(self.peers[i].state, PeerState::Connecting(_)) {
            for medium in &mut self.media {
                medium.forget(process);
            }
        }
    }

    /// Ends a round: every address has failed. Pauses or gives up.
    fn end_round(&mut self, i: usize) {
        let timeout = self.local.timeout;
        let Some(connecting) = self.connecting(i) else {
            return;
        };
        if let Some((medium, socket, session)) = connecting.crossing.take() {
            return self.establish(i, medium, socket, session);
        }
        connecting.rounds += 1;
        if std::mem::take(&mut connecting.answered) {
            connecting.unfinished_rounds += 1;
            connecting.since = Instant::now();
        }
        let refusal = Errno::CONNREFUSED.to_string();
        let refused = connecting.failures.iter().all(|(_, why)| *why == refusal);
        if connecting.since.elapsed() < timeout
            && connecting.unfinished_rounds < UNFINISHED_ROUNDS_MAX
            && !(refused && connecting.rounds >= REFUSED_ROUNDS_MAX)
        {
            connecting.next = 0;
            connecting.stage = Stage::Pause(Instant::now() + ROUND_PAUSE);
            return;
        }
        let mut what = String::from("it cannot be reached");
        if connecting.failures.is_empty() {
            what += "; it has no address";
        }
        for (n, (at, why)) in connecting.failures.iter().enumerate() {
            let sep = if n == 0 { ". Tried: " } else { "; " };
            let _ = write!(what, "{sep}{}: {why}", at.at);
        }
        for medium in &self.media {
            let _ = write!(what, ". {}", medium.local_address());
        }
        self.end(i, what);
    }

    /// Notes why the present address failed, and tries the next.
    fn address_failed(&mut self, i: usize, why: String) {
        if let Some(connecting) = self.connecting(i) {
            // This closes the socket.
            connecting.stage = Stage::Card;
            let at = connecting
                .candidates
                .get(connecting.next.wrapping_sub(1))
                .copied();
            connecting.failures.extend(at.map(|at| (at, why)));
        }
        self.try_next_address(i);
    }

    /// Handles what has expired for peer `i`: an address without answer, or a pause.
    pub(in crate::connected) fn expire_connect(&mut self, i: usize, now: Instant) {
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return;
        };
        match &connecting.stage {
            // What has answered meanwhile is reported by the poll set.
            Stage::Connecting {
                medium,
                socket,
                until,
                ..
            } if *until <= now && self.media[*medium].connected(socket).is_none() => {
                let why = format!("no answer in {} seconds", ADDRESS_TIMEOUT.as_secs());
                self.address_failed(i, why);
            }
            Stage::Pause(until) if *until <= now => {
                connecting.failures.clear();
                self.try_next_address(i);
            }
            _ => {}
        }
    }

    /// Continues with a peer whose socket has changed: connected, or readable. Returns how many
    /// messages came.
    pub(in crate::connected) fn continue_connect(
        &mut self,
        i: usize,
        inbox: &mut dyn Inbox,
    ) -> usize {
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return 0;
        };
        match std::mem::replace(&mut connecting.stage, Stage::Card) {
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
                Some(Ok(())) => self.send_hello(i, medium, socket, handshake, &hello),
            },
            Stage::Handshake {
                medium,
                socket,
                handshake,
            } => return self.continue_handshake(i, medium, socket, handshake, inbox),
            Stage::Unopened(conn) => return self.await_open(i, conn, inbox),
            other => connecting.stage = other,
        }
        0
    }

    /// The socket is connected: sends the first message of the handshake.
    fn send_hello(
        &mut self,
        i: usize,
        medium: usize,
        socket: OwnedFd,
        handshake: Box<Handshake>,
        hello: &Message,
    ) {
        let token = Token::Peer(i).data();
        let sent = send_whole(&socket, hello).and_then(|()| {
            epoll::modify(&self.poll_set.epoll, &socket, token, epoll::EventFlags::IN)
        });
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return;
        };
        connecting.answered = true;
        match sent {
            Ok(()) => {
                connecting.stage = Stage::Handshake {
                    medium,
                    socket,
                    handshake,
                }
            }
            Err(e) => self.address_failed(i, e.to_string()),
        }
    }

    /// Goes on with the handshake, and behind it with the connection. Returns how many messages
    /// came.
    fn continue_handshake(
        &mut self,
        i: usize,
        medium: usize,
        socket: OwnedFd,
        mut handshake: Box<Handshake>,
        inbox: &mut dyn Inbox,
    ) -> usize {
        let process = self.peers[i].process;
        let config = match self.foreign.config_of(process) {
            Some((config, _)) => config,
            None => &self.local.handshake_config,
        };
        let session = handshake_step(&socket, &mut handshake, &[config]);
        let PeerState::Connecting(connecting) = &mut self.peers[i].state else {
            return 0;
        };
        match session {
            Ok(None) => {
                connecting.stage = Stage::Handshake {
                    medium,
                    socket,
                    handshake,
                };
            }
            Ok(Some(session)) => {
                let path = path(&*self.media[medium], medium, &socket);
                let conn = Conn::new(process, path, socket, sealed(session));
                return self.await_open(i, Box::new(conn), inbox);
            }
            Err(why) => {
                // Where the hello travels with the request, the request may have failed.
                let refused = match sockopt::socket_error(&socket) {
                    Ok(Err(e @ (Errno::CONNREFUSED | Errno::HOSTUNREACH))) => Some(e),
                    _ => None,
                };
                let why = refused.map_or(why.to_string(), |e| e.to_string());
                self.address_failed(i, why);
            }
        }
        0
    }

    /// Reads from a connection whose peer has not sent `Open` yet. Returns how many messages came.
    fn await_open(&mut self, i: usize, mut conn: Box<Conn>, inbox: &mut dyn Inbox) -> usize {
        match conn.receive(&mut self.incoming.scratch, inbox) {
            Ok(found) if found.opened => {
                conn.interest = PollInterest::In;
                self.forget(i);
                self.peers[i].state = PeerState::Open(conn);
                self.busy_poll(i);
                return found.delivered;
            }
            Ok(found) if found.delivered == 0 && !found.close_notify => {
                if let PeerState::Connecting(connecting) = &mut self.peers[i].state {
                    connecting.stage = Stage::Unopened(conn);
                }
            }
            Ok(_) => self.address_failed(i, "it speaks before its turn".into()),
            Err(broken) => self.address_failed(i, describe(&broken)),
        }
        0
    }
}
