//! Large messages: RTS, CTS with a dedicated queue's mailbox, and the bytes, part after part.

use super::matching::{Unexpected, UnexpectedBody};
use super::message::{Grant, Head, Kind, NO_REQUEST};
use super::{Address, COPYING, Endpoint, Mx, Request, State, Status};
use crate::driver::Malformed;
use crate::kernel::Rank;
use crate::rapidio::driver::control::{
    BufferId, Cut, PAGE_BYTES, RequestId, TransferId, UserMemory,
};
use crate::rapidio::driver::lower::{Host, Lower};
use std::collections::VecDeque;

/// A large message that is being received.
pub(super) struct LargeReceive {
    from: Address,
    bits: u64,
    /// The sender's number for it. [`NO_REQUEST`]: it was not announced by an RTS.
    sender: u32,
    memory: UserMemory,
    /// Takes the current part if the message is longer than the memory.
    overlong: Option<Box<[u8]>>,
    bytes: usize,
    /// Bytes that are where they belong.
    received: usize,
    /// The part that a dedicated queue is requested for.
    part: Option<(BufferId, Cut)>,
}

impl LargeReceive {
    pub fn new(
        from: Address,
        bits: u64,
        sender: u32,
        bytes: usize,
        memory: UserMemory,
    ) -> LargeReceive {
        LargeReceive {
            from,
            bits,
            sender,
            memory,
            overlong: None,
            bytes,
            received: 0,
            part: None,
        }
    }

    /// The next part, of at most so many messages: where it goes, and its cut.
    fn next_part(&mut self, messages_max: usize) -> (UserMemory, Cut) {
        if self.bytes <= self.memory.bytes {
            let rest = self.memory.part(self.received..self.bytes);
            let cut = Cut::of(rest).shortened(messages_max);
            return (rest.part(0..cut.bytes), cut);
        }
        let whole = Cut {
            bytes: self.bytes - self.received,
            first: PAGE_BYTES as u16,
        };
        let cut = whole.shortened(messages_max);
        let memory = self.overlong.insert(vec![0; cut.bytes].into());
        let address = memory.as_mut_ptr().expose_provenance();
        let bytes = cut.bytes;
        (UserMemory { address, bytes }, cut)
    }

    /// A part has come. Returns the bytes that were copied.
    fn end_part(&mut self, cut: Cut) -> usize {
        let mut copied = 0;
        if let Some(bytes) = self.overlong.take()
            && self.received < self.memory.bytes
        {
            let place = self.memory.part(self.received..self.memory.bytes);
            copied = place.bytes.min(cut.bytes);
            // SAFETY: valid for writing until the request is done, as `irecv` demands.
            unsafe { place.write(&bytes[..copied]) };
        }
        self.received += cut.bytes;
        copied
    }
}

/// A large message that is being sent.
pub(super) struct LargeSend {
    status: Status,
    memory: UserMemory,
    /// Bytes that a grant has been received for.
    granted: usize,
    grants: VecDeque<Grant>,
    /// Bytes that the receiver's card has accepted.
    sent: usize,
    /// The part that is under way.
    part: Option<(BufferId, usize)>,
}

impl LargeSend {
    pub fn new(status: Status, memory: UserMemory) -> LargeSend {
        LargeSend {
            status,
            memory,
            granted: 0,
            grants: VecDeque::new(),
            sent: 0,
            part: None,
        }
    }

    /// Adds a grant. Returns false if it is not for the next part.
    fn add(&mut self, grant: Grant) -> bool {
        let bytes = grant.cut.bytes;
        let fits = grant.offset == self.granted as u64 && bytes <= self.memory.bytes - self.granted;
        if fits {
            self.granted += bytes;
            self.grants.push_back(grant);
        }
        fits
    }
}

impl<L: Lower> Mx<L> {
    /// Receives a large message that no RTS announces: the layer above knows that it will come, and
    /// tells the sender of the request's number ([`Mx::number`]) itself.
    ///
    /// Returns the request, and the grant for its first part if there is a queue at once. The layer
    /// above carries it to the sender ([`Mx::accept_grant`]). Grants that come later go by CTS.
    ///
    /// # Errors
    /// The card's queues are not as the driver has left them.
    ///
    /// # Safety
    /// As for [`Mx::irecv`].
    pub unsafe fn receive_granted(
        &mut self,
        c: &mut dyn Host,
        endpoint: Endpoint,
        from: Address,
        memory: UserMemory,
    ) -> Result<(Request, Option<Grant>), Malformed> {
        self.charge_call(c);
        let large = LargeReceive::new(from, 0, NO_REQUEST, memory.bytes, memory);
        let request = self.add(endpoint.0, State::Posted(memory));
        self.set_state(request, State::LargeReceive(large));
        let grant = self.open_part(c, request)?;
        Ok((request, grant))
    }

    /// The number of a request that [`Mx::receive_granted`] has returned, as its grants have it.
    pub fn number(&self, request: Request) -> u32 {
        request.0
    }

    /// A grant that the layer above has brought from a node.
    pub fn accept_grant(&mut self, from: Rank, grant: Grant) {
        let grants = self.grants.entry((from, grant.receive)).or_default();
        grants.push_back(grant);
    }

    /// Sends a large message for which the receiver has called [`Mx::receive_granted`]. `receive`
    /// is the number that the grants have.
    ///
    /// # Errors
    /// A grant is not for a part of this message.
    ///
    /// # Safety
    /// As for [`Mx::isend`].
    pub unsafe fn send_granted(
        &mut self,
        c: &mut dyn Host,
        from: Endpoint,
        to: Address,
        receive: u32,
        memory: UserMemory,
    ) -> Result<Request, Malformed> {
        self.charge_call(c);
        let status = Status {
            peer: to,
            bits: 0,
            message_bytes: memory.bytes,
            bytes: memory.bytes,
        };
        let mut large = LargeSend::new(status, memory);
        for grant in self.grants.remove(&(to.rank, receive)).unwrap_or_default() {
            if !large.add(grant) {
                return Err(Malformed(to.rank, "a grant that is not for the next part"));
            }
        }
        let request = self.add(from.0, State::LargeSend(large));
        self.granted.insert((to.rank, receive), request);
        self.send_part(c, request);
        Ok(request)
    }

    /// Bytes of a large send that the receiver's card has accepted.
    pub fn bytes_sent(&self, request: Request) -> usize {
        match self.operations.get(&request).map(|o| &o.state) {
            Some(State::LargeSend(large)) => large.sent,
            Some(State::Done(status)) => status.bytes,
            _ => 0,
        }
    }

    /// A node is lost. Returns the requests that need it, which are over without a status. Their
    /// memory is not accessed any more.
    pub fn forget_peer(&mut self, c: &mut dyn Host, peer: Rank) -> Vec<Request> {
        self.charge_call(c);
        self.control.forget_peer(c, peer);
        let mut over = Vec::new();
        let mut buffers = Vec::new();
        self.operations.retain(|request, operation| {
            let (node, buffer) = match &operation.state {
                State::LargeReceive(large) => (large.from.rank, large.part.map(|(b, _)| b)),
                State::LargeSend(large) => (large.status.peer.rank, large.part.map(|(b, _)| b)),
                State::AwaitsAck(status) => (status.peer.rank, None),
                State::Posted(_) | State::Done(_) => return true,
            };
            if node == peer {
                over.push(*request);
                buffers.extend(buffer);
            }
            node != peer
        });
        for buffer in buffers {
            self.control.release_buffer(buffer);
        }
        for queues in self.endpoints.values_mut() {
            queues.forget(peer);
        }
        let is_left = |request: &Request| !over.contains(request);
        self.queue_requests.retain(|_, request| is_left(request));
        self.transfers.retain(|_, request| is_left(request));
        self.granted.retain(|_, request| is_left(request));
        self.grants.retain(|(node, _), _| *node != peer);
        over.sort_unstable();
        over
    }

    fn set_state(&mut self, request: Request, state: State) {
        if let Some(operation) = self.operations.get_mut(&request) {
            operation.state = state;
        }
    }

    /// An RTS has come. One to an endpoint that is not open is dropped.
    pub(super) fn on_rts(
        &mut self,
        c: &mut dyn Host,
        from: Address,
        head: Head,
        bytes: usize,
    ) -> Result<(), Malformed> {
        let Some(queues) = self.endpoints.get_mut(&head.to) else {
            return Ok(());
        };
        let posted = queues.take_posted(head.bits);
        let Some(request) = posted else {
            queues.keep(Unexpected {
                from,
                bits: head.bits,
                body: UnexpectedBody::Rts(head.request, bytes),
            });
            return Ok(());
        };
        let Some(State::Posted(memory)) = self.operations.get(&request).map(|o| &o.state) else {
            return Ok(());
        };
        let large = LargeReceive::new(from, head.bits, head.request, bytes, *memory);
        self.start_receive(c, request, large)
    }

    /// A receive has matched a large message.
    pub(super) fn start_receive(
        &mut self,
        c: &mut dyn Host,
        request: Request,
        large: LargeReceive,
    ) -> Result<(), Malformed> {
        self.set_state(request, State::LargeReceive(large));
        if let Some(grant) = self.open_part(c, request)? {
            self.send_cts(c, request, grant);
        }
        Ok(())
    }

    /// Registers the next part of a large receive, and requests a queue for it. Returns the grant
    /// if there is a queue at once.
    fn open_part(
        &mut self,
        c: &mut dyn Host,
        request: Request,
    ) -> Result<Option<Grant>, Malformed> {
        let Some(State::LargeReceive(large)) =
            self.operations.get_mut(&request).map(|o| &mut o.state)
        else {
            return Ok(None);
        };
        let (memory, cut) = large.next_part(self.control.messages_max());
        // SAFETY: valid until the request is done, as `irecv` demands; or it is `overlong`, which
        // nobody else refers to.
        let buffer = unsafe { self.control.register_buffer(memory, cut) };
        large.part = Some((buffer, cut));
        let (from, offset) = (large.from.rank, large.received as u64);
        let (queue, mailbox) = self.control.request_queue(c, self.user, from, buffer)?;
        self.queue_requests.insert(queue, request);
        Ok(mailbox.map(|mailbox| Grant {
            receive: request.0,
            offset,
            cut,
            mailbox,
        }))
    }

    /// A request for a queue that was postponed has one.
    pub(super) fn on_opened(&mut self, c: &mut dyn Host, queue: RequestId, mailbox: u8) {
        let Some(&request) = self.queue_requests.get(&queue) else {
            return;
        };
        let Some(State::LargeReceive(large)) = self.operations.get(&request).map(|o| &o.state)
        else {
            return;
        };
        if let Some((_, cut)) = large.part {
            let grant = Grant {
                receive: request.0,
                offset: large.received as u64,
                cut,
                mailbox,
            };
            self.send_cts(c, request, grant);
        }
    }

    fn send_cts(&mut self, c: &mut dyn Host, request: Request, grant: Grant) {
        let Some(operation) = self.operations.get(&request) else {
            return;
        };
        let State::LargeReceive(large) = &operation.state else {
            return;
        };
        let (to, sender, bits) = (large.from, large.sender, large.bits);
        let head = self.head(Kind::Cts, Endpoint(operation.endpoint), to, sender, bits);
        self.send_message(c, to.rank, head, &grant.encode());
    }

    /// A CTS has come.
    pub(super) fn on_cts(
        &mut self,
        c: &mut dyn Host,
        from: Rank,
        sender: u32,
        grant: Grant,
    ) -> Result<(), Malformed> {
        let request = match sender {
            NO_REQUEST => match self.granted.get(&(from, grant.receive)) {
                Some(request) => *request,
                None => {
                    self.accept_grant(from, grant);
                    return Ok(());
                }
            },
            number => Request(number),
        };
        let fits = match self.operations.get_mut(&request).map(|o| &mut o.state) {
            Some(State::LargeSend(large)) => large.status.peer.rank == from && large.add(grant),
            _ => false,
        };
        if !fits {
            let what = "a CTS that is not for the next part of a send";
            return Err(Malformed(from, what));
        }
        self.send_part(c, request);
        Ok(())
    }

    /// Sends the next part of a large message, if none is under way and there is a grant.
    fn send_part(&mut self, c: &mut dyn Host, request: Request) {
        let Some(State::LargeSend(large)) = self.operations.get_mut(&request).map(|o| &mut o.state)
        else {
            return;
        };
        if large.part.is_some() {
            return;
        }
        let Some(grant) = large.grants.pop_front() else {
            return;
        };
        let memory = large.memory.part(large.sent..large.sent + grant.cut.bytes);
        // SAFETY: valid until the request is done, as `isend` demands.
        let buffer = unsafe { self.control.register_buffer(memory, grant.cut) };
        large.part = Some((buffer, grant.cut.bytes));
        let to = large.status.peer.rank;
        // The transfer may be over at once only if it has no messages, and each part has some.
        let transfer = self
            .control
            .send_buffer(c, self.user, to, grant.mailbox, buffer);
        self.transfers.insert(transfer, request);
    }

    /// A part of a large message is with the receiver's card.
    pub(super) fn on_sent(&mut self, c: &mut dyn Host, transfer: TransferId) {
        let Some(request) = self.transfers.remove(&transfer) else {
            return;
        };
        let Some(State::LargeSend(large)) = self.operations.get_mut(&request).map(|o| &mut o.state)
        else {
            return;
        };
        if let Some((buffer, bytes)) = large.part.take() {
            self.control.release_buffer(buffer);
            large.sent += bytes;
        }
        if large.sent < large.memory.bytes {
            return self.send_part(c, request);
        }
        let status = large.status;
        self.granted.retain(|_, r| *r != request);
        self.finish(request, status);
    }

    /// The bytes of a part are where they belong.
    pub(super) fn on_received(
        &mut self,
        c: &mut dyn Host,
        queue: RequestId,
    ) -> Result<(), Malformed> {
        let Some(request) = self.queue_requests.remove(&queue) else {
            return Ok(());
        };
        let Some(State::LargeReceive(large)) =
            self.operations.get_mut(&request).map(|o| &mut o.state)
        else {
            return Ok(());
        };
        if let Some((buffer, cut)) = large.part.take() {
            self.control.release_buffer(buffer);
            let copied = large.end_part(cut) as u64;
            if copied > 0 {
                let cost = self.control.copy_rate().time_of(copied);
                c.charge(COPYING, cost);
            }
        }
        if large.received < large.bytes {
            if let Some(grant) = self.open_part(c, request)? {
                self.send_cts(c, request, grant);
            }
            return Ok(());
        }
        let status = Status {
            peer: large.from,
            bits: large.bits,
            message_bytes: large.bytes,
            bytes: large.bytes.min(large.memory.bytes),
        };
        self.finish(request, status);
        Ok(())
    }
}
