//! Receives, probes, and what waits in the queues.

use crate::base::buffer::Sink;
use crate::base::key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
use crate::base::message::Unexpected;
use crate::base::request::{Completion, Fault, Operation, ReqId};
use crate::progress::device::Device;

/// Minimum capacity of a receive that wakes the progress thread, bytes. A choice: the sender of a
/// message of this length may wait for the receiver.
const URGENT_MIN_BYTES: usize = 16 * 1024;

/// Messages for which no receive was posted.
#[derive(Clone, Copy, Debug)]
pub struct Unreceived {
    /// How many there are.
    pub count: usize,
    /// Who has sent the first.
    pub from: ProcId,
    /// The key of the first.
    pub key: Key,
    /// The length of the first, bytes.
    pub len: u64,
}

impl Device {
    /// Starts a receive. Inlined, so that `sink` is stored once, in its request: moving it would
    /// read with wide loads what has just been written with narrow stores, and wait for these.
    ///
    /// # Safety
    /// The memory behind `sink` must stay valid and untouched by others until completion.
    #[inline(always)]
    pub unsafe fn receive(&mut self, pattern: Pattern, sink: Sink) -> ReqId {
        let matcher = &mut self.worker.engine.matcher;
        let unexpected = if matcher.has_unexpected(pattern.context) {
            // Field by field, so that `pattern` stays in registers until it is stored.
            let Pattern {
                context,
                source,
                tag,
            } = pattern;
            matcher.match_fields(context, source, tag)
        } else {
            None
        };
        let req = self.insert_receive(pattern.context, sink);
        match unexpected {
            None => self.worker.engine.matcher.post(pattern, req),
            Some(message) => self.receive_unexpected(req, message),
        }
        req
    }

    /// The request of a receive.
    #[inline(always)]
    pub(super) fn insert_receive(&mut self, context: ContextId, sink: Sink) -> ReqId {
        let capacity = sink.capacity();
        let requests = &mut self.worker.engine.requests;
        let req = requests.insert(Operation::Receive {
            context,
            sink,
            stream: None,
        });
        if self.worker.threads.progress && capacity > URGENT_MIN_BYTES {
            requests.mark_urgent(req);
        }
        req
    }

    /// A receive has matched an unexpected message when it was started.
    pub(super) fn receive_unexpected(&mut self, req: ReqId, message: Unexpected) {
        let batched = self.worker.batches_cts(&message);
        let announced = self.worker.allows_early_cts(&message);
        let key = message.key;
        self.worker.engine.on_matched_unexpected(req, message);
        if let Some(from) = announced {
            self.worker.engine.request_early(from, &key);
        }
        if self.worker.engine.single_copies.has_tasks() {
            self.run_tasks();
        }
        if batched {
            self.worker.flush_full_batch();
        } else if self.worker.has_to_offer() {
            self.worker.offer_queued();
        }
        self.worker.settle_device_memory();
    }

    /// Starts a receive of a message that only process `from` can send. If that process is lost and
    /// its message is not here, the request has failed already.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    #[inline(always)]
    pub unsafe fn receive_from(&mut self, from: ProcId, pattern: Pattern, sink: Sink) -> ReqId {
        // SAFETY: the caller's promise.
        let req = unsafe { self.receive(pattern, sink) };
        if self.is_lost(from) && self.worker.engine.matcher.withdraw(pattern.context, req) {
            self.worker.engine.requests.fail(req, Fault::Transport);
        }
        req
    }

    /// Has any process been lost? Then [`Device::fail_if_untold`] is to be called after a receive
    /// from any source.
    #[inline]
    pub fn has_losses(&self) -> bool {
        !self.worker.engine.lost_peers.is_empty()
    }

    /// A receive from any member of a communicator has been started. Fails it if one of them is
    /// lost and the communicator has not been told of it; later ones wait for those that live.
    #[cold]
    pub fn fail_if_untold(
        &mut self,
        context: ContextId,
        req: ReqId,
        is_member: impl Fn(ProcId) -> bool,
    ) {
        let engine = &mut self.worker.engine;
        if !engine.requests.is_complete(req)
            && engine
                .lost_peers
                .report_losses(context, u64::MAX, is_member)
            && engine.matcher.withdraw(context, req)
        {
            engine.requests.fail(req, Fault::Transport);
        }
    }

    /// Looks for an unexpected message that matches, without receiving it. Makes no progress.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        self.worker.engine.matcher.probe(pattern)
    }

    /// Takes the first unexpected message that matches out of the queue. It is received by
    /// [`Device::receive_matched`].
    pub fn matched_probe(&mut self, pattern: &Pattern) -> Option<(ReqId, Envelope)> {
        let message = self.worker.engine.matcher.match_receive(pattern)?;
        let envelope = message.envelope();
        let requests = &mut self.worker.engine.requests;
        let req = requests.insert(Operation::Message(Box::new(message)));
        Some((req, envelope))
    }

    /// Receives a message taken by [`Device::matched_probe`]. `message` becomes the receive's
    /// request.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    pub unsafe fn receive_matched(&mut self, message: ReqId, sink: Sink) -> ReqId {
        let Some(operation) = self.worker.engine.requests.operation(message) else {
            return message;
        };
        let receive = Operation::Receive {
            context: ContextId::WORLD,
            sink,
            stream: None,
        };
        let Operation::Message(taken) = std::mem::replace(operation, receive) else {
            return message;
        };
        self.worker.engine.on_matched_unexpected(message, *taken);
        self.run_tasks();
        self.worker.offer_queued();
        self.worker.settle_device_memory();
        message
    }

    /// Cancels a receive that has not matched. Returns whether it was cancelled; the request
    /// completes either way.
    pub fn cancel_receive(&mut self, req: ReqId) -> bool {
        let engine = &mut self.worker.engine;
        let Some(Operation::Receive {
            context,
            stream: None,
            ..
        }) = engine.requests.operation(req)
        else {
            return false;
        };
        let context = *context;
        let withdrawn = engine.matcher.withdraw(context, req);
        if withdrawn {
            let completion = Completion {
                cancelled: true,
                ..Completion::EMPTY
            };
            engine.requests.complete(req, completion);
        }
        withdrawn
    }

    /// The pattern of a posted receive. `None`: the request is none, or has matched.
    pub fn posted_pattern(&mut self, req: ReqId) -> Option<Pattern> {
        let engine = &mut self.worker.engine;
        let Some(Operation::Receive { context, .. }) = engine.requests.operation(req) else {
            return None;
        };
        let context = *context;
        engine.matcher.posted_pattern(context, req)
    }

    /// The sender that a posted receive names, if there are few other receives.
    pub fn awaited_source(&mut self, req: ReqId) -> Option<u32> {
        let engine = &mut self.worker.engine;
        let Some(Operation::Receive { context, .. }) = engine.requests.operation(req) else {
            return None;
        };
        let context = *context;
        engine.matcher.awaited_source(context, req)
    }

    /// The process to which a large or synchronous send goes. `None`: it is none, or is complete.
    pub fn send_target(&mut self, req: ReqId) -> Option<ProcId> {
        match self.worker.engine.requests.operation(req)? {
            Operation::SendSync { to } | Operation::SendLarge { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The first unexpected message of a context that has one of these tags.
    pub fn unreceived_with(&self, context: ContextId, tags: Tags) -> Option<Envelope> {
        let mut all = self.worker.engine.matcher.unexpected(context);
        let first = all.find(|message| tags.accept(message.key.tag))?;
        Some(Envelope {
            source: first.key.source,
            tag: first.key.tag,
            len: first.len,
        })
    }

    /// The unexpected messages of a context. `None`: there are none.
    pub fn unreceived(&mut self, context: ContextId) -> Option<Unreceived> {
        let matcher = &self.worker.engine.matcher;
        let (_, count) = matcher.lengths(context);
        let first = matcher.unexpected(context).next()?;
        Some(Unreceived {
            count,
            from: first.from,
            key: first.key,
            len: first.len,
        })
    }

    /// The lengths of a context's posted queue and unexpected queue.
    pub fn queue_lengths(&self, context: ContextId) -> (usize, usize) {
        self.worker.engine.matcher.lengths(context)
    }

    /// Of large messages that arrive, this many bytes may gather before the progress thread is
    /// woken, so that the program is interrupted less often. 0: the first bytes wake it.
    pub fn set_receive_low_water(&mut self, bytes: usize) {
        self.worker.transports.set_receive_low_water(bytes);
    }
}
