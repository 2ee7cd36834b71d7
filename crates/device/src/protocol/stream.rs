//! Large messages on transports that carry streams (TCP, TIPC): written to the connection from the
//! sender's buffer, read from it into the receive's buffer.

use crate::base::buffer::{Sink, Source};
use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::path::Sample;
use crate::base::request::{Completion, Operation, ReqId, Stream};
use crate::protocol::early_cts::early_number;
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::zero_copy::{ZERO_COPY_MIN_BYTES, size_class};
use crate::queue::outgoing::Offer;
use ferry_transport::TransportError;
use std::collections::HashMap;

/// The state of streams in both directions.
#[derive(Default)]
pub(crate) struct Streams {
    /// Eager messages that arrive as a stream, by sender: the receives that they have matched.
    eager: HashMap<ProcId, ReqId>,
    /// Bytes of large messages that have arrived.
    received_bytes: u64,
    /// Bytes of a large message have arrived or were sent since [`Streams::take_active`].
    active: bool,
}

impl Streams {
    /// Bytes of a large message have arrived or were sent by a connection.
    #[inline]
    pub fn set_active(&mut self) {
        self.active = true;
    }

    /// Have bytes of a large message arrived, or were any sent, by a connection since the last
    /// call?
    pub fn take_active(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// Bytes of large messages that have arrived.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// An eager message that has matched `req` arrives as a stream.
    pub fn begin_eager(&mut self, from: ProcId, req: ReqId) {
        self.eager.insert(from, req);
    }

    /// Is no eager message arriving as a stream?
    #[cfg(test)]
    pub fn no_eager(&self) -> bool {
        self.eager.is_empty()
    }

    /// Drops the state of a lost `peer`.
    pub fn forget(&mut self, peer: ProcId) {
        self.eager.remove(&peer);
    }
}

impl Worker {
    /// Offers the rest of a large message, from `offset` on, to a transport that carries streams.
    /// `None`: the message is not contiguous.
    pub fn offer_stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &Header,
        req: ReqId,
        offset: &mut usize,
    ) -> Result<Option<Offer>, TransportError> {
        let Some(Operation::SendLarge { source, .. }) = self.engine.requests.operation(req) else {
            return Ok(Some(Offer::Sent));
        };
        let len = source.len();
        let rest: &[u8] = match source {
            // SAFETY: a large send's buffer is valid and unchanged until its completion, which is
            // further down.
            Source::Bytes { ptr, len } => unsafe {
                std::slice::from_raw_parts(ptr.add(*offset), *len - *offset)
            },
            Source::Owned(bytes) => &bytes[*offset..],
            Source::Layout { .. } => return Ok(None),
        };
        let zero_copy = message == header::ZCOPY_DATA;
        let done = if zero_copy {
            self.transports
                .stream_zero_copy(to, message, head.bytes(), rest)?
        } else {
            self.transports.stream(to, message, head.bytes(), rest)?
        };
        let all = done.taken == rest.len();
        *offset += done.taken;
        if done.taken > 0 {
            self.record_stream_sent();
        }
        if len >= ZERO_COPY_MIN_BYTES {
            self.record_transfer(to, size_class(len), zero_copy, done.taken, !all);
        }
        if all {
            self.engine.sent += 1;
            // A zero-copy send completes at FIN.
            if !zero_copy {
                self.engine.requests.complete(req, Completion::EMPTY);
            }
            return Ok(Some(Offer::Sent));
        }
        // Between its parts others may send theirs: a small message does not wait for the end of a
        // large one.
        Ok(Some(if done.under_way {
            Offer::UnderWay
        } else if done.taken > 0 && done.between {
            Offer::PartSent
        } else {
            Offer::Full
        }))
    }
}

impl Engine {
    /// The message of this receive arrives in parts; `received` bytes are stored already.
    pub fn begin_stream(
        &mut self,
        req: ReqId,
        from: ProcId,
        received: u64,
        sample: Option<Sample>,
    ) {
        if let Some(Operation::Receive { stream, .. }) = self.requests.operation(req) {
            *stream = Some(Box::new(Stream {
                from,
                received,
                sample,
            }));
        }
    }

    /// The receive to which a stream with this header belongs.
    pub fn streaming_receive(&self, from: ProcId, message: u8, head: &[u8]) -> Option<ReqId> {
        match message {
            header::DATA | header::ZCOPY_DATA => Fields(head).u32().map(ReqId),
            header::EAGER => self.streams.eager.get(&from).copied(),
            _ => None,
        }
    }

    /// `bytes` bytes of a stream have arrived. With `data`, this function stores them. Otherwise
    /// they are in the receive's buffer already. `None`: malformed.
    pub fn on_stream(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<()> {
        self.streams.active = true;
        self.streams.received_bytes += bytes as u64;
        if message == header::SPECULATIVE {
            return self.advance_speculative(from, head, bytes, data);
        }
        let complete = match early_number(message, head) {
            Some(number) => self.advance_early(from, number, bytes, data)?,
            None => {
                let req = self.streaming_receive(from, message, head)?;
                self.advance_stream(from, req, bytes, data)?
            }
        };
        if complete && message == header::ZCOPY_DATA {
            let mut fields = Fields(head);
            let (_, request) = (fields.u32()?, fields.u32()?);
            self.queue_fin(from, request);
        }
        Some(())
    }

    /// Bytes of `req` that have not arrived yet, if it is a receive whose message arrives in parts
    /// from `from`.
    fn bytes_left(&mut self, from: ProcId, req: ReqId) -> Option<u64> {
        let total = self.requests.envelope_of(req)?.len;
        match self.requests.operation(req)? {
            Operation::Receive {
                stream: Some(stream),
                ..
            } if stream.from == from => Some(total.saturating_sub(stream.received)),
            _ => None,
        }
    }

    /// The memory for the next bytes of a stream, at most `left`.
    pub fn receive_buffer(&mut self, from: ProcId, req: ReqId, left: usize) -> Option<&mut [u8]> {
        let to_come = self.bytes_left(from, req)?;
        let Some(Operation::Receive {
            sink: Sink::Bytes { ptr, cap },
            stream: Some(stream),
            ..
        }) = self.requests.operation(req)
        else {
            return None;
        };
        // Then this process copies the parts, and measures that.
        if stream.sample.is_some_and(|s| s.counts_copies()) {
            return None;
        }
        let at = usize::try_from(stream.received)
            .ok()
            .filter(|at| at < cap)?;
        let len = left.min(*cap - at).min(usize::try_from(to_come).ok()?);
        // SAFETY: a receive's buffer is valid and used by nothing else until its completion; the
        // slice ends with this engine's borrow.
        Some(unsafe { std::slice::from_raw_parts_mut(ptr.add(at), len) })
    }

    /// `bytes` bytes of a receive's stream have arrived, as for [`Engine::on_stream`]. Returns
    /// whether the message is complete.
    pub fn advance_stream(
        &mut self,
        from: ProcId,
        req: ReqId,
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<bool> {
        let to_come = self.bytes_left(from, req)?;
        let Some(Operation::Receive {
            sink,
            stream: Some(stream),
            ..
        }) = self.requests.operation(req)
        else {
            return None;
        };
        let fits = (bytes as u64).min(to_come) as usize;
        if let Some(data) = data {
            // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
            // dropped.
            unsafe { sink.write(stream.received as usize, &data[..fits]) };
        }
        stream.received += fits as u64;
        let received = stream.received;
        let complete = fits as u64 == to_come;
        if complete {
            // The sender counts a stream once, too.
            self.received += 1;
            if self.streams.eager.get(&from) == Some(&req) {
                self.streams.eager.remove(&from);
            }
            self.complete_stream(req, received);
        }
        (fits == bytes).then_some(complete)
    }
}
