//! Batching: messages to one peer stay in the send queue until they fill a batch.

use crate::base::key::ProcId;

/// Minimum length of a message that is kept for a batch, bytes. A choice: shorter messages gain
/// nothing, because they share the connection's buffer anyway.
pub(crate) const BATCH_MESSAGE_MIN_BYTES: usize = 16 * 1024;
/// A batch is sent when it has this many bytes. A choice: the cost of a system call is small then.
const BATCH_MAX_BYTES: usize = 1024 * 1024;

/// The current batch. It ends when the program makes progress.
#[derive(Default)]
pub(crate) struct Batch {
    /// The peer of the last large message, if nothing was polled since.
    last_peer: Option<ProcId>,
    /// Bytes kept so far.
    bytes: usize,
}

impl Batch {
    /// Counts a message of `bytes` to or from `peer`. Returns whether it directly follows another
    /// one of that peer.
    #[inline]
    pub fn follows(&mut self, peer: ProcId, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.last_peer.replace(peer) == Some(peer)
    }

    /// Does the batch have enough bytes to be sent? If so, the next one begins.
    pub fn take_full(&mut self) -> bool {
        let full = self.bytes >= BATCH_MAX_BYTES;
        if full {
            self.bytes = 0;
        }
        full
    }

    /// The program makes progress: the batch ends.
    #[inline]
    pub fn end(&mut self) {
        *self = Batch::default();
    }
}
