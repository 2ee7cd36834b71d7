//! How two processes come to have one connection.
//!
//! Whoever first has something to say asks the directory for the other's card, tries its addresses
//! in turn, and proves itself by the guard's handshake. The called one then says the opening word,
//! or does not: two processes that call each other at the same time use the call of the one with
//! the lower number. That one holds the other's call back until its own has succeeded or
//! failed; the other gives up its own as soon as it is called. Nothing but the handshake travels
//! before the opening word, so nothing is lost with a call that is given up.

use super::conn::{Broken, Conn, Seal, Way};
use super::{Asked, Begun, Connected, Link, News, Peer, Place, Stranger, Token, card, frame};
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
/// that was kept from MPI for long forgets a call, a stranger at the address never takes one.
const MISSES: u32 = 20;
/// How long the launcher, who may know why a process has ended, may take to say so first.
const GRACE: Duration = Duration::from_millis(1000);
/// Connections accepted at a time.
const ACCEPTS: usize = 64;

/// A process that is being called.
pub struct Calling {
    stage: Stage,
    order: Vec<Place>,
    next: usize,
    /// What became of each address in this round.
    tried: Vec<(Place, String)>,
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
        let calling = Calling {
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
        let i = self.add(to, Link::Calling(Box::new(calling)));
        self.ask_card(i);
        self.set_timer();
        Ok(())
    }

    fn add(&mut self, process: ProcId, link: Link) -> usize {
        self.peers.push(Peer { process, link });
        self.index[process as usize] = self.peers.len() as u32;
        self.peers.len() - 1
    }

    fn calling(&mut self, i: usize) -> Option<&mut Calling> {
        match &mut self.peers[i].link {
            Link::Calling(calling) => Some(calling),
            _ => None,
        }
    }

    /// Asks the directory for peer `i`'s card, and calls if it is there.
    fn ask_card(&mut self, i: usize) {
        let process = self.peers[i].process;
        match self.directory.get(super::CARDS, process) {
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
                if let Some(calling) = self.calling(i) {
                    calling.order = order;
                    calling.since = Instant::now();
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
                .calling(i)
                .is_some_and(|c| matches!(c.stage, Stage::Asking))
            {
                match &heard {
                    Ok(()) => self.ask_card(i),
                    Err(e) => self.end(i, format!("its addresses cannot be had: {e}")),
                }
                asking |= self
                    .calling(i)
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
    fn places(&self, process: ProcId, card: &[u8]) -> Result<Vec<Place>, String> {
        let same_host = self.nodes.host_of(process) == self.nodes.host_of(self.me);
        let senseless = |why: &str| format!("what the directory says of its addresses {why}");
        let parts = card::decode(card).ok_or_else(|| senseless("makes no sense"))?;
        let mut order = Vec::new();
        for (number, medium) in self.media.iter().enumerate() {
            let Some((_, part)) = parts.iter().find(|(name, _)| *name == medium.name()) else {
                continue;
            };
            let found = medium.places(part, same_host).map_err(senseless)?;
            order.extend(found.into_iter().map(|at| Place { medium: number, at }));
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
            let Link::Calling(calling) = &mut self.peers[i].link else {
                return;
            };
            let Some(&to) = calling.order.get(calling.next) else {
                return self.round_over(i);
            };
            calling.next += 1;
            match begin(&mut *self.media[to.medium], &self.guard, process, to) {
                Ok(None) => {
                    calling.stage = Stage::Awaited;
                    return;
                }
                Ok(Some((socket, handshake, hello))) => {
                    let flags = match hello {
                        Some(_) => epoll::EventFlags::OUT,
                        None => epoll::EventFlags::IN,
                    };
                    let token = Token::Peer(i).data();
                    if let Err(e) = epoll::add(&self.epoll, &socket, token, flags) {
                        calling.tried.push((to, e.to_string()));
                        continue;
                    }
                    calling.stage = match hello {
                        Some(hello) => Stage::Connecting {
                            medium: to.medium,
                            socket,
                            until: Instant::now() + ADDRESS_PATIENCE.min(timeout),
                            handshake,
                            hello,
                        },
                        None => {
                            calling.answered = true;
                            Stage::Greeting {
                                medium: to.medium,
                                socket,
                                handshake,
                            }
                        }
                    };
                    return;
                }
                Err(why) => calling.tried.push((to, why)),
            }
        }
    }

    /// A medium has heard something of those that are being called.
    pub(super) fn read_news(&mut self, m: usize) {
        let news = match self.media[m].news() {
            Ok(news) => news,
            Err(fault) => {
                if let Some(fd) = self.media[m].news_fd() {
                    let _ = epoll::delete(&self.epoll, fd);
                }
                return self.faults.push_back(fault);
            }
        };
        for one in news {
            let (News::Here(process) | News::Gone(process, _)) = one;
            let Some(i) = self.slot(process) else {
                continue;
            };
            let Some(calling) = self.calling(i) else {
                continue;
            };
            let at = calling.order.get(calling.next.wrapping_sub(1));
            if at.is_none_or(|place| place.medium != m) {
                continue;
            }
            match (one, &calling.stage) {
                (News::Here(_), Stage::Awaited) => {
                    calling.next -= 1;
                    self.next_address(i);
                }
                (News::Gone(_, why), Stage::Awaited | Stage::Greeting { .. }) => {
                    self.address_failed(i, why);
                }
                _ => {}
            }
        }
    }

    /// Peer `i` is not being called any more.
    pub(super) fn forget(&mut self, i: usize) {
        let process = self.peers[i].process;
        if matches!(self.peers[i].link, Link::Calling(_)) {
            for medium in &mut self.media {
                medium.forget(process);
            }
        }
    }

    /// No address is left in this round.
    fn round_over(&mut self, i: usize) {
        let timeout = self.timeout;
        let Some(calling) = self.calling(i) else {
            return;
        };
        if let Some((medium, socket, session)) = calling.held.take() {
            return self.adopt(i, medium, socket, session);
        }
        calling.rounds += 1;
        if std::mem::take(&mut calling.answered) {
            calling.misses += 1;
            calling.since = Instant::now();
        }
        let refusal = Errno::CONNREFUSED.to_string();
        let refused = calling.tried.iter().all(|(_, why)| *why == refusal);
        if calling.since.elapsed() < timeout
            && calling.misses < MISSES
            && !(refused && calling.rounds >= REFUSALS)
        {
            calling.next = 0;
            calling.stage = Stage::Pausing(Instant::now() + PAUSE);
            return;
        }
        let mut what = String::from("it cannot be reached");
        if calling.tried.is_empty() {
            what += "; it has no address";
        }
        for (n, (at, why)) in calling.tried.iter().enumerate() {
            let sep = if n == 0 { ". Tried: " } else { "; " };
            let _ = write!(what, "{sep}{}: {why}", at.at);
        }
        for medium in &self.media {
            let _ = write!(what, ". {}", medium.whence());
        }
        self.end(i, what);
    }

    /// This address will not do.
    fn address_failed(&mut self, i: usize, why: String) {
        if let Some(calling) = self.calling(i) {
            // The socket goes with its stage.
            calling.stage = Stage::Asking;
            let at = calling.order.get(calling.next.wrapping_sub(1)).copied();
            calling.tried.extend(at.map(|at| (at, why)));
        }
        self.next_address(i);
    }

    /// Time has passed for a process that is being called.
    pub(super) fn hurry(&mut self, i: usize, now: Instant) {
        let Link::Calling(calling) = &mut self.peers[i].link else {
            return;
        };
        match &calling.stage {
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
                calling.tried.clear();
                self.next_address(i);
            }
            _ => {}
        }
    }

    /// Something has happened on the socket of a process that is being called. Returns how many
    /// messages came.
    pub(super) fn hear_called(&mut self, i: usize, inbox: &mut dyn Inbox) -> usize {
        let process = self.peers[i].process;
        let token = Token::Peer(i).data();
        let Link::Calling(calling) = &mut self.peers[i].link else {
            return 0;
        };
        match std::mem::replace(&mut calling.stage, Stage::Asking) {
            Stage::Connecting {
                medium,
                socket,
                until,
                handshake,
                hello,
            } => match self.media[medium].connected(&socket) {
                None => {
                    calling.stage = Stage::Connecting {
                        medium,
                        socket,
                        until,
                        handshake,
                        hello,
                    };
                }
                Some(Err(e)) => self.address_failed(i, e.to_string()),
                Some(Ok(())) => {
                    calling.answered = true;
                    let said = whole(&socket, &hello).and_then(|()| {
                        epoll::modify(&self.epoll, &socket, token, epoll::EventFlags::IN)
                    });
                    match said {
                        Ok(()) => {
                            calling.stage = Stage::Greeting {
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
                    calling.stage = Stage::Greeting {
                        medium,
                        socket,
                        handshake,
                    };
                }
                Ok(Some(session)) => {
                    let way = way(&*self.media[medium], medium, &socket);
                    let conn = Conn::new(process, way, socket, sealed(session));
                    calling.stage = Stage::Greeted(Box::new(conn));
                    return self.hear_called(i, inbox);
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
                    conn.asked = Asked::In;
                    self.forget(i);
                    self.peers[i].link = Link::Open(conn);
                    self.heat(i);
                    return found.delivered;
                }
                Ok(found) if found.delivered == 0 && !found.farewell => {
                    calling.stage = Stage::Greeted(conn);
                }
                Ok(_) => self.address_failed(i, "it speaks before its turn".into()),
                Err(broken) => self.address_failed(i, say(&broken)),
            },
            other => calling.stage = other,
        }
        0
    }

    /// Lets in who knocks at listener `l` of a medium.
    pub(super) fn welcome_strangers(&mut self, m: usize, l: usize) {
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
            let stranger = Stranger {
                medium: m,
                socket,
                handshake: self.guard.accept(),
            };
            let (ticket, crowded) = self.porch.enter(stranger, now);
            if let Some(out) = crowded {
                self.refuse(Rejected::Crowded, &out);
            }
            let Some(stranger) = self.porch.one(ticket) else {
                continue;
            };
            let token = Token::Stranger(ticket).data();
            if epoll::add(&self.epoll, &stranger.socket, token, epoll::EventFlags::IN).is_err() {
                self.porch.leave(ticket);
            }
        }
        self.set_timer();
    }

    /// A stranger has said something.
    pub(super) fn hear_stranger(&mut self, ticket: u64) {
        let Some(stranger) = self.porch.one(ticket) else {
            return;
        };
        match heard(&stranger.socket, &mut stranger.handshake, &self.guard) {
            Ok(None) => {
                if stranger.handshake.has_hello() {
                    self.porch.know(ticket);
                }
            }
            Ok(Some(session)) => {
                if let Some(stranger) = self.porch.leave(ticket) {
                    self.admit(stranger, session);
                }
            }
            Err(why) => {
                if let Some(stranger) = self.porch.leave(ticket) {
                    self.refuse(why, &stranger);
                }
            }
        }
    }

    /// Counts a connection that is sent away; and says so in the job's log, the first, tenth,
    /// hundredth … time for each reason.
    pub(super) fn refuse(&mut self, why: Rejected, stranger: &Stranger) {
        let worth_saying = self.drops.count(why);
        super::REFUSED.store(self.drops.total(), Relaxed);
        // A call that crosses one from the other side is given up before it is over, and a rank
        // that has proved the key and asks for another one calls that one next: no
        // stranger's doing.
        if worth_saying
            && !matches!(
                why,
                Rejected::Closed | Rejected::Process | Rejected::Crossed
            )
        {
            let from = self.media[stranger.medium].who(&stranger.socket);
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
    fn admit(&mut self, stranger: Stranger, session: Session) {
        let process = session.peer();
        if process == self.me || process as usize >= self.index.len() {
            return self.refuse(Rejected::Process, &stranger);
        }
        // From here on the poll set hears of it as a peer or not at all.
        let _ = epoll::delete(&self.epoll, &stranger.socket);
        let me = self.me;
        match self.slot(process) {
            None => {
                let gone = Link::Gone(String::new());
                let i = self.add(process, gone);
                self.adopt(i, stranger.medium, stranger.socket, session);
            }
            Some(i) => match &mut self.peers[i].link {
                Link::Calling(calling) if me < process => {
                    calling.held = Some((stranger.medium, stranger.socket, session));
                }
                Link::Calling(_) => self.adopt(i, stranger.medium, stranger.socket, session),
                // It has one connection already, or has been given up.
                _ => self.refuse(Rejected::Crossed, &stranger),
            },
        }
    }

    /// This call is the connection that both use.
    fn adopt(&mut self, i: usize, medium: usize, socket: OwnedFd, session: Session) {
        let way = way(&*self.media[medium], medium, &socket);
        let process = self.peers[i].process;
        let mut conn = Box::new(Conn::new(process, way, socket, sealed(session)));
        self.forget(i);
        // Should that fail, reading says why.
        let _ = conn.say(frame::Kind::Open);
        self.peers[i].link = Link::Open(conn);
        self.ask(i, Asked::In);
        self.set_timer();
    }

    /// The connection to peer `i` is over.
    #[cold]
    pub(super) fn broken(&mut self, i: usize, broken: Broken) {
        let Link::Open(conn) = &self.peers[i].link else {
            return;
        };
        if self.hot == Some(i) {
            self.hot = None;
        }
        let leaving = conn.leaving;
        self.lending.forget(conn.peer);
        conn.give_up();
        self.peers[i].link = if leaving {
            Link::Gone("it has left the job".into())
        } else {
            Link::Dying {
                what: say(&broken),
                until: Instant::now() + GRACE,
                medium: conn.way.medium,
                node: conn.way.node,
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
fn way(of: &dyn super::Medium, medium: usize, socket: &OwnedFd) -> Way {
    Way {
        medium,
        node: of.node(socket),
        line: of.line(),
    }
}

/// Begins to call a process at a place: the socket, the handshake, and the hello if it has yet to
/// be said. `Ok(None)`: the medium awaits it.
#[allow(clippy::type_complexity)]
fn begin(
    medium: &mut dyn super::Medium,
    guard: &ferry_auth::Guard,
    process: ProcId,
    to: Place,
) -> Result<Option<(OwnedFd, Box<Handshake>, Option<Message>)>, String> {
    let (handshake, hello) = guard.connect(process).map_err(|e| e.to_string())?;
    Ok(match medium.call(process, &to.at, &hello)? {
        Begun::Awaited => None,
        Begun::Connecting(socket) => Some((socket, Box::new(handshake), Some(hello))),
        Begun::Greeting(socket) => Some((socket, Box::new(handshake), None)),
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
