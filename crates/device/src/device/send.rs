//! Starting a send, and which path it takes: short eager, eager, withdrawable or rendezvous.

use crate::base::buffer::Source;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Header};
use crate::base::key::{Key, ProcId};
use crate::base::request::{Operation, ReqId, SendMode};
use crate::progress::device::Device;
use crate::protocol::SHORT_MAX_BYTES;
use crate::protocol::withdrawable::WITHDRAWABLE_MIN_BYTES;
use ferry_transport::SendStatus;

impl Device {
    /// Starts a send. `None`: it is complete, and the buffer may be used again.
    ///
    /// # Safety
    /// The memory behind `source` must stay valid and unchanged until completion.
    #[inline(always)]
    pub unsafe fn send(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
        mode: SendMode,
    ) -> Option<ReqId> {
        if let Source::Bytes { ptr, len } = source
            && len <= SHORT_MAX_BYTES
            && mode != SendMode::Synchronous
            // SAFETY: the caller's promise.
            && unsafe { self.worker.send_short(to, &key, ptr, len) }
        {
            // There is nothing to drop.
            std::mem::forget(source);
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.send_any(to, key, source, mode) }
    }

    /// Starts a send of any kind.
    ///
    /// # Safety
    /// As for [`Device::send`].
    #[inline(never)]
    unsafe fn send_any(
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
        if let Source::Bytes { ptr, len } = source
            && len >= WITHDRAWABLE_MIN_BYTES
            && mode != SendMode::Synchronous
            && features.same_node
            && features.remote_read
            && worker.engine.zero_copy.is_enabled()
            && let Some(req) = worker.send_withdrawable(to, &key, ptr, len)
        {
            return Some(req);
        }
        if mode == SendMode::Synchronous {
            // SAFETY: the caller's promise.
            return Some(unsafe { worker.send_eager_sync(to, &key, source, features) });
        }
        let head = Header::new().key(&key);
        // SAFETY: the caller's promise.
        match unsafe { worker.try_eager(to, header::EAGER, &head, &source, features) } {
            Ok(SendStatus::Done) => None,
            Ok(SendStatus::Full) => Some(worker.queue_eager(to, header::EAGER, head, source, None)),
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

    /// Moves the unsent bytes of a send to a peer with [`streams`](crate::Capabilities::streams).
    /// The device reads them as if the first byte of the message were at `ptr`.
    ///
    /// # Safety
    /// As for [`Device::send`], for the bytes that are not [sent](Device::bytes_sent).
    pub unsafe fn relocate(&mut self, req: ReqId, ptr: *const u8) {
        if let Some(
            Operation::SendLarge {
                source: Source::Bytes { ptr: first, .. },
                ..
            }
            | Operation::SendQueued {
                source: Source::Bytes { ptr: first, .. },
            },
        ) = self.worker.engine.requests.operation(req)
        {
            *first = ptr;
        }
    }

    /// Disables zero copy for all later messages. [`Device::relocate`] needs it.
    pub fn disable_zero_copy(&mut self) {
        self.worker.engine.zero_copy.disable();
    }
}
