//! What the wires have in common that are made of connections: one a pair, made when the two first
//! speak.
//!
//! Over which medium a connection goes ([`Medium`]: TCP, TIPC) is decided when it is made: a
//! process is tried at the places that its card names, medium by medium in the order of
//! FERRY_TRANSPORTS. All else is the same for every medium.
//!
//! Nothing here has a thread of its own. While its process polls, the connection that last brought
//! something is read from directly and the others are looked at now and then; while it sleeps, one
//! epoll descriptor stands for all of them.

pub(crate) mod conn;
mod connect;
mod medium;
mod timeout;

use crate::{
    Answer, BatchMessage, BatchSent, Body, FRAGMENT_BYTES, Features, Inbox, ProcId, Sleeper,
    Streamed, Transport, TransportError, ZeroCopy,
};
use conn::{Broken, Conn, frame, zero_copy::SplicePipe};
use connect::{Connecting, business_card};
use ferry_auth::{Drops, Guard, Handshake, Key, Local, Porch};
use ferry_job::{Directory, Nodes, Welcome};
pub use medium::{CallStart, Candidate, Medium, MediumEvent, PeerAddress, SocketOps};
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What cards of these wires are called in the directory.
pub const BUSINESS_CARDS: &str = "wires";
/// Messages (head and body) up to this many bytes are sent at once; larger ones are announced, and
/// received where they belong.
pub const EAGER_MAX_BYTES: usize = 64 * 1024 + 32;
/// What the handshake calls this kind of connection.
pub(crate) const PURPOSE: u16 = 1;
/// Connections that have not yet proved who they are, at once, and for how long.
pub(crate) const PENDING_MAX: usize = 256;
const PENDING_TIMEOUT: Duration = Duration::from_secs(10);
/// Polls of the connection that last brought something for each look at all others, at most.
const POLLS_PER_LOOK_MAX: u32 = 16;
/// A connection that has brought so much without a sleep is taken out of the poll set, which then
/// costs its sender nothing.
const BUSY_POLL_AFTER_READS: u32 = 64;
/// Events taken from the system at a time.
const EVENTS: usize = 32;

/// Connections that this process has sent away, for whatever reason; for tools.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);

/// FERRY_ENCRYPT: is everything on these wires encrypted? Errors: a value that makes no sense.
pub fn encrypt_from_environment() -> Result<bool, TransportError> {
    match std::env::var("FERRY_ENCRYPT").as_deref().map(str::trim) {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(TransportError::Setting {
            name: "FERRY_ENCRYPT",
            value: other.into(),
            wanted: "0 or 1",
        }),
    }
}

/// What the system's poll set has been asked to say of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollInterest {
    /// It is not in the set.
    Nothing,
    /// When it can be read from.
    In,
    /// When it can be read from or written to.
    InOut,
}

/// What an event of the poll set is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// Of a medium, one of its listeners.
    Listener(usize, usize),
    Timer,
    Directory,
    Peer(usize),
    PendingAccept(u64),
    /// Of a medium.
    Medium(usize),
}

impl Token {
    fn data(self) -> epoll::EventData {
        let (kind, value) = match self {
            Token::Listener(medium, i) => (0, (medium << 32 | i) as u64),
            Token::Timer => (1, 0),
            Token::Directory => (2, 0),
            Token::Peer(i) => (3, i as u64),
            Token::PendingAccept(ticket) => (4, ticket),
            Token::Medium(medium) => (5, medium as u64),
        };
        epoll::EventData::new_u64(kind << 56 | value & ((1 << 56) - 1))
    }

    fn of(data: epoll::EventData) -> Token {
        let (kind, value) = (data.u64() >> 56, data.u64() & ((1 << 56) - 1));
        match kind {
            0 => Token::Listener((value >> 32) as usize, value as u32 as usize),
            1 => Token::Timer,
            2 => Token::Directory,
            3 => Token::Peer(value as usize),
            4 => Token::PendingAccept(value),
            _ => Token::Medium(value as usize),
        }
    }
}

/// How this process stands to another.
enum PeerState {
    /// It is being called.
    Connecting(Box<Connecting>),
    /// There is a connection.
    Open(Box<Conn>),
    /// The connection has broken; the fault is told when the launcher, who may know more, has had
    /// time to say it first.
    Failing {
        what: String,
        until: Instant,
        /// The medium over which it went, and what that calls the other node.
        medium: usize,
        node: u32,
    },
    /// It cannot be spoken to any more; why.
    Lost(String),
}

struct Peer {
    process: ProcId,
    state: PeerState,
}

/// A connection that has come and not yet proved whose it is.
struct PendingAccept {
    medium: usize,
    socket: OwnedFd,
    handshake: Handshake,
}

/// A wire made of connections.
pub struct Connected {
    me: ProcId,
    nodes: Nodes,
    guard: Guard,
    directory: Box<dyn Directory>,
    /// Somebody's card is awaited, and the directory's descriptor is in the poll set.
    asking: bool,
    media: Vec<Box<dyn Medium>>,
    /// The media's places in [`crate::TRANSPORT_NAMES`], if there are several.
    name_indices: Vec<usize>,
    epoll: OwnedFd,
    timer: timeout::Timer,
    timeout: Duration,
    /// By process: 0 for a pending_accept, otherwise its place in `peers`, plus 1. (What is never
    /// written costs no memory.)
    index: Vec<u32>,
    peers: Vec<Peer>,
    pending: Porch<PendingAccept>,
    drops: Drops,
    scratch: Box<[u8]>,
    /// The connection that last brought something.
    busy_polled: Option<usize>,
    /// Polls since the last look, and how many there may be.
    turn: u32,
    interval: u32,
    armed: bool,
    /// Connections by which a stream comes in, or which gather.
    streams: Vec<usize>,
    /// Bytes of a stream that gather before the progress thread is woken.
    receive_low_water: usize,
    /// Connections with something to write, or with somebody who waits for room.
    writers: Vec<usize>,
    splice_pipe: SplicePipe,
    faults: VecDeque<TransportError>,
    /// The process has nothing more to send and waits until all has arrived.
    settling: bool,
}

impl Connected {
    /// Listens by all of `media`, of which those in front are tried first, and leaves this
    /// process's card in the directory. Under a foreign launcher blocks until all ranks have.
    /// `timeout`: how long a process may be called in vain, and its host be silent.
    ///
    /// Errors: the system or the launcher refuses.
    pub fn open(
        welcome: &Welcome,
        mut directory: Box<dyn Directory>,
        media: Vec<Box<dyn Medium>>,
        timeout: Duration,
        encrypt: bool,
    ) -> Result<Connected, TransportError> {
        let refused = |attempted: &'static str| {
            move |e: Errno| TransportError::Refused {
                attempted: attempted.into(),
                cause: e.into(),
                advice: "raise the limit on open files (ulimit -n)",
            }
        };
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("making a poll set"))?;
        let timer = timeout::Timer::new().map_err(refused("making a timer"))?;
        let listen = |fd: BorrowedFd<'_>, token: Token| {
            epoll::add(&epoll, fd, token.data(), epoll::EventFlags::IN)
                .map_err(refused("listening"))
        };
        listen(timer.fd().as_fd(), Token::Timer)?;
        for (m, medium) in media.iter().enumerate() {
            for (i, socket) in medium.listeners().iter().enumerate() {
                listen(socket.as_fd(), Token::Listener(m, i))?;
            }
            if let Some(fd) = medium.event_fd() {
                listen(fd, Token::Medium(m))?;
            }
        }
        let parts = media.iter().map(|m| (m.name(), m.card()));
        directory.put(BUSINESS_CARDS, &business_card::encode(parts))?;
        directory.publish()?;
        let local = Local {
            job: welcome.job,
            process: welcome.rank,
            purpose: PURPOSE,
            encrypt,
        };
        let name_indices = media.iter().map(|m| crate::registry::place_of(m.name()));
        let name_indices = if media.len() > 1 {
            name_indices.collect()
        } else {
            Vec::new()
        };
        Ok(Connected {
            me: welcome.rank,
            nodes: welcome.nodes.clone(),
            guard: Guard::new(&Key::from_bytes(&welcome.key), local),
            directory,
            asking: false,
            media,
            name_indices,
            epoll,
            timer,
            timeout,
            index: vec![0; welcome.size as usize],
            peers: Vec::new(),
            pending: Porch::new(PENDING_MAX, PENDING_TIMEOUT),
            drops: Drops::default(),
            scratch: vec![0; conn::SCRATCH].into_boxed_slice(),
            busy_polled: None,
            turn: 0,
            interval: 1,
            armed: false,
            streams: Vec::new(),
            receive_low_water: 0,
            writers: Vec::new(),
            splice_pipe: SplicePipe::default(),
            faults: VecDeque::new(),
            settling: false,
        })
    }

    /// Connections that were sent away, by reason.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    #[inline]
    fn slot(&self, process: ProcId) -> Option<usize> {
        match self.index.get(process as usize) {
            None | Some(0) => None,
            Some(&i) => Some(i as usize - 1),
        }
    }

    /// The connection to a process, begun if there is none. `Ok(None)`: not yet.
    #[inline]
    fn conn(&mut self, to: ProcId) -> Result<Option<(usize, &mut Conn)>, TransportError> {
        let Some(i) = self.slot(to) else {
            self.call(to)?;
            return Ok(None);
        };
        match &self.peers[i].state {
            PeerState::Open(_) => {}
            PeerState::Connecting(_) | PeerState::Failing { .. } => return Ok(None),
            PeerState::Lost(what) => return Err(self.lost(to, what.clone())),
        }
        match &mut self.peers[i].state {
            PeerState::Open(conn) => Ok(Some((i, conn))),
            _ => Ok(None),
        }
    }

    fn lost(&self, peer: ProcId, what: String) -> TransportError {
        TransportError::Lost {
            peer,
            host: self.nodes.host_of(peer).into(),
            what,
        }
    }

    /// Puts peer `i` on the list of those that want to write.
    fn note_writer(&mut self, i: usize) {
        if !self.writers.contains(&i) {
            self.writers.push(i);
        }
    }

    /// Asks the poll set to say `asked` of peer `i`.
    fn set_interest(&mut self, i: usize, interest: PollInterest) {
        let PeerState::Open(conn) = &mut self.peers[i].state else {
            return;
        };
        if conn.interest == interest {
            return;
        }
        let flags = match interest {
            PollInterest::InOut => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            _ => epoll::EventFlags::IN,
        };
        let token = Token::Peer(i).data();
        // The set refuses only when the system is out of memory; the connection is then looked at
        // as the busy_polled one or not at all, until the next time it is asked for.
        let done = match (conn.interest, interest) {
            (_, PollInterest::Nothing) => epoll::delete(&self.epoll, conn.fd()),
            (PollInterest::Nothing, _) => epoll::add(&self.epoll, conn.fd(), token, flags),
            _ => epoll::modify(&self.epoll, conn.fd(), token, flags),
        };
        if done.is_ok() {
            conn.interest = interest;
        }
        conn.watch(conn.interest == PollInterest::Nothing);
    }

    /// Reads from peer `i`; returns how many messages came.
    #[inline]
    fn receive(&mut self, i: usize, inbox: &mut dyn Inbox) -> usize {
        let PeerState::Open(conn) = &mut self.peers[i].state else {
            if self.busy_polled == Some(i) {
                self.busy_polled = None;
            }
            return 0;
        };
        if let Some(&way) = self.name_indices.get(conn.path.medium) {
            inbox.set_transport(way);
        }
        match conn.receive(&mut self.scratch, inbox) {
            Ok(found) => {
                if conn.is_streamed_to() && !conn.streams {
                    conn.streams = true;
                    self.streams.push(i);
                }
                if found.delivered > 0 {
                    conn.reads_since_sleep = if conn.large {
                        0
                    } else {
                        conn.reads_since_sleep + 1
                    };
                    if conn.large && conn.interest == PollInterest::Nothing {
                        self.set_interest(i, PollInterest::In);
                    } else if conn.reads_since_sleep == BUSY_POLL_AFTER_READS
                        && self.busy_polled == Some(i)
                    {
                        self.set_interest(i, PollInterest::Nothing);
                    }
                }
                found.delivered
            }
            Err(broken) => {
                self.broken(i, broken);
                0
            }
        }
    }

    /// Has `give` put as much as it can of a stream's body, of which `len` bytes are left, into the
    /// connection to `to`.
    fn pass_on(
        &mut self,
        to: ProcId,
        len: usize,
        give: impl FnOnce(&mut Conn, &mut SplicePipe) -> Result<usize, Broken>,
    ) -> Result<Streamed, TransportError> {
        let found = self.conn(to)?.map(|(i, _)| i);
        let open = found.and_then(|i| match &mut self.peers[i].state {
            PeerState::Open(conn) => Some((i, conn)),
            _ => None,
        });
        let Some((i, conn)) = open else {
            return Ok(Streamed {
                taken: 0,
                between: true,
            });
        };
        let taken = give(conn, &mut self.splice_pipe).unwrap_or(0);
        let between = !conn.in_stream();
        conn.wants_room = taken < len;
        if conn.wants_room || conn.is_behind() {
            self.note_writer(i);
        }
        Ok(Streamed { taken, between })
    }

    /// Is the poll set to be asked before peer `i` is read from? For many messages, whose packets
    /// the system puts together on the sender's core as long as nobody tries to read: a read in
    /// vain locks the socket, and then it has to be done here. Not for a long message: there the
    /// sender's core has more to do than this one, and what is done here relieves it.
    #[inline]
    fn asks_first(&self, i: usize) -> bool {
        matches!(&self.peers[i].state, PeerState::Open(conn) if conn.large && !conn.bulk && conn.interest != PollInterest::Nothing)
    }

    #[inline]
    fn is_empty(&mut self, i: usize) -> bool {
        match &mut self.peers[i].state {
            PeerState::Open(conn) => conn.is_empty(),
            _ => false,
        }
    }

    /// Makes peer `i` the one that is read from directly.
    fn busy_poll(&mut self, i: usize) {
        if let Some(before) = self.busy_polled.filter(|&before| before != i) {
            self.set_interest(before, PollInterest::In);
        }
        if self.busy_polled != Some(i)
            && let PeerState::Open(conn) = &mut self.peers[i].state
        {
            conn.reads_since_sleep = 0;
        }
        self.busy_polled = Some(i);
    }

    /// Deals with all that the poll set has to say. Returns how many messages came.
    fn look(&mut self, inbox: &mut dyn Inbox) -> usize {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok((found, _)) = epoll::wait(&self.epoll, &mut events, Some(&zero)) else {
            return 0;
        };
        let (mut delivered, mut others) = (0, false);
        for event in found {
            match Token::of(event.data) {
                Token::Listener(m, i) => self.accept_pending(m, i),
                Token::Medium(m) => self.read_medium(m),
                Token::Timer => self.tick(),
                Token::Directory => self.read_directory(),
                Token::PendingAccept(ticket) => self.hear_pending(ticket),
                Token::Peer(i) => {
                    if i >= self.peers.len() {
                        continue;
                    }
                    if matches!(self.peers[i].state, PeerState::Connecting(_)) {
                        delivered += self.hear_connecting(i, inbox);
                        continue;
                    }
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.set_interest(i, PollInterest::In);
                    }
                    let readable =
                        epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP;
                    if flags.intersects(readable) {
                        let n = self.receive(i, inbox);
                        if n > 0 {
                            others |= self.busy_polled != Some(i);
                            self.busy_poll(i);
                        }
                        delivered += n;
                    }
                }
            }
        }
        self.interval = if others {
            1
        } else {
            (self.interval * 2).min(POLLS_PER_LOOK_MAX)
        };
        delivered
    }

    /// Has the connections by which streams come in say so only when `most` bytes have gathered.
    fn set_stream_low_water(&mut self, most: usize) {
        let mut streams = std::mem::take(&mut self.streams);
        streams.retain(|&i| match &mut self.peers[i].state {
            PeerState::Open(conn) => {
                conn.streams = conn.set_receive_low_water(most) || conn.is_streamed_to();
                conn.streams
            }
            _ => false,
        });
        self.streams = streams;
    }

    /// Hands sockets with room what waits for it.
    fn write(&mut self) {
        let mut writers = std::mem::take(&mut self.writers);
        writers.retain(|&i| {
            let PeerState::Open(conn) = &mut self.peers[i].state else {
                return false;
            };
            // What is wrong with a socket is found by reading, which may bring the peer's last
            // words first.
            let _ = conn.flush();
            conn.is_behind() || conn.wants_room
        });
        writers.append(&mut self.writers);
        self.writers = writers;
    }
}

impl Transport for Connected {
    fn name(&self) -> &'static str {
        self.media.first().map_or("", |m| m.name())
    }

    fn name_for(&self, peer: ProcId) -> &'static str {
        match self.slot(peer).map(|i| &self.peers[i].state) {
            Some(PeerState::Open(conn)) => self.media[conn.path.medium].name(),
            _ => self.name(),
        }
    }

    fn reaches(&self, peer: ProcId) -> bool {
        peer != self.me && (peer as usize) < self.index.len()
    }

    fn features(&self, _peer: ProcId) -> Features {
        Features {
            message_max: frame::WHOLE_MAX,
            fragment_max: FRAGMENT_BYTES,
            eager_max: EAGER_MAX_BYTES,
            remote_read: false,
            read_min: usize::MAX,
            same_node: false,
            stream: true,
            batch: true,
        }
    }

    #[inline]
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError> {
        let found = self.conn(to)?.map(|(i, _)| i);
        let open = found.and_then(|i| match &mut self.peers[i].state {
            PeerState::Open(conn) => Some((i, conn)),
            _ => None,
        });
        let Some((i, conn)) = open else {
            return Ok(Answer::Full);
        };
        // A write that fails is not yet the end: reading says what has happened, after what the
        // peer has said before.
        let taken = conn
            .send(message, head, body, &mut self.scratch)
            .unwrap_or(false);
        conn.wants_room = !taken;
        if !taken || conn.is_behind() {
            self.note_writer(i);
        }
        Ok(if taken { Answer::Done } else { Answer::Full })
    }

    fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.pass_on(to, body.len(), |conn, _| conn.stream(message, head, body))
    }

    fn zero_copy(&self, peer: ProcId) -> ZeroCopy {
        match self.slot(peer).map(|i| &self.peers[i].state) {
            Some(PeerState::Open(conn)) => conn.zero_copy(),
            _ => ZeroCopy::Never,
        }
    }

    fn stream_zero_copy(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.pass_on(to, body.len(), |conn, pipe| {
            conn.stream_zero_copy(pipe, message, head, body)
        })
    }

    fn send_batch(
        &mut self,
        to: ProcId,
        messages: &[BatchMessage<'_>],
    ) -> Result<BatchSent, TransportError> {
        let Some((i, conn)) = self.conn(to)? else {
            return Ok(BatchSent::default());
        };
        let gone = conn.send_batch(messages).unwrap_or_default();
        conn.wants_room = gone.whole < messages.len();
        if conn.wants_room || conn.is_behind() {
            self.note_writer(i);
        }
        Ok(gone)
    }

    #[inline]
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        if !self.faults.is_empty()
            && let Some(fault) = self.faults.pop_front()
        {
            return Err(fault);
        }
        let direct = self
            .busy_polled
            .filter(|&busy_polled| !self.asks_first(busy_polled));
        let mut delivered = match direct {
            Some(busy_polled) if !self.is_empty(busy_polled) => self.receive(busy_polled, inbox),
            _ => 0,
        };
        self.turn += 1;
        if self.turn >= self.interval || direct.is_none() || self.armed {
            self.turn = 0;
            delivered += self.look(inbox);
        }
        if !self.writers.is_empty() {
            self.write();
        }
        Ok(delivered)
    }

    fn set_receive_low_water(&mut self, bytes: usize) {
        self.receive_low_water = bytes;
    }

    fn arm(&mut self, who: Sleeper) {
        self.armed = true;
        if let Some(busy_polled) = self.busy_polled {
            self.set_interest(busy_polled, PollInterest::In);
            if let PeerState::Open(conn) = &mut self.peers[busy_polled].state {
                conn.reads_since_sleep = 0;
            }
        }
        if !self.streams.is_empty() {
            self.set_stream_low_water(if who == Sleeper::Progress {
                self.receive_low_water
            } else {
                0
            });
        }
        self.write();
        for at in 0..self.writers.len() {
            self.set_interest(self.writers[at], PollInterest::InOut);
        }
        self.set_timer();
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.turn = POLLS_PER_LOOK_MAX;
        if !self.streams.is_empty() {
            self.set_stream_low_water(0);
        }
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn has_unsent(&self) -> bool {
        let behind =
            |&i: &usize| matches!(&self.peers[i].state, PeerState::Open(c) if c.is_behind());
        self.writers.iter().any(behind)
    }

    fn settle(&mut self) -> bool {
        self.settling = true;
        let mut settled = true;
        for peer in &mut self.peers {
            let PeerState::Open(conn) = &mut peer.state else {
                continue;
            };
            if !conn.farewell_said && !conn.in_stream() {
                conn.farewell_said = conn.say(frame::Kind::Farewell).is_ok();
            }
            settled &= conn.flush().is_ok_and(|_| !conn.is_behind()) && conn.unacknowledged() == 0
                || conn.leaving;
        }
        self.settling = !settled;
        settled
    }
}

#[cfg(test)]
mod tests;
