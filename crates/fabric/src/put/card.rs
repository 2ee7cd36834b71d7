//! The card: one engine that emits entry after entry, and what arrives.

use super::{DONE, Figures, HEAD, LOCAL, NOTIFY, PUT, WAKE, WRITTEN, head, parse};
use crate::kernel::Track;
use crate::machine::{Machine, Nic};
use crate::network::{Network, Packet};
use crate::{Kernel, Model, Nonsense, Rank, Sight, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// An entry of an LME, with the bytes that it is about.
pub struct Entry {
    from: Rank,
    to: Rank,
    flags: u8,
    address: u64,
    bytes: Vec<u8>,
}

/// What a packet carries: the entry, if it is its last one.
pub type Cargo = Option<Arc<Entry>>;

/// What cards set themselves for later.
pub enum Later {
    /// A node's engine takes its next entry.
    Emit(u32),
    /// An entry's last byte has left: whose it was, and its flags.
    Left(Rank, u8),
    /// A packet comes to a link, or is there.
    Hop(Packet<Cargo>),
    /// An entry has been written to memory.
    There(Arc<Entry>),
}

#[derive(Default)]
struct Engine {
    waiting: VecDeque<Entry>,
    works: bool,
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
    memory: Option<Time>,
    processes: u32,
    engines: Vec<Engine>,
    network: Network,
    local: (u64, u64),
}

impl Card {
    /// The cards of `machine` for so many ranks; `None` if it has others.
    pub fn new(machine: &Machine, ranks: u32) -> Option<Card> {
        #[allow(irrefutable_let_patterns)]
        let Nic::Put(f) = &machine.nic else {
            return None;
        };
        let nodes = machine.node_of(ranks - 1) + 1;
        Some(Card {
            emit: f.emit.value,
            gap: Figures::or_zero(&f.gap),
            arrive: f.arrive.value,
            entry_max: f.entry.value.0.max(f.control.value.0) as usize,
            memory: machine.memory.as_ref().map(|m| m.latency.value),
            processes: machine.processes(),
            engines: (0..nodes).map(|_| Engine::default()).collect(),
            network: Network::new(&machine.network, nodes),
            local: (0, 0),
        })
    }

    /// What the links are called.
    pub fn links(&self) -> Vec<String> {
        self.network.names()
    }

    /// The engine of `node` takes its next entry.
    fn emit(&mut self, node: u32, kernel: &mut Kernel<Later>) {
        let engine = &mut self.engines[node as usize];
        let Some(entry) = engine.waiting.pop_front() else {
            engine.works = false;
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
            let piece = (size - at).min(self.network.packet);
            at += piece;
            let cargo = (at == size).then(|| entry.clone());
            let sent = (from, piece);
            left = self
                .network
                .send(kernel, left, nodes, sent, cargo, Later::Hop);
            if at == size {
                break;
            }
        }
        let engine = &mut self.engines[node as usize];
        engine.busy += left - now;
        if kernel.traced() {
            let name = format!("emits {size} B to rank {to}");
            kernel.span(Track::Card(node), &name, now, left);
        }
        kernel.at(left, from, Later::Left(from, flags));
        kernel.at(left + self.gap, from, Later::Emit(node));
    }
}

impl Model for Card {
    type Event = Later;

    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<Later>,
    ) -> Result<(), Nonsense> {
        let Some((to, flags, address, bytes)) = parse(bytes) else {
            return Err(Nonsense("a list entry that is too short"));
        };
        if to >= kernel.ranks() || bytes.len() > self.entry_max {
            return Err(Nonsense(
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
                engine.waiting.push_back(entry);
                if !engine.works {
                    engine.works = true;
                    self.emit(node, kernel);
                }
            }
            LOCAL if to / self.processes == node => {
                self.local.0 += 1;
                self.local.1 += entry.bytes.len() as u64;
                let latency = self.memory.unwrap_or(Time::ZERO);
                kernel.after(latency, from, Later::There(Arc::new(entry)));
                kernel.after(latency, from, Later::Left(from, flags));
            }
            _ => return Err(Nonsense("a command that there is not")),
        }
        Ok(())
    }

    fn due(&mut self, event: Later, kernel: &mut Kernel<Later>) {
        match event {
            Later::Emit(node) => self.emit(node, kernel),
            Later::Left(rank, flags) if flags & WAKE != 0 => kernel.tell(rank, DONE, &[&[WAKE]]),
            Later::Left(rank, _) => kernel.mention(rank, DONE, &[&[0]]),
            Later::Hop(packet) => {
                if let Some(Some(entry)) = self.network.due(kernel, packet, Later::Hop) {
                    kernel.after(self.arrive, entry.from, Later::There(entry));
                }
            }
            Later::There(entry) => {
                let head = head(entry.from, entry.flags, entry.address);
                let parts: [&[u8]; 2] = [&head, &entry.bytes];
                debug_assert!(head.len() == HEAD);
                if entry.flags & NOTIFY != 0 {
                    kernel.tell(entry.to, WRITTEN, &parts);
                } else {
                    kernel.mention(entry.to, WRITTEN, &parts);
                }
            }
        }
    }

    fn lookahead(&self) -> Time {
        let far = self.emit + self.arrive + self.network.latency();
        self.memory.map_or(far, |near| near.min(far))
    }

    fn reaction(&self, kind: u32) -> Time {
        match (kind, self.memory) {
            (PUT, _) => self.emit,
            (LOCAL, Some(near)) => near,
            _ => Time::ZERO,
        }
    }

    fn sight(&self, event: &Later) -> Sight {
        match event {
            // The entry's owner sees its end, the receiver its bytes, which take as long as the
            // lookahead.
            Later::Emit(node) => Sight::Node(*node, self.emit),
            Later::Left(rank, _) => Sight::Rank(*rank, Time::ZERO),
            Later::Hop(packet) => match &packet.cargo {
                Some(entry) => Sight::Rank(entry.to, self.arrive),
                None => Sight::Nobody,
            },
            Later::There(entry) => Sight::Rank(entry.to, Time::ZERO),
        }
    }

    fn node(&self, rank: Rank) -> u32 {
        rank / self.processes
    }

    fn used(&self, whole: Time) -> Vec<(String, String)> {
        let share = |busy: Time| 100.0 * busy.seconds() / whole.seconds().max(1e-12);
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
        for link in self.network.used() {
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
