//! Messages on their way out: what waits, and what goes together.

use crate::base::buffer::Source;
use crate::base::header;
use crate::base::key::ProcId;
use crate::base::request::{Completion, Operation, ReqId};
use crate::device::Device;
use crate::matching::{Content, Unexpected};
use crate::progress::lock;
use crate::protocol::engine::{Offer, Outgoing, Payload};
use crate::protocol::select::Way;
use crate::protocol::stream::LEND_MIN;
use crate::protocol::zero_copy::{CLASSES, class};
use ferry_job::RankStatus;
use ferry_transport::{
    Answer, BatchMessage, BatchSent, Body, FRAGMENT_HEAD_MAX_BYTES, Features, TransportError,
};
use std::collections::VecDeque;

/// From so many bytes on a message that follows another one may be kept back to go with the next.
const KEEP_MIN: usize = 16 * 1024;
/// Bytes that are kept back at most.
const KEEP_MAX: usize = 1024 * 1024;
/// Bytes that are offered together, unless the last message is a long one.
const TOGETHER_BYTES: usize = 4 * 1024 * 1024;
/// Messages that are offered together, at most.
const TOGETHER: usize = 32;

impl Device {
    /// Is this message to wait until others can go with it, at most until the program's next call
    /// that makes progress? The first of several large ones in a row goes at once.
    #[inline]
    pub(crate) fn keeps_back(&mut self, to: ProcId, source: &Source, features: Features) -> bool {
        if !features.batch || source.len() < KEEP_MIN {
            return false;
        }
        self.engine.large_moved = true;
        matches!(source, Source::Bytes { .. }) && self.follows(to, source.len())
    }

    /// The same of the question for a large message that was announced before its receive was
    /// there. Programs post many receives in a row, too, and each question would be a packet of
    /// its own.
    pub(crate) fn keeps_question(&mut self, message: &Unexpected) -> bool {
        matches!(message.content, Content::Announced { .. })
            && self.wires.features(message.from).is_ok_and(|f| f.batch)
            && self.follows(message.from, message.len as usize)
    }

    /// Something goes to `to` by which `bytes` move. Does it follow another of the kind, with
    /// nothing polled in between?
    #[inline]
    fn follows(&mut self, to: ProcId, bytes: usize) -> bool {
        // Another thread may be asleep in MPI and rely on what this one has sent.
        if self.progress_thread.is_some() || lock::is_multiple() {
            return false;
        }
        self.engine.burst.1 = self.engine.burst.1.saturating_add(bytes);
        self.engine.burst.0.replace(to) == Some(to)
    }

    /// Sends what is kept back, if that is enough.
    pub(crate) fn let_go(&mut self) {
        if self.engine.burst.1 >= KEEP_MAX {
            self.engine.burst.1 = 0;
            self.flush();
        }
    }

    /// Offers queued messages to the wires again. Returns whether any went.
    pub(crate) fn flush(&mut self) -> bool {
        let mut moved = false;
        if let Some(turns) = &mut self.send_slots {
            turns.ask_anew();
        }
        let mut peers = std::mem::take(&mut self.engine.outbox_peers);
        peers.retain(|&to| {
            let mut queue = self.engine.outbox.remove(&to).unwrap_or_default();
            while !queue.is_empty() {
                let offered = match self.offer_several(to, &mut queue) {
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
                    Ok(Offer::Gone) => {
                        moved = true;
                        self.note_own(to);
                        let sent = queue.pop_front();
                        if let Some(Outgoing {
                            payload: Payload::Request(req),
                            ..
                        }) = sent
                        {
                            self.engine.requests.complete(req, Completion::EMPTY);
                        }
                    }
                    Ok(Offer::More) => {}
                    Ok(Offer::Later) => break,
                    Ok(Offer::Turn) => {
                        moved = true;
                        queue.rotate_left(1);
                    }
                    Err(e) => {
                        self.engine.outbox.insert(to, std::mem::take(&mut queue));
                        self.break_down(&e);
                        queue = self.engine.outbox.remove(&to).unwrap_or_default();
                        break;
                    }
                }
            }
            let left = !queue.is_empty();
            if left {
                self.engine.outbox.insert(to, queue);
            }
            left
        });
        peers.append(&mut self.engine.outbox_peers);
        self.engine.outbox_peers = peers;
        if self.engine.outbox_peers.is_empty() {
            self.end_turn();
        }
        moved
    }

    /// Has this message, which is to go by a connection, to wait for this rank's turn?
    #[inline]
    fn waits_for_turn(&mut self, to: ProcId, next: &Outgoing) -> bool {
        match &mut self.send_slots {
            Some(turns) if next.is_to_begin() => {
                // Nobody wakes another thread when the turn comes.
                let alone = self.progress_thread.is_none() && !lock::is_multiple();
                let by_connection = self.wires.features(to).is_ok_and(|f| f.stream);
                by_connection && alone && !turns.may_begin(RankStatus::now())
            }
            _ => false,
        }
    }

    /// Bytes of a large message have gone.
    #[inline]
    pub(crate) fn note_large_moved(&mut self) {
        self.engine.large_moved = true;
        if let Some(turns) = &self.send_slots {
            turns.moved(RankStatus::now());
        }
    }

    /// Does a message wait for this rank's turn? Then nobody rings the bell when it can go.
    pub(crate) fn awaits_turn(&self) -> bool {
        self.send_slots.as_ref().is_some_and(|turns| turns.waits())
            && !self.engine.outbox_peers.is_empty()
    }

    /// No large message is to go.
    #[inline]
    fn end_turn(&mut self) {
        if let Some(turns) = &mut self.send_slots {
            turns.end();
        }
    }

    /// Offers one queued message.
    fn offer(&mut self, to: ProcId, next: &mut Outgoing) -> Result<Offer, TransportError> {
        if self.waits_for_turn(to, next) {
            return Ok(Offer::Later);
        }
        self.goes_lent(to, next);
        let answer = match &mut next.payload {
            Payload::None => {
                self.prepare(to, next.message, &next.head);
                self.wires
                    .send(to, next.message, next.head.bytes(), Body::Bytes(&[]))?
            }
            Payload::Owned(b) => {
                self.wires
                    .send(to, next.message, next.head.bytes(), Body::Bytes(b))?
            }
            Payload::Request(req) => {
                let Some(Operation::SendQueued { source }) = self.engine.requests.operation(*req)
                else {
                    return Ok(Offer::Gone);
                };
                let mut fill;
                let body = match source {
                    // SAFETY: a queued send's buffer is valid until its completion.
                    Source::Bytes { ptr, len } if *len > 0 => unsafe {
                        Body::Bytes(std::slice::from_raw_parts(*ptr, *len))
                    },
                    source => {
                        // SAFETY: as above.
                        fill = |out: &mut [u8]| unsafe { source.read(0, out) };
                        Body::Fill(source.len(), &mut fill)
                    }
                };
                self.wires.send(to, next.message, next.head.bytes(), body)?
            }
            Payload::Stream { req, offset, .. } => {
                let features = self.wires.features(to)?;
                if features.stream
                    && let Some(went) =
                        self.offer_stream(to, next.message, &next.head, *req, offset)?
                {
                    return Ok(went);
                }
                let Some(Operation::SendLarge { source, .. }) =
                    self.engine.requests.operation(*req)
                else {
                    return Ok(Offer::Gone);
                };
                let total = source.len();
                // What goes unannounced does so because its receives have been there so far.
                let awaited = next.message == header::SPECULATIVE;
                let most = self.wires.fragment_bytes(to, total, awaited)?;
                let most = most
                    - next
                        .head
                        .bytes()
                        .len()
                        .saturating_sub(FRAGMENT_HEAD_MAX_BYTES);
                let cold = self.wires.first_touches(to);
                while *offset < total {
                    let piece = (total - *offset).min(most);
                    // SAFETY: an announced send's buffer is valid until its completion.
                    let mut fill = |out: &mut [u8]| unsafe { source.read(*offset, out) };
                    match self.wires.send(
                        to,
                        next.message,
                        next.head.bytes(),
                        Body::Fill(piece, &mut fill),
                    )? {
                        Answer::Full => {
                            if self.wires.first_touches(to) != cold {
                                self.engine.path_selector.cold();
                            }
                            return Ok(Offer::Later);
                        }
                        Answer::Done => {
                            self.engine.sent += 1;
                            *offset += piece;
                        }
                    }
                }
                if self.wires.first_touches(to) != cold {
                    self.engine.path_selector.cold();
                }
                let req = *req;
                // As the receiver counts it: each piece, and the whole.
                self.engine.sent += u64::from(next.message == header::SPECULATIVE);
                self.engine.own_went(to, total as u64, Way::Pieces);
                self.engine.requests.complete(req, Completion::EMPTY);
                return Ok(Offer::Gone);
            }
        };
        Ok(match answer {
            Answer::Done => {
                self.engine.sent += 1;
                Offer::Gone
            }
            Answer::Full => Offer::Later,
        })
    }

    /// Offers the wire what can go together of a peer's queue. `None`: there is nothing to put
    /// together. Otherwise whether any went, and what became of the first that is still in the
    /// queue.
    fn offer_several(
        &mut self,
        to: ProcId,
        queue: &mut VecDeque<Outgoing>,
    ) -> Result<Option<(bool, Offer)>, TransportError> {
        if queue.len() < 2 || !self.wires.features(to)?.batch {
            return Ok(None);
        }
        let mut parcels = Vec::with_capacity(queue.len().min(TOGETHER));
        let mut bytes = 0;
        for next in queue.iter_mut().take(TOGETHER) {
            if self.waits_for_turn(to, next) || self.goes_lent(to, next) {
                break;
            }
            let next: &Outgoing = next;
            let (body, stream) = match &next.payload {
                Payload::None => (&[][..], false),
                Payload::Owned(b) => (&b[..], false),
                Payload::Request(req) => match self.one_run(*req) {
                    // SAFETY: a queued send's buffer is valid until its completion, which is below.
                    Some((ptr, len)) => (unsafe { std::slice::from_raw_parts(ptr, len) }, false),
                    None => break,
                },
                Payload::Stream { req, offset, .. } => match self.one_run(*req) {
                    // SAFETY: an announced send's buffer is valid until its completion, which is
                    // below; `offset` lies within it.
                    Some((ptr, len)) => unsafe {
                        let rest = std::slice::from_raw_parts(ptr.add(*offset), len - offset);
                        (rest, true)
                    },
                    None => break,
                },
            };
            bytes += body.len();
            parcels.push(BatchMessage {
                message: next.message,
                head: next.head.bytes(),
                body,
                stream,
            });
            if bytes >= TOGETHER_BYTES {
                break;
            }
        }
        if parcels.len() < 2 {
            return Ok(None);
        }
        let offered = parcels.len();
        let gone = self.wires.send_batch(to, &parcels)?;
        self.engine.sent += gone.whole as u64;
        self.note_several(to, queue, gone, offered);
        for sent in queue.drain(..gone.whole) {
            if let Payload::Request(req) | Payload::Stream { req, .. } = sent.payload {
                self.engine.requests.complete(req, Completion::EMPTY);
            }
        }
        let any = gone.whole > 0 || gone.taken > 0;
        if any {
            self.note_large_moved();
        }
        if let Some(Outgoing {
            payload: Payload::Stream { offset, .. },
            ..
        }) = queue.front_mut()
        {
            *offset += gone.taken;
        }
        Ok(Some((
            any,
            match gone.whole == offered {
                true => Offer::More,
                false if gone.taken > 0 && gone.between => Offer::Turn,
                false => Offer::Later,
            },
        )))
    }

    /// Of a queue's messages, the first of which were `offered`, so many have been copied into the
    /// wire.
    fn note_several(
        &mut self,
        to: ProcId,
        queue: &VecDeque<Outgoing>,
        gone: BatchSent,
        offered: usize,
    ) {
        if !self.engine.zero_copy.contains_key(&to) {
            return;
        }
        let mut bytes = [0; CLASSES];
        for (i, next) in queue.iter().take(gone.whole + 1).enumerate() {
            let Payload::Stream { req, offset, .. } = next.payload else {
                continue;
            };
            if let Some((_, len)) = self.one_run(req).filter(|run| run.1 >= LEND_MIN) {
                bytes[class(len)] += if i < gone.whole {
                    len - offset
                } else {
                    gone.taken
                };
            }
        }
        for (class, bytes) in bytes.into_iter().enumerate() {
            self.note_large(to, class, false, bytes, gone.whole < offered);
        }
    }

    /// Where the bytes of a send lie, and how many there are, if they lie in one run.
    fn one_run(&mut self, req: ReqId) -> Option<(*const u8, usize)> {
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
