//! Commands and events as driver and card exchange them.
//!
//! Card and driver do not see each other's memory. So the bytes that the card reads at a command
//! travel with the command, and the bytes that it writes travel in [`CardEvent::Deposit`].

use serde::{Deserialize, Serialize};

/// Bytes of a page of physical memory.
pub const PAGE_BYTES: u64 = 4096;
/// Longest message, bytes.
pub const MESSAGE_MAX_BYTES: usize = 4096;
/// Longest segment, bytes. A message that is not the multiple of it is cut into shorter ones.
pub const SEGMENT_MAX_BYTES: usize = 256;
/// Messages that one SEND command can carry. A command holds 64 KiB.
pub const SEND_MESSAGES_MAX: usize = 15;
/// Physical address of the window: the memory of a node that NREAD and NWRITE of other nodes reach
/// without its processor.
pub const WINDOW_AT: Physical = Physical(1 << 40);

/// An address in a node's physical memory.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Physical(pub u64);

impl Physical {
    /// The address `bytes` bytes further on.
    pub const fn plus(self, bytes: u64) -> Physical {
        Physical(self.0.wrapping_add(bytes))
    }
}

/// The buffer of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Where it lies. A multiple of 8 bytes: the card drops the low bits.
    pub at: Physical,
    /// Its bytes, from 1 to [`MESSAGE_MAX_BYTES`].
    pub bytes: u16,
}

/// The driver's number for something that it has sent or asked for.
pub type SendId = u32;

/// A dedicated receive queue, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct QueueId(pub u8);

/// A command of a rank to its card.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command<'a> {
    /// Sends messages: one, or several if the hardware walks the page table.
    Send {
        /// The receiving node.
        to: u32,
        /// Mailbox of all of them.
        mailbox: u8,
        /// Reported when all segments of the last message are accepted. `None`: not reported.
        id: Option<SendId>,
        /// The messages, in order.
        pieces: Vec<Piece>,
        /// Their bytes, one after the other.
        data: &'a [u8],
    },
    /// Programs a dedicated queue.
    Expect {
        /// Its number.
        queue: QueueId,
        /// The node whose messages it takes.
        from: u32,
        /// The mailbox whose messages it takes.
        mailbox: u8,
        /// The buffers of the messages, in order.
        pieces: Vec<Piece>,
    },
    /// Hands buffers of the general queue back to the card.
    Release {
        /// Their number.
        buffers: u16,
    },
    /// Rings another node's doorbell.
    Doorbell {
        /// The node.
        to: u32,
        /// Its two bytes.
        info: u16,
    },
    /// NWRITE.
    Write {
        /// The node.
        to: u32,
        /// Where its bytes go.
        at: Physical,
        /// The bytes.
        data: &'a [u8],
    },
    /// NREAD.
    Read {
        /// The node.
        from: u32,
        /// Where the bytes lie.
        at: Physical,
        /// Their number.
        bytes: u16,
        /// Reported with the bytes.
        id: SendId,
    },
    /// Opens or closes a segment of the window. NREAD and NWRITE of other nodes reach the window
    /// nowhere else.
    Segment {
        /// Where it begins, from the window's beginning.
        offset: u64,
        /// Its bytes.
        bytes: u64,
        /// It is opened.
        opens: bool,
    },
    /// Closes the dedicated queues for a node, and takes the messages to it out of the send list.
    Forget {
        /// The node.
        node: u32,
    },
    /// The card reached for memory that is not registered. The lower level has found it out.
    Fault {
        /// It read, for a send. Otherwise it wrote what it received.
        reads: bool,
        /// Where.
        at: Physical,
        /// Number of bytes.
        bytes: u32,
    },
}

/// Kinds of commands, as the kernel has them. It keeps the response time of each.
pub mod kind {
    /// [`Command::Send`](super::Command::Send).
    pub const SEND: u32 = 0;
    /// [`Command::Expect`](super::Command::Expect).
    pub const EXPECT: u32 = 1;
    /// [`Command::Release`](super::Command::Release).
    pub const RELEASE: u32 = 2;
    /// [`Command::Doorbell`](super::Command::Doorbell).
    pub const DOORBELL: u32 = 3;
    /// [`Command::Write`](super::Command::Write).
    pub const WRITE: u32 = 4;
    /// [`Command::Read`](super::Command::Read).
    pub const READ: u32 = 5;
    /// [`Command::Fault`](super::Command::Fault).
    pub const FAULT: u32 = 6;
    /// [`Command::Segment`](super::Command::Segment).
    pub const SEGMENT: u32 = 7;
    /// [`Command::Forget`](super::Command::Forget).
    pub const FORGET: u32 = 8;
}

impl Command<'_> {
    /// The command's kind, as the kernel has it.
    pub fn kind(&self) -> u32 {
        match self {
            Command::Send { .. } => kind::SEND,
            Command::Expect { .. } => kind::EXPECT,
            Command::Release { .. } => kind::RELEASE,
            Command::Doorbell { .. } => kind::DOORBELL,
            Command::Write { .. } => kind::WRITE,
            Command::Read { .. } => kind::READ,
            Command::Segment { .. } => kind::SEGMENT,
            Command::Forget { .. } => kind::FORGET,
            Command::Fault { .. } => kind::FAULT,
        }
    }

    /// The node that it is about, beside the card's own.
    pub fn other_node(&self) -> Option<u32> {
        match *self {
            Command::Send { to, .. }
            | Command::Doorbell { to, .. }
            | Command::Write { to, .. }
            | Command::Read { from: to, .. }
            | Command::Expect { from: to, .. }
            | Command::Forget { node: to } => Some(to),
            Command::Release { .. } | Command::Segment { .. } | Command::Fault { .. } => None,
        }
    }

    /// The function of the driver's lower level that issues it.
    pub fn call(&self) -> &'static str {
        match self {
            Command::Send { .. } | Command::Fault { reads: true, .. } => "send",
            Command::Expect { .. } => "expect",
            Command::Release { .. } | Command::Fault { .. } => "receive",
            Command::Doorbell { .. } => "doorbell",
            Command::Write { .. } => "write",
            Command::Read { .. } => "read",
            Command::Segment { .. } => "segment",
            Command::Forget { .. } => "forget",
        }
    }

    /// Encodes the command.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Decodes a command. `None`: the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Command<'_>> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Something that a card has for its rank. All have the kind 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CardEvent<'a> {
    /// The card writes into memory.
    Deposit {
        /// Where.
        at: Physical,
        /// What.
        data: &'a [u8],
    },
    /// A message is in the general queue.
    Unexpected {
        /// The node that sent it.
        from: u32,
        /// Its mailbox.
        mailbox: u8,
        /// Its bytes.
        data: &'a [u8],
    },
    /// All messages of a dedicated queue have come. The queue is closed.
    Received {
        /// Its number.
        queue: QueueId,
    },
    /// All segments of a message are accepted.
    Sent {
        /// The driver's number for it.
        id: SendId,
    },
    /// A doorbell.
    Doorbell {
        /// The node that rang it.
        from: u32,
        /// Its two bytes.
        info: u16,
    },
    /// The answer of an NREAD.
    Read {
        /// The driver's number for it.
        id: SendId,
        /// The bytes.
        data: &'a [u8],
    },
    /// The answer of [`Command::Forget`]. Nothing of the queues that it has closed is written any
    /// more.
    Forgotten {
        /// The node.
        node: u32,
    },
}

impl CardEvent<'_> {
    /// Returns whether the card raises an interrupt for it. The processor itself waits for the
    /// answer of an NREAD, and nobody is told of what is written into memory.
    pub fn interrupts(&self) -> bool {
        !matches!(self, CardEvent::Deposit { .. } | CardEvent::Read { .. })
    }

    /// Encodes the event.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Decodes an event. `None`: the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<CardEvent<'_>> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_rapidio_commands() {
        let piece = Piece {
            at: Physical(8192),
            bytes: 256,
        };
        let send = Command::Send {
            to: 1,
            mailbox: 3,
            id: Some(7),
            pieces: vec![piece],
            data: b"bytes",
        };
        let expect = Command::Expect {
            queue: QueueId(2),
            from: 1,
            mailbox: 3,
            pieces: vec![piece; 3],
        };
        let seeds = [send.encode(), expect.encode()];
        assert_eq!(Command::decode(&seeds[0]), Some(send));
        assert_eq!(Command::decode(&seeds[1]), Some(expect));
        ferry_fuzz::fuzz("fuzz_rapidio_commands", &seeds, |bytes| {
            let event = CardEvent::decode(bytes).is_some();
            Command::decode(bytes).map_or(event, |c| c.kind() <= kind::FORGET)
        });
    }
}
