//! Polling: one connection is read at each poll, the others are reported by the poll set (epoll).

use super::ConnTransport;
pub use super::conn::PollInterest;
use super::conn::ReadMode;
use super::foreign::Discard;
use super::peers::PeerState;
use crate::Inbox;
use rustix::event::epoll;
use std::mem::MaybeUninit;

/// Most events taken from the system at a time. A choice; the rest stays for the next poll.
const EVENTS_MAX: usize = 32;

/// What an event of the poll set is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// The listener of this index, of the medium of this number.
    Listener(usize, usize),
    Timer,
    Directory,
    /// The peer of this index.
    Peer(usize),
    /// The pending accept of this ticket.
    PendingAccept(u64),
    /// The medium of this number.
    Medium(usize),
    /// A descriptor that the layer above reads.
    Watched,
}

impl Token {
    pub fn data(self) -> epoll::EventData {
        let (kind, value) = match self {
            Token::Listener(medium, i) => (0, (medium << 32 | i) as u64),
            Token::Timer => (1, 0),
            Token::Directory => (2, 0),
            Token::Peer(i) => (3, i as u64),
            Token::PendingAccept(ticket) => (4, ticket),
            Token::Medium(medium) => (5, medium as u64),
            Token::Watched => (6, 0),
        };
        epoll::EventData::new_u64(kind << 56 | value & ((1 << 56) - 1))
    }

    pub fn of(data: epoll::EventData) -> Token {
        let (kind, value) = (data.u64() >> 56, data.u64() & ((1 << 56) - 1));
        match kind {
            0 => Token::Listener((value >> 32) as usize, value as u32 as usize),
            1 => Token::Timer,
            2 => Token::Directory,
            3 => Token::Peer(value as usize),
            4 => Token::PendingAccept(value),
            5 => Token::Medium(value as usize),
            _ => Token::Watched,
        }
    }
}

/// Most polls of the busy-polled connection alone between two looks at the poll set. A choice: a
/// look costs one system call, so 1/16 of it is added to each poll.
pub(super) const POLLS_PER_LOOK_MAX: u32 = 16;

/// Reads without a sleep after which a busy-polled connection leaves the poll set, which then costs
/// its sender nothing. A choice: leaving costs two system calls, which must be rare.
pub(super) const BUSY_POLL_AFTER_READS: u32 = 64;

impl ConnTransport {
    /// Has the poll set report `interest` of peer `i`.
    pub(super) fn set_interest(&mut self, i: usize, interest: PollInterest) {
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
        // The set refuses only when the system is out of memory. The connection is then read if it
        // is the busy-polled one, and otherwise not before the interest is set again.
        let done = match (conn.interest, interest) {
            (_, PollInterest::Nothing) => epoll::delete(&self.poll_set.epoll, conn.fd()),
            (PollInterest::Nothing, _) => epoll::add(&self.poll_set.epoll, conn.fd(), token, flags),
            _ => epoll::modify(&self.poll_set.epoll, conn.fd(), token, flags),
        };
        if done.is_ok() {
            conn.interest = interest;
        }
        conn.set_read_mode(if conn.interest == PollInterest::Nothing {
            ReadMode::Busy
        } else {
            ReadMode::PollSet
        });
    }

    /// Reads from peer `i`. Returns how many messages came.
    #[inline]
    pub(super) fn receive(&mut self, i: usize, inbox: &mut dyn Inbox) -> usize {
        let PeerState::Open(conn) = &mut self.peers[i].state else {
            if self.busy_poll.peer == Some(i) {
                self.busy_poll.peer = None;
            }
            return 0;
        };
        if let Some(&index) = self.name_indices.get(conn.path.medium) {
            inbox.set_transport(index);
        }
        match conn.receive(&mut self.incoming.scratch, inbox) {
            Ok(found) => {
                if conn.is_streamed_to() && !conn.listed_as_stream {
                    conn.listed_as_stream = true;
                    self.incoming.streams.push(i);
                }
                if found.delivered > 0 {
                    let bursts = conn.brings_bursts();
                    conn.reads_since_sleep = if bursts {
                        0
                    } else {
                        conn.reads_since_sleep + 1
                    };
                    if bursts && conn.interest == PollInterest::Nothing {
                        self.set_interest(i, PollInterest::In);
                    } else if conn.reads_since_sleep == BUSY_POLL_AFTER_READS
                        && self.busy_poll.peer == Some(i)
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

    /// Returns whether the poll set is asked before peer `i` is read from.
    ///
    /// It is for many short messages. Their packets are put together on the sender's core as long
    /// as nobody reads; a read in vain locks the socket, and then this core has to do it. It is not
    /// for a long message: there the sender's core has more to do than this one, and what is done
    /// here relieves it.
    #[inline]
    pub(super) fn asks_first(&self, i: usize) -> bool {
        matches!(&self.peers[i].state, PeerState::Open(conn)
            if conn.brings_bursts()
                && !conn.brings_bulk()
                && conn.interest != PollInterest::Nothing)
    }

    /// Returns whether there is certainly nothing to read from peer `i`.
    #[inline]
    pub(super) fn is_empty(&mut self, i: usize) -> bool {
        match &mut self.peers[i].state {
            PeerState::Open(conn) => conn.is_empty(),
            _ => false,
        }
    }

    /// Makes peer `i` the busy-polled one.
    pub(super) fn busy_poll(&mut self, i: usize) {
        if let Some(before) = self.busy_poll.peer.filter(|&before| before != i) {
            self.set_interest(before, PollInterest::In);
        }
        if self.busy_poll.peer != Some(i)
            && let PeerState::Open(conn) = &mut self.peers[i].state
        {
            conn.reads_since_sleep = 0;
        }
        self.busy_poll.peer = Some(i);
    }

    /// Asks the poll set and handles its events. Returns how many messages came.
    pub(super) fn look(&mut self, inbox: &mut dyn Inbox) -> usize {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok((found, _)) = epoll::wait(&self.poll_set.epoll, &mut events, Some(&zero)) else {
            return 0;
        };
        self.slots.vacant.append(&mut self.slots.vacated);
        self.poll_set.watched_is_ready = false;
        let (mut delivered, mut others) = (0, false);
        for event in found {
            match Token::of(event.data) {
                Token::Listener(m, i) => self.accept_pending(m, i),
                Token::Medium(m) => self.read_medium(m),
                Token::Timer => self.tick(),
                Token::Directory => self.read_directory(),
                Token::PendingAccept(ticket) => self.continue_accept(ticket),
                Token::Watched => self.poll_set.watched_is_ready = true,
                Token::Peer(i) => {
                    if i >= self.peers.len() {
                        continue;
                    }
                    if matches!(self.peers[i].state, PeerState::Connecting(_)) {
                        delivered += self.continue_connect(i, inbox);
                        continue;
                    }
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.set_interest(i, PollInterest::In);
                    }
                    let readable =
                        epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP;
                    if flags.intersects(readable) {
                        let n = match self.peers[i].is_dismissed {
                            true => self.receive(i, &mut Discard),
                            false => self.receive(i, inbox),
                        };
                        if self.peers[i].leaving {
                            self.vacate_if_over(i);
                        } else if n > 0 {
                            others |= self.busy_poll.peer != Some(i);
                            self.busy_poll(i);
                        }
                        delivered += n;
                    }
                }
            }
        }
        self.busy_poll.polls_per_look = if others {
            1
        } else {
            (self.busy_poll.polls_per_look * 2).min(POLLS_PER_LOOK_MAX)
        };
        delivered
    }

    /// Sets the low-water mark of all connections by which streams come in to `most` bytes.
    pub(super) fn set_stream_low_water(&mut self, most: usize) {
        let mut streams = std::mem::take(&mut self.incoming.streams);
        streams.retain(|&i| match &mut self.peers[i].state {
            PeerState::Open(conn) => {
                conn.listed_as_stream = conn.set_receive_low_water(most) || conn.is_streamed_to();
                conn.listed_as_stream
            }
            _ => false,
        });
        self.incoming.streams = streams;
    }

    /// Has the poll set report room in each socket for which something waits.
    pub(super) fn watch_writers(&mut self) {
        for at in 0..self.outgoing.writers.len() {
            self.set_interest(self.outgoing.writers[at], PollInterest::InOut);
        }
    }

    /// Writes what waits for room in a socket.
    pub(super) fn write(&mut self) {
        let mut writers = std::mem::take(&mut self.outgoing.writers);
        writers.retain(|&i| {
            let PeerState::Open(conn) = &mut self.peers[i].state else {
                return false;
            };
            // A fault is found by reading, after the last messages that the peer has sent.
            let _ = conn.flush();
            conn.is_behind() || conn.wants_room
        });
        writers.append(&mut self.outgoing.writers);
        self.outgoing.writers = writers;
        if self.slots.any_leaving {
            self.slots.any_leaving = false;
            for i in 0..self.peers.len() {
                self.vacate_if_over(i);
                self.slots.any_leaving |= self.peers[i].leaving;
            }
        }
    }
}
