//! What the control level does with the transfers of a node that is lost: all of them end.

use super::ControlLevel;
use crate::kernel::Rank;
use crate::rapidio::driver::lower::{Host, Lower};

impl<L: Lower> ControlLevel<L> {
    /// A node is lost. Its requests and the transfers to it end without an event, and its queues
    /// and mailboxes become free once the card has closed them. Nothing is written to the buffers
    /// of its requests any more: they can be released. What comes from it later is dropped.
    pub fn forget_peer(&mut self, c: &mut dyn Host, peer: Rank) {
        if !self.forgotten.insert(peer) {
            return;
        }
        self.charge_call(c);
        for request in self.assignment.forget(peer) {
            self.requests.remove(&request);
        }
        self.transfers.retain(|_, transfer| transfer.to != peer);
        let transfers = &self.transfers;
        self.stalled.retain(|id| transfers.contains_key(id));
        let memory = self.lower.memory();
        let (dropped, unsent) = std::mem::take(&mut self.unsent)
            .into_iter()
            .partition(|message| message.to == peer);
        self.unsent = unsent;
        for message in Vec::<_>::from(dropped) {
            memory.release(message.page);
        }
        self.peers.remove(&peer);
        self.lower.forget(c, peer);
    }
}
