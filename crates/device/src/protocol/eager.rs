//! Eager messages: the whole message goes at once, without asking the receiver.

use crate::base::buffer::Source;
use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::message::{Content, EagerBytes, Unexpected};
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::queue::outgoing::{Outgoing, Payload};

impl Worker {
    /// Queues an eager message for which there is no room now. `sync` is the request of a
    /// synchronous send.
    #[cold]
    pub fn queue_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: Header,
        source: Source,
        sync: Option<ReqId>,
    ) -> Option<ReqId> {
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
        Some(req)
    }
}

impl Engine {
    /// An eager message. Returns whether it is unexpected. `None`: it makes no sense.
    #[inline]
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
            None => {
                let content = Content::Eager {
                    bytes: EagerBytes::from_slice(bytes),
                    sync,
                };
                self.matcher.keep(Unexpected {
                    key,
                    from,
                    len: envelope.len,
                    content,
                });
            }
        }
        Some(receive.is_none())
    }

    /// The `start` of an eager message of `len` bytes; the rest is under way. If its receive is
    /// posted, the rest is received as a stream into the receive's buffer. Returns the length of
    /// the header then.
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
