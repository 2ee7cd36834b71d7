//! The receiving half of a card: input buffer, dedicated queues, general queue.

use super::packet::{LETTERS, Message, Segment};
use crate::rapidio::command::{Physical, Piece, QueueId, SEGMENT_MAX_BYTES};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// A dedicated queue: its place in [`Receiver::queues`], its use, and the message's number in
    /// it.
    Queue(u8, u64, usize),
    /// A buffer of the general queue.
    General,
}

/// A message that is coming.
#[derive(Debug)]
struct Assembly {
    target: Target,
    /// Segments that have come, a bit each.
    present: u16,
    /// All of it, once it is whole.
    whole: Option<Segment>,
}

/// The messages of one node with one mailbox number.
#[derive(Debug, Default)]
struct Stream {
    /// Number of the oldest message in `assemblies`.
    base: u64,
    /// In order of their numbers.
    assemblies: VecDeque<Assembly>,
}

/// A dedicated queue that is open.
#[derive(Debug)]
pub struct OpenQueue {
    /// The node whose messages it takes.
    pub from: u32,
    /// Their mailbox number.
    pub mailbox: u8,
    /// Their buffers.
    pub pieces: Vec<Piece>,
    /// Tells this use of the queue from others.
    order: u64,
    /// Messages that have been given a buffer.
    pub assigned: usize,
    /// Messages that are whole.
    pub landed: usize,
}

/// What the receiver does with a segment that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// There is no room: the sender sends it again.
    Refused,
    /// The input buffer takes it.
    Accepted,
    /// The input buffer takes it. Its message has a mailbox that is not 0 and no dedicated queue
    /// open for it, so it goes to the general queue.
    Stray,
}

/// Something for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Bytes go to memory.
    Deposit(Physical, Vec<u8>),
    /// A last segment that came first goes to memory. Address, bytes, and what is wrong if it goes
    /// beyond the buffer.
    Misplaced(Physical, Vec<u8>, Option<String>),
    /// A message is in the general queue. `from`, mailbox, bytes.
    Unexpected(u32, u8, Vec<u8>),
    /// A dedicated queue is complete and closed.
    Received(QueueId),
    /// A message does not have the size that its queue is programmed for.
    Mismatch(String),
}

/// The receiving half of a card.
#[derive(Debug)]
pub struct Receiver {
    /// Segments that the input buffer can take.
    input_free: u32,
    /// Buffers of the general queue that the card has.
    general_free: u32,
    alignment: u64,
    queues: Vec<Option<OpenQueue>>,
    streams: FxHashMap<(u32, u8), Stream>,
    next_order: u64,
    /// Nodes that the driver has forgotten.
    forgotten: BTreeSet<u32>,
}

impl Receiver {
    /// A card's receiving half with these numbers of dedicated queues, general buffers and
    /// segments of the input buffer.
    pub fn new(queues: u32, general: u32, input: u32, alignment: u64) -> Receiver {
        Receiver {
            input_free: input,
            general_free: general,
            alignment,
            queues: (0..queues).map(|_| None).collect(),
            streams: FxHashMap::default(),
            next_order: 0,
            forgotten: BTreeSet::new(),
        }
    }

    /// Closes the dedicated queues for a node. What comes for them goes nowhere.
    pub fn forget(&mut self, node: u32) {
        self.forgotten.insert(node);
        for queue in &mut self.queues {
            queue.take_if(|q| q.from == node);
        }
    }

    /// Opens a dedicated queue. Returns false if there is none of this number.
    pub fn open(&mut self, queue: QueueId, from: u32, mailbox: u8, pieces: Vec<Piece>) -> bool {
        let order = self.next_order;
        let Some(place) = self.queues.get_mut(usize::from(queue.0)) else {
            return false;
        };
        self.next_order += 1;
        *place = Some(OpenQueue {
            from,
            mailbox,
            pieces,
            order,
            assigned: 0,
            landed: 0,
        });
        true
    }

    /// The dedicated queues that are open.
    pub fn open_queues(&self) -> impl Iterator<Item = (QueueId, &OpenQueue)> {
        let numbered = (0..).map(QueueId).zip(&self.queues);
        numbered.filter_map(|(id, q)| Some((id, q.as_ref()?)))
    }

    /// The driver hands general buffers back.
    pub fn release(&mut self, buffers: u32) {
        self.general_free += buffers;
    }

    /// Buffers of the general queue that the card has.
    pub fn general_free(&self) -> u32 {
        self.general_free
    }

    /// A segment arrives.
    pub fn accept(&mut self, segment: &Segment) -> Acceptance {
        if self.input_free == 0 {
            return Acceptance::Refused;
        }
        let message = &segment.message;
        let key = (message.from, message.mailbox);
        let stream = self.streams.entry(key).or_default();
        let place = place(stream.base, message.letter);
        let mut is_stray = false;
        // Messages are given buffers in their order, also those that have not come.
        while stream.assemblies.len() <= place {
            let open = (0..).zip(&mut self.queues).filter_map(|(n, queue)| {
                let queue = queue.as_mut()?;
                let fits =
                    (queue.from, queue.mailbox) == key && queue.assigned < queue.pieces.len();
                fits.then_some((queue.order, n, queue))
            });
            let target = match open.min_by_key(|(order, ..)| *order) {
                Some((order, n, queue)) => {
                    queue.assigned += 1;
                    Target::Queue(n, order, queue.assigned - 1)
                }
                None if self.general_free > 0 => {
                    self.general_free -= 1;
                    is_stray |= message.mailbox != 0 && !self.forgotten.contains(&message.from);
                    Target::General
                }
                None => return Acceptance::Refused,
            };
            stream.assemblies.push_back(Assembly {
                target,
                present: 0,
                whole: None,
            });
        }
        self.input_free -= 1;
        match is_stray {
            true => Acceptance::Stray,
            false => Acceptance::Accepted,
        }
    }

    /// A segment leaves the input buffer for memory. Returns what follows, in order.
    pub fn drain(&mut self, segment: &Segment) -> Vec<Delivery> {
        self.input_free += 1;
        let mut deliveries = Vec::new();
        if self.assemble(segment, &mut deliveries).is_some() {
            self.deliver_in_order(&segment.message, &mut deliveries);
        }
        deliveries
    }

    /// Adds a segment to its message. A whole message goes to memory if it has a dedicated queue.
    /// `None`: the message is not known.
    fn assemble(&mut self, segment: &Segment, deliveries: &mut Vec<Delivery>) -> Option<()> {
        let message = &segment.message;
        let stream = self.streams.get_mut(&(message.from, message.mailbox))?;
        let place = place(stream.base, message.letter);
        let assembly = stream.assemblies.get_mut(place)?;
        let is_first = assembly.present == 0;
        assembly.present |= 1 << segment.number;
        let buffer = match assembly.target {
            Target::Queue(n, order, number) => {
                let queue = self.queues[usize::from(n)].as_mut();
                queue
                    .filter(|q| q.order == order)
                    .map(|q| (QueueId(n), number, q))
            }
            Target::General => None,
        };
        let aligned = |at: Physical| Physical(at.0 & !(self.alignment - 1));
        if let Some((id, number, queue)) = &buffer
            && is_first
        {
            let piece = queue.pieces[*number];
            deliveries.extend(mismatch(segment, *id, *number, piece));
            deliveries.extend(misplaced(segment, *id, *number, piece, aligned(piece.at)));
        }
        if assembly.present.count_ones() == u32::from(message.segments()) {
            assembly.whole = Some(segment.clone());
            if let Some((id, number, queue)) = buffer {
                let piece = queue.pieces[number];
                let bytes = message.data.len().min(piece.bytes.into());
                let data = message.data[..bytes].to_vec();
                deliveries.push(Delivery::Deposit(aligned(piece.at), data));
                queue.landed += 1;
                if queue.landed == queue.pieces.len() {
                    self.queues[usize::from(id.0)] = None;
                    deliveries.push(Delivery::Received(id));
                }
            }
        }
        Some(())
    }

    /// The whole messages at the head of the stream of `message` leave, in their order. Those
    /// without a dedicated queue go to the general one.
    fn deliver_in_order(&mut self, message: &Message, deliveries: &mut Vec<Delivery>) {
        let Some(stream) = self.streams.get_mut(&(message.from, message.mailbox)) else {
            return;
        };
        while let Some(assembly) = stream.assemblies.front()
            && let Some(whole) = &assembly.whole
        {
            if assembly.target == Target::General {
                let message = &whole.message;
                let data = message.data.clone();
                deliveries.push(Delivery::Unexpected(message.from, message.mailbox, data));
            }
            stream.base += 1;
            stream.assemblies.pop_front();
        }
    }
}

/// What is wrong if the message of this segment does not have the size of its buffer, `piece`, the
/// one with this number in the queue.
fn mismatch(segment: &Segment, id: QueueId, number: usize, piece: Piece) -> Option<Delivery> {
    let message = &segment.message;
    (usize::from(piece.bytes) != message.data.len()).then(|| {
        Delivery::Mismatch(format!(
            "message {number} of dedicated queue {} has {} bytes, and node {} has sent {}",
            id.0,
            piece.bytes,
            message.from,
            message.data.len()
        ))
    })
}

/// Where a segment goes that is its message's first to come and the message's last. Nothing tells
/// the segments' size yet: the card takes the full one. `start`: where the card writes the message.
fn misplaced(
    segment: &Segment,
    id: QueueId,
    number: usize,
    piece: Piece,
    start: Physical,
) -> Option<Delivery> {
    if segment.number == 0 || !segment.is_last() {
        return None;
    }
    let offset = usize::from(segment.number) * SEGMENT_MAX_BYTES;
    let bytes = segment.bytes();
    let beyond = offset + bytes.len() > usize::from(piece.bytes);
    let what = beyond.then(|| {
        format!(
            "the last segment of message {number} of dedicated queue {} came first and was \
             written at byte {offset}, beyond a buffer of {} bytes that is not rounded up to \
             {SEGMENT_MAX_BYTES}",
            id.0, piece.bytes
        )
    });
    let at = start.plus(offset as u64);
    Some(Delivery::Misplaced(at, bytes.to_vec(), what))
}

/// Place of the message with this letter among those of its stream that are coming.
fn place(base: u64, letter: u8) -> usize {
    ((u64::from(letter) + LETTERS - base % LETTERS) % LETTERS) as usize
}
