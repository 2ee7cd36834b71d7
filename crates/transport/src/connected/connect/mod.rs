//! How two processes come to have one connection.
//!
//! Whoever first has something to say asks the directory for the other's card, tries its addresses
//! in turn, and proves itself by the guard's handshake. The called one then says the opening word,
//! or does not: two processes that call each other at the same time use the call of the one with
//! the lower number. That one holds the other's call back until its own has succeeded or
//! failed; the other gives up its own as soon as it is called. Nothing but the handshake travels
//! before the opening word, so nothing is lost with a call that is given up.

pub(super) mod business_card;

use super::conn::{Broken, Conn, Path, Seal};
use super::{
    CallStart, Candidate, Connected, MediumEvent, Peer, PeerState, PendingAccept, PollInterest,
    Token, conn::frame,
};
use crate::{Inbox, ProcId, TransportError};
use ferry_auth::{Handshake, Message, Rejected, Session, Step};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long one address may take to answer while others are left to try.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
/// Between two rounds of calls.
const PAUSE: Duration = Duration::from_millis(200);
/// Where all addresses refuse at once, nobody listens any more: so many rounds are enough.
const REFUSALS: u32 = 3;
/// Calls that were answered and came to nothing, before this process gives up: a called process
/// that was kept from MPI for long forgets a call, a pending_accept at the address never takes one.
const MISSES: u32 = 20;
/// How long the launcher, who may know why a process has ended, may take to say so first.
const GRACE: Duration = Duration::from_millis(1000);
/// Connections accepted at a time.
const ACCEPTS: usize = 64;

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
    held: Option<(usize, OwnedFd, Session)>,
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

impl Connected {
    /// Begins to call a process that has not been spoken to.
    #[cold]
    pub(super) fn call(&mut self, to: ProcId) -> Result<(), TransportError> {
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

    fn add(&mut self, process: ProcId, state: PeerState) -> usize {
        self.peers.push(Peer { process, state });
        self.index[process as usize] = self.peers.len() as u32;
        self.peers.len() - 1
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
        match self.directory.get(super::BUSINESS_CARDS, process) {
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
    pub(super) fn read_directory(&mut self) {
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
    fn names(&self) -> String {
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
            match begin(&mut *self.media[to.medium], &self.guard, process, to) {
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
                            until: Instant::now() + ADDRESS_PATIENCE.min(timeout),
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
    pub(super) fn read_medium(&mut self, m: usize) {
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
    pub(super) fn forget(&mut self, i: usize) {
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
            && connecting.misses < MISSES
            && !(refused && connecting.rounds >= REFUSALS)
        {
            connecting.next = 0;
            connecting.stage = Stage::Pausing(Instant::now() + PAUSE);
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
    pub(super) fn hurry(&mut self, i: usize, now: Instant) {
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
                let why = format!("no answer in {} seconds", ADDRESS_PATIENCE.as_secs());
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
    pub(super) fn hear_connecting(&mut self, i: usize, inbox: &mut dyn Inbox) -> usize {
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
                    let said = whole(&socket, &hello).and_then(|()| {
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
            } => match heard(&socket, &mut handshake, &self.guard) {
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
                Err(broken) => self.address_failed(i, say(&broken)),
            },
            other => connecting.stage = other,
        }
        0
    }

    /// Lets in who ring_open_requests at listener `l` of a medium.
    pub(super) fn accept_pending(&mut self, m: usize, l: usize) {
        for _ in 0..ACCEPTS {
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
                handshake: self.guard.accept(),
            };
            let (ticket, crowded) = self.pending.enter(pending_accept, now);
            if let Some(out) = crowded {
                self.refuse(Rejected::Crowded, &out);
            }
            let Some(pending_accept) = self.pending.one(ticket) else {
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
                self.pending.leave(ticket);
            }
        }
        self.set_timer();
    }

    /// A pending_accept has said something.
    pub(super) fn hear_pending(&mut self, ticket: u64) {
        let Some(pending_accept) = self.pending.one(ticket) else {
            return;
        };
        match heard(
            &pending_accept.socket,
            &mut pending_accept.handshake,
            &self.guard,
        ) {
            Ok(None) => {
                if pending_accept.handshake.has_hello() {
                    self.pending.know(ticket);
                }
            }
            Ok(Some(session)) => {
                if let Some(pending_accept) = self.pending.leave(ticket) {
                    self.admit(pending_accept, session);
                }
            }
            Err(why) => {
                if let Some(pending_accept) = self.pending.leave(ticket) {
                    self.refuse(why, &pending_accept);
                }
            }
        }
    }

    /// Counts a connection that is sent away; and says so in the job's log, the first, tenth,
    /// hundredth … time for each reason.
    pub(super) fn refuse(&mut self, why: Rejected, pending_accept: &PendingAccept) {
        let worth_saying = self.drops.count(why);
        super::REFUSED.store(self.drops.total(), Relaxed);
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
            let times = self.drops.of(why);
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

    /// This call is the connection that both use.
    fn adopt(&mut self, i: usize, medium: usize, socket: OwnedFd, session: Session) {
        let path = path(&*self.media[medium], medium, &socket);
        let process = self.peers[i].process;
        let mut conn = Box::new(Conn::new(process, path, socket, sealed(session)));
        self.forget(i);
        // Should that fail, reading says why.
        let _ = conn.say(frame::Kind::Open);
        self.peers[i].state = PeerState::Open(conn);
        self.set_interest(i, PollInterest::In);
        self.set_timer();
    }

    /// The connection to peer `i` is over.
    #[cold]
    pub(super) fn broken(&mut self, i: usize, broken: Broken) {
        let PeerState::Open(conn) = &self.peers[i].state else {
            return;
        };
        if self.busy_polled == Some(i) {
            self.busy_polled = None;
        }
        let leaving = conn.leaving;
        self.splice_pipe.forget(conn.peer);
        conn.give_up();
        self.peers[i].state = if leaving {
            PeerState::Lost("it has left the job".into())
        } else {
            PeerState::Failing {
                what: say(&broken),
                until: Instant::now() + GRACE,
                medium: conn.path.medium,
                node: conn.path.node,
            }
        };
        self.set_timer();
    }
}

/// What a broken connection is called.
fn say(broken: &Broken) -> String {
    match broken {
        Broken::Closed => {
            "it has closed the connection without a farewell: it has probably died".into()
        }
        Broken::System(Errno::CONNRESET | Errno::PIPE) => {
            "its system has reset the connection: it has probably died".into()
        }
        Broken::System(Errno::TIMEDOUT) => {
            "its host does not answer any more (FERRY_TCP_TIMEOUT)".into()
        }
        Broken::System(e) => e.to_string(),
        Broken::Malformed(what) => format!("it sent {what}"),
    }
}

/// Over what a connection goes that has just been made.
fn path(of: &dyn super::Medium, medium: usize, socket: &OwnedFd) -> Path {
    Path {
        medium,
        node: of.node(socket),
        ops: of.socket_ops(),
    }
}

/// Begins to call a process at a place: the socket, the handshake, and the hello if it has yet to
/// be said. `Ok(None)`: the medium awaits it.
#[allow(clippy::type_complexity)]
fn begin(
    medium: &mut dyn super::Medium,
    guard: &ferry_auth::Guard,
    process: ProcId,
    to: Candidate,
) -> Result<Option<(OwnedFd, Box<Handshake>, Option<Message>)>, String> {
    let (handshake, hello) = guard.connect(process).map_err(|e| e.to_string())?;
    Ok(match medium.call(process, &to.at, &hello)? {
        CallStart::Awaited => None,
        CallStart::Connecting(socket) => Some((socket, Box::new(handshake), Some(hello))),
        CallStart::Greeting(socket) => Some((socket, Box::new(handshake), None)),
    })
}

fn sealed(session: Session) -> Option<Box<Seal>> {
    session
        .encrypt()
        .then(|| Box::new(Seal::new(session.records())))
}

/// Sends a message of the handshake; a fresh connection has room for it.
fn whole(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::AGAIN),
        Err(e) => Err(e),
    }
}

/// Takes what the other side of a handshake has said. `Ok(None)`: more is to come.
fn heard(
    socket: &OwnedFd,
    handshake: &mut Handshake,
    guard: &ferry_auth::Guard,
) -> Result<Option<Session>, Rejected> {
    let mut space = [0; ferry_auth::HELLO];
    loop {
        // Never more than the handshake wants: what follows it belongs to the connection.
        let wants = handshake.wants().min(space.len());
        let n = match recv(socket, &mut space[..wants], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Rejected::Closed),
            Ok((n, _)) => n,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(_) => return Err(Rejected::Closed),
        };
        match handshake.feed(guard, &mut &space[..n])? {
            Step::More => {}
            Step::Send(message) => whole(socket, &message).map_err(|_| Rejected::Closed)?,
            Step::Done(session, message) => {
                if !message.is_empty() {
                    whole(socket, &message).map_err(|_| Rejected::Closed)?;
                }
                return Ok(Some(session));
            }
        }
    }
}
