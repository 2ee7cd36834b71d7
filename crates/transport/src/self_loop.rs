//! Messages of a process to itself.

use crate::{
    Body, FRAGMENT_BYTES, Features, Inbox, ProcId, ReadError, SendStatus, Transport, TransportError,
};
use std::collections::VecDeque;

/// The transport of a process to itself: a queue.
pub struct SelfLoop {
    me: ProcId,
    queue: VecDeque<(u8, Box<[u8]>)>,
}

impl SelfLoop {
    /// The transport of process `me`.
    pub fn new(me: ProcId) -> SelfLoop {
        SelfLoop {
            me,
            queue: VecDeque::new(),
        }
    }
}

impl Transport for SelfLoop {
    fn name(&self) -> &'static str {
        "self"
    }

    fn reaches(&self, peer: ProcId) -> bool {
        peer == self.me
    }

    fn features(&self, _peer: ProcId) -> Features {
        Features {
            message_max: usize::MAX,
            fragment_max: FRAGMENT_BYTES,
            eager_max: 4096,
            remote_read: true,
            read_min: 0,
            same_node: true,
            stream: false,
            batch: false,
        }
    }

    fn send(
        &mut self,
        _to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        let mut bytes = vec![0u8; head.len() + body.len()];
        bytes[..head.len()].copy_from_slice(head);
        match body {
            Body::Bytes(b) => bytes[head.len()..].copy_from_slice(b),
            Body::Fill(_, fill) => fill(&mut bytes[head.len()..]),
        }
        self.queue.push_back((message, bytes.into_boxed_slice()));
        Ok(SendStatus::Done)
    }

    #[inline]
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let mut delivered = 0;
        while let Some((message, bytes)) = self.queue.pop_front() {
            inbox.on_message(self.me, message, &bytes);
            delivered += 1;
        }
        Ok(delivered)
    }

    unsafe fn read(
        &mut self,
        _from: ProcId,
        address: u64,
        into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        let mut from = address as *const u8;
        for &(to, len) in into {
            // SAFETY: the address was announced by this very process for a send under way; the
            // caller vouches for the local runs. A program that receives into its own
            // send buffer is wrong, but memmove keeps it harmless.
            unsafe {
                std::ptr::copy(from, to, len);
                from = from.add(len);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keep(Vec<(ProcId, u8, Vec<u8>)>);
    impl Inbox for Keep {
        fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
            self.0.push((from, message, bytes.to_vec()));
            false
        }
    }

    #[test]
    fn delivers_in_order_and_whole() {
        let mut wire = SelfLoop::new(3);
        assert!(wire.reaches(3) && !wire.reaches(2));
        let mut fill = |out: &mut [u8]| out.fill(7);
        assert_eq!(
            wire.send(3, 1, b"ab", Body::Bytes(b"cd")).unwrap(),
            SendStatus::Done
        );
        assert_eq!(
            wire.send(3, 2, b"x", Body::Fill(2, &mut fill)).unwrap(),
            SendStatus::Done
        );
        let mut got = Keep(Vec::new());
        assert_eq!(wire.poll(&mut got).unwrap(), 2);
        assert_eq!(
            got.0,
            [(3, 1, b"abcd".to_vec()), (3, 2, b"x\x07\x07".to_vec())]
        );
        assert_eq!(wire.poll(&mut got).unwrap(), 0);
    }
}
