//! Active messages of the layer above.

use crate::base::key::ProcId;
use crate::progress::device::Device;

impl Device {
    /// Maximum length of an active message to `to`, bytes. 0: no transport leads there.
    pub fn active_max(&mut self, to: ProcId) -> usize {
        let features = self.worker.transports.features(to);
        features.map_or(0, |features| features.message_max)
    }

    /// Sends `bytes`, at most [`active_max`](Device::active_max) of them, to the layer above in
    /// process `to`, which may be this one. They are not matched, and arrive in the order in which
    /// they were sent. They wait here while there is no room for them. To a
    /// [lost](Device::is_lost) process they are dropped.
    pub fn send_active(&mut self, to: ProcId, bytes: Box<[u8]>) {
        debug_assert!(bytes.len() <= self.active_max(to) || self.is_lost(to));
        self.worker.send_active(to, bytes);
    }

    /// The oldest active message that has arrived, with its sender.
    pub fn next_active(&mut self) -> Option<(ProcId, Box<[u8]>)> {
        self.worker.engine.active.next()
    }

    /// Has an active message arrived that [`next_active`](Device::next_active) has not returned?
    #[inline]
    pub fn has_active(&self) -> bool {
        !self.worker.engine.active.is_empty()
    }

    /// Active messages may arrive at any time. The progress thread watches for them, although no
    /// request is pending. To be ended by a call with false for each with true.
    pub fn expect_active(&mut self, expected: bool) {
        self.worker.engine.active.set_expected(expected);
    }
}
