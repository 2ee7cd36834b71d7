//! Transfers of registered buffers, message after message.

use super::costs::{charge_pages, charge_write_back};
use super::{BufferId, ControlEvent, ControlLevel, InFlight, TransferId, User};
use crate::kernel::Rank;
use crate::rapidio::driver::lower::{Host, Lower};

/// A registered buffer that is being sent to a mailbox.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    user: User,
    pub to: Rank,
    mailbox: u8,
    buffer: BufferId,
    /// Messages that have been programmed.
    programmed: usize,
    /// Messages whose bounce pages are filled.
    filled: usize,
}

impl Transfer {
    pub fn new(user: User, to: Rank, mailbox: u8, buffer: BufferId) -> Transfer {
        Transfer {
            user,
            to,
            mailbox,
            buffer,
            programmed: 0,
            filled: 0,
        }
    }
}

impl<L: Lower> ControlLevel<L> {
    /// Programs the next messages of a transfer: one, or as many as the hardware takes at once.
    /// All before them are accepted. Ends the transfer if there are none.
    pub(super) fn advance_transfer(&mut self, c: &mut dyn Host, id: TransferId) {
        let Some(transfer) = self.transfers.get(&id).copied() else {
            return;
        };
        let Some(buffer) = self.buffers.get_mut(&transfer.buffer) else {
            self.transfers.remove(&id);
            return;
        };
        let begin = transfer.programmed;
        let end = buffer.cut.messages().min(begin + self.limits.send_max);
        if begin == end {
            self.transfers.remove(&id);
            let sent = ControlEvent::Sent { transfer: id };
            self.push(transfer.user, sent);
            return;
        }
        let translated = buffer.translate(self.lower.memory(), end);
        let pieces = buffer.pieces_of(begin..end);
        charge_pages(c, &self.costs, translated);
        charge_write_back(c, &self.costs, buffer);
        let mut copied = 0;
        for message in transfer.filled..end {
            copied += buffer.bounced_bytes_of(message);
            buffer.fill_bounce_page(self.lower.memory(), message);
        }
        self.charge_copy(c, copied);
        let send = self.new_number();
        let Transfer { to, mailbox, .. } = transfer;
        let accepted = self.lower.send(c, to, mailbox, &pieces, send);
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.filled = end;
            transfer.programmed = if accepted { end } else { begin };
        }
        if accepted {
            self.in_flight.insert(send, InFlight::Transfer(id));
        } else {
            self.stalled.push_back(id);
        }
    }

    /// Tries again what the card's send list had no room for.
    pub(super) fn advance_stalled(&mut self, c: &mut dyn Host) {
        for _ in 0..self.stalled.len() {
            if let Some(id) = self.stalled.pop_front() {
                self.advance_transfer(c, id);
            }
        }
    }
}
