//! Active-message headers: the types of messages between devices, and their fields.

use crate::base::key::{ContextId, Key};
use ferry_transport::SHORT_HEAD_BYTES;

/// EAGER: a complete message. The receiver does not answer it.
pub(crate) const EAGER: u8 = 1;
/// EAGER of a synchronous send. The receiver answers with FIN when the message has matched.
pub(crate) const EAGER_SYNC: u8 = 2;
/// RTS, ready to send: announces a large message. It may carry the number of speculative messages
/// since the last RTS.
pub(crate) const RTS: u8 = 3;
/// CTS, clear to send: the message has matched, and the receiver requests its bytes.
pub(crate) const CTS: u8 = 4;
/// DATA: a part of a message's bytes, in answer to CTS.
pub(crate) const DATA: u8 = 5;
/// FIN: the receiver has matched (synchronous send) or has read (single copy) the message.
pub(crate) const FIN: u8 = 6;

/// Requests the first or the last bytes of an announced message. Deferred receives send it.
pub(crate) const EDGE_REQUEST: u8 = 7;
/// An edge of an announced message, in answer to EDGE_REQUEST.
pub(crate) const EDGE_DATA: u8 = 8;

/// DATA whose bytes stay in the sender's buffer (zero copy) until the receiver's FIN.
pub(crate) const ZCOPY_DATA: u8 = 9;

/// A control message of the crates above ([`crate::ControlMessage`]).
pub(crate) const CONTROL: u8 = 10;

/// Both edges of the message whose RTS follows, sent without a request.
pub(crate) const EDGES: u8 = 11;

/// Speculative rendezvous: a large message without RTS and CTS, as a stream or in parts.
pub(crate) const SPECULATIVE: u8 = 12;
/// A speculative message has found no posted receive: the sender returns to RTS for a while.
pub(crate) const UNEXPECTED: u8 = 13;
/// CTS of a receive that was posted before the RTS. The next messages may be speculative. In answer
/// to RTS_WITHDRAWABLE: pipelined copy is faster, and the next messages may be eager.
pub(crate) const CTS_PREPOSTED: u8 = 14;

/// ACTIVE: an active message of the crates above. The bytes are theirs; there is no header.
pub(crate) const ACTIVE: u8 = 15;

/// RTS of a message that its sender may withdraw. It names a slot.
pub(crate) const RTS_WITHDRAWABLE: u8 = 16;
/// The bytes of a message that was withdrawn, with its slot.
pub(crate) const WITHDRAWN: u8 = 17;

/// RTS of a synchronous send. Its bytes are not requested before its receive is posted.
pub(crate) const RTS_SYNC: u8 = 18;

/// Longest header, bytes: an RTS with its count of speculative messages, or its slot.
pub(crate) const HEADER_MAX_BYTES: usize = 40;
/// Length of an eager message's header, bytes: its match key.
pub(crate) const EAGER_HEADER_BYTES: usize = SHORT_HEAD_BYTES;

/// Reads fields from the front of a message. A read returns `None` when the message is too short.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// Reads a number of 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }
    /// Reads a number of 8 bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
    /// Reads a match key.
    #[inline]
    pub fn key(&mut self) -> Option<Key> {
        let context = ContextId(self.u64()?);
        Some(Key {
            context,
            source: self.u32()?,
            tag: self.u32()?,
        })
    }
}

/// A header under construction.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; HEADER_MAX_BYTES],
    len: usize,
}

impl Header {
    /// An empty header.
    #[inline]
    pub fn new() -> Header {
        Header {
            bytes: [0; HEADER_MAX_BYTES],
            len: 0,
        }
    }
    /// Appends a number of 4 bytes.
    #[inline]
    pub fn u32(mut self, v: u32) -> Header {
        self.bytes[self.len..self.len + 4].copy_from_slice(&v.to_le_bytes());
        self.len += 4;
        self
    }
    /// Appends a number of 8 bytes.
    #[inline]
    pub fn u64(mut self, v: u64) -> Header {
        self.bytes[self.len..self.len + 8].copy_from_slice(&v.to_le_bytes());
        self.len += 8;
        self
    }
    /// Appends a match key.
    #[inline]
    pub fn key(self, key: &Key) -> Header {
        self.u64(key.context.0).u32(key.source).u32(key.tag)
    }
    /// The bytes appended so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let key = Key {
            context: ContextId(77 << 32 | 5),
            source: 9,
            tag: 1 << 30,
        };
        assert_eq!(Header::new().key(&key).bytes(), key.encode());
        let header = Header::new().key(&key).u64(u64::MAX).u32(3);
        let mut fields = Fields(header.bytes());
        assert_eq!(fields.key(), Some(key));
        assert_eq!(
            (fields.u64(), fields.u32(), fields.u32()),
            (Some(u64::MAX), Some(3), None)
        );
    }
}
