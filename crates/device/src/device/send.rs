//! Sends.

use crate::base::buffer::Source;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Header};
use crate::base::key::{Key, ProcId};
use crate::base::request::{Operation, ReqId, SendMode};
use crate::progress::device::Device;
use ferry_transport::{Answer, Body};

impl Device {
    /// Starts a send. `None`: it is complete, and the buffer may be used again.
    ///
    /// # Safety
    /// The memory behind `source` must stay valid and unchanged until completion.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
        mode: SendMode,
    ) -> Option<ReqId> {
        let worker = &mut self.worker;
        let len = source.len();
        let features = match worker.transports.features(to) {
            Ok(f) => f,
            Err(e) => return Some(worker.failed_request(e)),
        };
        COUNTERS.sent[worker.transports.index_for(to)].add(len as u64);
        let on_card = worker.goes_by_card(to, &source);
        let eager_max = match &source {
            Source::Bytes { .. } if mode != SendMode::Synchronous => features.eager_max,
            _ => features.eager_max.min(features.message_max),
        };
        if on_card || len + header::EAGER_HEADER_BYTES > eager_max {
            return Some(worker.send_large(to, key, source, mode, on_card));
        }
        let (message, head, sync) = match mode {
            SendMode::Synchronous => {
                let req = worker.engine.requests.insert(Operation::SendSync { to });
                (
                    header::EAGER_SYNC,
                    Header::new().key(&key).u32(req.0),
                    Some(req),
                )
            }
            _ => (header::EAGER, Header::new().key(&key), None),
        };
        if !worker.engine.outbox.is_empty_for(to) || worker.batches(to, &source, features) {
            return worker.queue_eager(to, message, head, source, sync);
        }
        // A call for each kind of buffer: each is compiled for its kind.
        let answer = match &source {
            Source::Bytes { len: 0, .. } => {
                let body = Body::Bytes(&[]);
                worker.transports.send(to, message, head.bytes(), body)
            }
            Source::Bytes { ptr, len } => {
                // SAFETY: the caller's promise: ptr and len are a readable buffer.
                let body = Body::Bytes(unsafe { std::slice::from_raw_parts(*ptr, *len) });
                worker.transports.send(to, message, head.bytes(), body)
            }
            _ => {
                // SAFETY: the caller's promise.
                let mut fill = |out: &mut [u8]| unsafe { source.read(0, out) };
                let body = Body::Fill(len, &mut fill);
                worker.transports.send(to, message, head.bytes(), body)
            }
        };
        match answer {
            Ok(Answer::Done) => {
                worker.count_sent(to);
                sync
            }
            Ok(Answer::Full) => worker.queue_eager(to, message, head, source, sync),
            Err(e) => Some(worker.failed_request(e)),
        }
    }

    /// Bytes of a send to a peer with [`streams`](crate::Capabilities::streams) that are not needed
    /// any more, from its beginning on.
    pub fn bytes_sent(&self, req: ReqId) -> usize {
        if self.is_complete(req) {
            return usize::MAX;
        }
        self.worker.engine.outbox.offset_of(req).unwrap_or(0)
    }

    /// Moves what is left of a send to a peer with [`streams`](crate::Capabilities::streams): from
    /// now on it is read as if its first byte were at `ptr`.
    ///
    /// # Safety
    /// As for [`Device::send`], for the bytes that are not [sent](Device::bytes_sent).
    pub unsafe fn relocate(&mut self, req: ReqId, ptr: *const u8) {
        if let Some(
            Operation::SendLarge {
                source: Source::Bytes { ptr: place, .. },
                ..
            }
            | Operation::SendQueued {
                source: Source::Bytes { ptr: place, .. },
            },
        ) = self.worker.engine.requests.operation(req)
        {
            *place = ptr;
        }
    }

    /// From now on no message goes by zero copy, so that a send that has begun may be moved
    /// ([`Device::relocate`]).
    pub fn disable_zero_copy(&mut self) {
        self.worker.engine.zero_copy.disable();
    }
}
