//! Deferred receives: the layer above says in which order large messages arrive.

use crate::base::buffer::Sink;
use crate::base::key::{Pattern, ProcId};
use crate::base::request::{Completion, Fault, Operation, ReqId};
use crate::progress::device::Device;

impl Device {
    /// As [`Device::receive_from`], but a large message from a peer with
    /// [`streams`](crate::Capabilities::streams) arrives only after [`Device::release_deferred`].
    /// Before that come only its edges: `edges` bytes of its beginning and end, at most
    /// [`EDGE_MAX_BYTES`](crate::EDGE_MAX_BYTES) each. Ended by [`Device::take_deferred`].
    ///
    /// # Safety
    /// As for [`Device::receive_from`].
    pub unsafe fn receive_deferred(
        &mut self,
        from: ProcId,
        pattern: Pattern,
        sink: Sink,
        edges: [usize; 2],
    ) -> ReqId {
        let unexpected = self.worker.engine.matcher.match_receive(&pattern);
        let req = self.insert_receive(pattern.context, sink);
        self.worker.engine.deferred.insert(req, edges);
        match unexpected {
            None => self.worker.engine.matcher.post(pattern, req),
            Some(message) => self.receive_unexpected(req, message),
        }
        if self.is_lost(from) && self.worker.engine.matcher.withdraw(pattern.context, req) {
            self.worker.engine.requests.fail(req, Fault::Transport);
        }
        req
    }

    /// The message of a deferred receive may arrive.
    pub fn release_deferred(&mut self, req: ReqId) {
        if self.worker.engine.release_deferred(req) {
            self.worker.offer_queued();
        }
    }

    /// Has a deferred receive matched an RTS, so that its message arrives when it is released?
    pub fn is_announced(&self, req: ReqId) -> bool {
        self.worker.engine.deferred.has_matched_rts(req)
    }

    /// Are the edges of a deferred receive in its buffer?
    pub fn has_edges(&mut self, req: ReqId) -> bool {
        self.is_complete(req) || self.worker.engine.has_edges(req)
    }

    /// Bytes of a receive's message that are in its buffer, from the beginning on.
    pub fn bytes_received(&mut self, req: ReqId) -> usize {
        if self.is_complete(req) {
            return usize::MAX;
        }
        match self.worker.engine.requests.operation(req) {
            Some(Operation::Receive {
                stream: Some(stream),
                ..
            }) => stream.received as usize,
            _ => 0,
        }
    }

    /// As [`Device::take`], for a deferred receive.
    pub fn take_deferred(&mut self, req: ReqId) -> Completion {
        self.worker.engine.deferred.remove(req);
        self.take(req)
    }
}
