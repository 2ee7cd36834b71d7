//! A message that waits for room on its transport.

use crate::base::header::{self, Header};
use crate::base::request::ReqId;

/// A message that waits for room on its transport.
pub(crate) struct Outgoing {
    pub message: u8,
    pub head: Header,
    pub payload: Payload,
}

/// Where the body of a waiting message is.
pub(crate) enum Payload {
    /// There is none.
    None,
    /// Here.
    Owned(Box<[u8]>),
    /// In the buffer of this eager send, which completes when the transport has taken the body.
    Request(ReqId),
    /// In the buffer of this large send, from `offset` on. It goes in as many parts as it takes.
    Stream {
        req: ReqId,
        offset: usize,
        /// Whether the message goes by zero copy is decided. That is when it is first offered to
        /// its transport.
        zero_copy_decided: bool,
    },
}

/// What has become of a waiting message that was offered to its transport.
pub(crate) enum Offer {
    /// The transport has taken it.
    Sent,
    /// The transport has taken all that was offered; the queue may have more.
    AllSent,
    /// The transport has no room.
    Full,
    /// The transport has taken a part. Other messages may go before the rest.
    PartSent,
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

    /// Is it DATA? A speculative message is not: it is matched, so it keeps its place in the queue.
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

    /// Is it the body of a large message that was offered to its transport? A part may have gone.
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
