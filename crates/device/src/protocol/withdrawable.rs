//! Withdrawable rendezvous: messages of medium length within a node, which their receiver reads
//! where they lie, unless it comes too late. Then their sender withdraws the announcement and sends
//! the bytes eagerly, so that a standard send never waits for its receive.
//!
//! Which of the two decides is settled by a word in shared memory (`announcements.rs` of shared
//! memory). RTS_WITHDRAWABLE names it; WITHDRAWN brings the bytes of a withdrawn message. The
//! message has matched by its RTS, so that it keeps its place.
//!
//! Where the receiver mostly comes late, or finds pipelined copy faster for single messages, these
//! are eager for a while. In a stream of messages pipelined copy needs no eager ones: it asks for
//! the next while it copies.

use crate::base::buffer::Source;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::message::MatchedRts;
use crate::base::request::{Cts, Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::Transports;
use ferry_transport::shm::{ANNOUNCEMENTS_MAX, Announcements};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::{Duration, Instant};

/// Shortest message that is announced so, bytes. Measured (docs/measured/shm.md).
pub(crate) const WITHDRAWABLE_MIN_BYTES: usize = 48 * 1024;
/// How long the receiver of an announced message is waited for by a sender that has nothing else to
/// do. A choice: twice what a message of this length takes.
const WITHDRAW_AFTER: Duration = Duration::from_micros(10);
/// Polls that find nothing between two readings of the clock. A choice.
const POLLS_PER_CLOCK: u32 = 16;
/// Messages that are eager after an announcement was withdrawn, or after receivers have asked for
/// pipelined copy. Doubled each time. A choice.
const EAGER_MESSAGES_MIN: u32 = 8;
/// Most of them after a withdrawal. A choice: waiting in vain then costs 10 ns a message.
const LATE_EAGER_MESSAGES_MAX: u32 = 1024;
/// Most of them after receivers have asked. A choice: a CTS then costs 50 ns a message, and the
/// receiver measures both paths again soon.
const ASKED_EAGER_MESSAGES_MAX: u32 = 16;
/// Single messages in a row for which the receiver has asked until the next ones are eager: more
/// than a trial of the path takes. A choice.
const ASKED_MESSAGES_MAX: u32 = 100;
/// As many of them count for one that is no part of a trial, as its receiver says. A choice.
const CHOSEN_WEIGHT: u32 = 25;

/// What the receiver does about an announcement that it has claimed.
#[derive(Clone, Copy)]
pub(crate) enum Response {
    /// It has read the message.
    Read,
    /// It asks for the bytes. `chosen`: because that is faster, and not for a trial.
    Asked { chosen: bool },
}

/// An announcement that its receiver has not answered.
#[derive(Clone, Copy)]
struct OpenAnnouncement {
    to: ProcId,
    slot: u32,
    req: ReqId,
}

/// What is known of a peer.
struct Peer {
    /// The words in shared memory. `None`: there are none.
    words: Option<Announcements>,
    /// A bit for each slot of this process's announcements that is not in use.
    free: u64,
    /// A bit for each slot whose announcement was withdrawn and that has not come back.
    withdrawn: u64,
    /// Messages that are still to be eager.
    eager_left: u32,
    /// Messages in the next run of eager ones.
    next_eager_run: u32,
    /// Single messages in a row for which the peer has asked.
    asked: u32,
    /// Announcements that it has not answered.
    open: u32,
}

impl Peer {
    fn new(words: Option<Announcements>) -> Peer {
        Peer {
            words,
            free: u64::MAX,
            withdrawn: 0,
            eager_left: 0,
            next_eager_run: EAGER_MESSAGES_MIN,
            asked: 0,
            open: 0,
        }
    }

    /// The slot of the next announcement. `None`: the message is to be eager.
    fn next_slot(&mut self) -> Option<u32> {
        let words = self.words.filter(|words| words.core_each)?;
        if self.eager_left > 0 {
            self.eager_left -= 1;
            return None;
        }
        if self.free == 0 {
            // What a peer made up must not free a slot that is in use.
            let returned = words.own.take_returned() & self.withdrawn;
            self.withdrawn &= !returned;
            self.free |= returned;
        }
        let slot = self.free.trailing_zeros();
        (slot < ANNOUNCEMENTS_MAX).then(|| {
            self.free &= !(1 << slot);
            self.open += 1;
            words.own.open(slot);
            slot
        })
    }

    /// The next messages are eager, at most `most` of them.
    fn pause(&mut self, most: u32) {
        self.eager_left = self.next_eager_run.min(most);
        self.next_eager_run = (self.next_eager_run * 2).min(most);
    }

    /// The receiver has decided about the announcement of this slot.
    fn close(&mut self, slot: u32, response: Response) {
        self.free |= 1 << slot;
        self.open -= 1;
        match response {
            Response::Read => (self.next_eager_run, self.asked) = (EAGER_MESSAGES_MIN, 0),
            Response::Asked { .. } if self.open > 0 => {}
            Response::Asked { chosen } => {
                let weight = if chosen { CHOSEN_WEIGHT } else { 1 };
                self.asked = (self.asked + weight).min(ASKED_MESSAGES_MAX);
                if self.asked == ASKED_MESSAGES_MAX && self.eager_left == 0 {
                    self.pause(ASKED_EAGER_MESSAGES_MAX);
                }
            }
        }
    }
}

/// By sender and slot: the bytes of withdrawn messages whose receive is not known yet. Tools count
/// them with those of unexpected messages.
#[derive(Default)]
struct Arrived(BTreeMap<(ProcId, u32), Box<[u8]>>);

impl Arrived {
    /// False, and nothing is changed: a message has come in this slot before.
    fn insert(&mut self, from: ProcId, slot: u32, bytes: &[u8]) -> bool {
        let Entry::Vacant(entry) = self.0.entry((from, slot)) else {
            return false;
        };
        entry.insert(bytes.into());
        COUNTERS.unexpected_queue_bytes.add(bytes.len() as u64);
        true
    }

    fn remove(&mut self, from: ProcId, slot: u32) -> Option<Box<[u8]>> {
        let bytes = self.0.remove(&(from, slot))?;
        COUNTERS.unexpected_queue_bytes.subtract(bytes.len() as u64);
        Some(bytes)
    }

    /// Drops the bytes from a lost peer.
    fn forget(&mut self, peer: ProcId) {
        for slot in 0..ANNOUNCEMENTS_MAX {
            self.remove(peer, slot);
        }
    }
}

/// Announcements that may be withdrawn, in both directions.
#[derive(Default)]
pub(crate) struct Withdrawables {
    /// This process's, in the order in which they were sent.
    open: VecDeque<OpenAnnouncement>,
    /// Polls that have found nothing.
    idle_polls: u32,
    /// Since when this process has waited for an answer.
    idle_since: Option<Instant>,
    peers: BTreeMap<ProcId, Peer>,
    arrived: Arrived,
    /// By sender and slot: receives of withdrawn messages whose bytes have not come yet.
    awaited: BTreeMap<(ProcId, u32), ReqId>,
}

impl Withdrawables {
    /// What is known of a peer.
    fn peer(&mut self, peer: ProcId, transports: &mut Transports) -> &mut Peer {
        let known = self.peers.entry(peer);
        known.or_insert_with(|| Peer::new(transports.announcements(peer)))
    }

    /// Is a message announced that might be withdrawn?
    #[inline]
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The receiver of `req`'s message has answered. Returns whether that could be withdrawn.
    #[inline]
    pub fn close(&mut self, req: ReqId, response: Response) -> bool {
        self.has_open() && self.close_open(req, response)
    }

    fn close_open(&mut self, req: ReqId, response: Response) -> bool {
        let Some(at) = self.open.iter().position(|open| open.req == req) else {
            return false;
        };
        // The receiver is at work.
        self.idle_since = None;
        if let Some(OpenAnnouncement { to, slot, .. }) = self.open.remove(at)
            && let Some(peer) = self.peers.get_mut(&to)
        {
            peer.close(slot, response);
        }
        true
    }

    /// Drops what is known of a lost peer.
    pub fn forget(&mut self, peer: ProcId) {
        self.open.retain(|open| open.to != peer);
        self.peers.remove(&peer);
        self.arrived.forget(peer);
        self.awaited.retain(|&(from, _), _| from != peer);
    }
}

impl Worker {
    /// Announces a standard send of `len` bytes at `ptr`. `None`: it is to be eager.
    #[inline(never)]
    pub fn send_withdrawable(
        &mut self,
        to: ProcId,
        key: &Key,
        ptr: *const u8,
        len: usize,
    ) -> Option<ReqId> {
        let Worker {
            transports, engine, ..
        } = self;
        let slot = engine.withdrawables.peer(to, transports).next_slot()?;
        let req = engine.requests.insert(Operation::SendLarge {
            to,
            source: Source::Bytes { ptr, len },
            cts: Cts::Awaited,
        });
        if engine.withdrawables.open.is_empty() {
            engine.withdrawables.idle_since = None;
        }
        engine
            .withdrawables
            .open
            .push_back(OpenAnnouncement { to, slot, req });
        COUNTERS.sent_announced.add(1);
        let head = Header::new().key(key).u64(len as u64).u64(ptr as u64);
        self.send_header(to, header::RTS_WITHDRAWABLE, head.u32(req.0).u32(slot));
        Some(req)
    }

    /// A poll has found nothing, and announcements are open. Withdraws them if their receivers have
    /// been waited for long enough. Returns whether any was.
    #[cold]
    pub fn withdraw_overdue(&mut self) -> bool {
        let state = &mut self.engine.withdrawables;
        state.idle_polls = state.idle_polls.wrapping_add(1);
        if !state.idle_polls.is_multiple_of(POLLS_PER_CLOCK) {
            return false;
        }
        let now = Instant::now();
        let since = *state.idle_since.get_or_insert(now);
        now.duration_since(since) >= WITHDRAW_AFTER && self.withdraw_announcements()
    }

    /// Withdraws announcements, the oldest first, as long as there is room for their bytes. Returns
    /// whether any was withdrawn.
    pub fn withdraw_announcements(&mut self) -> bool {
        let (mut at, mut any) = (0, false);
        while let Some(&OpenAnnouncement { to, slot, req }) = self.engine.withdrawables.open.get(at)
        {
            // What waits for room would not go sooner.
            if self.engine.outbox.is_empty_for(to) && self.engine.withdraw(to, slot) {
                self.engine.withdrawables.open.remove(at);
                self.engine.requests.make_queued(req);
                let message = Outgoing {
                    message: header::WITHDRAWN,
                    head: Header::new().u32(slot),
                    payload: Payload::Request(req),
                };
                self.engine.outbox.push(to, message);
                self.offer_queued();
                any = true;
            } else {
                at += 1;
            }
        }
        any
    }

    /// Does this process decide how the bytes of an announced message that has matched come? If
    /// not, they come as WITHDRAWN.
    pub fn claims(&mut self, rts: &MatchedRts) -> bool {
        let Some(slot) = rts.slot else {
            return true;
        };
        let Worker {
            transports, engine, ..
        } = self;
        let peer = engine.withdrawables.peer(rts.from, transports);
        // Only a peer that makes things up announces so where there are no words.
        let claimed = peer.words.is_none_or(|words| words.peers.claim(slot));
        if !claimed {
            engine.match_withdrawn(rts, slot);
        }
        claimed
    }
}

impl Engine {
    /// Withdraws an announcement. False: its receiver has decided.
    fn withdraw(&mut self, to: ProcId, slot: u32) -> bool {
        let Some(peer) = self.withdrawables.peers.get_mut(&to) else {
            return false;
        };
        let withdrawn = peer.words.is_some_and(|words| words.own.withdraw(slot));
        if withdrawn {
            peer.withdrawn |= 1 << slot;
            peer.open -= 1;
            if peer.eager_left == 0 {
                peer.pause(LATE_EAGER_MESSAGES_MAX);
            }
        }
        withdrawn
    }

    /// A receive has matched a message that was withdrawn.
    fn match_withdrawn(&mut self, rts: &MatchedRts, slot: u32) {
        let (req, from) = (rts.req, rts.from);
        match self.withdrawables.arrived.remove(from, slot) {
            Some(bytes) => self.deliver(req, self.requests.envelope(req), &bytes),
            None => {
                self.begin_stream(req, from, 0, None);
                self.withdrawables.awaited.insert((from, slot), req);
            }
        }
    }

    /// WITHDRAWN: the bytes of a message whose announcement was withdrawn. `None`: malformed.
    pub fn on_withdrawn(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let slot = fields.u32().filter(|&slot| slot < ANNOUNCEMENTS_MAX)?;
        let bytes = fields.0;
        match self.withdrawables.awaited.remove(&(from, slot)) {
            Some(req) => {
                self.requests.operation(req)?;
                self.deliver(req, self.requests.envelope(req), bytes);
            }
            None => {
                // A slot is used again only after its bytes were taken.
                if !self.withdrawables.arrived.insert(from, slot, bytes) {
                    return None;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
#[path = "withdrawable/tests.rs"]
mod tests;
