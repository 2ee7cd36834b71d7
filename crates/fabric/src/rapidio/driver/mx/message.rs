//! Messages between MX levels: their heads, and what a receiver tells a sender of its queue.

use crate::rapidio::driver::control::Cut;

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 16;

/// Bytes of a [`Grant`].
pub const GRANT_BYTES: usize = 24;

/// Number of a request in a message that is about none.
pub(super) const NO_REQUEST: u32 = u32::MAX;

/// A dedicated queue is open for a part of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The receiver's number for the message.
    pub receive: u32,
    /// Where the part begins.
    pub offset: u64,
    /// Its bytes, and how they are cut into messages.
    pub cut: Cut,
    /// The mailbox of the queue.
    pub mailbox: u8,
}

impl Grant {
    /// The grant in bytes.
    pub fn encode(&self) -> [u8; GRANT_BYTES] {
        let mut bytes = [0; GRANT_BYTES];
        bytes[..4].copy_from_slice(&self.receive.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..20].copy_from_slice(&(self.cut.bytes as u64).to_le_bytes());
        bytes[20..22].copy_from_slice(&self.cut.first.to_le_bytes());
        bytes[22] = self.mailbox;
        bytes
    }

    /// Reads a grant from the front of bytes, and returns the rest. `None`: there is none.
    pub fn parse(bytes: &[u8]) -> Option<(Grant, &[u8])> {
        let (receive, rest) = number::<4>(bytes)?;
        let (offset, rest) = number::<8>(rest)?;
        let (length, rest) = number::<8>(rest)?;
        let (first, rest) = number::<2>(rest)?;
        let (&[mailbox, 0], rest) = rest.split_first_chunk()? else {
            return None;
        };
        let grant = Grant {
            receive: receive as u32,
            offset,
            cut: Cut {
                bytes: usize::try_from(length).ok()?,
                first: first as u16,
            },
            mailbox,
        };
        (grant.cut.is_valid() && mailbox > 0).then_some((grant, rest))
    }
}

/// Reads a number of `N` bytes, at most 8, and returns the rest.
fn number<const N: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    let mut all = [0; 8];
    all[..N].copy_from_slice(head);
    Some((u64::from_le_bytes(all), rest))
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A small message. The bytes follow.
    Eager,
    /// A small message whose sender waits for its match. The bytes follow.
    SyncEager,
    /// Request to send: a large message. Its bytes as a number of 8 bytes follow.
    Rts,
    /// Clear to send: a [`Grant`] follows.
    Cts,
    /// A small synchronous message has matched.
    Ack,
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub kind: Kind,
    /// Endpoints of receiver and sender.
    pub to: u8,
    pub from: u8,
    /// The sender's number for a send that is answered. In an answer: the same number.
    pub request: u32,
    /// Match bits.
    pub bits: u64,
}

impl Head {
    /// The head in bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = match self.kind {
            Kind::Eager => 1,
            Kind::SyncEager => 2,
            Kind::Rts => 3,
            Kind::Cts => 4,
            Kind::Ack => 5,
        };
        bytes[1] = self.to;
        bytes[2] = self.from;
        bytes[4..8].copy_from_slice(&self.request.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bits.to_le_bytes());
        bytes
    }

    /// Splits a message into its head and what follows. The error says what is wrong.
    pub fn parse(message: &[u8]) -> Result<(Head, &[u8]), &'static str> {
        let Some((&[kind, to, from, 0], rest)) = message.split_first_chunk() else {
            return Err("a message without MX's head");
        };
        let kind = match kind {
            1 => Kind::Eager,
            2 => Kind::SyncEager,
            3 => Kind::Rts,
            4 => Kind::Cts,
            5 => Kind::Ack,
            _ => return Err("a message that MX does not have"),
        };
        let numbers = number::<4>(rest).and_then(|(r, rest)| Some((r, number::<8>(rest)?)));
        let Some((request, (bits, body))) = numbers else {
            return Err("a message shorter than MX's head");
        };
        let head = Head {
            kind,
            to,
            from,
            request: request as u32,
            bits,
        };
        Ok((head, body))
    }

    /// The bytes of the message that an RTS announces. `None`: it does not say.
    pub fn rts_bytes(body: &[u8]) -> Option<usize> {
        let (bytes, rest) = number::<8>(body)?;
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| (1..isize::MAX as usize).contains(bytes) && rest.is_empty())
    }
}
