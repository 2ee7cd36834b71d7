//! Polling: one connection is read directly, the others by the system's poll set.

use super::Connected;
use super::conn::ReadMode;
use super::peers::PeerState;
use crate::Inbox;
use rustix::event::epoll;
use std::mem::MaybeUninit;

/// Events taken from the system at a time.
const EVENTS: usize = 32;

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
pub(super) enum Token {
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
    pub fn data(self) -> epoll::EventData {
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

    pub fn of(data: epoll::EventData) -> Token {
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

/// Polls of the connection that last brought something for each look at all others, at most.
pub(super) const POLLS_PER_LOOK_MAX: u32 = 16;

/// A connection that has brought so much without a sleep is taken out of the poll set, which then
/// costs its sender nothing.
pub(super) const BUSY_POLL_AFTER_READS: u32 = 64;

impl Connected {
    /// Asks the poll set to say `asked` of peer `i`.
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
        conn.set_read_mode(if conn.interest == PollInterest::Nothing {
            ReadMode::Busy
        } else {
            ReadMode::PollSet
        });
    }

    /// Reads from peer `i`; returns how many messages came.
    #[inline]
    pub(super) fn receive(&mut self, i: usize, inbox: &mut dyn Inbox) -> usize {
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
                if conn.is_streamed_to() && !conn.listed_as_stream {
                    conn.listed_as_stream = true;
                    self.streams.push(i);
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

    /// Returns whether the poll set is asked before peer `i` is read from. For many messages, whose
    /// packets the system puts together on the sender's core as long as nobody tries to read: a
    /// read in vain locks the socket, and then it has to be done here. Not for a long message:
    /// there the sender's core has more to do than this one, and what is done here relieves it.
    #[inline]
    pub(super) fn asks_first(&self, i: usize) -> bool {
        matches!(&self.peers[i].state, PeerState::Open(conn)
            if conn.brings_bursts()
                && !conn.brings_bulk()
                && conn.interest != PollInterest::Nothing)
    }

    #[inline]
    pub(super) fn is_empty(&mut self, i: usize) -> bool {
        match &mut self.peers[i].state {
            PeerState::Open(conn) => conn.is_empty(),
            _ => false,
        }
    }

    /// Makes peer `i` the one that is read from directly.
    pub(super) fn busy_poll(&mut self, i: usize) {
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
    pub(super) fn look(&mut self, inbox: &mut dyn Inbox) -> usize {
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
                Token::PendingAccept(ticket) => self.continue_accept(ticket),
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
    pub(super) fn set_stream_low_water(&mut self, most: usize) {
        let mut streams = std::mem::take(&mut self.streams);
        streams.retain(|&i| match &mut self.peers[i].state {
            PeerState::Open(conn) => {
                conn.listed_as_stream = conn.set_receive_low_water(most) || conn.is_streamed_to();
                conn.listed_as_stream
            }
            _ => false,
        });
        self.streams = streams;
    }

    /// Hands sockets with room what waits for it.
    pub(super) fn write(&mut self) {
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
