//! Offering queued messages to their transports, which had no room for them, or for all of their
//! bytes, when they were sent.

use crate::base::buffer::Source;
use crate::base::header;
use crate::base::key::ProcId;
use crate::base::path::Path;
use crate::base::request::{Completion, Operation, ReqId};
use crate::protocol::engine::Worker;
use crate::protocol::zero_copy::{CLASSES, ZERO_COPY_MIN_BYTES, size_class};
use crate::queue::outgoing::{Offer, Outgoing, Payload};
use ferry_job::RankStatus;
use ferry_transport::{BatchMessage, BatchSent, Body, SendStatus, TransportError};
use std::collections::VecDeque;

/// Bytes that are offered in one batch. The last message may exceed them. A choice.
const BATCH_OFFER_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of messages that are offered in one batch. A choice.
const BATCH_OFFER_MESSAGES: usize = 32;

impl Worker {
    /// Does [`Worker::offer_queued`] have anything to do?
    #[inline]
    pub fn has_to_offer(&self) -> bool {
        !self.engine.outbox.is_empty() || self.send_slots.is_some()
    }

    /// Offers queued messages to the transports again. Returns whether any went.
    pub fn offer_queued(&mut self) -> bool {
        let mut moved = false;
        if let Some(slots) = &mut self.send_slots {
            slots.ask_again();
        }
        let mut peers = self.engine.outbox.take_peers();
        peers.retain(|&to| {
            let mut queue = self.engine.outbox.take_queue(to);
            moved |= self.offer_queue(to, &mut queue);
            let left = !queue.is_empty();
            if left {
                self.engine.outbox.put_back_queue(to, queue);
            }
            left
        });
        self.engine.outbox.put_back_peers(peers);
        if self.engine.outbox.is_empty()
            && let Some(slots) = &mut self.send_slots
        {
            slots.release();
        }
        moved
    }

    /// Offers a peer's queue to its transport until that has no more room. Returns whether any
    /// went.
    fn offer_queue(&mut self, to: ProcId, queue: &mut VecDeque<Outgoing>) -> bool {
        let mut moved = false;
        // Messages at the end of the queue that are under way and have just been offered.
        let mut under_way = 0;
        while under_way < queue.len() {
            let offered = match self.offer_batch(to, queue) {
                Ok(None) => match queue.front_mut() {
                    Some(next) => self.offer(to, next),
                    None => break,
                },
                Ok(Some((any, offer))) => {
                    moved |= any;
                    Ok(offer)
                }
                Err(e) => Err(e),
            };
            match offered {
                Ok(Offer::Sent) => {
                    moved = true;
                    self.notify_if_self(to);
                    let sent = queue.pop_front();
                    if let Some(Outgoing {
                        payload: Payload::Request(req),
                        ..
                    }) = sent
                    {
                        self.engine.requests.complete(req, Completion::EMPTY);
                    }
                }
                Ok(Offer::AllSent) => {}
                Ok(Offer::Full) => break,
                Ok(Offer::PartSent) => {
                    moved = true;
                    queue.rotate_left(1);
                    under_way = 0;
                }
                Ok(Offer::UnderWay) => {
                    queue.rotate_left(1);
                    under_way += 1;
                }
                Err(e) => {
                    // The failure looks for the sends that are queued.
                    let waiting = std::mem::take(queue);
                    self.engine.outbox.put_back_queue(to, waiting);
                    self.fail_transport(&e);
                    *queue = self.engine.outbox.take_queue(to);
                    break;
                }
            }
        }
        moved
    }

    /// Does this message, which is to go by a connection, have to wait for a send slot?
    #[inline]
    fn waits_for_slot(&mut self, to: ProcId, next: &Outgoing) -> bool {
        match &mut self.send_slots {
            Some(slots) if next.is_unoffered_data() => {
                // No other rank wakes a thread when the slot is free.
                let by_connection = self.transports.features(to).is_ok_and(|f| f.stream);
                by_connection && self.threads.single() && !slots.may_begin(RankStatus::now())
            }
            _ => false,
        }
    }

    /// Bytes of a large message were sent by a connection.
    #[inline]
    pub fn record_stream_sent(&mut self) {
        self.engine.streams.set_active();
        if let Some(slots) = &self.send_slots {
            slots.record_sent(RankStatus::now());
        }
    }

    /// Does a message wait for a send slot? No rank wakes this one when the slot is free.
    pub fn has_message_for_slot(&self) -> bool {
        self.send_slots.as_ref().is_some_and(|slots| slots.waits())
            && !self.engine.outbox.is_empty()
    }

    /// Offers one queued message.
    fn offer(&mut self, to: ProcId, next: &mut Outgoing) -> Result<Offer, TransportError> {
        if self.waits_for_slot(to, next) {
            return Ok(Offer::Full);
        }
        self.choose_zero_copy(to, next);
        let status = match &mut next.payload {
            Payload::None => {
                self.before_header(to, next.message, &next.head);
                let body = Body::Bytes(&[]);
                self.transports
                    .send(to, next.message, next.head.bytes(), body)?
            }
            Payload::Owned(b) => {
                let body = Body::Bytes(b);
                self.transports
                    .send(to, next.message, next.head.bytes(), body)?
            }
            Payload::Request(req) => {
                let Some(Operation::SendQueued { source }) = self.engine.requests.operation(*req)
                else {
                    return Ok(Offer::Sent);
                };
                let mut fill;
                let body = match source {
                    // SAFETY: a queued send's buffer is valid until its completion.
                    Source::Bytes { ptr, len } if *len > 0 => unsafe {
                        Body::Bytes(std::slice::from_raw_parts(*ptr, *len))
                    },
                    source => {
                        let (len, mut at) = (source.len(), 0);
                        fill = move |out: &mut [u8]| {
                            // SAFETY: as above.
                            unsafe { source.read(at, out) };
                            at += out.len();
                        };
                        Body::Fill(len, &mut fill)
                    }
                };
                self.transports
                    .send(to, next.message, next.head.bytes(), body)?
            }
            Payload::Stream { req, offset, .. } => {
                let features = self.transports.features(to)?;
                if features.stream
                    && let Some(offer) =
                        self.offer_stream(to, next.message, &next.head, *req, offset)?
                {
                    return Ok(offer);
                }
                return self.offer_parts(to, next);
            }
        };
        Ok(match status {
            SendStatus::Done => {
                self.engine.add_sent(to, 1);
                Offer::Sent
            }
            SendStatus::Full => Offer::Full,
        })
    }

    /// Offers the rest of a large message in parts, each a message with the same header.
    fn offer_parts(&mut self, to: ProcId, next: &mut Outgoing) -> Result<Offer, TransportError> {
        let Payload::Stream { req, offset, .. } = &mut next.payload else {
            return Ok(Offer::Sent);
        };
        let Some(Operation::SendLarge { source, .. }) = self.engine.requests.operation(*req) else {
            return Ok(Offer::Sent);
        };
        let total = source.len();
        // The receives of speculative messages were posted so far.
        let speculative = next.message == header::SPECULATIVE;
        let header_bytes = next.head.bytes().len();
        let fragments = self.transports.fragments(to, header_bytes, speculative)?;
        let first_touches = self.transports.first_touches(to);
        let (mut full, mut parts) = (false, 0);
        while *offset < total {
            let part = (total - *offset).min(fragments.bytes);
            let mut at = *offset;
            let mut fill = |out: &mut [u8]| {
                // SAFETY: a large send's buffer is valid until its completion.
                unsafe { source.read(at, out) };
                at += out.len();
            };
            let body = Body::Fill(part, &mut fill);
            let head = next.head.bytes();
            match self
                .transports
                .send_fragment(to, next.message, head, body, fragments.awaited)?
            {
                SendStatus::Full => {
                    full = true;
                    break;
                }
                SendStatus::Done => {
                    parts += 1;
                    *offset += part;
                }
            }
        }
        let req = *req;
        self.engine.add_sent(to, parts);
        if self.transports.first_touches(to) != first_touches {
            self.engine.path_selector.count_first_touch();
        }
        if full {
            return Ok(Offer::Full);
        }
        // The receiver counts each part of a speculative message, and the whole.
        self.engine.add_sent(to, u64::from(speculative));
        self.engine
            .record_own_path(to, total as u64, Path::Pipelined);
        self.engine.requests.complete(req, Completion::EMPTY);
        Ok(Offer::Sent)
    }

    /// Offers the transport a batch of a peer's queue. `None`: there is nothing to batch. Otherwise
    /// returns whether any message was sent, and the offer's result for the first one still queued.
    fn offer_batch(
        &mut self,
        to: ProcId,
        queue: &mut VecDeque<Outgoing>,
    ) -> Result<Option<(bool, Offer)>, TransportError> {
        if queue.len() < 2 || !self.transports.features(to)?.batch {
            return Ok(None);
        }
        let mut batch = Vec::with_capacity(queue.len().min(BATCH_OFFER_MESSAGES));
        let mut bytes = 0;
        for next in queue.iter_mut().take(BATCH_OFFER_MESSAGES) {
            if self.waits_for_slot(to, next) || self.choose_zero_copy(to, next) {
                break;
            }
            let next: &Outgoing = next;
            let (body, stream) = match &next.payload {
                Payload::None => (&[][..], false),
                Payload::Owned(b) => (&b[..], false),
                Payload::Request(req) => match self.contiguous_source(*req) {
                    // SAFETY: a queued send's buffer is valid until its completion, which is below.
                    Some((ptr, len)) => (unsafe { std::slice::from_raw_parts(ptr, len) }, false),
                    None => break,
                },
                Payload::Stream { req, offset, .. } => match self.contiguous_source(*req) {
                    // SAFETY: a large send's buffer is valid until its completion, which is below;
                    // `offset` lies within it.
                    Some((ptr, len)) => unsafe {
                        let rest = std::slice::from_raw_parts(ptr.add(*offset), len - offset);
                        (rest, true)
                    },
                    None => break,
                },
            };
            bytes += body.len();
            batch.push(BatchMessage {
                message: next.message,
                head: next.head.bytes(),
                body,
                stream,
            });
            if bytes >= BATCH_OFFER_BYTES {
                break;
            }
        }
        if batch.len() < 2 {
            return Ok(None);
        }
        let offered = batch.len();
        let sent = self.transports.send_batch(to, &batch)?;
        self.engine.add_sent(to, sent.whole as u64);
        self.record_batch(to, queue, sent, offered);
        for message in queue.drain(..sent.whole) {
            if let Payload::Request(req) | Payload::Stream { req, .. } = message.payload {
                self.engine.requests.complete(req, Completion::EMPTY);
            }
        }
        let any = sent.whole > 0 || sent.taken > 0;
        if any {
            self.record_stream_sent();
        }
        if let Some(Outgoing {
            payload: Payload::Stream { offset, .. },
            ..
        }) = queue.front_mut()
        {
            *offset += sent.taken;
        }
        let offer = match sent.whole == offered {
            true => Offer::AllSent,
            false if sent.taken > 0 && sent.between => Offer::PartSent,
            false => Offer::Full,
        };
        Ok(Some((any, offer)))
    }

    /// Measures a batch for the choice of zero copy: its first `offered` messages were offered,
    /// and `sent` of them were copied into the transport.
    fn record_batch(
        &mut self,
        to: ProcId,
        queue: &VecDeque<Outgoing>,
        sent: BatchSent,
        offered: usize,
    ) {
        if !self.engine.zero_copy.measures(to) {
            return;
        }
        let mut bytes = [0; CLASSES];
        for (i, next) in queue.iter().take(sent.whole + 1).enumerate() {
            let Payload::Stream { req, offset, .. } = next.payload else {
                continue;
            };
            let large = |source: &(*const u8, usize)| source.1 >= ZERO_COPY_MIN_BYTES;
            if let Some((_, len)) = self.contiguous_source(req).filter(large) {
                bytes[size_class(len)] += if i < sent.whole {
                    len - offset
                } else {
                    sent.taken
                };
            }
        }
        for (class, bytes) in bytes.into_iter().enumerate() {
            self.record_transfer(to, class, false, bytes, sent.whole < offered);
        }
    }

    /// The address and length of a send's bytes, if they are contiguous.
    fn contiguous_source(&mut self, req: ReqId) -> Option<(*const u8, usize)> {
        match self.engine.requests.operation(req)? {
            Operation::SendQueued { source } | Operation::SendLarge { source, .. } => {
                match source {
                    Source::Bytes { ptr, len } if *len > 0 => Some((*ptr, *len)),
                    Source::Owned(b) if !b.is_empty() => Some((b.as_ptr(), b.len())),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
