//! The state of the protocols: the engine, which the transports deliver to, and the worker, which
//! has the engine and the transports.

use crate::base::counters::COUNTERS;
use crate::base::header::{self, Header};
use crate::base::key::{Envelope, ProcId};
use crate::base::request::{Completion, Fault, Operation, ReqId, Requests};
use crate::matching::Matcher;
use crate::protocol::active::ActiveQueue;
use crate::protocol::control::ControlQueue;
use crate::protocol::deferred::DeferredReceives;
use crate::protocol::device_memory::DeviceMemory;
use crate::protocol::early_cts::EarlyCts;
use crate::protocol::failure::LostPeers;
use crate::protocol::select::PathSelector;
use crate::protocol::single_copy::SingleCopies;
use crate::protocol::speculative::Speculative;
use crate::protocol::stream::Streams;
use crate::protocol::withdrawable::Withdrawables;
use crate::protocol::zero_copy::ZeroCopySelector;
use crate::queue::batch::Batch;
use crate::queue::outbox::Outbox;
use crate::queue::outgoing::Outgoing;
use crate::queue::send_slots::SendSlots;
use ferry_transport::{Body, SendStatus, Transports};

/// Queues, requests and the state of each protocol. The transports deliver to it
/// ([`Inbox`](ferry_transport::Inbox), in `dispatch.rs`).
pub(crate) struct Engine {
    pub me: ProcId,
    /// Processes of this job.
    pub size: u32,
    /// The transport that is polled now: an index into [`crate::TRANSPORT_NAMES`].
    pub polled_transport: usize,
    pub matcher: Matcher,
    pub requests: Requests,
    pub outbox: Outbox,
    /// Messages that transports have taken, as the launcher counts them.
    pub sent: u64,
    /// Messages that have arrived, as the launcher counts them.
    pub received: u64,
    /// Those of `received` that came from other jobs.
    pub received_from_others: u64,
    /// Messages that made no sense and were dropped.
    pub malformed: u64,
    /// Changes that are not counted elsewhere and that a sleeping thread may wait for.
    pub notifications: u64,
    pub path_selector: PathSelector,
    pub single_copies: SingleCopies,
    pub streams: Streams,
    pub withdrawables: Withdrawables,
    pub speculative: Speculative,
    pub early_cts: EarlyCts,
    pub deferred: DeferredReceives,
    pub zero_copy: ZeroCopySelector,
    pub control: ControlQueue,
    pub active: ActiveQueue,
    pub device_memory: DeviceMemory,
    pub lost_peers: LostPeers,
}

impl Engine {
    pub fn new(me: ProcId) -> Engine {
        Engine {
            me,
            polled_transport: 1,
            matcher: Matcher::new(),
            requests: Requests::new(),
            outbox: Outbox::default(),
            sent: 0,
            received: 0,
            received_from_others: 0,
            size: ProcId::MAX,
            malformed: 0,
            notifications: 0,
            path_selector: PathSelector::default(),
            single_copies: SingleCopies::default(),
            streams: Streams::default(),
            withdrawables: Withdrawables::default(),
            speculative: Speculative::default(),
            early_cts: EarlyCts::default(),
            deferred: DeferredReceives::default(),
            zero_copy: ZeroCopySelector::default(),
            control: ControlQueue::default(),
            active: ActiveQueue::default(),
            device_memory: DeviceMemory::default(),
            lost_peers: LostPeers::default(),
        }
    }

    /// Changes whenever something happened that a sleeping thread may wait for.
    #[inline]
    pub fn activity(&self) -> u64 {
        self.received + self.requests.completed() + self.notifications
    }

    /// Counts messages that a transport has taken for `to`. Those to other jobs count apart: the
    /// launcher compares what its own ranks have sent and received.
    #[inline]
    pub fn add_sent(&mut self, to: ProcId, messages: u64) {
        if to < self.size {
            self.sent += messages;
        }
    }

    /// Counts a message that has arrived, or its RTS.
    #[inline]
    pub fn count_received(&self, from: ProcId, len: u64) {
        // The transport `self` has index 0.
        let transport = if from == self.me {
            0
        } else {
            self.polled_transport
        };
        COUNTERS.received[transport].add(len);
    }

    /// Stores a whole message in the receive's buffer and completes the receive.
    #[inline]
    pub fn deliver(&mut self, req: ReqId, envelope: Envelope, bytes: &[u8]) {
        // SAFETY: the receive's buffer is valid until its completion.
        if !self.device_memory.is_used() && unsafe { self.requests.deliver(req, envelope, bytes) } {
            return;
        }
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion.
            unsafe { sink.write(0, bytes) };
        }
        let stored = bytes.len() as u64;
        self.charge_device_memory(req, stored);
        self.complete_receive(req, envelope, stored);
    }

    /// Completes a receive whose message has arrived in parts. `stored` bytes have arrived, before
    /// truncation.
    #[inline]
    pub fn complete_stream(&mut self, req: ReqId, stored: u64) {
        self.charge_device_memory(req, stored);
        self.complete_receive(req, self.requests.envelope(req), stored);
    }

    /// Completes a receive. All `stored` bytes, before truncation, are in its buffer.
    #[inline]
    pub fn complete_receive(&mut self, req: ReqId, envelope: Envelope, stored: u64) {
        let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) else {
            return;
        };
        let room = sink.capacity() as u64;
        let fault = (envelope.len > room).then_some(Fault::Truncated {
            sent: envelope.len,
            room,
        });
        self.requests.complete(
            req,
            Completion {
                envelope,
                received: stored.min(room),
                room,
                cancelled: false,
                fault,
            },
        );
    }

    /// Queues FIN: the message of the peer's `request` has matched, or has been read.
    pub fn queue_fin(&mut self, to: ProcId, request: u32) {
        let head = Header::new().u32(request);
        self.outbox
            .push(to, Outgoing::header_only(header::FIN, head));
    }
}

/// Which threads use the device.
#[derive(Clone, Copy)]
pub(crate) struct Threads {
    /// Several threads of the program may be in MPI at once (MPI_THREAD_MULTIPLE).
    pub multiple: bool,
    /// There is a progress thread, or there may be one soon.
    pub progress: bool,
}

impl Threads {
    /// Is one thread of the program alone in using the device?
    #[inline]
    pub fn single(self) -> bool {
        !self.multiple && !self.progress
    }
}

/// The engine and the transports: what sending needs.
pub(crate) struct Worker {
    pub me: ProcId,
    /// Processes in the job.
    pub size: u32,
    pub transports: Transports,
    pub engine: Engine,
    /// The batch under way.
    pub batch: Batch,
    /// When this rank may send large messages, where ranks share cores.
    pub send_slots: Option<SendSlots>,
    pub threads: Threads,
    /// Ranks outnumber the cores of this node.
    pub oversubscribed: bool,
}

impl Worker {
    /// Sends a message without a body. It is queued if there is no room for it, or if other
    /// messages wait before it.
    pub fn send_header(&mut self, to: ProcId, message: u8, head: Header) {
        if self.engine.outbox.is_empty_for(to) {
            self.before_header(to, message, &head);
            let body = Body::Bytes(&[]);
            match self.transports.send(to, message, head.bytes(), body) {
                Ok(SendStatus::Done) => return self.count_sent(to),
                Ok(SendStatus::Full) => {}
                Err(e) => return self.fail_transport(&e),
            }
        }
        let message = Outgoing::header_only(message, head);
        self.engine.outbox.push(to, message);
    }

    /// Counts a message that the transport has taken.
    #[inline]
    pub fn count_sent(&mut self, to: ProcId) {
        self.engine.add_sent(to, 1);
        self.notify_if_self(to);
    }

    /// A message to this process itself signals no wakeup word. Another thread of this process may
    /// sleep and wait for it, so that one is to look.
    #[inline]
    pub fn notify_if_self(&mut self, to: ProcId) {
        if to == self.me {
            self.engine.notifications += 1;
        }
    }
}
