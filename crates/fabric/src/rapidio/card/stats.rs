//! What a card has done, and how reports tell it.

use crate::time::Time;

/// What a card has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardStats {
    /// Messages sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments sent, with those that were sent again.
    pub segments: u64,
    /// Segments that this node refused.
    pub refused: u64,
    /// Last segments that came first, and were written to a wrong place besides.
    pub misplaced: u64,
    /// Messages that the general queue took.
    pub unexpected: u64,
    /// Dedicated queues that were complete.
    pub queues: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// NREAD and NWRITE transactions issued.
    pub io: u64,
    /// How long segments were leaving the card.
    pub busy: Time,
}

impl CardStats {
    /// Two lines of a report, each with its subject and its text. `duration`: of the job.
    pub fn lines(&self, node: u32, duration: Time) -> [(String, String); 2] {
        let card = format!(
            "{} messages, {} B, busy {:.1} %; {} segments, {} refused, {} misplaced",
            self.messages,
            self.bytes,
            percentage(self.busy, duration),
            self.segments,
            self.refused,
            self.misplaced
        );
        let queues = format!(
            "{} unexpected messages, {} dedicated queues; {} doorbells, {} NREAD and NWRITE",
            self.unexpected, self.queues, self.doorbells, self.io
        );
        [
            (format!("card of node {node}"), card),
            (format!("queues of node {node}"), queues),
        ]
    }
}

/// Share of a time, percent.
pub fn percentage(busy: Time, duration: Time) -> f64 {
    100.0 * busy.seconds() / duration.seconds().max(1e-12)
}
