//! All cards of a job and the network between them, driven by the kernel of virtual time.

use super::access::{self, process_of, word_at};
use super::command::Command;
use super::packet::{Packet, Process};
use super::sodimm::SharedMemory;
use super::state::CardStats;
use super::timing::{Capacity, Timing};
use super::{Card, CardEvent, Effect, Visible};
use crate::dimmnet2::figures::Figures;
use crate::kernel::{InvalidCommand, Kernel, Model, ModelSegment, Observers, Rank, Track};
use crate::network::{self, Network};
use crate::platform::Platform;
use crate::time::Time;
use std::collections::BTreeMap;

/// All cards of a job.
pub struct Cards {
    /// Bytes of a window.
    window: u32,
    /// By node.
    cards: Vec<Card>,
    /// By rank.
    processes: Vec<Process>,
    ranks: BTreeMap<Process, Rank>,
    network: Network,
    timing: Timing,
}

/// What the cards schedule.
pub enum ModelEvent {
    /// An event of this node's card.
    Card(u16, CardEvent),
    /// A packet comes to a link, or arrives.
    Hop(network::Packet<Packet>),
}

/// The part of each process's SO-DIMM in which its program has buffers. It lies in the memory that
/// the card maps, behind LLCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramMemory {
    /// Offset in the mapped memory, bytes.
    pub mapped_at: usize,
    /// Address in the process's part of the SO-DIMM.
    pub from: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Cards {
    /// The cards of a machine for `ranks` ranks.
    pub fn new(platform: &Platform, f: &Figures, ranks: u32) -> Cards {
        let processes: Vec<Process> = (0..ranks).map(|r| process_of(platform, r)).collect();
        let nodes = processes.last().map_or(1, |p| p.node + 1);
        let capacity = Capacity::new(f, platform.processes() as u16);
        let timing = Timing::new(f);
        Cards {
            window: capacity.window_bytes,
            cards: (0..nodes).map(|n| Card::new(n, capacity, timing)).collect(),
            ranks: (0..).zip(&processes).map(|(r, p)| (*p, r)).collect(),
            processes,
            network: Network::new(&platform.network, nodes.into()),
            timing,
        }
    }

    /// The processes' program memory lies in `segment` from now on.
    pub fn map_program_memory(&mut self, memory: ProgramMemory, segment: &ModelSegment) {
        if (segment.mapped_bytes() as u64) < memory.mapped_at as u64 + memory.bytes {
            return;
        }
        for (rank, process) in (0..).zip(&self.processes) {
            let shared = SharedMemory {
                segment: segment.clone(),
                rank,
                mapped_at: memory.mapped_at,
                from: memory.from,
            };
            self.cards[usize::from(process.node)].share(process.port, shared);
        }
    }

    /// The links' names.
    pub fn links(&self) -> Vec<String> {
        self.network.names()
    }

    /// What each card has done.
    pub fn stats(&self) -> Vec<CardStats> {
        self.cards.iter().map(Card::stats).collect()
    }

    /// Does what follows from something that a card was told.
    fn apply(&mut self, node: u16, effects: Vec<Effect>, kernel: &mut Kernel<ModelEvent>) {
        for effect in effects {
            match effect {
                Effect::Schedule(at, event) => {
                    let owner = self.first_rank(node);
                    if kernel.is_traced() {
                        let name = self.cards[usize::from(node)].activity(&event);
                        kernel.span(Track::Card(node.into()), name, kernel.now(), at);
                    }
                    kernel.schedule_at(at, owner, ModelEvent::Card(node, event));
                }
                Effect::Send(packet) => {
                    let (now, to) = (kernel.now(), packet.to.node);
                    if usize::from(to) < self.cards.len() {
                        let nodes = (node.into(), to.into());
                        let sent = (self.first_rank(node), packet.bytes().into());
                        let wrap = ModelEvent::Hop;
                        self.network.send(kernel, now, nodes, sent, packet, wrap);
                    }
                }
                Effect::Changed(port, seen) => {
                    let Some(&rank) = self.ranks.get(&Process { node, port }) else {
                        continue;
                    };
                    let card = &self.cards[usize::from(node)];
                    match seen {
                        Visible::Word(word) => {
                            let at = word_at(word, self.window);
                            kernel.write(rank, at, &card.word(port, word).to_le_bytes());
                            kernel.notify(rank, access::LLCM_CHANGED, &[]);
                        }
                        // A counter changes at the same time, which notifies the rank.
                        Visible::Window(at, bytes) => {
                            let mut buffer = vec![0; bytes as usize];
                            if card.load(port, at, &mut buffer).is_ok() {
                                kernel.write(rank, at as usize, &buffer);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The first rank of a node. It orders what cards do at the same instant.
    fn first_rank(&self, node: u16) -> Rank {
        let first = Process { node, port: 0 };
        self.ranks.get(&first).copied().unwrap_or(0)
    }
}

impl Model for Cards {
    type Event = ModelEvent;

    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<ModelEvent>,
    ) -> Result<(), InvalidCommand> {
        let now = kernel.now();
        let process = *self
            .processes
            .get(from as usize)
            .ok_or(InvalidCommand("a rank without a card"))?;
        let card = &mut self.cards[usize::from(process.node)];
        let effects = match kind {
            access::STORE => {
                let (at, bytes) = bytes
                    .split_first_chunk()
                    .ok_or(InvalidCommand("a store without a place"))?;
                card.store(process.port, u32::from_le_bytes(*at), bytes)
                    .map_err(|_| InvalidCommand("a store beyond the Write Window"))?;
                Vec::new()
            }
            access::COMMAND => {
                let (words, _) = bytes.as_chunks::<4>();
                let words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
                let command = Command::from_words(&words).map_err(|_| {
                    InvalidCommand("words in the User Registers that are no command")
                })?;
                card.command(now, process.port, command)
            }
            access::SET_READ_ADDR => {
                let (words, _) = bytes.as_chunks::<4>();
                let [sender, nra] = words else {
                    return Err(InvalidCommand("a Next Read Addr without a ring"));
                };
                let (sender, nra) = (u32::from_le_bytes(*sender), u32::from_le_bytes(*nra));
                card.set_read_addr(now, process.port, sender, nra)
            }
            _ => return Err(InvalidCommand("no access to a DIMMnet-2 card")),
        };
        self.apply(process.node, effects, kernel);
        Ok(())
    }

    fn event(&mut self, event: ModelEvent, kernel: &mut Kernel<ModelEvent>) {
        let now = kernel.now();
        let (node, effects) = match event {
            ModelEvent::Card(node, event) => {
                (node, self.cards[usize::from(node)].event(now, event))
            }
            ModelEvent::Hop(packet) => {
                let Some(packet) = self.network.forward(kernel, packet, ModelEvent::Hop) else {
                    return;
                };
                let node = packet.to.node;
                (node, self.cards[usize::from(node)].arrive(now, packet))
            }
        };
        self.apply(node, effects, kernel);
    }

    fn lookahead(&self) -> Time {
        // Whatever one process does, another sees only packets of it.
        self.network.latency() + self.timing.receive_min()
    }

    fn response_time(&self, kind: u32) -> Time {
        match kind {
            access::STORE => Time::MAX,
            access::COMMAND => self.timing.command_min(),
            access::SET_READ_ADDR => self.timing.read_addr_min(),
            _ => Time::ZERO,
        }
    }

    fn observers(&self, event: &ModelEvent) -> Observers {
        match event {
            ModelEvent::Card(node, _) => Observers::Node((*node).into(), Time::ZERO),
            ModelEvent::Hop(packet) => {
                Observers::Node(packet.payload.to.node.into(), self.timing.receive_min())
            }
        }
    }

    fn node_of(&self, rank: Rank) -> u32 {
        let process = self.processes.get(rank as usize);
        process.map_or(0, |p| p.node.into())
    }

    fn is_counted(&self, kind: u32) -> bool {
        kind == access::COMMAND
    }

    fn usage(&self, duration: Time) -> Vec<(String, String)> {
        let share = |busy: Time| 100.0 * busy.seconds() / duration.seconds().max(1e-12);
        let cards = self.cards.iter().enumerate().map(|(node, card)| {
            let t = card.stats();
            let line = format!(
                "{} commands, {} of them with a stride or a list, busy {:.1} %; {} packets, {} B; \
                 {} full rings",
                t.commands,
                t.vectors,
                share(t.busy),
                t.packets,
                t.bytes,
                t.stops
            );
            (format!("card of node {node}"), line)
        });
        let links = self.network.usage().into_iter().map(|l| {
            let line = format!(
                "{} packets, {} B, busy {:.1} %",
                l.packets,
                l.bytes,
                share(l.busy)
            );
            (l.name, line)
        });
        cards.chain(links).collect()
    }
}
