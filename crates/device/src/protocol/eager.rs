//! Eager messages: the whole message is sent at once, without RTS and CTS.

use crate::base::buffer::Source;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::message::{Content, EagerBytes, Unexpected};
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::{Body, Features, SHM_INDEX, SendStatus, TransportError};

/// Longest body that is sent the shortest way, bytes. A choice: far below what needs a decision.
pub(crate) const SHORT_MAX_BYTES: usize = 4096;

impl Worker {
    /// Sends an eager message by shared memory, if nothing else is to be decided or done. False:
    /// the general way is to be taken.
    ///
    /// # Safety
    /// `len` bytes at `ptr` must be readable.
    #[inline(always)]
    pub unsafe fn send_short(&mut self, to: ProcId, key: &Key, ptr: *const u8, len: usize) -> bool {
        if !self.engine.outbox.is_empty_for(to) {
            return false;
        }
        let body = match len {
            0 => &[][..],
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(ptr, len) },
        };
        let status = self
            .transports
            .send_short(to, header::EAGER, &key.encode(), body);
        let sent = status == SendStatus::Done;
        if sent {
            COUNTERS.sent[SHM_INDEX].add(len as u64);
            self.count_sent(to);
        }
        sent
    }

    /// Hands an eager message to its transport. [`SendStatus::Full`]: it must be queued, because
    /// there is no room for it, other messages wait before it, or it belongs to a batch. `source`
    /// is borrowed: moving it would read with wide loads what the caller has just written with
    /// narrow stores, and such loads wait until the stores have left the store buffer.
    ///
    /// # Safety
    /// The memory behind `source` must be readable.
    #[inline(always)]
    pub unsafe fn try_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: &Header,
        source: &Source,
        features: Features,
    ) -> Result<SendStatus, TransportError> {
        if !self.engine.outbox.is_empty_for(to) || self.batches(to, source, features) {
            return Ok(SendStatus::Full);
        }
        // A call for each kind of buffer: each is compiled for its kind.
        let status = match source {
            Source::Bytes { len: 0, .. } => {
                let body = Body::Bytes(&[]);
                self.transports.send_eager(to, message, head.bytes(), body)
            }
            Source::Bytes { ptr, len } => {
                // SAFETY: the caller's promise: ptr and len are a readable buffer.
                let body = Body::Bytes(unsafe { std::slice::from_raw_parts(*ptr, *len) });
                self.transports.send_eager(to, message, head.bytes(), body)
            }
            _ => {
                let mut at = 0;
                let mut fill = |out: &mut [u8]| {
                    // SAFETY: the caller's promise.
                    unsafe { source.read(at, out) };
                    at += out.len();
                };
                let body = Body::Fill(source.len(), &mut fill);
                self.transports.send_eager(to, message, head.bytes(), body)
            }
        };
        if let Ok(SendStatus::Done) = status {
            self.count_sent(to);
        }
        status
    }

    /// Sends the eager message of a synchronous send. Returns the send's request. Not inlined, so
    /// that standard sends do not pass by its code.
    ///
    /// # Safety
    /// The memory behind `source` must stay valid and unchanged until completion.
    #[inline(never)]
    pub unsafe fn send_eager_sync(
        &mut self,
        to: ProcId,
        key: &Key,
        source: Source,
        features: Features,
    ) -> ReqId {
        let req = self.engine.requests.insert(Operation::SendSync { to });
        let head = Header::new().key(key).u32(req.0);
        // SAFETY: the caller's promise.
        match unsafe { self.try_eager(to, header::EAGER_SYNC, &head, &source, features) } {
            Ok(SendStatus::Done) => req,
            Ok(SendStatus::Full) => {
                self.queue_eager(to, header::EAGER_SYNC, head, source, Some(req))
            }
            Err(e) => self.failed_request(e),
        }
    }

    /// Queues an eager message that cannot be sent now. `sync` is the request of a synchronous
    /// send. Returns the send's request.
    #[cold]
    pub fn queue_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: Header,
        source: Source,
        sync: Option<ReqId>,
    ) -> ReqId {
        // A synchronous send completes at FIN, so the request cannot stand for the buffer: the
        // bytes are copied. A standard send completes when the transport has taken the bytes.
        let (payload, req) = match sync {
            Some(sync) => {
                let mut bytes = vec![0; source.len()];
                // SAFETY: the buffer is readable while the send is being started.
                unsafe { source.read(0, &mut bytes) };
                (Payload::Owned(bytes.into_boxed_slice()), sync)
            }
            None => {
                let requests = &mut self.engine.requests;
                let req = requests.insert(Operation::SendQueued { source });
                (Payload::Request(req), req)
            }
        };
        self.engine.outbox.push(
            to,
            Outgoing {
                message,
                head,
                payload,
            },
        );
        self.flush_full_batch();
        req
    }
}

impl Engine {
    /// An eager message. Returns whether it is unexpected. `None`: malformed.
    #[inline(always)]
    pub fn on_eager(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> Option<bool> {
        let mut fields = Fields(bytes);
        let key = fields.key()?;
        let sync = if message == header::EAGER_SYNC {
            Some(fields.u32()?)
        } else {
            None
        };
        let bytes = fields.0;
        self.count_received(from, bytes.len() as u64);
        let envelope = key.envelope(bytes.len() as u64);
        let receive = self.matcher.match_message(&key);
        match receive {
            Some(req) => {
                self.deliver(req, envelope, bytes);
                if let Some(request) = sync {
                    self.queue_fin(from, request);
                }
            }
            None => self.queue_eager_unexpected(key, from, bytes, sync),
        }
        Some(receive.is_none())
    }

    /// No receive is posted for an eager message.
    #[inline(never)]
    fn queue_eager_unexpected(&mut self, key: Key, from: ProcId, bytes: &[u8], sync: Option<u32>) {
        let content = Content::Eager {
            bytes: EagerBytes::from_slice(bytes),
            sync,
        };
        self.matcher.queue_unexpected(Unexpected {
            key,
            from,
            len: bytes.len() as u64,
            content,
        });
    }

    /// The `start` of an eager message of `len` bytes has arrived. If its receive is posted, the
    /// rest is received as a stream into the receive's buffer. Returns the length of the header
    /// then.
    pub fn on_eager_start(
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
        self.count_received(from, len);
        self.requests.set_envelope(req, key.envelope(len));
        self.begin_stream(req, from, 0, None);
        self.streams.begin_eager(from, req);
        Some(header::EAGER_HEADER_BYTES)
    }
}
