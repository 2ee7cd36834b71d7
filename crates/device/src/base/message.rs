//! Unexpected messages, which arrive before their receive is posted, and RTS that have matched.

use crate::base::key::{Envelope, Key, ProcId};
use crate::base::request::ReqId;
use smallvec::SmallVec;

/// The bytes of an unexpected eager message. Up to 16 bytes are stored inline: allocating memory
/// for them takes longer than copying them.
pub(crate) type EagerBytes = SmallVec<[u8; 16]>;

/// What has arrived of an unexpected message.
#[derive(Debug)]
pub(crate) enum Content {
    /// The whole message. `sync` is the request of a synchronous send, which waits for FIN.
    Eager {
        bytes: EagerBytes,
        sync: Option<u32>,
    },
    /// An RTS. `address` is where the bytes lie at the sender; 0 means that the sender sends them
    /// when it gets a CTS. With a `slot`, the sender may withdraw the message. `sync`: it is a
    /// synchronous send.
    Rts {
        address: u64,
        request: u32,
        slot: Option<u32>,
        sync: bool,
    },
    /// A speculative message, whole or in part. The engine has its bytes under this number.
    Speculative { number: u32 },
}

/// A message that has arrived before its receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub key: Key,
    pub from: ProcId,
    pub len: u64,
    pub content: Content,
}

impl Unexpected {
    /// Bytes of the message that are buffered in this process.
    pub fn buffered_bytes(&self) -> u64 {
        match &self.content {
            Content::Eager { bytes, .. } => bytes.len() as u64,
            Content::Speculative { .. } => self.len,
            Content::Rts { .. } => 0,
        }
    }

    /// The message's source, tag and length.
    pub fn envelope(&self) -> Envelope {
        self.key.envelope(self.len)
    }
}

/// An RTS that has matched its receive.
pub(crate) struct MatchedRts {
    pub req: ReqId,
    pub from: ProcId,
    pub len: u64,
    /// Where the bytes lie at the sender, or 0.
    pub address: u64,
    /// The sender's request.
    pub request: u32,
    /// The slot of an announcement that the sender may withdraw.
    pub slot: Option<u32>,
    /// The receive was posted before the RTS arrived.
    pub preposted: bool,
}
