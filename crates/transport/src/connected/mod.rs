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
mod state;
mod timeout;

use crate::{
    BatchMessage, BatchSent, Body, FRAGMENT_BYTES, Features, ForeignProcesses, Inbox, ProcId,
    SendStatus, Sleeper, Streamed, Transport, TransportError, ZeroCopy,
};
use conn::frame;
pub(crate) use conn::frame::{
    HEAD_MAX_BYTES as FRAME_HEAD_MAX_BYTES, HEADER_BYTES as FRAME_HEADER_BYTES, STREAM_MAX_BYTES,
};
use connect::business_card;
use ferry_auth::{HandshakeConfig, Identity, JobKey, RejectionCounts};
use ferry_job::{Directory, JobError, RankInfo};
use foreign::Foreign;
pub use medium::{Candidate, ConnectStart, Medium, MediumEvent, PeerAddress, SocketOps};
use peers::{Peer, PeerState, PendingAccept};
use poll::{POLLS_PER_LOOK_MAX, PollInterest, Token};
use rustix::event::epoll;
use rustix::io::Errno;
use state::{Accepting, BusyPoll, CardLookup, Incoming, Local, Outgoing, PeerSlots, PollSet};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
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

/// The transport made of connections.
pub struct ConnTransport {
    local: Local,
    cards: CardLookup,
    media: Vec<Box<dyn Medium>>,
    /// The media's indices in [`crate::TRANSPORT_NAMES`].
    name_indices: Vec<usize>,
    /// The state of each peer. `slots` finds that of a process.
    peers: Vec<Peer>,
    slots: PeerSlots,
    /// Processes of other jobs.
    foreign: Foreign,
    accepting: Accepting,
    poll_set: PollSet,
    busy_poll: BusyPoll,
    /// The process is about to sleep, or sleeps.
    armed: bool,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Faults that the next polls report.
    faults: VecDeque<TransportError>,
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
        let identity = Identity {
            job: rank_info.job,
            process: rank_info.rank,
            purpose: PURPOSE,
            encrypt,
        };
        let name_indices = media.iter().map(|m| crate::names::index_of(m.name()));
        let name_indices = name_indices.collect();
        Ok(ConnTransport {
            local: Local {
                me: rank_info.rank,
                size: rank_info.size,
                nodes: rank_info.nodes.clone(),
                serves_job: true,
                handshake_config: HandshakeConfig::new(
                    &JobKey::from_bytes(&rank_info.key),
                    identity,
                ),
                timeout,
            },
            cards: CardLookup {
                directory,
                is_awaited: false,
            },
            media,
            name_indices,
            peers: Vec::new(),
            slots: PeerSlots::new(rank_info.size),
            foreign: Foreign::new(rank_info.size),
            accepting: Accepting::new(),
            poll_set: PollSet {
                epoll,
                timer,
                watched_is_ready: false,
            },
            busy_poll: BusyPoll::new(),
            armed: false,
            incoming: Incoming::new(),
            outgoing: Outgoing::default(),
            faults: VecDeque::new(),
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
        new.local.serves_job = false;
        Ok(new)
    }

    /// Connections that were refused, by reason.
    pub fn rejections(&self) -> RejectionCounts {
        self.accepting.rejections
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
        if peer < self.local.size {
            peer != self.local.me && self.local.serves_job
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
    ) -> Result<SendStatus, TransportError> {
        let found = self.conn(to)?.map(|(i, _)| i);
        let open = found.and_then(|i| match &mut self.peers[i].state {
            PeerState::Open(conn) => Some((i, conn)),
            _ => None,
        });
        let Some((i, conn)) = open else {
            return Ok(SendStatus::Full);
        };
        // A write that fails is not reported here. Reading finds the cause, after what the peer has
        // sent before.
        let sent = conn
            .send(message, head, body, &mut self.incoming.scratch)
            .unwrap_or(false);
        conn.wants_room = !sent;
        if !sent || conn.is_behind() {
            self.add_writer(i);
        }
        Ok(if sent {
            SendStatus::Done
        } else {
            SendStatus::Full
        })
    }

    #[inline]
    fn send_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        if self.outgoing.coalesces
            && let Some(i) = self.slot(to)
            && let PeerState::Open(conn) = &mut self.peers[i].state
        {
            let is_kept = conn.runs.count(self.busy_poll.polls);
            if is_kept && conn.coalesce(&mut self.outgoing.flush_thread, message, head, &body) {
                if conn.is_behind() {
                    self.outgoing.keeps_any = true;
                    self.add_writer(i);
                }
                return Ok(SendStatus::Done);
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
        self.busy_poll.polls += 1;
        self.flush_coalesced();
        if !self.faults.is_empty()
            && let Some(fault) = self.faults.pop_front()
        {
            return Err(fault);
        }
        let direct = self.busy_poll.peer.filter(|&i| !self.asks_first(i));
        let mut delivered = match direct {
            Some(i) if !self.is_empty(i) => self.receive(i, inbox),
            _ => 0,
        };
        self.busy_poll.polls_since_look += 1;
        if self.busy_poll.polls_since_look >= self.busy_poll.polls_per_look
            || direct.is_none()
            || self.armed
        {
            self.busy_poll.polls_since_look = 0;
            delivered += self.look(inbox);
        }
        if !self.outgoing.writers.is_empty() {
            self.write();
            if self.armed {
                // The last poll before a sleep may have seen room that the caller then fills.
                self.watch_writers();
            }
        }
        Ok(delivered)
    }

    fn set_coalescing(&mut self, coalesces: bool) {
        self.outgoing.coalesces = coalesces;
    }

    #[inline]
    fn flush_coalesced(&mut self) {
        if std::mem::take(&mut self.outgoing.keeps_any) {
            self.write();
        }
    }

    fn set_receive_low_water(&mut self, bytes: usize) {
        self.incoming.low_water_bytes = bytes;
    }

    fn arm(&mut self, who: Sleeper) {
        self.armed = true;
        if let Some(busy_polled) = self.busy_poll.peer {
            self.set_interest(busy_polled, PollInterest::In);
            if let PeerState::Open(conn) = &mut self.peers[busy_polled].state {
                conn.reads_since_sleep = 0;
            }
        }
        if !self.incoming.streams.is_empty() {
            self.set_stream_low_water(if who == Sleeper::Progress {
                self.incoming.low_water_bytes
            } else {
                0
            });
        }
        self.write();
        self.watch_writers();
        self.set_timer();
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.busy_poll.polls_since_look = POLLS_PER_LOOK_MAX;
        if !self.incoming.streams.is_empty() {
            self.set_stream_low_water(0);
        }
    }

    fn foreign_processes(&mut self) -> Option<&mut dyn ForeignProcesses> {
        Some(self)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll_set.epoll.as_fd())
    }

    fn has_unsent(&self) -> bool {
        let behind =
            |&i: &usize| matches!(&self.peers[i].state, PeerState::Open(c) if c.is_behind());
        self.outgoing.writers.iter().any(behind)
    }

    fn settle(&mut self) -> bool {
        self.outgoing.settling = true;
        let mut settled = true;
        for peer in &mut self.peers {
            let PeerState::Open(conn) = &mut peer.state else {
                continue;
            };
            conn.finish();
            settled &= conn.flush().is_ok_and(|_| !conn.is_behind()) && conn.unacknowledged() == 0
                || conn.peer_has_finished();
        }
        self.outgoing.settling = !settled;
        settled
    }
}

#[cfg(test)]
mod tests;
