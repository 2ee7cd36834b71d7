//! Which messages are kept in the send queue until others can go with them.
//!
//! A batch ends at the latest when the program makes progress ([`Batch`](crate::queue::batch)).

use crate::base::buffer::Source;
use crate::base::key::ProcId;
use crate::base::message::{Content, Unexpected};
use crate::protocol::engine::Worker;
use crate::queue::batch::BATCH_MESSAGE_MIN_BYTES;
use ferry_transport::Features;

impl Worker {
    /// Is this message kept for a batch? The first of several large ones in a row goes at once.
    #[inline]
    pub fn batches(&mut self, to: ProcId, source: &Source, features: Features) -> bool {
        if !features.batch || source.len() < BATCH_MESSAGE_MIN_BYTES {
            return false;
        }
        self.engine.streams.set_active();
        matches!(source, Source::Bytes { .. }) && self.follows(to, source.len())
    }

    /// Is the CTS for this unexpected message kept for a batch? Programs post many receives in a
    /// row, and each CTS would be a packet of its own.
    pub fn batches_cts(&mut self, message: &Unexpected) -> bool {
        matches!(message.content, Content::Rts { .. })
            && self
                .transports
                .features(message.from)
                .is_ok_and(|f| f.batch)
            && self.follows(message.from, message.len as usize)
    }

    /// Does a large transfer with `peer` directly follow another one? Where several threads use
    /// the device, nothing is kept: another thread may sleep in MPI and rely on what this one has
    /// sent.
    #[inline]
    fn follows(&mut self, peer: ProcId, bytes: usize) -> bool {
        self.threads.single() && self.batch.follows(peer, bytes)
    }

    /// Sends the batch if it is full.
    pub fn flush_full_batch(&mut self) {
        if self.batch.take_full() {
            self.offer_queued();
        }
    }
}
