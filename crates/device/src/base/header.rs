//! What devices say to each other: heads of active messages.

use crate::base::key::{ContextId, Key};

/// A whole message; nobody waits to hear of its match.
pub(crate) const EAGER: u8 = 1;
/// A whole message of a synchronous send.
pub(crate) const EAGER_SYNC: u8 = 2;
/// A large message is announced; with how many of its like have gone at once since the last one
/// that was, if any have.
pub(crate) const ANNOUNCE: u8 = 3;
/// The receiver asks for the announced message's bytes.
pub(crate) const ASK: u8 = 4;
/// A piece of an announced message, as asked for.
pub(crate) const PIECE: u8 = 5;
/// The receiver has matched (synchronous) or has read (announced) the message.
pub(crate) const TAKEN: u8 = 6;

/// The receiver asks for a few bytes at an end of the announced message.
pub(crate) const ASK_END: u8 = 7;
/// An end of an announced message, as asked for.
pub(crate) const END: u8 = 8;

/// A piece of an announced message, as asked for, whose bytes lie with the sender until it is told
/// that the whole message has been taken.
pub(crate) const LENT: u8 = 9;

/// A word from floor to floor ([`crate::Note`]).
pub(crate) const NOTE: u8 = 10;

/// Both ends of a message that is announced next, before anybody asks.
pub(crate) const ENDS: u8 = 11;

/// A large message that was not announced, as a stream or in pieces.
pub(crate) const AT_ONCE: u8 = 12;
/// One that went so has met no receive yet.
pub(crate) const LATE: u8 = 13;
/// As [`ASK`], where the receive was there when the message was announced, and the like of it may
/// go at once.
pub(crate) const ASK_MET: u8 = 14;

/// Longest head, bytes.
pub(crate) const HEAD_MAX: usize = 40;
/// Length of an eager message's head, bytes.
pub(crate) const EAGER_HEAD: usize = 16;

/// Reads fields off the front of a message; `None` when it is too short.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
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

/// A head under construction.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Head {
    #[inline]
    pub fn new() -> Head {
        Head {
            bytes: [0; HEAD_MAX],
            len: 0,
        }
    }
    #[inline]
    pub fn u32(mut self, v: u32) -> Head {
        self.bytes[self.len..self.len + 4].copy_from_slice(&v.to_le_bytes());
        self.len += 4;
        self
    }
    #[inline]
    pub fn u64(mut self, v: u64) -> Head {
        self.bytes[self.len..self.len + 8].copy_from_slice(&v.to_le_bytes());
        self.len += 8;
        self
    }
    #[inline]
    pub fn key(self, key: &Key) -> Head {
        self.u64(key.context.0).u32(key.source).u32(key.tag)
    }
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back() {
        let key = Key {
            context: ContextId(77 << 32 | 5),
            source: 9,
            tag: 1 << 30,
        };
        let head = Head::new().key(&key).u64(u64::MAX).u32(3);
        let mut fields = Fields(head.bytes());
        assert_eq!(fields.key(), Some(key));
        assert_eq!(
            (fields.u64(), fields.u32(), fields.u32()),
            (Some(u64::MAX), Some(3), None)
        );
    }
}
