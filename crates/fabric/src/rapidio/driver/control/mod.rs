//! The control level: what makes a few mailboxes and queues serve any number of transfers.
//!
//! - It gives each request for a dedicated queue a mailbox number and a queue, and postpones it
//!   while there is none ([`assignment`]).
//! - It registers buffers: translates their pages, and allocates bounce pages where address or size
//!   does not suit the card ([`buffer`]).
//! - It sends small data and control information through the general queue, cut and reassembled
//!   ([`header`], [`assembly`]).
//! - It serves several users. The header of a message in the general queue names its user.
//!
//! The messages of one transfer go one after another: each is programmed when the one before it has
//! been accepted. Transfers go side by side.
//!
//! # Flow control
//! The card refuses a message for which the general queue has no buffer, and its sender sends it
//! again. Nothing deadlocks: [`ControlLevel::progress`] empties the general queue whether or not
//! this node can send, and what it takes out waits in the node's memory. Small data are refused
//! while others wait for the card's send list ([`ControlLevel::can_send`]). Control information is
//! never refused: each request has a bounded number of it.

mod assembly;
mod assignment;
mod buffer;
mod costs;
mod forget;
mod header;
mod io;
mod transfer;

pub use buffer::{Cut, PAGE_BYTES, UserMemory};
pub use costs::ControlCosts;
pub use header::{DATUM_MAX_BYTES, DataType, HEADER_BYTES};

use super::lower::{Host, Lower, LowerEvent, LowerLimits};
use super::physical::Registration;
use crate::driver::Malformed;
use crate::kernel::Rank;
use crate::rapidio::command::{Piece, SendId};
use crate::time::Rate;
use assembly::Assembly;
use assignment::Assignment;
use buffer::Buffer;
use costs::{charge_pages, charge_write_back};
use header::{Header, SEGMENT_BYTES};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use transfer::Transfer;

/// Mailbox of the general queue: control information and small data.
const GENERAL_MAILBOX: u8 = 0;

/// Messages of small data that may wait for the card's send list before more are refused.
const UNSENT_MAX: usize = 64;

/// A user of the channel: its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User(pub u8);

/// A registered buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(u32);

/// A request for a dedicated queue.
pub type RequestId = u32;

/// A transfer of a registered buffer.
pub type TransferId = u32;

/// What the control level has for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// A datum has come through the general queue, reassembled.
    Datum {
        /// The node that sent it.
        from: Rank,
        /// Control information or small data.
        data_type: DataType,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A postponed request has a queue. The sender is to be told the mailbox.
    Opened {
        /// The request.
        request: RequestId,
        /// The mailbox number that the queue takes.
        mailbox: u8,
    },
    /// The bytes of a request are in its buffer.
    Received {
        /// The request. It has ended.
        request: RequestId,
    },
    /// A buffer has been sent: the other card has accepted all of it.
    Sent {
        /// The transfer. It has ended.
        transfer: TransferId,
    },
    /// A doorbell.
    Doorbell {
        /// The node that rang it.
        from: Rank,
        /// Its number.
        number: u8,
    },
    /// The answer of [`ControlLevel::read`].
    Read {
        /// What that returned.
        id: SendId,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// What the control level keeps of another node.
#[derive(Default)]
struct Peer {
    /// [`Header::sequence`] of the next message to it.
    next_sequence: u16,
    /// What has come from it.
    assembly: Assembly,
}

/// A message for the general queue that the card's send list had no room for.
struct Unsent {
    to: Rank,
    page: Registration,
    bytes: u16,
}

/// What a send or a read of the lower level is about.
enum InFlight {
    /// A message in the general queue of another node. Its page is free afterwards.
    Message(Registration),
    Transfer(TransferId),
    Read(User),
}

/// A request for a dedicated queue.
struct QueueRequest {
    user: User,
    buffer: BufferId,
}

/// The control level of a node.
pub struct ControlLevel<L> {
    lower: L,
    me: Rank,
    limits: LowerLimits,
    costs: ControlCosts,
    /// By user: what there is for it.
    users: Vec<VecDeque<ControlEvent>>,
    peers: FxHashMap<Rank, Peer>,
    /// Nodes that are lost ([`ControlLevel::forget_peer`]).
    forgotten: BTreeSet<Rank>,
    buffers: FxHashMap<BufferId, Buffer>,
    assignment: Assignment,
    requests: FxHashMap<RequestId, QueueRequest>,
    transfers: FxHashMap<TransferId, Transfer>,
    /// Transfers whose next message the card's send list had no room for, oldest first.
    stalled: VecDeque<TransferId>,
    unsent: VecDeque<Unsent>,
    in_flight: FxHashMap<SendId, InFlight>,
    /// The last number of a buffer, request, transfer or send.
    last_number: u32,
}

impl<L: Lower> ControlLevel<L> {
    /// The control level of node `me`.
    pub fn new(lower: L, me: Rank, costs: ControlCosts) -> ControlLevel<L> {
        let limits = lower.limits();
        ControlLevel {
            lower,
            me,
            limits,
            costs,
            users: Vec::new(),
            peers: FxHashMap::default(),
            forgotten: BTreeSet::new(),
            buffers: FxHashMap::default(),
            assignment: Assignment::new(limits.queues, limits.mailboxes),
            requests: FxHashMap::default(),
            transfers: FxHashMap::default(),
            stalled: VecDeque::new(),
            unsent: VecDeque::new(),
            in_flight: FxHashMap::default(),
            last_number: 0,
        }
    }

    /// This node.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Sizes of the card.
    pub fn limits(&self) -> &LowerLimits {
        &self.limits
    }

    /// The lower level.
    pub fn lower(&self) -> &L {
        &self.lower
    }

    /// The lower level, to be changed.
    pub fn lower_mut(&mut self) -> &mut L {
        &mut self.lower
    }

    /// Rate of copies between the user's memory and the driver's.
    pub fn copy_rate(&self) -> Rate {
        self.costs.copy
    }

    /// Registers a user. Users of all nodes are registered in the same order: the number is the
    /// context in the headers of their messages.
    pub fn register_user(&mut self) -> User {
        self.users.push(VecDeque::new());
        User((self.users.len() - 1) as u8)
    }

    fn new_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Charges a call.
    pub fn charge_call(&self, c: &mut dyn Host) {
        c.charge("control level: calls", self.costs.call);
    }

    fn charge_copy(&self, c: &mut dyn Host, bytes: u64) {
        if bytes > 0 {
            let cost = self.costs.copy.time_of(bytes);
            c.charge("control level: copying", cost);
        }
    }

    /// Returns whether small data are accepted now.
    pub fn can_send(&self) -> bool {
        self.unsent.len() < UNSENT_MAX
    }

    /// Sends a datum to the general queue of a node, for the same user there. It is copied. More
    /// than 4080 bytes go in several messages. Returns false if it is small data and too much waits
    /// already ([`ControlLevel::can_send`]). There will be an event when that changes.
    ///
    /// Panics if the datum is longer than [`DATUM_MAX_BYTES`].
    pub fn send_datum(
        &mut self,
        c: &mut dyn Host,
        user: User,
        to: Rank,
        data_type: DataType,
        parts: &[&[u8]],
    ) -> bool {
        if data_type == DataType::Small && !self.can_send() {
            return false;
        }
        if self.forgotten.contains(&to) {
            return true;
        }
        self.charge_call(c);
        let bytes = parts.concat();
        assert!(bytes.len() <= DATUM_MAX_BYTES, "{} bytes", bytes.len());
        let part_max = self.limits.message_max - HEADER_BYTES;
        let mut offset = 0;
        loop {
            let part = &bytes[offset..][..part_max.min(bytes.len() - offset)];
            let peer = self.peers.entry(to).or_default();
            let header = Header {
                data_type,
                user: user.0,
                sequence: peer.next_sequence,
                total: bytes.len() as u32,
                offset: offset as u32,
            };
            peer.next_sequence = peer.next_sequence.wrapping_add(1);
            let mut message = [&header.encode()[..], part].concat();
            self.charge_copy(c, message.len() as u64);
            if message.len() > SEGMENT_BYTES {
                // Whole segments: see `buffer`.
                message.resize(message.len().next_multiple_of(SEGMENT_BYTES), 0);
            }
            let page = self.lower.memory().allocate(message.len());
            let written = self.lower.memory().write(page.runs[0].at, &message);
            debug_assert!(written.is_ok(), "a bounce page is registered");
            self.unsent.push_back(Unsent {
                to,
                page,
                bytes: message.len() as u16,
            });
            offset += part.len();
            if offset == bytes.len() {
                break;
            }
        }
        self.send_unsent(c);
        true
    }

    /// Hands messages to the card, as many as its send list has room for.
    fn send_unsent(&mut self, c: &mut dyn Host) {
        while let Some(first) = self.unsent.pop_front() {
            let id = self.new_number();
            let piece = Piece {
                at: first.page.runs[0].at,
                bytes: first.bytes,
            };
            let mailbox = GENERAL_MAILBOX;
            if !self.lower.send(c, first.to, mailbox, &[piece], id) {
                return self.unsent.push_front(first);
            }
            self.in_flight.insert(id, InFlight::Message(first.page));
        }
    }

    /// Registers a user's memory for one transfer, cut so. Its pages are translated, and bounce
    /// pages allocated where address or size is unsuitable, when the card needs them: for a
    /// dedicated queue all at once, for a transfer message by message. Panics if the cut has
    /// another number of bytes.
    ///
    /// # Safety
    /// The memory stays valid until [`ControlLevel::release_buffer`]: for reading, and for writing
    /// if it is received into. Nobody has a reference to it that this breaks.
    pub unsafe fn register_buffer(&mut self, memory: UserMemory, cut: Cut) -> BufferId {
        assert_eq!(memory.bytes, cut.bytes);
        // SAFETY: the caller's promise is the same.
        let buffer = unsafe { Buffer::new(memory, cut, self.limits.alignment) };
        let id = BufferId(self.new_number());
        self.buffers.insert(id, buffer);
        id
    }

    /// Forgets a buffer. Nothing is under way from or to it.
    pub fn release_buffer(&mut self, buffer: BufferId) {
        if let Some(buffer) = self.buffers.remove(&buffer) {
            buffer.release(self.lower.memory());
        }
    }

    /// Most messages of one transfer.
    pub fn messages_max(&self) -> usize {
        self.limits.expect_max
    }

    /// Requests a dedicated queue that takes messages from a node into a buffer. Returns the
    /// request, and the mailbox if there is one at once. Otherwise [`ControlEvent::Opened`] comes
    /// later. The sender must be told the mailbox and the cut.
    ///
    /// # Errors
    /// The card's queues are not as this level has left them.
    pub fn request_queue(
        &mut self,
        c: &mut dyn Host,
        user: User,
        from: Rank,
        buffer: BufferId,
    ) -> Result<(RequestId, Option<u8>), Malformed> {
        self.charge_call(c);
        let request = self.new_number();
        if self.forgotten.contains(&from) {
            return Ok((request, None));
        }
        self.requests.insert(request, QueueRequest { user, buffer });
        self.assignment.request(request, from);
        self.open_queues(c)?;
        let events = &mut self.users[usize::from(user.0)];
        let own = |e: &ControlEvent| match e {
            ControlEvent::Opened {
                request: opened, ..
            } => *opened == request,
            _ => false,
        };
        let mailbox = match events.iter().position(own).and_then(|at| events.remove(at)) {
            Some(ControlEvent::Opened { mailbox, .. }) => Some(mailbox),
            _ => None,
        };
        Ok((request, mailbox))
    }

    /// Opens queues for requests, as long as there are some.
    fn open_queues(&mut self, c: &mut dyn Host) -> Result<(), Malformed> {
        while let Some((queue, bound)) = self.assignment.bind_next() {
            let request = self.requests.get(&bound.request);
            let buffer = request.and_then(|r| self.buffers.get_mut(&r.buffer));
            let (Some(request), Some(buffer)) = (request, buffer) else {
                return Err(Malformed(
                    self.me,
                    "a queue request whose buffer is released",
                ));
            };
            let translated = buffer.translate_all(self.lower.memory());
            let pieces = buffer.pieces();
            charge_pages(c, &self.costs, translated);
            charge_write_back(c, &self.costs, buffer);
            let (from, mailbox) = (bound.from, bound.mailbox);
            if !self.lower.expect(c, queue, from, mailbox, &pieces) {
                return Err(Malformed(self.me, "a dedicated queue that is still open"));
            }
            self.users[usize::from(request.user.0)].push_back(ControlEvent::Opened {
                request: bound.request,
                mailbox,
            });
        }
        Ok(())
    }

    /// Sends a registered buffer to a mailbox of another node, where a dedicated queue with the
    /// same cut is open. [`ControlEvent::Sent`] comes when all of it is accepted.
    pub fn send_buffer(
        &mut self,
        c: &mut dyn Host,
        user: User,
        to: Rank,
        mailbox: u8,
        buffer: BufferId,
    ) -> TransferId {
        self.charge_call(c);
        let id = self.new_number();
        let transfer = Transfer::new(user, to, mailbox, buffer);
        self.transfers.insert(id, transfer);
        self.advance_transfer(c, id);
        id
    }

    /// Returns whether there is something for a user.
    pub fn has_event(&self, user: User) -> bool {
        let events = self.users.get(usize::from(user.0));
        events.is_some_and(|e| !e.is_empty())
    }

    /// The next thing that there is for a user. First come, first served.
    pub fn event(&mut self, user: User) -> Option<ControlEvent> {
        self.users.get_mut(usize::from(user.0))?.pop_front()
    }

    /// Takes what the card has, and sends what had to wait. Returns the number of events.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn progress(&mut self, c: &mut dyn Host) -> Result<usize, Malformed> {
        let mut count = 0;
        while let Some(event) = self.lower.receive(c) {
            count += 1;
            self.on_event(c, event)?;
        }
        self.send_unsent(c);
        self.advance_stalled(c);
        Ok(count)
    }

    fn on_event(&mut self, c: &mut dyn Host, event: LowerEvent) -> Result<(), Malformed> {
        match event {
            LowerEvent::Unexpected { from, .. } | LowerEvent::Doorbell { from, .. }
                if self.forgotten.contains(&from) => {}
            LowerEvent::Forgotten { node } => {
                self.assignment.release_of(node);
                self.open_queues(c)?;
            }
            LowerEvent::Unexpected {
                from,
                mailbox,
                bytes,
            } => return self.on_message(c, from, mailbox, &bytes),
            LowerEvent::Received { queue } => {
                self.charge_call(c);
                let bound = self.assignment.release(queue);
                let request =
                    bound.and_then(|b| Some((b.request, self.requests.remove(&b.request)?)));
                let Some((request, QueueRequest { user, buffer })) = request else {
                    return Err(Malformed(self.me, "the end of a queue that was not open"));
                };
                if let Some(buffer) = self.buffers.get(&buffer) {
                    let bounced = buffer.bounced_bytes();
                    buffer.empty_bounce_pages(self.lower.memory());
                    self.charge_copy(c, bounced);
                }
                self.push(user, ControlEvent::Received { request });
                self.open_queues(c)?;
            }
            LowerEvent::Sent { id } => match self.in_flight.remove(&id) {
                Some(InFlight::Message(page)) => self.lower.memory().release(page),
                Some(InFlight::Transfer(transfer)) => self.advance_transfer(c, transfer),
                _ => return Err(Malformed(self.me, "the end of a send that was not begun")),
            },
            LowerEvent::Doorbell { from, info } => {
                let [user, number] = info.to_be_bytes();
                let event = ControlEvent::Doorbell { from, number };
                if !self.push(User(user), event) {
                    return Err(Malformed(from, "a doorbell for a user that there is not"));
                }
            }
            LowerEvent::Read { id, bytes } => match self.in_flight.remove(&id) {
                Some(InFlight::Read(user)) => {
                    self.push(user, ControlEvent::Read { id, bytes });
                }
                _ => {
                    return Err(Malformed(
                        self.me,
                        "the answer of a read that was not begun",
                    ));
                }
            },
        }
        Ok(())
    }

    /// A message has come through the general queue.
    fn on_message(
        &mut self,
        c: &mut dyn Host,
        from: Rank,
        mailbox: u8,
        message: &[u8],
    ) -> Result<(), Malformed> {
        if mailbox != GENERAL_MAILBOX {
            let what = "a message to a mailbox for which no queue is open";
            return Err(Malformed(from, what));
        }
        self.charge_copy(c, message.len() as u64);
        let assembly = &mut self.peers.entry(from).or_default().assembly;
        let whole = assembly
            .add(message)
            .map_err(|what| Malformed(from, what))?;
        let Some((data_type, user, bytes)) = whole else {
            return Ok(());
        };
        self.charge_call(c);
        let event = ControlEvent::Datum {
            from,
            data_type,
            bytes,
        };
        match self.push(User(user), event) {
            true => Ok(()),
            false => Err(Malformed(from, "data for a user that there is not")),
        }
    }

    /// Adds an event for a user. Returns false if there is no such user.
    fn push(&mut self, user: User, event: ControlEvent) -> bool {
        match self.users.get_mut(usize::from(user.0)) {
            Some(events) => {
                events.push_back(event);
                true
            }
            None => false,
        }
    }

    /// Returns whether the card has accepted everything that was sent.
    pub fn is_settled(&self) -> bool {
        self.unsent.is_empty() && self.transfers.is_empty()
    }

    /// Queues open, requests postponed, buffers registered, sends and reads under way.
    pub fn counts(&self) -> [usize; 4] {
        let (open, postponed) = self.assignment.counts();
        [open, postponed, self.buffers.len(), self.in_flight.len()]
    }
}

#[cfg(test)]
pub(in crate::rapidio::driver) mod fake;
#[cfg(test)]
mod tests;
