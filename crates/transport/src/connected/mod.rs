//! The transport made of connections: one connection for each pair of processes, made when the two
//! first communicate.
//!
//! ```text
//!                    ConnTransport (the Transport)
//!        ┌─────────────────────┼──────────────────────────┐
//!        ▼                     ▼                          ▼
//!  peers: state of       poll: busy-polled          timeout: silent
//!  each peer             connection, poll set       hosts, slow connects
//!        │                     │
//!        ▼                     ▼
//!  connect: from a       conn: frames of an open connection
//!  business card to          send, batch, zero_copy │ receive
//!  an open connection        sealed (encryption)
//!        │                     │
//!        ▼                     ▼
//!  medium: Medium        medium: SocketOps          (TCP and TIPC
//!  find, connect, accept options of a socket         implement both)
//! ```
//!
//! The [`Medium`] of a connection (TCP or TIPC) is chosen when it is made. A process is tried at
//! the addresses on its business card, medium by medium in the order of FERRY_TRANSPORTS. All else
//! is the same for every medium.
//!
//! Nothing here has a thread of its own. While the process polls, it reads the connection that last
//! brought something, and asks about the others now and then. While it sleeps, one epoll descriptor
//! stands for all of them.

mod conn;
mod connect;
mod foreign;
mod medium;
mod peers;
mod poll;
mod timeout;

use crate::{
    Answer, BatchMessage, BatchSent, Body, FRAGMENT_BYTES, Features, ForeignProcesses, Inbox,
    ProcId, Sleeper, Streamed, Transport, TransportError, ZeroCopy,
};
pub(crate) use conn::frame::{
    HEAD_MAX_BYTES as FRAME_HEAD_MAX_BYTES, HEADER_BYTES as FRAME_HEADER_BYTES, STREAM_MAX_BYTES,
};
use conn::{FlushThread, frame, zero_copy::SplicePipe};
use connect::business_card;
use ferry_auth::{HandshakeBacklog, HandshakeConfig, Identity, JobKey, RejectionCounts};
use ferry_job::{Directory, JobError, Nodes, RankInfo};
use foreign::Foreign;
pub use medium::{Candidate, ConnectStart, Medium, MediumEvent, PeerAddress, SocketOps};
use peers::{Peer, PeerState, PendingAccept};
use poll::{POLLS_PER_LOOK_MAX, PollInterest, Token};
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The name of these business cards in the job's directory.
pub const BUSINESS_CARDS: &str = "business-cards";
/// Largest eager message, head and body, bytes. Larger ones use a rendezvous and are received into
/// their own buffer. 64 KiB of user data and 32 bytes for the head. A choice: the threshold of
/// shared memory ([`crate::shm::EAGER_MAX_BYTES`], measured there), so that a program's messages
/// are eager or not wherever its ranks run.
pub const EAGER_MAX_BYTES: usize = 64 * 1024 + 32;
/// What the handshake calls this kind of connection.
pub(crate) const PURPOSE: u16 = 1;
/// Most connections at once that have not yet proved which process they are from. A choice: more
/// than the peers that connect at the same time, and few enough descriptors for any limit.
pub(crate) const PENDING_MAX: usize = 256;
/// Time in which a connection must prove which process it is from. A choice: a peer's handshake
/// takes milliseconds, unless its process is kept from MPI.
const PENDING_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that this process has refused, for any reason. For tools.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Returns whether connections are encrypted (FERRY_ENCRYPT).
///
/// Errors: a value that makes no sense.
pub fn encrypt_from_environment() -> Result<bool, TransportError> {
    match std::env::var("FERRY_ENCRYPT").as_deref().map(str::trim) {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(TransportError::Setting {
            name: "FERRY_ENCRYPT",
            value: other.into(),
            expected: "0 or 1",
        }),
    }
}

/// The transport made of connections.
pub struct ConnTransport {
    me: ProcId,
    /// Processes of this job.
    size: u32,
    nodes: Nodes,
    handshake_config: HandshakeConfig,
    directory: Box<dyn Directory>,
    /// A card has been asked for, and the directory's descriptor is in the poll set.
    asking: bool,
    media: Vec<Box<dyn Medium>>,
    /// The media's indices in [`crate::TRANSPORT_NAMES`].
    name_indices: Vec<usize>,
    epoll: OwnedFd,
    timer: timeout::Timer,
    timeout: Duration,
    /// By process: its index in `peers`, plus 1. 0: there is none. Pages that are never written
    /// cost no memory.
    index: Vec<u32>,
    peers: Vec<Peer>,
    /// Indices in `peers` that no process has now, and that the poll set may still report.
    vacated: Vec<usize>,
    /// Indices in `peers` that another process can get.
    vacant: Vec<usize>,
    /// Some peer is [`Peer::leaving`].
    any_leaving: bool,
    /// A descriptor that the layer above watches was readable at the last look at the poll set.
    watched_is_ready: bool,
    /// Processes of other jobs.
    foreign: Foreign,
    /// Connections lead to processes of this job, too.
    serves_job: bool,
    pending: HandshakeBacklog<PendingAccept>,
    rejections: RejectionCounts,
    scratch: Box<[u8]>,
    /// The peer whose connection last brought something. It is read at each poll.
    busy_polled: Option<usize>,
    /// Polls since the poll set was last asked.
    polls_since_look: u32,
    /// Polls after which the poll set is asked.
    polls_per_look: u32,
    /// The process is about to sleep, or sleeps.
    armed: bool,
    /// Peers from which a stream comes in, or whose connection has a low-water mark.
    streams: Vec<usize>,
    /// Bytes of an incoming stream that collect before the progress thread is woken.
    receive_low_water: usize,
    /// Peers for which bytes wait, or a sender that was answered Full.
    writers: Vec<usize>,
    splice_pipe: SplicePipe,
    /// Sends what connections have kept to coalesce, while the program computes.
    flush_thread: FlushThread,
    /// Eager messages that follow each other wait for the next poll. Only where one thread uses the
    /// device: another might wait for what this one has sent.
    coalesces: bool,
    /// Some connection keeps messages to coalesce.
    keeps_any: bool,
    /// Number of polls.
    polls: u64,
    /// Faults that the next polls report.
    faults: VecDeque<TransportError>,
    /// The process has nothing more to send, and waits until all has arrived.
    settling: bool,
}

impl ConnTransport {
    /// Listens by all of `media` and publishes this process's business card in the directory. The
    /// first medium is tried first. Under a foreign launcher, blocks until all ranks have published
    /// theirs. `timeout`: how long a process may be tried in vain, and its host be silent.
    ///
    /// Errors: the system or the launcher refuses.
    pub fn open(
        rank_info: &RankInfo,
        mut directory: Box<dyn Directory>,
        media: Vec<Box<dyn Medium>>,
        timeout: Duration,
        encrypt: bool,
    ) -> Result<ConnTransport, TransportError> {
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
        let local = Identity {
            job: rank_info.job,
            process: rank_info.rank,
            purpose: PURPOSE,
            encrypt,
        };
        let name_indices = media.iter().map(|m| crate::names::index_of(m.name()));
        let name_indices = name_indices.collect();
        Ok(ConnTransport {
            me: rank_info.rank,
            size: rank_info.size,
            nodes: rank_info.nodes.clone(),
            handshake_config: HandshakeConfig::new(&JobKey::from_bytes(&rank_info.key), local),
            directory,
            asking: false,
            media,
            name_indices,
            epoll,
            timer,
            timeout,
            index: vec![0; rank_info.size as usize],
            peers: Vec::new(),
            vacated: Vec::new(),
            vacant: Vec::new(),
            any_leaving: false,
            watched_is_ready: false,
            foreign: Foreign::new(rank_info.size),
            serves_job: true,
            pending: HandshakeBacklog::new(PENDING_MAX, PENDING_TIMEOUT),
            rejections: RejectionCounts::default(),
            scratch: vec![0; conn::SCRATCH_BYTES].into_boxed_slice(),
            busy_polled: None,
            polls_since_look: 0,
            polls_per_look: 1,
            armed: false,
            streams: Vec::new(),
            receive_low_water: 0,
            writers: Vec::new(),
            splice_pipe: SplicePipe::default(),
            flush_thread: FlushThread::default(),
            coalesces: false,
            keeps_any: false,
            polls: 0,
            faults: VecDeque::new(),
            settling: false,
        })
    }

    /// Opens it for processes of other jobs alone.
    ///
    /// Errors: the system refuses.
    pub fn for_other_jobs(
        rank_info: &RankInfo,
        medium: Box<dyn Medium>,
        timeout: Duration,
    ) -> Result<ConnTransport, TransportError> {
        let nobody = Box::new(NoDirectory);
        let mut new = ConnTransport::open(rank_info, nobody, vec![medium], timeout, false)?;
        new.serves_job = false;
        Ok(new)
    }

    /// Connections that were refused, by reason.
    pub fn rejections(&self) -> RejectionCounts {
        self.rejections
    }
}

/// The directory of a process that looks up no process of its own job.
struct NoDirectory;

impl Directory for NoDirectory {
    fn put(&mut self, _medium: &str, _card: &[u8]) -> Result<(), JobError> {
        Ok(())
    }
    fn publish(&mut self) -> Result<(), JobError> {
        Ok(())
    }
    fn get(&mut self, _medium: &str, _rank: u32) -> Result<Option<Vec<u8>>, JobError> {
        Ok(None)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Transport for ConnTransport {
    fn name(&self) -> &'static str {
        self.media.first().map_or("", |m| m.name())
    }

    #[inline]
    fn name_index_for(&self, peer: ProcId) -> Option<usize> {
        let medium = match self.slot(peer).map(|i| &self.peers[i].state) {
            Some(PeerState::Open(conn)) => conn.path.medium,
            _ => 0,
        };
        self.name_indices.get(medium).copied()
    }

    fn reaches(&self, peer: ProcId) -> bool {
        if peer < self.size {
            peer != self.me && self.serves_job
        } else {
            self.foreign.process(peer).is_some()
        }
    }

    fn features(&self, _peer: ProcId) -> Features {
        Features {
            message_max: frame::WHOLE_MAX_BYTES,
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
        // A write that fails is not reported here. Reading finds the cause, after what the peer has
        // sent before.
        let sent = conn
            .send(message, head, body, &mut self.scratch)
            .unwrap_or(false);
        conn.wants_room = !sent;
        if !sent || conn.is_behind() {
            self.add_writer(i);
        }
        Ok(if sent { Answer::Done } else { Answer::Full })
    }

    #[inline]
    fn send_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError> {
        if self.coalesces
            && let Some(i) = self.slot(to)
            && let PeerState::Open(conn) = &mut self.peers[i].state
        {
            let is_kept = conn.runs.count(self.polls);
            if is_kept && conn.coalesce(&mut self.flush_thread, message, head, &body) {
                if conn.is_behind() {
                    self.keeps_any = true;
                    self.add_writer(i);
                }
                return Ok(Answer::Done);
            }
        }
        self.send(to, message, head, body)
    }

    fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.stream_by(to, body.len(), |conn, _| conn.stream(message, head, body))
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
        self.stream_by(to, body.len(), |conn, pipe| {
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
        let sent = conn.send_batch(messages).unwrap_or_default();
        conn.wants_room = sent.whole < messages.len();
        if conn.wants_room || conn.is_behind() {
            self.add_writer(i);
        }
        Ok(sent)
    }

    #[inline]
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        self.polls += 1;
        self.flush_coalesced();
        if !self.faults.is_empty()
            && let Some(fault) = self.faults.pop_front()
        {
            return Err(fault);
        }
        let direct = self.busy_polled.filter(|&i| !self.asks_first(i));
        let mut delivered = match direct {
            Some(i) if !self.is_empty(i) => self.receive(i, inbox),
            _ => 0,
        };
        self.polls_since_look += 1;
        if self.polls_since_look >= self.polls_per_look || direct.is_none() || self.armed {
            self.polls_since_look = 0;
            delivered += self.look(inbox);
        }
        if !self.writers.is_empty() {
            self.write();
        }
        Ok(delivered)
    }

    fn set_coalescing(&mut self, coalesces: bool) {
        self.coalesces = coalesces;
    }

    #[inline]
    fn flush_coalesced(&mut self) {
        if std::mem::take(&mut self.keeps_any) {
            self.write();
        }
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
        self.polls_since_look = POLLS_PER_LOOK_MAX;
        if !self.streams.is_empty() {
            self.set_stream_low_water(0);
        }
    }

    fn foreign_processes(&mut self) -> Option<&mut dyn ForeignProcesses> {
        Some(self)
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
            conn.finish();
            settled &= conn.flush().is_ok_and(|_| !conn.is_behind()) && conn.unacknowledged() == 0
                || conn.peer_has_finished();
        }
        self.settling = !settled;
        settled
    }
}

#[cfg(test)]
mod tests;
