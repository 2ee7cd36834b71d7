//! A message that waits for room on its transport.

use crate::base::header::{self, Header};
use crate::base::request::ReqId;

/// A message that waits for room on its transport.
pub(crate) struct Outgoing {
    pub message: u8,
    pub head: Header,
    pub payload: Payload,
}

/// The body of a waiting message.
pub(crate) enum Payload {
    /// There is none.
    None,
    /// The bytes themselves.
    Owned(Box<[u8]>),
    /// In the buffer of this eager send, which completes when the transport has taken the body.
    Request(ReqId),
    /// In the buffer of this large send, from `offset` on. It is sent in parts.
    Stream {
        req: ReqId,
        offset: usize,
        /// Zero copy or not is decided. That happens when the message is first offered to its
        /// transport.
        zero_copy_decided: bool,
    },
}

/// The result of offering a waiting message to its transport.
pub(crate) enum Offer {
    /// The transport has taken it.
    Sent,
    /// The transport has taken all messages that were offered. The queue may have more.
    AllSent,
    /// The transport has no room.
    Full,
    /// The transport has taken a part. Other messages may be sent before the rest.
    PartSent,
    /// The transport sends the rest by itself. Other messages may be sent beside it.
    UnderWay,
}

impl Outgoing {
    /// A message without a body.
    pub fn header_only(message: u8, head: Header) -> Outgoing {
        Outgoing {
            message,
            head,
            payload: Payload::None,
        }
    }

    /// Is it DATA? A speculative message is not: it is matched, so it keeps its order in the queue.
    pub fn is_data(&self) -> bool {
        matches!(self.payload, Payload::Stream { .. }) && self.message != header::SPECULATIVE
    }

    /// Is it DATA that was never offered to its transport?
    pub fn is_unoffered_data(&self) -> bool {
        matches!(
            self.payload,
            Payload::Stream {
                zero_copy_decided: false,
                ..
            }
        )
    }

    /// Is it the body of a large message that was offered to its transport? A part may have been
    /// sent.
    pub fn may_have_begun(&self) -> bool {
        matches!(
            self.payload,
            Payload::Stream {
                zero_copy_decided: true,
                ..
            }
        )
    }
}
