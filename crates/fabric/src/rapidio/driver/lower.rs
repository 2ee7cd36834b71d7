//! The driver's lower level: the paper's three functions, and NREAD, NWRITE and doorbells. Nothing
//! else in the driver touches the card.

use super::physical::PhysicalMemory;
use crate::kernel::{Client, Event, Rank};
use crate::rapidio::command::{
    CardEvent, Command, MESSAGE_MAX_BYTES, Physical, Piece, QueueId, SEGMENT_MAX_BYTES,
    SEND_MESSAGES_MAX, SendId,
};
use crate::rapidio::figures::Figures;
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
    /// Returns whether the rank has slept until its card's interrupt since this was last asked.
    fn take_waited(&mut self) -> bool {
        false
    }
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
    fn take_waited(&mut self) -> bool {
        Client::take_waited(self)
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
    /// The dedicated queues for a node are closed, and may be opened again.
    Forgotten {
        /// The node.
        node: Rank,
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

    /// Opens or closes a segment of this node's window for NREAD and NWRITE of other nodes: where
    /// it begins, from the window's beginning, and its bytes.
    fn segment(&mut self, c: &mut dyn Host, offset: u64, bytes: u64, opens: bool);

    /// Closes the dedicated queues for a node that is lost, and drops what is sent to it: each such
    /// send ends by [`LowerEvent::Sent`]. [`LowerEvent::Forgotten`] comes when the queues are
    /// closed. From now on nothing is written to their buffers.
    fn forget(&mut self, c: &mut dyn Host, node: Rank);

    /// The node's physical memory.
    fn memory(&mut self) -> &mut PhysicalMemory;
}

/// A dedicated queue.
enum Queue {
    Closed,
    Open {
        from: Rank,
        pieces: Vec<Piece>,
    },
    /// Until the card has closed it, what it writes to these buffers is dropped: they may be in
    /// other use. None of its other queues can have them before.
    Closing {
        from: Rank,
        pieces: Vec<Piece>,
    },
}

/// The lower level on a RapidIO controller.
pub struct LowerLevel {
    f: Figures,
    memory: PhysicalMemory,
    /// Sends that are not accepted: entries of the send list in use.
    unaccepted: u32,
    /// The dedicated queues.
    queues: Vec<Queue>,
}

impl LowerLevel {
    /// The lower level of a card with these figures.
    pub fn new(f: &Figures) -> LowerLevel {
        LowerLevel {
            f: f.clone(),
            memory: PhysicalMemory::new(),
            unaccepted: 0,
            queues: (0..f.queues.value.0).map(|_| Queue::Closed).collect(),
        }
    }

    /// Address at which the card begins: it drops the low bits.
    fn aligned(&self, at: Physical) -> Physical {
        Physical(at.0 & !(self.f.alignment.value.0 - 1))
    }

    /// Returns whether bytes at this address belong to a queue that is being closed.
    fn is_closing(&self, at: Physical) -> bool {
        self.queues.iter().any(|queue| {
            let Queue::Closing { pieces, .. } = queue else {
                return false;
            };
            let mut pieces = pieces.iter();
            pieces.any(|p| (p.at..p.at.plus(p.bytes.into())).contains(&at))
        })
    }

    fn issue(&self, c: &mut dyn Host, command: &Command<'_>) {
        c.command(command.kind(), &command.encode());
    }

    /// The bytes of these messages as the card reads them.
    fn load(&mut self, c: &mut dyn Host, pieces: &[Piece]) -> Vec<u8> {
        let mut data = Vec::with_capacity(pieces.iter().map(|p| usize::from(p.bytes)).sum());
        for piece in pieces {
            let at = self.aligned(piece.at);
            let start = data.len();
            data.resize(start + usize::from(piece.bytes), 0);
            if self.memory.read(at, &mut data[start..]).is_err() {
                let bytes = piece.bytes.into();
                let reads = true;
                self.issue(c, &Command::Fault { reads, at, bytes });
            }
        }
        data
    }
}

impl Lower for LowerLevel {
    fn limits(&self) -> LowerLimits {
        let f = &self.f;
        LowerLimits {
            mailboxes: f.mailboxes.value.0.min(255) as u8,
            queues: f.queues.value.0 as u8,
            message_max: MESSAGE_MAX_BYTES,
            segment_max: SEGMENT_MAX_BYTES,
            alignment: f.alignment.value.0,
            expect_max: f.list.value.0 as usize,
            send_max: f.walk.value.0 as usize,
            io_max: f.io.value.0 as usize,
        }
    }

    fn send(
        &mut self,
        c: &mut dyn Host,
        to: Rank,
        mailbox: u8,
        pieces: &[Piece],
        id: SendId,
    ) -> bool {
        if self.unaccepted >= self.f.sends.value.0 {
            return false;
        }
        self.unaccepted += 1;
        let cost = self.f.instructions(&self.f.instructions_send);
        c.charge("lower level: send", cost);
        let groups = pieces.len().div_ceil(SEND_MESSAGES_MAX);
        for (n, pieces) in pieces.chunks(SEND_MESSAGES_MAX).enumerate() {
            let data = self.load(c, pieces);
            let command = Command::Send {
                to,
                mailbox,
                id: (n + 1 == groups).then_some(id),
                pieces: pieces.to_vec(),
                data: &data,
            };
            self.issue(c, &command);
        }
        true
    }

    fn receive(&mut self, c: &mut dyn Host) -> Option<LowerEvent> {
        while let Some(event) = c.event() {
            let completion = self.f.instructions(&self.f.instructions_completion);
            let io = self.f.instructions(&self.f.instructions_io);
            let event = CardEvent::decode(&event.bytes)?;
            if event.interrupts() && c.take_waited() {
                c.charge("lower level: interrupt and waking", self.f.report.value);
            }
            match event {
                CardEvent::Deposit { at, .. } if self.is_closing(at) => {}
                CardEvent::Deposit { at, data } => {
                    if self.memory.write(at, data).is_err() {
                        let (reads, bytes) = (false, data.len() as u32);
                        self.issue(c, &Command::Fault { reads, at, bytes });
                    }
                }
                CardEvent::Unexpected {
                    from,
                    mailbox,
                    data,
                } => {
                    let cost = self.f.instructions(&self.f.instructions_unexpected);
                    c.charge("lower level: receive unexpected", cost);
                    self.issue(c, &Command::Release { buffers: 1 });
                    return Some(LowerEvent::Unexpected {
                        from,
                        mailbox,
                        bytes: data.to_vec(),
                    });
                }
                CardEvent::Received { queue } => {
                    c.charge("lower level: completion", completion);
                    // The last message of one that is being closed has come before that.
                    let place = &mut self.queues[usize::from(queue.0)];
                    if matches!(place, Queue::Open { .. }) {
                        *place = Queue::Closed;
                        return Some(LowerEvent::Received { queue });
                    }
                }
                CardEvent::Forgotten { node } => {
                    c.charge("lower level: completion", completion);
                    for queue in &mut self.queues {
                        if matches!(queue, Queue::Closing { from, .. } if *from == node) {
                            *queue = Queue::Closed;
                        }
                    }
                    return Some(LowerEvent::Forgotten { node });
                }
                CardEvent::Sent { id } => {
                    c.charge("lower level: completion", completion);
                    self.unaccepted -= 1;
                    return Some(LowerEvent::Sent { id });
                }
                CardEvent::Doorbell { from, info } => {
                    c.charge("lower level: doorbell", io);
                    return Some(LowerEvent::Doorbell { from, info });
                }
                CardEvent::Read { id, data } => {
                    // A load has waited, and nothing has slept.
                    c.take_waited();
                    let bytes = data.to_vec();
                    return Some(LowerEvent::Read { id, bytes });
                }
            }
        }
        None
    }

    fn expect(
        &mut self,
        c: &mut dyn Host,
        queue: QueueId,
        from: Rank,
        mailbox: u8,
        pieces: &[Piece],
    ) -> bool {
        let Some(place @ Queue::Closed) = self.queues.get_mut(usize::from(queue.0)) else {
            return false;
        };
        let pieces = pieces.to_vec();
        *place = Queue::Open {
            from,
            pieces: pieces.clone(),
        };
        let f = &self.f;
        let messages = f.instructions(&f.instructions_piece) * pieces.len() as u64;
        let cost = f.instructions(&f.instructions_expect) + messages;
        c.charge("lower level: expect", cost);
        let command = Command::Expect {
            queue,
            from,
            mailbox,
            pieces,
        };
        self.issue(c, &command);
        true
    }

    fn doorbell(&mut self, c: &mut dyn Host, to: Rank, info: u16) {
        c.charge(
            "lower level: doorbell",
            self.f.instructions(&self.f.instructions_io),
        );
        self.issue(c, &Command::Doorbell { to, info });
    }

    fn write(&mut self, c: &mut dyn Host, to: Rank, at: Physical, data: &[u8]) {
        c.charge(
            "lower level: NWRITE",
            self.f.instructions(&self.f.instructions_io),
        );
        self.issue(c, &Command::Write { to, at, data });
    }

    fn read(&mut self, c: &mut dyn Host, from: Rank, at: Physical, bytes: u16, id: SendId) {
        c.charge(
            "lower level: NREAD",
            self.f.instructions(&self.f.instructions_io),
        );
        let read = Command::Read {
            from,
            at,
            bytes,
            id,
        };
        self.issue(c, &read);
    }

    fn segment(&mut self, c: &mut dyn Host, offset: u64, bytes: u64, opens: bool) {
        c.charge(
            "lower level: segments of the window",
            self.f.instructions(&self.f.instructions_io),
        );
        let segment = Command::Segment {
            offset,
            bytes,
            opens,
        };
        self.issue(c, &segment);
    }

    fn forget(&mut self, c: &mut dyn Host, node: Rank) {
        let cost = self.f.instructions(&self.f.instructions_expect);
        c.charge("lower level: forget", cost);
        for queue in &mut self.queues {
            if let Queue::Open { from, pieces } = queue
                && *from == node
            {
                let (from, pieces) = (*from, std::mem::take(pieces));
                *queue = Queue::Closing { from, pieces };
            }
        }
        self.issue(c, &Command::Forget { node });
    }

    fn memory(&mut self) -> &mut PhysicalMemory {
        &mut self.memory
    }
}
