//! Requests: operations under way, and how they ended.

use crate::key::Envelope;

/// An operation under way in the device. It stays valid until [`Device::take`](crate::Device::take) has returned its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReqId(pub(crate) u32);

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// For a receive: who sent what. For a send: zeros.
    pub envelope: Envelope,
    /// Bytes that were stored in the receive buffer (less than `envelope.len` if the message was truncated).
    pub received: u64,
    /// The operation was cancelled before it matched.
    pub cancelled: bool,
    /// What went wrong, if anything did.
    pub fault: Option<Fault>,
}

impl Completion {
    /// The completion of a send, or of an operation with nobody (MPI_PROC_NULL).
    pub const EMPTY: Completion = Completion {
        envelope: Envelope { source: 0, tag: 0, len: 0 },
        received: 0,
        cancelled: false,
        fault: None,
    };
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The message was longer than the receive buffer; what fits was stored.
    #[error("the message of {sent} bytes is longer than the receive buffer of {room} bytes")]
    Truncated {
        /// Bytes sent.
        sent: u64,
        /// Bytes that fit.
        room: u64,
    },
    /// The transport could not carry the message.
    #[error("the transport failed: {0}")]
    Transport(&'static str),
}
