//! Rendezvous: RTS announces a message. When its receive has matched, the receiver reads the bytes
//! (single copy) or sends CTS, which DATA answers.

use crate::base::buffer::Source;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::message::{Content, MatchedRts, Unexpected};
use crate::base::path::{Path, Sample};
use crate::base::request::{Completion, Cts, Operation, ReqId, SendMode};
use crate::protocol::deferred::QUEUE_EDGES_MIN_BYTES;
use crate::protocol::device_memory::ON_CARD;
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::single_copy::SingleCopyTask;
use crate::protocol::withdrawable::Response;
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::shm::ANNOUNCEMENTS_MAX;
use std::time::Instant;

impl Worker {
    /// Sends a message that is too large to be eager: by rendezvous, or speculatively.
    #[inline(never)]
    pub fn send_large(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
        mode: SendMode,
        on_card: bool,
    ) -> ReqId {
        // Looked up again, so that eager messages need not keep all of it in memory.
        let features = match self.transports.features(to) {
            Ok(f) => f,
            Err(e) => return self.failed_request(e),
        };
        let edges = mode == SendMode::StandardWithEdges && source.len() >= QUEUE_EDGES_MIN_BYTES;
        let batched = self.batches(to, &source, features);
        if !batched && !edges && self.may_speculate(to, &source, mode, features) {
            return self.send_speculative(to, key, source);
        }
        COUNTERS.sent_announced.add(1);
        let len = source.len() as u64;
        let address = match &source {
            Source::Bytes { ptr, .. } if features.remote_read => *ptr as u64,
            Source::Owned(b) if features.remote_read => b.as_ptr() as u64,
            _ if on_card => ON_CARD,
            _ => 0,
        };
        let req = self.engine.requests.insert(Operation::SendLarge {
            to,
            source,
            cts: Cts::Awaited,
        });
        let mut head = Header::new().key(&key).u64(len).u64(address).u32(req.0);
        if features.same_node {
            let speculative = self.engine.speculative.take_since_last_rts(to, len);
            if speculative > 0 {
                head = head.u32(speculative);
            }
        }
        if edges && address == 0 {
            self.engine.queue_edges(to, req);
        }
        let message = match mode {
            SendMode::Synchronous if features.stream => header::RTS_SYNC,
            _ => header::RTS,
        };
        if batched {
            let rts = Outgoing::header_only(message, head);
            self.engine.outbox.push(to, rts);
        } else {
            self.send_header(to, message, head);
        }
        req
    }
}

impl Engine {
    /// RTS: a message is announced. RTS_SYNC: by a synchronous send. RTS_WITHDRAWABLE: its sender
    /// may withdraw it.
    pub fn on_rts(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let key = fields.key()?;
        let (len, address, request) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let slot = if message == header::RTS_WITHDRAWABLE {
            let slot = fields.u32().filter(|&slot| slot < ANNOUNCEMENTS_MAX)?;
            if address == 0 {
                return None;
            }
            Some(slot)
        } else {
            None
        };
        self.count_received(from, len);
        COUNTERS.received_announced.add(1);
        if let Some(speculative) = fields.u32() {
            self.path_selector.count_speculative(len, speculative);
        }
        match self.matcher.match_message(&key) {
            Some(req) => {
                self.requests.set_envelope(req, key.envelope(len));
                self.on_matched_rts(MatchedRts {
                    req,
                    from,
                    len,
                    address,
                    request,
                    slot,
                    preposted: true,
                });
            }
            None => self.matcher.queue_unexpected(Unexpected {
                key,
                from,
                len,
                content: Content::Rts {
                    address,
                    request,
                    slot,
                    sync: message == header::RTS_SYNC,
                },
            }),
        }
        Some(())
    }

    /// A receive has matched an unexpected message.
    pub fn on_matched_unexpected(&mut self, req: ReqId, message: Unexpected) {
        let Unexpected {
            key,
            from,
            len,
            content,
        } = message;
        let envelope = key.envelope(len);
        self.requests.set_envelope(req, envelope);
        match content {
            Content::Eager { bytes, sync } => {
                self.deliver(req, envelope, &bytes);
                if let Some(request) = sync {
                    self.queue_fin(from, request);
                }
            }
            Content::Rts {
                address,
                request,
                slot,
                ..
            } => self.on_matched_rts(MatchedRts {
                req,
                from,
                len,
                address,
                request,
                slot,
                preposted: false,
            }),
            Content::Speculative { number } => self.on_matched_speculative(req, from, number),
        }
    }

    /// A receive and an RTS have matched: the bytes are read, requested or deferred.
    pub fn on_matched_rts(&mut self, rts: MatchedRts) {
        let edges = self.deferred.take_early_edges(rts.from, rts.request);
        if self.early_cts.any() && self.adopt_early(&rts) {
            return;
        }
        if rts.address != 0 {
            self.single_copies.push(SingleCopyTask {
                rts,
                matched_at: Instant::now(),
                in_exchange: self.requests.large_sends() > 0,
            });
        } else if !self.deferred.any() || !self.defer(&rts, edges.as_deref()) {
            self.queue_cts(rts.req, rts.from, rts.request, None, rts.preposted);
        }
    }

    /// Queues CTS, which asks the sender for an announced message's bytes. `sample`: how long they
    /// take is measured. `preposted`: the receive was posted before the RTS arrived, which tells
    /// the sender that the next messages may be speculative.
    pub fn queue_cts(
        &mut self,
        req: ReqId,
        from: ProcId,
        request: u32,
        sample: Option<Sample>,
        preposted: bool,
    ) {
        self.begin_stream(req, from, 0, sample);
        let message = if preposted {
            header::CTS_PREPOSTED
        } else {
            header::CTS
        };
        let head = Header::new().u32(request).u32(req.0);
        self.outbox.push(from, Outgoing::header_only(message, head));
    }

    /// CTS, CTS_PREPOSTED: the receiver asks for the bytes of a message.
    pub fn on_cts(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> Option<()> {
        let preposted = message == header::CTS_PREPOSTED;
        let mut fields = Fields(bytes);
        let (mine, theirs) = (ReqId(fields.u32()?), fields.u32()?);
        match self.requests.operation(mine) {
            Some(Operation::SendLarge {
                to, cts, source, ..
            }) if *to == from && *cts == Cts::Awaited => {
                *cts = Cts::Received;
                let response = Response::Asked { chosen: preposted };
                let withdrawable = self.withdrawables.close(mine, response);
                let len = source.len() as u64;
                self.record_peer_path(from, len, Path::Pipelined);
                self.speculative
                    .record(from, len, preposted && !withdrawable);
            }
            _ => return None,
        }
        let payload = Payload::Stream {
            req: mine,
            offset: 0,
            zero_copy_decided: false,
        };
        self.outbox.push(
            from,
            Outgoing {
                message: header::DATA,
                head: Header::new().u32(theirs),
                payload,
            },
        );
        Some(())
    }

    /// DATA: a part of a message.
    pub fn on_data(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let (head, data) = bytes.split_first_chunk::<4>()?;
        self.on_data_part(from, head, data.len(), Some(data))
    }

    /// `bytes` bytes of DATA with this head have arrived. With `data`, this function stores them.
    /// Otherwise they are in the receive's buffer already. `None`: malformed.
    pub fn on_data_part(
        &mut self,
        from: ProcId,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<()> {
        let req = ReqId(Fields(head).u32()?);
        let total = self.requests.envelope_of(req)?.len;
        let Some(Operation::Receive {
            sink,
            stream: Some(stream),
            ..
        }) = self.requests.operation(req)
        else {
            return None;
        };
        if stream.from != from {
            return None;
        }
        if let Some(data) = data {
            // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
            // dropped.
            let mut write = || unsafe { sink.write(stream.received as usize, data) };
            match &mut stream.sample {
                Some(sample) => sample.copy_part(&mut write),
                None => write(),
            }
        }
        stream.received += bytes as u64;
        let (received, sample) = (stream.received, stream.sample);
        if received >= total {
            if let Some(sample) = sample {
                self.path_selector.record(received, sample, false);
            }
            self.complete_stream(req, received);
        }
        Some(())
    }

    /// FIN: the receiver has matched a synchronous send, or has the bytes of a large one.
    pub fn on_fin(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let req = ReqId(Fields(bytes).u32()?);
        match self.requests.operation(req) {
            Some(Operation::SendLarge { to, source, cts }) if *to == from => {
                let (len, read) = (source.len() as u64, *cts == Cts::Awaited);
                if read {
                    self.speculative.record(from, len, false);
                }
                self.withdrawables.close(req, Response::Read);
                self.record_peer_path(from, len, Path::SingleCopy);
                self.record_own_path(from, len, Path::SingleCopy);
            }
            Some(Operation::SendSync { to }) if *to == from => {}
            _ => return None,
        }
        self.requests.complete(req, Completion::EMPTY);
        Some(())
    }

    /// A large message of this process to `peer` has ended. Of two processes that exchange
    /// messages the one with the lower number chooses the path for both.
    pub fn record_own_path(&mut self, peer: ProcId, len: u64, path: Path) {
        if peer > self.me {
            let writes = !self.outbox.is_empty_for(peer);
            self.path_selector.record_own(len, path, writes);
        }
    }

    /// `peer` has chosen the path of one of this process's messages of `len` bytes.
    fn record_peer_path(&mut self, peer: ProcId, len: u64, path: Path) {
        if peer < self.me {
            self.path_selector.follow_next(peer, len, path);
        }
    }
}
