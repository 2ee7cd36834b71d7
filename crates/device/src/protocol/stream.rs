//! Large messages on wires that carry them as a stream: sent from where they lie, received where
//! they belong.

use crate::base::buffer::{Sink, Source};
use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::request::{Completion, Operation, ReqId};
use crate::counters::COUNTERS;
use crate::device::Device;
use crate::protocol::engine::{Engine, Offer, Outgoing, Payload};
use crate::protocol::zero_copy::{Choice, Taken, class};
use ferry_transport::{TransportError, ZeroCopy};
use std::time::Instant;

/// Messages from so many bytes on are lent to wires that can.
pub(crate) const LEND_MIN: usize = 256 * 1024;

impl Device {
    /// Bytes of a send to a peer with [`streams`](crate::Capabilities::streams) that are needed no
    /// more, from its beginning on.
    pub fn bytes_sent(&self, req: ReqId) -> usize {
        if self.is_complete(req) {
            return usize::MAX;
        }
        let mut queued = self.engine.outbox.values().flatten();
        let offset = queued.find_map(|o| match o.payload {
            Payload::Stream { req: r, offset, .. } if r == req => Some(offset),
            _ => None,
        });
        offset.unwrap_or(0)
    }

    /// What is left of a send to a peer with [`streams`](crate::Capabilities::streams) lies
    /// elsewhere from now on: as if its first byte were at `ptr`.
    ///
    /// # Safety
    /// As for [`Device::send`], for the bytes that have not [`sent`](Device::bytes_sent).
    pub unsafe fn relocate(&mut self, req: ReqId, ptr: *const u8) {
        if let Some(
            Operation::SendLarge {
                source: Source::Bytes { ptr: place, .. },
                ..
            }
            | Operation::SendQueued {
                source: Source::Bytes { ptr: place, .. },
            },
        ) = self.engine.requests.operation(req)
        {
            *place = ptr;
        }
    }

    /// Of large messages that are coming in, so many bytes may gather before the progress thread is
    /// woken: the program is interrupted less often. 0: it is woken by the first ones.
    pub fn set_receive_low_water(&mut self, bytes: usize) {
        self.wires.set_receive_low_water(bytes);
    }

    /// Is this message to be lent to the wire? Decided when it is first offered; then its head says
    /// so.
    pub(crate) fn goes_lent(&mut self, to: ProcId, next: &mut Outgoing) -> bool {
        let Payload::Stream { req, settled, .. } = &mut next.payload else {
            return false;
        };
        // It stays as it was decided: a header may have gone without any of its bytes.
        if std::mem::replace(settled, true) {
            return next.message == header::ZCOPY_DATA;
        }
        let req = *req;
        let Some(Operation::SendLarge {
            source: Source::Bytes { len, .. },
            ..
        }) = self.engine.requests.operation(req)
        else {
            return false;
        };
        if *len < LEND_MIN || !self.engine.lends {
            return false;
        }
        let lends = match self.wires.zero_copy(to) {
            ZeroCopy::Never => false,
            ZeroCopy::Always => true,
            ZeroCopy::IfFaster => {
                let crowded = self.wait_policy.crowded;
                let choices = self.engine.zero_copy.entry(to);
                let choices = choices.or_insert_with(|| Choice::of_classes(crowded));
                let choice = &mut choices[class(*len)];
                choice.offered(Instant::now);
                choice.lends()
            }
        };
        if lends {
            next.message = header::ZCOPY_DATA;
            next.head = next.head.u32(req.0);
        }
        lends
    }

    /// Offers the rest of an announced send's bytes, from `offset` on, to a wire that carries
    /// streams. `None`: they do not lie in one run.
    pub(crate) fn offer_stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &Header,
        req: ReqId,
        offset: &mut usize,
    ) -> Result<Option<Offer>, TransportError> {
        let Some(Operation::SendLarge { source, .. }) = self.engine.requests.operation(req) else {
            return Ok(Some(Offer::Gone));
        };
        let len = source.len();
        let rest: &[u8] = match source {
            // SAFETY: an announced send's buffer is valid and unchanged until its completion, which
            // is further down.
            Source::Bytes { ptr, len } => unsafe {
                std::slice::from_raw_parts(ptr.add(*offset), *len - *offset)
            },
            Source::Owned(bytes) => &bytes[*offset..],
            Source::Layout { .. } => return Ok(None),
        };
        let lent = message == header::ZCOPY_DATA;
        let done = if lent {
            self.wires
                .stream_zero_copy(to, message, head.bytes(), rest)?
        } else {
            self.wires.stream(to, message, head.bytes(), rest)?
        };
        let all = done.taken == rest.len();
        *offset += done.taken;
        if done.taken > 0 {
            self.note_large_moved();
        }
        if len >= LEND_MIN {
            self.note_large(to, class(len), lent, done.taken, !all);
        }
        if all {
            self.engine.sent += 1;
            // What is lent is complete when the receiver says so.
            if !lent {
                self.engine.requests.complete(req, Completion::EMPTY);
            }
            return Ok(Some(Offer::Gone));
        }
        // Between its pieces others may send theirs: a small message does not wait for the end of a
        // large one.
        Ok(Some(if done.taken > 0 && done.between {
            Offer::Turn
        } else {
            Offer::Later
        }))
    }
}

impl Device {
    /// So many bytes of large messages of a class have been taken, lent or copied. `waits`: not all
    /// that was offered.
    pub(crate) fn note_large(
        &mut self,
        to: ProcId,
        class: usize,
        lent: bool,
        bytes: usize,
        waits: bool,
    ) {
        if bytes > 0
            && let Some(choices) = self.engine.zero_copy.get_mut(&to)
        {
            let crowded = self.wait_policy.crowded;
            let taken = Taken {
                lent,
                bytes,
                waits,
                crowded,
                came: self.engine.streamed,
            };
            choices[class].went(taken, Instant::now);
        }
    }
}

impl Engine {
    /// The receive to which the stream with this number and head belongs.
    pub(crate) fn streamed(&self, from: ProcId, message: u8, head: &[u8]) -> Option<ReqId> {
        match message {
            header::DATA | header::ZCOPY_DATA => Fields(head).u32().map(ReqId),
            header::EAGER => self.incoming.get(&from).copied(),
            _ => None,
        }
    }

    /// An eager message of which `start` is here and the rest is under way: if its receive is
    /// posted, it comes like a stream from now on, straight to where it belongs. Returns the
    /// bytes of its head.
    pub(crate) fn begin_eager(
        &mut self,
        from: ProcId,
        message: u8,
        start: &[u8],
        len: usize,
    ) -> Option<usize> {
        if message != header::EAGER
            || start.len() < header::EAGER_HEADER_BYTES
            || len <= start.len()
        {
            return None;
        }
        let key = Fields(start).key()?;
        let len = (len - header::EAGER_HEADER_BYTES) as u64;
        let req = self.matcher.match_message(&key)?;
        COUNTERS.received[self.way(from)].add(len);
        self.requests.set_envelope(req, key.envelope(len));
        self.begin_stream(req, from, 0, None);
        self.incoming.insert(from, req);
        Some(header::EAGER_HEADER_BYTES)
    }

    /// Bytes of a stream have come, as for [`Engine::stream_came`]. `None`: they make no sense.
    pub(crate) fn streamed_bytes(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<()> {
        self.large_moved = true;
        self.streamed += bytes as u64;
        if message == header::SPECULATIVE {
            return self.at_once_came(from, head, bytes, data);
        }
        let req = self.streamed(from, message, head)?;
        if self.stream_came(from, req, bytes, data)? && message == header::ZCOPY_DATA {
            let mut fields = Fields(head);
            let (_, request) = (fields.u32()?, fields.u32()?);
            self.taken(from, request);
        }
        Some(())
    }

    /// The bytes that are still to come for `req`, if it is a receive whose message comes in pieces
    /// from `from`.
    fn streaming(&mut self, from: ProcId, req: ReqId) -> Option<u64> {
        let total = self.requests.envelope_of(req)?.len;
        match self.requests.operation(req)? {
            Operation::Receive {
                stream: Some(stream),
                ..
            } if stream.from == from => Some(total.saturating_sub(stream.got)),
            _ => None,
        }
    }

    /// Where the next of at most `left` bytes belong.
    pub(crate) fn stream_room(
        &mut self,
        from: ProcId,
        req: ReqId,
        left: usize,
    ) -> Option<&mut [u8]> {
        let to_come = self.streaming(from, req)?;
        let Some(Operation::Receive {
            sink: Sink::Bytes { ptr, cap },
            stream: Some(stream),
            ..
        }) = self.requests.operation(req)
        else {
            return None;
        };
        let at = usize::try_from(stream.got).ok().filter(|at| at < cap)?;
        let len = left.min(*cap - at).min(usize::try_from(to_come).ok()?);
        // SAFETY: a receive's buffer is valid until its completion and nobody else's until then;
        // the slice ends with this engine's borrow.
        Some(unsafe { std::slice::from_raw_parts_mut(ptr.add(at), len) })
    }

    /// So many bytes have been put where [`Engine::stream_room`] said, or, with `data`, are to be
    /// put there. Returns whether the message is whole now.
    pub(crate) fn stream_came(
        &mut self,
        from: ProcId,
        req: ReqId,
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<bool> {
        let to_come = self.streaming(from, req)?;
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
            unsafe { sink.write(stream.got as usize, &data[..fits]) };
        }
        stream.got += fits as u64;
        let got = stream.got;
        let whole = fits as u64 == to_come;
        if whole {
            // As the sender has counted it: once.
            self.received += 1;
            if self.incoming.get(&from) == Some(&req) {
                self.incoming.remove(&from);
            }
            self.finish_receive(req, got);
        }
        (fits == bytes).then_some(whole)
    }
}
