//! The cards of a machine: one engine in each that emits entry after entry, and what arrives.

use super::entry::{
    DONE, HEAD_BYTES, LOCAL, NOTICE_AT, NOTIFY, OPEN, PUT, SEGMENT, WAKE, WINDOW_AT, WRITTEN, head,
    parse,
};
use super::figures::Figures;
use crate::kernel::{InvalidCommand, Kernel, Model, Observers, Rank, Track};
use crate::network::{Network, Packet};
use crate::platform::Platform;
use crate::time::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// An entry of an LME, with its bytes.
pub struct Entry {
    from: Rank,
    to: Rank,
    flags: u8,
    address: u64,
    bytes: Vec<u8>,
}

/// What a packet carries. The last packet of an entry carries the entry, the others nothing.
pub type Payload = Option<Arc<Entry>>;

/// What cards schedule for themselves.
pub enum CardEvent {
    /// A node's engine takes its next entry.
    Emit(u32),
    /// An entry's last byte has left. The sender, and the entry's flags.
    Sent(Rank, u8),
    /// A packet comes to a link, or arrives.
    Hop(Packet<Payload>),
    /// An entry has been written to the receiver's memory.
    Written(Arc<Entry>),
}

/// The part of a card that emits entries.
#[derive(Default)]
struct Engine {
    queue: VecDeque<Entry>,
    /// It is at work on an entry.
    is_busy: bool,
    /// Entries emitted, and their bytes.
    entries: u64,
    bytes: u64,
    busy: Time,
}

/// All cards of a machine with remote write, and the network between them.
pub struct Card {
    emit: Time,
    gap: Time,
    arrive: Time,
    entry_max: usize,
    /// Latency of the memory that the processes of a node share. `None`: they use the card.
    memory_latency: Option<Time>,
    /// Ranks of a node.
    processes: u32,
    /// By node.
    engines: Vec<Engine>,
    network: Network,
    /// Bytes of a rank's window.
    window: u64,
    /// By rank: the segments of its window that are open, address and bytes.
    segments: Vec<Vec<(u64, u64)>>,
    /// Messages through the nodes' memory, and their bytes.
    local: (u64, u64),
}

impl Card {
    /// The cards of a machine for `ranks` ranks.
    pub fn new(platform: &Platform, f: &Figures, ranks: u32) -> Card {
        let nodes = platform.node_of(ranks - 1) + 1;
        Card {
            emit: f.emit.value,
            gap: Figures::or_zero(&f.gap),
            arrive: f.arrive.value,
            entry_max: f.entry.value.0.max(f.control.value.0) as usize,
            memory_latency: platform.memory.as_ref().map(|m| m.latency.value),
            processes: platform.processes(),
            engines: (0..nodes).map(|_| Engine::default()).collect(),
            network: Network::new(&platform.network, nodes),
            window: f.window_bytes(),
            segments: (0..ranks).map(|_| Vec::new()).collect(),
            local: (0, 0),
        }
    }

    /// The links' names.
    pub fn links(&self) -> Vec<String> {
        self.network.names()
    }

    /// Opens or closes a segment of a rank's window.
    fn set_segment(
        &mut self,
        rank: Rank,
        opens: bool,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), InvalidCommand> {
        let wrong = InvalidCommand("a segment that there is not");
        let bytes = u64::from_le_bytes(bytes.try_into().map_err(|_| wrong)?);
        let end = address.checked_add(bytes).ok_or(wrong)?;
        let segments = &mut self.segments[rank as usize];
        if opens {
            if address < WINDOW_AT || end > WINDOW_AT + self.window {
                return Err(wrong);
            }
            segments.push((address, bytes));
        } else {
            let open = segments.iter().position(|s| *s == (address, bytes));
            segments.swap_remove(open.ok_or(wrong)?);
        }
        Ok(())
    }

    /// Writes an entry into its receiver's window. Ends the job if it is not in an open segment.
    fn write_window(&self, entry: &Entry, kernel: &mut Kernel<CardEvent>) {
        let (at, bytes) = (entry.address, entry.bytes.len() as u64);
        let holds = |s: &(u64, u64)| {
            let end = at.checked_add(bytes);
            s.0 <= at && end.is_some_and(|end| end <= s.0 + s.1)
        };
        if self.segments[entry.to as usize].iter().any(holds) {
            return kernel.write(entry.to, (at - WINDOW_AT) as usize, &entry.bytes);
        }
        kernel.fail(format!(
            "rank {}, PUT: {bytes} bytes at physical address {at:#x} of rank {} are in no segment \
             of its window that is open",
            entry.from, entry.to
        ));
    }

    /// The engine of `node` takes its next entry.
    fn emit(&mut self, node: u32, kernel: &mut Kernel<CardEvent>) {
        let engine = &mut self.engines[node as usize];
        let Some(entry) = engine.queue.pop_front() else {
            engine.is_busy = false;
            return;
        };
        let now = kernel.now();
        let begins = now + self.emit;
        engine.entries += 1;
        engine.bytes += entry.bytes.len() as u64;
        let (from, to) = (entry.from, entry.to);
        let nodes = (node, to / self.processes);
        let flags = entry.flags;
        let size = entry.bytes.len() as u64;
        let entry = Arc::new(entry);
        let mut at = 0;
        let mut left = begins;
        loop {
            let piece = (size - at).min(self.network.packet_max());
            at += piece;
            let payload = (at == size).then(|| entry.clone());
            let sent = (from, piece);
            left = self
                .network
                .send(kernel, left, nodes, sent, payload, CardEvent::Hop);
            if at == size {
                break;
            }
        }
        let engine = &mut self.engines[node as usize];
        engine.busy += left - now;
        if kernel.is_traced() {
            let name = format!("emits {size} B to rank {to}");
            kernel.span(Track::Card(node), &name, now, left);
        }
        kernel.schedule_at(left, from, CardEvent::Sent(from, flags));
        kernel.schedule_at(left + self.gap, from, CardEvent::Emit(node));
    }
}

impl Model for Card {
    type Event = CardEvent;

    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<CardEvent>,
    ) -> Result<(), InvalidCommand> {
        let Some((to, flags, address, bytes)) = parse(bytes) else {
            return Err(InvalidCommand("a list entry that is too short"));
        };
        if kind == SEGMENT {
            return self.set_segment(from, flags & OPEN != 0, address, bytes);
        }
        if to >= kernel.ranks() || bytes.len() > self.entry_max {
            return Err(InvalidCommand(
                "a list entry for a rank that is not there, or too long",
            ));
        }
        let entry = Entry {
            from,
            to,
            flags,
            address,
            bytes: bytes.to_vec(),
        };
        let node = from / self.processes;
        match kind {
            PUT => {
                let engine = &mut self.engines[node as usize];
                engine.queue.push_back(entry);
                if !engine.is_busy {
                    engine.is_busy = true;
                    self.emit(node, kernel);
                }
            }
            LOCAL if to / self.processes == node => {
                self.local.0 += 1;
                self.local.1 += entry.bytes.len() as u64;
                let latency = self.memory_latency.unwrap_or(Time::ZERO);
                kernel.schedule_after(latency, from, CardEvent::Written(Arc::new(entry)));
                kernel.schedule_after(latency, from, CardEvent::Sent(from, flags));
            }
            _ => return Err(InvalidCommand("a command that there is not")),
        }
        Ok(())
    }

    fn event(&mut self, event: CardEvent, kernel: &mut Kernel<CardEvent>) {
        match event {
            CardEvent::Emit(node) => self.emit(node, kernel),
            CardEvent::Sent(rank, flags) if flags & WAKE != 0 => {
                kernel.notify(rank, DONE, &[&[WAKE]])
            }
            CardEvent::Sent(rank, _) => kernel.post(rank, DONE, &[&[0]]),
            CardEvent::Hop(packet) => {
                if let Some(Some(entry)) = self.network.forward(kernel, packet, CardEvent::Hop) {
                    kernel.schedule_after(self.arrive, entry.from, CardEvent::Written(entry));
                }
            }
            CardEvent::Written(entry) if (WINDOW_AT..NOTICE_AT).contains(&entry.address) => {
                self.write_window(&entry, kernel);
            }
            CardEvent::Written(entry) => {
                let head = head(entry.from, entry.flags, entry.address);
                let parts: [&[u8]; 2] = [&head, &entry.bytes];
                debug_assert!(head.len() == HEAD_BYTES);
                if entry.flags & NOTIFY != 0 {
                    kernel.notify(entry.to, WRITTEN, &parts);
                } else {
                    kernel.post(entry.to, WRITTEN, &parts);
                }
            }
        }
    }

    fn lookahead(&self) -> Time {
        let far = self.emit + self.arrive + self.network.latency();
        self.memory_latency.map_or(far, |near| near.min(far))
    }

    fn response_time(&self, kind: u32) -> Time {
        match (kind, self.memory_latency) {
            (PUT, _) => self.emit,
            (LOCAL, Some(near)) => near,
            // It changes what others may write.
            (SEGMENT, _) => Time::MAX,
            _ => Time::ZERO,
        }
    }

    fn observers(&self, event: &CardEvent) -> Observers {
        match event {
            // The sender's node sees the entry's end. The receiver sees its bytes after the
            // lookahead at the earliest.
            CardEvent::Emit(node) => Observers::Node(*node, self.emit),
            CardEvent::Sent(rank, _) => Observers::Rank(*rank, Time::ZERO),
            CardEvent::Hop(packet) => match &packet.payload {
                Some(entry) => Observers::Rank(entry.to, self.arrive),
                None => Observers::Nobody,
            },
            CardEvent::Written(entry) => Observers::Rank(entry.to, Time::ZERO),
        }
    }

    fn node_of(&self, rank: Rank) -> u32 {
        rank / self.processes
    }

    fn usage(&self, duration: Time) -> Vec<(String, String)> {
        let share = |busy: Time| 100.0 * busy.seconds() / duration.seconds().max(1e-12);
        let mut lines = Vec::new();
        for (node, e) in self
            .engines
            .iter()
            .enumerate()
            .filter(|(_, e)| e.entries > 0)
        {
            lines.push((
                format!("card of node {node}"),
                format!(
                    "{} entries, {} B, busy {:.1} %",
                    e.entries,
                    e.bytes,
                    share(e.busy)
                ),
            ));
        }
        for link in self.network.usage() {
            lines.push((
                link.name,
                format!(
                    "{} packets, {} B, busy {:.1} %",
                    link.packets,
                    link.bytes,
                    share(link.busy)
                ),
            ));
        }
        if self.local.0 > 0 {
            lines.push((
                "memory of the nodes".into(),
                format!("{} messages, {} B", self.local.0, self.local.1),
            ));
        }
        lines
    }
}
