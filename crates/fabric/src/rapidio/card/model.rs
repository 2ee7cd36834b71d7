//! All cards of a job and the network between them, driven by the kernel of virtual time.

use super::checker::{Programming, incomplete};
use super::packet::{Message, Payload, Segment};
use super::receiver::{Acceptance, Delivery, Receiver};
use super::segments::OpenSegments;
use super::sender::{Listed, Sender};
use super::stats::{CardStats, percentage};
use crate::kernel::{InvalidCommand, Kernel, Model, Observers, Rank, Track};
use crate::network::{Network, Packet};
use crate::platform::Platform;
use crate::rapidio::command::{CardEvent, Command, MESSAGE_MAX_BYTES, Physical, WINDOW_AT, kind};
use crate::rapidio::figures::Figures;
use crate::time::{Rate, Time};
use std::sync::Arc;

/// What the cards schedule.
#[derive(Debug)]
pub enum ModelEvent {
    /// A node's card takes the next message of its send list.
    Take(u32),
    /// A message is ready: its segments go onto the link.
    Emit(Arc<Message>),
    /// A packet comes to a link, or arrives.
    Hop(Packet<Payload>),
    /// A segment leaves the input buffer of the node that it is for.
    Drain(Segment),
    /// A segment that was refused is sent again.
    Resend(Segment),
}

/// A node's card.
struct Card {
    sender: Sender,
    receiver: Receiver,
    segments: OpenSegments,
    /// When the input buffer is empty.
    drained: Time,
    /// State of the generator of refusals.
    random: u64,
    stats: CardStats,
}

/// All cards of a job.
pub struct Cards {
    start: Time,
    retry: Time,
    drain: Rate,
    header: u64,
    response: u64,
    io_header: u64,
    /// Bytes of the window.
    window: u64,
    /// A segment is refused if 53 random bits are below this.
    refuse: u64,
    programming: Programming,
    /// Bad programming ends the job (`--machine-check`).
    check: bool,
    cards: Vec<Card>,
    network: Network,
}

impl Cards {
    /// The cards of a machine for `ranks` ranks. With `check`, bad programming ends the job.
    pub fn new(platform: &Platform, f: &Figures, ranks: u32, check: bool) -> Cards {
        let card = |node: u32| Card {
            sender: Sender::default(),
            receiver: Receiver::new(
                f.queues.value.0,
                f.general.value.0,
                f.input.value.0,
                f.alignment.value.0,
            ),
            segments: OpenSegments::default(),
            drained: Time::ZERO,
            random: 0x9e37_79b9_7f4a_7c15 ^ u64::from(node + 1),
            stats: CardStats::default(),
        };
        Cards {
            start: f.start.value,
            retry: f.retry.value,
            drain: f.drain.value,
            header: f.header.value.0,
            response: f.response.value.0,
            io_header: f.io_header.value.0,
            window: f.window.value.0,
            refuse: (f.refuse.unwrap_or(0.0) * (1u64 << 53) as f64) as u64,
            programming: Programming {
                alignment: f.alignment.value.0,
                mailboxes: f.mailboxes.value.0,
                list: f.list.value.0 as usize,
                io: f.io.value.0 as usize,
            },
            check,
            cards: (0..ranks).map(card).collect(),
            network: Network::new(&platform.network, ranks),
        }
    }

    /// The links' names.
    pub fn links(&self) -> Vec<String> {
        self.network.names()
    }

    /// What each card has done.
    pub fn stats(&self) -> Vec<CardStats> {
        self.cards.iter().map(|c| c.stats).collect()
    }

    /// Messages of a node that are not accepted whole, its open queues, and the general buffers
    /// that its card has.
    pub fn unfinished(&self, node: Rank) -> (usize, usize, u32) {
        let card = &self.cards[node as usize];
        (
            card.sender.unfinished(),
            card.receiver.open_queues().count(),
            card.receiver.general_free(),
        )
    }

    /// Tells the job's user what `rank`'s driver got wrong, and ends the job, if it is checked.
    fn reject(&self, rank: Rank, call: &str, what: &str, kernel: &mut Kernel<ModelEvent>) {
        if self.check {
            kernel.fail(format!("rank {rank}, lower level, {call}: {what}"));
        }
    }

    /// The card of `node` has an event for its driver.
    fn notify(&self, node: Rank, event: CardEvent<'_>, kernel: &mut Kernel<ModelEvent>) {
        kernel.notify(node, 0, &[&event.encode()]);
    }

    /// Puts a packet onto its first link. Returns when it has left the card.
    fn transmit(
        &mut self,
        (from, to): (u32, u32),
        bytes: u64,
        payload: Payload,
        kernel: &mut Kernel<ModelEvent>,
    ) -> Time {
        let now = kernel.now();
        let wrap = ModelEvent::Hop;
        self.network
            .send(kernel, now, (from, to), (from, bytes), payload, wrap)
    }

    fn transmit_segment(&mut self, segment: Segment, kernel: &mut Kernel<ModelEvent>) -> Time {
        let nodes = (segment.message.from, segment.message.to);
        let bytes = segment.bytes().len() as u64 + self.header;
        self.cards[nodes.0 as usize].stats.segments += 1;
        self.transmit(nodes, bytes, Payload::Segment(segment), kernel)
    }

    /// The card of `node` begins with the next message, if it has one and is idle.
    fn begin(&mut self, node: u32, kernel: &mut Kernel<ModelEvent>) {
        let sender = &mut self.cards[node as usize].sender;
        if sender.is_busy {
            return;
        }
        if let Some(message) = sender.take(node) {
            sender.is_busy = true;
            kernel.schedule_after(self.start, node, ModelEvent::Emit(message));
        }
    }

    fn emit(&mut self, message: Arc<Message>, kernel: &mut Kernel<ModelEvent>) {
        let node = message.from;
        let mut left = kernel.now();
        for number in 0..message.segments() {
            let message = message.clone();
            left = self.transmit_segment(Segment { message, number }, kernel);
        }
        let stats = &mut self.cards[node as usize].stats;
        stats.messages += 1;
        stats.bytes += message.data.len() as u64;
        stats.busy += left - kernel.now();
        if kernel.is_traced() {
            let (to, bytes) = (message.to, message.data.len());
            let name = format!("sends {bytes} B to node {to}, mailbox {}", message.mailbox);
            kernel.span(Track::Card(node), &name, kernel.now(), left);
        }
        kernel.schedule_at(left, node, ModelEvent::Take(node));
    }

    /// Returns whether the generator of refusals refuses the next segment.
    fn is_refused(&mut self, node: u32) -> bool {
        if self.refuse == 0 {
            return false;
        }
        // Xorshift, George Marsaglia, 2003.
        let x = &mut self.cards[node as usize].random;
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        (*x >> 11) < self.refuse
    }

    fn on_segment(&mut self, segment: Segment, kernel: &mut Kernel<ModelEvent>) {
        let (from, to) = (segment.message.from, segment.message.to);
        let refused = self.is_refused(to);
        let card = &mut self.cards[to as usize];
        let acceptance = match refused {
            true => Acceptance::Refused,
            false => card.receiver.accept(&segment),
        };
        if acceptance != Acceptance::Refused {
            let bytes = segment.bytes().len() as u64;
            card.drained = card.drained.max(kernel.now()) + self.drain.time_of(bytes);
            kernel.schedule_at(card.drained, to, ModelEvent::Drain(segment.clone()));
        } else {
            card.stats.refused += 1;
            let payload = Payload::Response {
                segment: segment.clone(),
                accepted: false,
            };
            self.transmit((to, from), self.response, payload, kernel);
        }
        if acceptance == Acceptance::Stray {
            let what = format!(
                "a message with mailbox {} came to node {to}, where no dedicated queue takes it: \
                 more messages than the queue is programmed for, or none is open",
                segment.message.mailbox
            );
            self.reject(from, "send", &what, kernel);
        }
    }

    fn on_response(&mut self, segment: Segment, accepted: bool, kernel: &mut Kernel<ModelEvent>) {
        let node = segment.message.from;
        let sender = &self.cards[node as usize].sender;
        if sender.is_forgotten(segment.message.to) {
            return;
        }
        if !accepted {
            kernel.schedule_after(self.retry, node, ModelEvent::Resend(segment));
            return;
        }
        let (done, freed) = self.cards[node as usize].sender.accepted(&segment);
        for id in done {
            self.notify(node, CardEvent::Sent { id }, kernel);
        }
        if freed {
            self.begin(node, kernel);
        }
    }

    fn on_drain(&mut self, segment: Segment, kernel: &mut Kernel<ModelEvent>) {
        let node = segment.message.to;
        let card = &mut self.cards[node as usize];
        for delivery in card.receiver.drain(&segment) {
            match delivery {
                Delivery::Deposit(at, data) => self.deposit(node, at, &data, kernel),
                Delivery::Misplaced(at, data, what) => {
                    self.cards[node as usize].stats.misplaced += 1;
                    if let Some(what) = what {
                        self.reject(node, "expect", &what, kernel);
                    }
                    self.deposit(node, at, &data, kernel);
                }
                Delivery::Unexpected(from, mailbox, data) => {
                    self.cards[node as usize].stats.unexpected += 1;
                    let data = &data[..];
                    let event = CardEvent::Unexpected {
                        from,
                        mailbox,
                        data,
                    };
                    self.notify(node, event, kernel);
                }
                Delivery::Received(queue) => {
                    self.cards[node as usize].stats.queues += 1;
                    self.notify(node, CardEvent::Received { queue }, kernel);
                }
                Delivery::Mismatch(what) => self.reject(node, "expect", &what, kernel),
            }
        }
        // Sent now and not before: the letter is free again once the message is in memory.
        let nodes = (node, segment.message.from);
        let accepted = true;
        let payload = Payload::Response { segment, accepted };
        self.transmit(nodes, self.response, payload, kernel);
    }

    /// The card of `node` writes to memory.
    fn deposit(&self, node: u32, at: Physical, data: &[u8], kernel: &mut Kernel<ModelEvent>) {
        kernel.post(node, 0, &[&CardEvent::Deposit { at, data }.encode()]);
    }

    fn arrive(&mut self, payload: Payload, kernel: &mut Kernel<ModelEvent>) {
        match payload {
            Payload::Segment(segment) => self.on_segment(segment, kernel),
            Payload::Response { segment, accepted } => {
                self.on_response(segment, accepted, kernel);
            }
            Payload::Doorbell { from, to, info } => {
                let event = CardEvent::Doorbell { from, info };
                self.notify(to, event, kernel);
            }
            Payload::Write { from, to, at, data } => {
                if at < WINDOW_AT {
                    return self.deposit(to, at, &data, kernel);
                }
                match self.cards[to as usize].segments.find(at, data.len()) {
                    Some(offset) => kernel.write(to, offset, &data),
                    None => kernel.fail(outside("write", from, to, at, data.len())),
                }
            }
            Payload::Read {
                from,
                to,
                at,
                bytes,
                id,
            } => {
                let segments = &self.cards[to as usize].segments;
                let Some(offset) = segments.find(at, bytes.into()) else {
                    kernel.fail(outside("read", from, to, at, bytes.into()));
                    return;
                };
                let mut data = vec![0; bytes.into()];
                kernel.read(to, offset, &mut data);
                let data: Arc<[u8]> = data.into();
                let answer = Payload::Answer { to: from, id, data };
                let bytes = u64::from(bytes) + self.io_header;
                self.transmit((to, from), bytes, answer, kernel);
            }
            Payload::Answer { to, id, data } => {
                let event = CardEvent::Read { id, data: &data };
                self.notify(to, event, kernel);
            }
        }
    }

    /// Appends messages to a card's send list.
    fn list(
        &mut self,
        node: u32,
        command: Command<'_>,
        kernel: &mut Kernel<ModelEvent>,
    ) -> Result<(), InvalidCommand> {
        let Command::Send {
            to,
            mailbox,
            id,
            pieces,
            mut data,
        } = command
        else {
            return Ok(());
        };
        let last = pieces.len().saturating_sub(1);
        if self.cards[node as usize].sender.is_forgotten(to) {
            if let Some(id) = id {
                self.notify(node, CardEvent::Sent { id }, kernel);
            }
            return Ok(());
        }
        for (n, piece) in pieces.iter().enumerate() {
            let Some((own, rest)) = data.split_at_checked(piece.bytes.into()) else {
                return Err(InvalidCommand("a send without its bytes"));
            };
            if own.is_empty() || own.len() > MESSAGE_MAX_BYTES {
                return Err(InvalidCommand("a message that is empty or too long"));
            }
            data = rest;
            self.cards[node as usize].sender.append(Listed {
                to,
                mailbox,
                id: id.filter(|_| n == last),
                data: own.to_vec(),
            });
        }
        self.begin(node, kernel);
        Ok(())
    }
}

/// The text for an NREAD or NWRITE that reaches no open segment. It ends the job, checked or not.
fn outside(call: &str, from: u32, to: u32, at: Physical, bytes: usize) -> String {
    format!(
        "rank {from}, lower level, {call}: {bytes} bytes at physical address {:#x} of node {to} \
         are in no segment of its window that is open",
        at.0
    )
}

/// The text for an access to memory that nobody has registered. It ends the job, checked or not.
fn unregistered(node: u32, call: &str, at: Physical, bytes: u32) -> String {
    format!(
        "rank {node}, lower level, {call}: its card reached for {bytes} bytes at physical address \
         {:#x}, which are not registered",
        at.0
    )
}

impl Cards {
    /// The card of `from` forgets what it has of `node`. Its sends to there count as sent.
    fn forget(&mut self, from: Rank, node: Rank, kernel: &mut Kernel<ModelEvent>) {
        let card = &mut self.cards[from as usize];
        card.receiver.forget(node);
        for id in card.sender.forget(node) {
            self.notify(from, CardEvent::Sent { id }, kernel);
        }
        self.notify(from, CardEvent::Forgotten { node }, kernel);
        self.begin(from, kernel);
    }

    /// A command of `from` that is one packet: a doorbell, a write, or the request of a read.
    fn start_packet(&mut self, from: Rank, command: Command, kernel: &mut Kernel<ModelEvent>) {
        let stats = &mut self.cards[from as usize].stats;
        let (to, bytes, payload) = match command {
            Command::Doorbell { to, info } => {
                stats.doorbells += 1;
                (to, self.response, Payload::Doorbell { from, to, info })
            }
            Command::Write { to, at, data } => {
                stats.io += 1;
                let bytes = data.len() as u64 + self.io_header;
                let data = data.into();
                (to, bytes, Payload::Write { from, to, at, data })
            }
            Command::Read {
                from: to,
                at,
                bytes,
                id,
            } => {
                stats.io += 1;
                let read = Payload::Read {
                    from,
                    to,
                    at,
                    bytes,
                    id,
                };
                (to, self.io_header, read)
            }
            _ => return,
        };
        self.transmit((from, to), bytes, payload, kernel);
    }
}

impl Model for Cards {
    type Event = ModelEvent;

    fn command(
        &mut self,
        from: Rank,
        _kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<ModelEvent>,
    ) -> Result<(), InvalidCommand> {
        let command = Command::decode(bytes).ok_or(InvalidCommand("words that are no command"))?;
        if command
            .other_node()
            .is_some_and(|node| node >= kernel.ranks())
        {
            return Err(InvalidCommand("a command for a node that is not there"));
        }
        let card = &mut self.cards[from as usize];
        let call = command.call();
        if let Some(what) = self.programming.check(&command, &card.receiver) {
            self.reject(from, call, &what, kernel);
        }
        let card = &mut self.cards[from as usize];
        match command {
            Command::Send { .. } => return self.list(from, command, kernel),
            Command::Expect {
                queue,
                from: sender,
                mailbox,
                pieces,
            } => {
                let is_known = !pieces.is_empty();
                if !is_known || !card.receiver.open(queue, sender, mailbox, pieces) {
                    return Err(InvalidCommand("a dedicated queue that there is not"));
                }
            }
            Command::Release { buffers } => card.receiver.release(buffers.into()),
            Command::Segment {
                offset,
                bytes,
                opens,
            } => {
                let is_known = match opens {
                    true => card.segments.open(offset, bytes, self.window),
                    false => card.segments.close(offset, bytes),
                };
                if !is_known {
                    return Err(InvalidCommand("a segment that there is not"));
                }
            }
            Command::Forget { node } => self.forget(from, node, kernel),
            Command::Fault { at, bytes, .. } => kernel.fail(unregistered(from, call, at, bytes)),
            Command::Doorbell { .. } | Command::Write { .. } | Command::Read { .. } => {
                self.start_packet(from, command, kernel);
            }
        }
        Ok(())
    }

    fn event(&mut self, event: ModelEvent, kernel: &mut Kernel<ModelEvent>) {
        match event {
            ModelEvent::Take(node) => {
                self.cards[node as usize].sender.is_busy = false;
                self.begin(node, kernel);
            }
            ModelEvent::Emit(message) => self.emit(message, kernel),
            ModelEvent::Hop(packet) => {
                if let Some(payload) = self.network.forward(kernel, packet, ModelEvent::Hop) {
                    self.arrive(payload, kernel);
                }
            }
            ModelEvent::Drain(segment) => self.on_drain(segment, kernel),
            ModelEvent::Resend(segment) => {
                self.transmit_segment(segment, kernel);
            }
        }
    }

    fn deadlock(&self) -> Option<String> {
        let nodes = (0..).zip(&self.cards).filter(|_| self.check);
        let mut open = nodes.flat_map(|(node, card): (u32, _)| {
            card.receiver.open_queues().map(move |(id, queue)| {
                format!(
                    "rank {node}, lower level, expect: {}",
                    incomplete(id, queue)
                )
            })
        });
        open.next()
    }

    fn lookahead(&self) -> Time {
        self.network.latency()
    }

    fn response_time(&self, kind: u32) -> Time {
        let there_and_back = self.network.latency() * 2;
        match kind {
            // A send is reported when its segments have been accepted.
            kind::SEND => self.start + there_and_back,
            kind::READ => there_and_back,
            // These change what becomes of segments that are to arrive, and not when it is seen.
            kind::EXPECT | kind::RELEASE | kind::SEGMENT => Time::MAX,
            kind::DOORBELL | kind::WRITE => self.network.latency(),
            _ => Time::ZERO,
        }
    }

    fn observers(&self, event: &ModelEvent) -> Observers {
        match event {
            ModelEvent::Take(_) | ModelEvent::Emit(_) | ModelEvent::Resend(_) => Observers::Nobody,
            ModelEvent::Drain(segment) => Observers::Rank(segment.message.to, Time::ZERO),
            ModelEvent::Hop(packet) => match &packet.payload {
                Payload::Segment(segment) => {
                    let bytes = segment.bytes().len() as u64;
                    Observers::Rank(segment.message.to, self.drain.time_of(bytes))
                }
                Payload::Response { segment, .. } => {
                    Observers::Rank(segment.message.from, Time::ZERO)
                }
                Payload::Doorbell { to, .. }
                | Payload::Write { to, .. }
                | Payload::Read { to, .. }
                | Payload::Answer { to, .. } => Observers::Rank(*to, Time::ZERO),
            },
        }
    }

    fn usage(&self, duration: Time) -> Vec<(String, String)> {
        let used = (0..).zip(&self.cards);
        let used = used.filter(|(_, c)| c.stats != CardStats::default());
        let mut lines: Vec<_> = used
            .flat_map(|(node, card)| card.stats.lines(node, duration))
            .collect();
        for link in self.network.usage() {
            let line = format!(
                "{} packets, {} B, busy {:.1} %",
                link.packets,
                link.bytes,
                percentage(link.busy, duration)
            );
            lines.push((link.name, line));
        }
        lines
    }
}
