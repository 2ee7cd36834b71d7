//! The MX level: message passing by match bits and mask, after Myrinet Express.
//!
//! It serves MPI's driver, the C library `libferry_mx`, and tests. Use it so:
//!
//! 1. [`Mx::open`] opens an endpoint. Others send to its [`Address`].
//! 2. [`Mx::isend`] and [`Mx::irecv`] return a [`Request`] at once.
//! 3. [`Mx::progress`] takes what the card has. Nothing else makes progress: call it whenever the
//!    client has caught up with the model, or let [`Mx::poll`] and [`Mx::wait`] do so.
//! 4. [`Mx::test`] returns a request's [`Status`] once. The request is over then.
//!
//! A small message goes eagerly through the general queue; it is copied, and its send completes at
//! once. A large one goes by rendezvous: RTS, then CTS with the mailbox of a dedicated queue that
//! the receiver has opened, then the bytes from and to where they belong. A message that is longer
//! than one queue can describe goes in several parts, each with a CTS.

mod matching;
mod message;
mod rendezvous;
mod wait;

pub use message::{GRANT_BYTES, Grant};

use super::control::{
    ControlEvent, ControlLevel, DataType, RequestId, TransferId, User, UserMemory,
};
use super::lower::{Host, Lower};
use crate::driver::Malformed;
use crate::kernel::Rank;
use crate::time::Time;
use matching::{Queues, Unexpected, UnexpectedBody};
use message::{Head, Kind, NO_REQUEST};
use rendezvous::{LargeReceive, LargeSend};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// Cause of what it costs to copy a message once more than the control level does.
const COPYING: &str = "MX: copying unexpected messages";

/// Where messages go to and come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The node.
    pub rank: Rank,
    /// The endpoint on it.
    pub endpoint: u8,
}

/// An open endpoint of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint(u8);

impl Endpoint {
    /// Its number on this node.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// A send or receive that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(u32);

/// When a send is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Once its memory is not needed any more.
    Standard,
    /// Not before the receiver has matched it.
    Synchronous,
}

/// Which messages a receive takes: those whose match bits are `bits` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Match bits.
    pub bits: u64,
    /// Bits that count.
    pub mask: u64,
}

impl Match {
    /// Takes every message.
    pub const ANY: Match = Match { bits: 0, mask: 0 };

    /// Returns whether it takes a message with these match bits.
    pub fn accepts(self, bits: u64) -> bool {
        (bits ^ self.bits) & self.mask == 0
    }
}

/// What became of a request, and what a probe has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Receive and probe: the sender. Send: the receiver.
    pub peer: Address,
    /// The message's match bits.
    pub bits: u64,
    /// The message's bytes.
    pub message_bytes: usize,
    /// Bytes that were transferred: fewer if the receive's memory is shorter. A probe has 0.
    pub bytes: usize,
}

impl Status {
    /// Returns whether the message was longer than the receive's memory.
    pub fn is_truncated(&self) -> bool {
        self.bytes < self.message_bytes
    }
}

/// What the MX level's work costs the processor, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct MxCosts {
    /// A call of the interface, or handling an event: matching included.
    pub call: Time,
    /// A look at the card that finds nothing.
    pub poll: Time,
    /// Longest message that goes eagerly, bytes.
    pub eager_max: usize,
}

/// A request's state.
enum State {
    /// A receive that nothing has matched.
    Posted(UserMemory),
    LargeReceive(LargeReceive),
    /// A small synchronous send.
    AwaitsAck(Status),
    LargeSend(LargeSend),
    Done(Status),
}

struct Operation {
    endpoint: u8,
    state: State,
}

/// The MX level of a node.
pub struct Mx<L> {
    control: ControlLevel<L>,
    user: User,
    costs: MxCosts,
    /// By number. `None`: it is not open.
    endpoints: BTreeMap<u8, Queues>,
    operations: FxHashMap<Request, Operation>,
    /// Requests that are done and were not tested, oldest first.
    done: VecDeque<Request>,
    queue_requests: FxHashMap<RequestId, Request>,
    transfers: FxHashMap<TransferId, Request>,
    /// Grants for messages that [`Mx::send_granted`] has not named yet.
    grants: FxHashMap<(Rank, u32), VecDeque<Grant>>,
    /// Sends that are not announced by RTS, by receiver and its number for the message.
    granted: FxHashMap<(Rank, u32), Request>,
    last_request: u32,
}

impl<L: Lower> Mx<L> {
    /// The MX level above a control level, as a user of it.
    pub fn new(mut control: ControlLevel<L>, costs: MxCosts) -> Mx<L> {
        let user = control.register_user();
        Mx {
            control,
            user,
            costs,
            endpoints: BTreeMap::new(),
            operations: FxHashMap::default(),
            done: VecDeque::new(),
            queue_requests: FxHashMap::default(),
            transfers: FxHashMap::default(),
            grants: FxHashMap::default(),
            granted: FxHashMap::default(),
            last_request: 0,
        }
    }

    /// The control level, for its other users.
    pub fn control(&mut self) -> &mut ControlLevel<L> {
        &mut self.control
    }

    /// Longest message that goes eagerly, bytes.
    pub fn eager_max(&self) -> usize {
        self.costs.eager_max
    }

    /// How often who waits polls.
    pub fn poll_period(&self) -> Time {
        self.costs.poll
    }

    /// Opens the endpoint of this number. `None`: it is open already.
    pub fn open(&mut self, number: u8) -> Option<Endpoint> {
        if self.endpoints.contains_key(&number) {
            return None;
        }
        self.endpoints.insert(number, Queues::default());
        Some(Endpoint(number))
    }

    /// Closes an endpoint. Its posted receives end without a status, and unexpected messages are
    /// lost. Returns false if large messages of it are under way: make progress, and try again.
    pub fn close(&mut self, endpoint: Endpoint) -> bool {
        let busy = |o: &Operation| {
            o.endpoint == endpoint.0
                && matches!(o.state, State::LargeReceive(_) | State::LargeSend(_))
        };
        if self.operations.values().any(busy) {
            return false;
        }
        self.endpoints.remove(&endpoint.0);
        self.operations.retain(|_, o| o.endpoint != endpoint.0);
        let operations = &self.operations;
        self.done.retain(|request| operations.contains_key(request));
        true
    }

    /// Opens the endpoint of the lowest number that is not open.
    pub fn open_first(&mut self) -> Endpoint {
        let number = (0..=u8::MAX).find(|n| !self.endpoints.contains_key(n));
        let number = number.unwrap_or(u8::MAX);
        self.endpoints.entry(number).or_default();
        Endpoint(number)
    }

    fn charge_call(&self, c: &mut dyn Host) {
        c.charge("MX: calls", self.costs.call);
    }

    fn add(&mut self, endpoint: u8, state: State) -> Request {
        self.last_request = self.last_request.wrapping_add(1);
        if self.last_request == NO_REQUEST {
            self.last_request = 0;
        }
        let request = Request(self.last_request);
        self.operations
            .insert(request, Operation { endpoint, state });
        request
    }

    /// A request is done.
    fn finish(&mut self, request: Request, status: Status) {
        if let Some(operation) = self.operations.get_mut(&request) {
            operation.state = State::Done(status);
            self.done.push_back(request);
        }
    }

    fn send_message(&mut self, c: &mut dyn Host, to: Rank, head: Head, body: &[u8]) {
        let data_type = match head.kind {
            Kind::Eager | Kind::SyncEager => DataType::Small,
            _ => DataType::Control,
        };
        let parts = [&head.encode()[..], body];
        if !self.control.send_datum(c, self.user, to, data_type, &parts) {
            // MX refuses no send. Who sends much asks `can_send` before.
            let control = DataType::Control;
            self.control.send_datum(c, self.user, to, control, &parts);
        }
    }

    /// Returns whether small messages are handed on at once. Otherwise they wait in the node's
    /// memory.
    pub fn can_send(&self) -> bool {
        self.control.can_send()
    }

    /// Sends a message. A small one is copied and done at once unless the mode is synchronous, a
    /// large one when the receiver's card has accepted all of it.
    ///
    /// # Safety
    /// The memory stays valid for reading, and nobody writes to it, until [`Mx::test`] has returned
    /// the request's status.
    pub unsafe fn isend(
        &mut self,
        c: &mut dyn Host,
        from: Endpoint,
        to: Address,
        bits: u64,
        memory: UserMemory,
        mode: SendMode,
    ) -> Request {
        self.charge_call(c);
        let status = Status {
            peer: to,
            bits,
            message_bytes: memory.bytes,
            bytes: memory.bytes,
        };
        let own = to.rank == self.control.me();
        if memory.bytes > self.costs.eager_max && !own {
            let request = self.add(from.0, State::LargeSend(LargeSend::new(status, memory)));
            let head = self.head(Kind::Rts, from, to, request.0, bits);
            let bytes = (memory.bytes as u64).to_le_bytes();
            self.send_message(c, to.rank, head, &bytes);
            return request;
        }
        let mut bytes = vec![0; memory.bytes];
        // SAFETY: valid for reading until the request is done.
        unsafe { memory.read(&mut bytes) };
        let request = self.add(from.0, State::AwaitsAck(status));
        let kind = match mode {
            SendMode::Standard => Kind::Eager,
            SendMode::Synchronous => Kind::SyncEager,
        };
        if mode == SendMode::Standard {
            self.finish(request, status);
        }
        let head = self.head(kind, from, to, request.0, bits);
        if own {
            let source = Address {
                rank: to.rank,
                endpoint: from.0,
            };
            self.on_eager(c, source, head, bytes);
        } else {
            self.send_message(c, to.rank, head, &bytes);
        }
        request
    }

    fn head(&self, kind: Kind, from: Endpoint, to: Address, request: u32, bits: u64) -> Head {
        Head {
            kind,
            to: to.endpoint,
            from: from.0,
            request,
            bits,
        }
    }

    /// Receives a message that matches.
    ///
    /// # Errors
    /// The card's queues are not as the driver has left them.
    ///
    /// # Safety
    /// The memory stays valid for writing, and nobody has a reference to it, until [`Mx::test`] has
    /// returned the request's status or [`Mx::cancel`] true.
    pub unsafe fn irecv(
        &mut self,
        c: &mut dyn Host,
        endpoint: Endpoint,
        wanted: Match,
        memory: UserMemory,
    ) -> Result<Request, Malformed> {
        self.charge_call(c);
        let request = self.add(endpoint.0, State::Posted(memory));
        let queues = self.endpoints.entry(endpoint.0).or_default();
        let Some(message) = queues.take(wanted) else {
            queues.post(request, wanted);
            return Ok(request);
        };
        let copied = message.bytes().min(memory.bytes) as u64;
        let (from, bits) = (message.from, message.bits);
        match message.body {
            UnexpectedBody::Eager(bytes, sync) => {
                let cost = self.control.copy_rate().time_of(copied);
                c.charge(COPYING, cost);
                self.deliver(c, request, from, bits, &bytes, sync);
            }
            UnexpectedBody::Rts(number, bytes) => {
                let large = LargeReceive::new(from, bits, number, bytes, memory);
                self.start_receive(c, request, large)?;
            }
        }
        Ok(request)
    }

    /// Looks for a message that has come and matches, without receiving it.
    pub fn iprobe(&self, c: &mut dyn Host, endpoint: Endpoint, wanted: Match) -> Option<Status> {
        self.charge_call(c);
        let message = self.endpoints.get(&endpoint.0)?.find(wanted)?;
        Some(Status {
            peer: message.from,
            bits: message.bits,
            message_bytes: message.bytes(),
            bytes: 0,
        })
    }

    /// Cancels a receive that nothing has matched. Returns whether it is cancelled; the request is
    /// over then. A send cannot be cancelled.
    pub fn cancel(&mut self, c: &mut dyn Host, request: Request) -> bool {
        self.charge_call(c);
        let Some(operation) = self.operations.get(&request) else {
            return false;
        };
        let queues = self.endpoints.get_mut(&operation.endpoint);
        let cancelled = queues.is_some_and(|q| q.cancel(request));
        if cancelled {
            self.operations.remove(&request);
        }
        cancelled
    }

    /// The status of a request that is done. The request is over then. `None`: it is not done, or
    /// it is over already.
    pub fn test(&mut self, request: Request) -> Option<Status> {
        let State::Done(status) = self.operations.get(&request)?.state else {
            return None;
        };
        self.operations.remove(&request);
        self.done.retain(|r| *r != request);
        Some(status)
    }

    /// The first request of an endpoint that is done and whose match bits match, with its status.
    /// It is over then.
    pub fn test_any(&mut self, endpoint: Endpoint, wanted: Match) -> Option<(Request, Status)> {
        let found = self.done.iter().find_map(|request| {
            let operation = self.operations.get(request)?;
            match operation.state {
                State::Done(status) if wanted.accepts(status.bits) => {
                    (operation.endpoint == endpoint.0).then_some(*request)
                }
                _ => None,
            }
        })?;
        Some((found, self.test(found)?))
    }

    /// Returns whether [`Mx::progress`] has something to do that the card has given already.
    pub fn has_event(&self) -> bool {
        self.control.has_event(self.user)
    }

    /// Takes what the card has, as of the client's last [`sync`](crate::Client::sync) or wait.
    /// Returns the number of its events.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn progress(&mut self, c: &mut dyn Host) -> Result<usize, Malformed> {
        let count = self.control.progress(c)?;
        while let Some(event) = self.control.event(self.user) {
            self.charge_call(c);
            match event {
                ControlEvent::Datum { from, bytes, .. } => self.on_datum(c, from, &bytes)?,
                ControlEvent::Opened { request, mailbox } => self.on_opened(c, request, mailbox),
                ControlEvent::Received { request } => self.on_received(c, request)?,
                ControlEvent::Sent { transfer } => self.on_sent(c, transfer),
                ControlEvent::Doorbell { from, .. } => {
                    return Err(Malformed(from, "a doorbell that MX does not have"));
                }
                ControlEvent::Read { .. } => {}
            }
        }
        Ok(count)
    }

    fn on_datum(&mut self, c: &mut dyn Host, from: Rank, bytes: &[u8]) -> Result<(), Malformed> {
        let malformed = |what| Malformed(from, what);
        let (head, body) = Head::parse(bytes).map_err(malformed)?;
        let source = Address {
            rank: from,
            endpoint: head.from,
        };
        match head.kind {
            Kind::Eager | Kind::SyncEager => self.on_eager(c, source, head, body.to_vec()),
            Kind::Rts => {
                let bytes = Head::rts_bytes(body);
                let bytes = bytes.ok_or(malformed("an RTS without a length"))?;
                self.on_rts(c, source, head, bytes)?;
            }
            Kind::Cts => {
                let grant = Grant::parse(body).filter(|(_, rest)| rest.is_empty());
                let (grant, _) = grant.ok_or(malformed("a CTS without a valid grant"))?;
                self.on_cts(c, from, head.request, grant)?;
            }
            Kind::Ack => {
                let request = Request(head.request);
                match self.operations.get(&request).map(|o| &o.state) {
                    Some(&State::AwaitsAck(status)) if status.peer.rank == from => {
                        self.finish(request, status);
                    }
                    // Its endpoint was closed.
                    None => {}
                    _ => return Err(malformed("an ACK for no synchronous send")),
                }
            }
        }
        Ok(())
    }

    /// A small message has come. One to an endpoint that is not open is dropped.
    fn on_eager(&mut self, c: &mut dyn Host, from: Address, head: Head, bytes: Vec<u8>) {
        let Some(queues) = self.endpoints.get_mut(&head.to) else {
            return;
        };
        let sync = (head.kind == Kind::SyncEager).then_some(head.request);
        match queues.take_posted(head.bits) {
            Some(request) => self.deliver(c, request, from, head.bits, &bytes, sync),
            None => queues.keep(Unexpected {
                from,
                bits: head.bits,
                body: UnexpectedBody::Eager(bytes, sync),
            }),
        }
    }

    /// A small message has matched a receive.
    fn deliver(
        &mut self,
        c: &mut dyn Host,
        request: Request,
        from: Address,
        bits: u64,
        bytes: &[u8],
        sync: Option<u32>,
    ) {
        let Some(operation) = self.operations.get(&request) else {
            return;
        };
        let State::Posted(memory) = operation.state else {
            return;
        };
        let endpoint = Endpoint(operation.endpoint);
        // SAFETY: valid for writing until the request is done, as `irecv` demands.
        unsafe { memory.write(bytes) };
        let status = Status {
            peer: from,
            bits,
            message_bytes: bytes.len(),
            bytes: bytes.len().min(memory.bytes),
        };
        self.finish(request, status);
        let Some(number) = sync else { return };
        if from.rank == self.control.me() {
            if let Some(&State::AwaitsAck(status)) =
                self.operations.get(&Request(number)).map(|o| &o.state)
            {
                self.finish(Request(number), status);
            }
            return;
        }
        let head = self.head(Kind::Ack, endpoint, from, number, bits);
        self.send_message(c, from.rank, head, &[]);
    }

    /// Returns whether nothing is under way that this node has sent.
    pub fn is_settled(&self) -> bool {
        let sending = |o: &Operation| matches!(o.state, State::LargeSend(_));
        self.control.is_settled() && !self.operations.values().any(sending)
    }

    /// Requests that are not over, receives posted, and unexpected messages.
    pub fn counts(&self) -> [usize; 3] {
        let queues = self.endpoints.values().map(Queues::counts);
        let (posted, unexpected) = queues.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        [self.operations.len(), posted, unexpected]
    }
}

#[cfg(test)]
mod tests;
