//! How far this process relies on a peer's messages and receives to meet in time.
//!
//! Two protocols move large messages before their receives are known to be posted: speculative
//! rendezvous, at the sender, and early CTS, at the receiver. If the receive comes late, the bytes
//! are buffered and copied once more. Both wait longer after each such miss, and both keep within
//! the same memory.

/// Run of receives that is required at least. Doubled after each miss, up to [`RUN_MAX`]. A choice.
pub(crate) const RUN_MIN: u32 = 2;
/// Maximum of the run that is required after misses. A choice.
pub(crate) const RUN_MAX: u32 = 256;
/// After this many speculative messages without a miss the required run is halved. A choice: a
/// miss costs the sender an answer, too.
const SPECULATIVE_HALVED_AFTER: u32 = 64;
/// The same for messages that were requested early. Of a program that receives messages one by one
/// some receives are late, and 64 made it lose a quarter: measured (docs/measured/tcp.md).
const EARLY_HALVED_AFTER: u32 = 1;
/// Maximum bytes of a peer's messages that may have to be buffered. For speculative rendezvous a
/// choice: for a longer message the CTS is a small part of the time. Requested early, messages of
/// 2 MiB gain nothing, and those of 4 MiB lose: measured (docs/measured/tcp.md).
pub(crate) const PEER_MAX_BYTES: u64 = 1024 * 1024;
/// Maximum bytes that a process may have to buffer for all peers together. A choice.
const ALL_PEERS_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum bytes of one peer's messages that may have to be buffered, in a job of `size` ranks.
pub(crate) fn peer_max_bytes(size: u32) -> u64 {
    PEER_MAX_BYTES.min(ALL_PEERS_MAX_BYTES / u64::from(size.max(1)))
}

/// How often the receives of a peer's messages were in time.
#[derive(Clone, Copy)]
pub(crate) struct PrepostHistory {
    /// Receives in a row that count as being in time.
    run: u32,
    /// The run that is required.
    required: u32,
    /// Messages that went before their receives since `required` changed.
    sent: u32,
    /// After so many of them the required run is halved.
    halved_after: u32,
}

impl Default for PrepostHistory {
    fn default() -> PrepostHistory {
        PrepostHistory {
            run: 0,
            required: RUN_MIN,
            sent: 0,
            halved_after: SPECULATIVE_HALVED_AFTER,
        }
    }
}

impl PrepostHistory {
    /// For messages that are requested early: no run is required until there has been a miss.
    pub fn of_early_cts() -> PrepostHistory {
        PrepostHistory {
            required: 0,
            halved_after: EARLY_HALVED_AFTER,
            ..PrepostHistory::default()
        }
    }

    /// Was the run long enough?
    #[inline]
    pub fn allows(&self) -> bool {
        self.run >= self.required
    }

    /// A receive that no message went ahead of was in time, or ended the run.
    pub fn record(&mut self, in_time: bool) {
        self.run = match in_time {
            true => self.run.saturating_add(1),
            false => 0,
        };
    }

    /// Counts a message that went before its receive.
    pub fn count_sent(&mut self) {
        self.sent += 1;
        if self.sent >= self.halved_after && self.required > RUN_MIN {
            self.sent = 0;
            self.required = (self.required / 2).max(RUN_MIN);
        }
    }

    /// The receive of a message that went before it was late: a longer run is required.
    pub fn miss(&mut self) {
        let required = (self.required.max(RUN_MIN) * 2).min(RUN_MAX);
        (self.run, self.sent, self.required) = (0, 0, required);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives that `history` waits for.
    fn waits(history: &mut PrepostHistory) -> u32 {
        let mut waits = 0;
        while !history.allows() {
            history.record(true);
            waits += 1;
        }
        waits
    }

    #[test]
    fn misses_require_longer_runs_and_success_shorter_ones() {
        for (mut history, first) in [
            (PrepostHistory::default(), RUN_MIN),
            (PrepostHistory::of_early_cts(), 0),
        ] {
            assert_eq!(waits(&mut history), first);
            for required in [2 * RUN_MIN, 4 * RUN_MIN, 8 * RUN_MIN] {
                history.miss();
                assert_eq!(waits(&mut history), required);
            }
            for _ in 0..history.halved_after {
                history.count_sent();
            }
            history.record(false);
            assert_eq!(waits(&mut history), 4 * RUN_MIN);
            for _ in 0..10 {
                history.miss();
            }
            assert_eq!(waits(&mut history), RUN_MAX);
        }
    }

    #[test]
    fn a_large_job_buffers_less_for_each_peer() {
        assert_eq!(peer_max_bytes(0), PEER_MAX_BYTES);
        assert_eq!(peer_max_bytes(64), PEER_MAX_BYTES);
        assert_eq!(peer_max_bytes(128), PEER_MAX_BYTES / 2);
        assert_eq!(peer_max_bytes(u32::MAX), 0);
    }
}
