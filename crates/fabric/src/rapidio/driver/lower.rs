//! The driver's lower level: the paper's three functions, and NREAD, NWRITE and doorbells. Nothing
//! else in the driver touches the card.

use super::physical::PhysicalMemory;
use crate::kernel::{Client, Event, Rank};
use crate::rapidio::command::{Physical, Piece, QueueId, SendId};
use crate::time::Time;

/// A rank's processor and its way to the card. [`Client`] is the real one; tests have their own.
pub trait Host {
    /// The rank's virtual time.
    fn now(&self) -> Time;
    /// Advances the rank's clock by `cost`: its processor works on `cause`.
    fn charge(&mut self, cause: &'static str, cost: Time);
    /// Issues a command at the rank's clock.
    fn command(&mut self, kind: u32, bytes: &[u8]);
    /// The next thing that the card has for this rank.
    fn event(&mut self) -> Option<Event>;
}

impl Host for Client {
    fn now(&self) -> Time {
        Client::now(self)
    }
    fn charge(&mut self, cause: &'static str, cost: Time) {
        Client::charge(self, cause, cost);
    }
    fn command(&mut self, kind: u32, bytes: &[u8]) {
        Client::command(self, kind, &[bytes]);
    }
    fn event(&mut self) -> Option<Event> {
        Client::event(self)
    }
}

/// What the card has for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LowerEvent {
    /// A message in the general queue. Its buffer is the card's again.
    Unexpected {
        /// The node that sent it.
        from: Rank,
        /// Its mailbox.
        mailbox: u8,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// All messages of a dedicated queue have landed. It is closed.
    Received {
        /// The queue.
        queue: QueueId,
    },
    /// All messages of a send are accepted by the other card.
    Sent {
        /// The caller's number for it.
        id: SendId,
    },
    /// A doorbell.
    Doorbell {
        /// The node that rang it.
        from: Rank,
        /// Its two bytes.
        info: u16,
    },
    /// The answer of an NREAD.
    Read {
        /// The caller's number for it.
        id: SendId,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// What the card can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LowerLimits {
    /// Mailbox numbers, 0 included.
    pub mailboxes: u8,
    /// Dedicated queues.
    pub queues: u8,
    /// Longest message, bytes.
    pub message_max: usize,
    /// Longest segment, bytes. Sizes of messages of several segments are to be multiples of it.
    pub segment_max: usize,
    /// Alignment of a message's buffer, bytes.
    pub alignment: u64,
    /// Messages of one [`Lower::expect`].
    pub expect_max: usize,
    /// Messages of one [`Lower::send`]. 1, and more if the hardware walks the page table.
    pub send_max: usize,
    /// Most bytes of an NREAD or NWRITE.
    pub io_max: usize,
}

/// The lower level. Each call charges its instructions to the rank's clock.
pub trait Lower: Send {
    /// What the card can do.
    fn limits(&self) -> LowerLimits;

    /// Sends messages with this mailbox number, one a piece. [`LowerEvent::Sent`] tells of the
    /// last. Returns false if the card's send list is full: call again after an event.
    fn send(
        &mut self,
        c: &mut dyn Host,
        to: Rank,
        mailbox: u8,
        pieces: &[Piece],
        id: SendId,
    ) -> bool;

    /// Takes the next thing that the card has. `None`: nothing more.
    fn receive(&mut self, c: &mut dyn Host) -> Option<LowerEvent>;

    /// Opens a dedicated queue for messages from this node with this mailbox number, one a piece.
    /// Returns false if the queue is open.
    fn expect(
        &mut self,
        c: &mut dyn Host,
        queue: QueueId,
        from: Rank,
        mailbox: u8,
        pieces: &[Piece],
    ) -> bool;

    /// Rings another node's doorbell.
    fn doorbell(&mut self, c: &mut dyn Host, to: Rank, info: u16);

    /// NWRITE of at most `io_max` bytes to a physical address of another node. Nothing tells that
    /// node of it. A doorbell that follows does not overtake it.
    fn write(&mut self, c: &mut dyn Host, to: Rank, at: Physical, data: &[u8]);

    /// NREAD of at most `io_max` bytes of another node's window. [`LowerEvent::Read`] brings them.
    fn read(&mut self, c: &mut dyn Host, from: Rank, at: Physical, bytes: u16, id: SendId);

    /// The node's physical memory.
    fn memory(&mut self) -> &mut PhysicalMemory;
}
