//! The node's window, NREAD, NWRITE and doorbells.

use super::{ControlLevel, InFlight, User};
use crate::kernel::{Client, Rank};
use crate::rapidio::command::{Physical, SendId};
use crate::rapidio::driver::lower::{Host, Lower};

impl<L: Lower> ControlLevel<L> {
    /// The node's window is the memory that its card maps. Without this the driver does not see
    /// what NWRITE of other nodes has brought.
    pub fn map_window(&mut self, c: &Client) {
        let (memory, bytes) = c.mapped_memory();
        // SAFETY: it lives as long as the process, and others reach it through the client only,
        // which makes no references to it.
        unsafe { self.lower.memory().map_window(memory, bytes) };
    }

    /// Rings the doorbell `number` of the same user on another node.
    pub fn doorbell(&mut self, c: &mut dyn Host, user: User, to: Rank, number: u8) {
        self.charge_call(c);
        let info = u16::from_be_bytes([user.0, number]);
        self.lower.doorbell(c, to, info);
    }

    /// Writes to the window of another node, `io_max` bytes a transaction. Nothing tells that node
    /// of it; a doorbell that follows does not overtake it.
    pub fn write(&mut self, c: &mut dyn Host, to: Rank, at: Physical, bytes: &[u8]) {
        self.charge_call(c);
        let io_max = self.limits.io_max;
        for (number, part) in bytes.chunks(io_max).enumerate() {
            let at = at.plus((number * io_max) as u64);
            self.lower.write(c, to, at, part);
        }
    }

    /// Reads at most `io_max` bytes of the window of another node. Returns the number that
    /// [`ControlEvent::Read`](super::ControlEvent::Read) has. Who reads more charges one call for
    /// all ([`ControlLevel::charge_call`]).
    pub fn read(
        &mut self,
        c: &mut dyn Host,
        user: User,
        from: Rank,
        at: Physical,
        bytes: u16,
    ) -> SendId {
        let id = self.new_number();
        self.in_flight.insert(id, InFlight::Read(user));
        self.lower.read(c, from, at, bytes, id);
        id
    }

    /// Opens or closes a segment of this node's window for other nodes.
    pub fn segment(&mut self, c: &mut dyn Host, offset: u64, bytes: u64, opens: bool) {
        self.charge_call(c);
        self.lower.segment(c, offset, bytes, opens);
    }
}
