//! The cards of a job and the wires between them, driven by the kernel of virtual time; and a
//! rank's side of its card.

use super::card::{Card, Effect, Event, Pace, Seen, Tally, Word};
use super::command::Command;
use super::driver::Port;
use super::figures;
use super::memory::{SHARED_ALIGNMENT, Shared};
use super::packet::{Packet, Process};
use crate::kernel::Track;
use crate::machine::Machine;
use crate::network::{self, Network};
use crate::{Arena, Client, Kernel, Model, Nonsense, Rank, Sight, Time};
use std::borrow::BorrowMut;
use std::collections::BTreeMap;

/// Commands of ranks to their cards.
mod kind {
    /// Stores into the Write Window: place, bytes.
    pub const STORE: u32 = 1;
    /// Words for the User Registers.
    pub const COMMAND: u32 = 2;
    /// Next Read Addr: sender, address.
    pub const CONSUME: u32 = 3;
}
/// The event that tells a rank that it has something to look at.
const LOOK: u32 = 1;

/// Words of LLCM that are no ring's.
const COUNTERS: [Word; 5] = [
    Word::VectorsDone,
    Word::SendsDone,
    Word::LoadsDone,
    Word::Errors,
    Word::LastError,
];

/// Where a word lies in what a card shows its rank, behind the Prefetch Window.
fn word_at(word: Word, window: u32) -> usize {
    let index = match word {
        Word::Nwa(sender) => COUNTERS.len() + sender as usize,
        counter => COUNTERS.iter().position(|w| *w == counter).unwrap_or(0),
    };
    window as usize + index * 4
}

/// Where a rank is.
pub(super) fn process_of(machine: &Machine, rank: Rank) -> Process {
    Process {
        node: machine.node_of(rank) as u16,
        port: (rank % machine.processes()) as u16,
    }
}

/// Bytes that a card of this machine shows each of so many ranks; `None` if its card is another.
pub fn shown(machine: &Machine, ranks: u32) -> Option<u64> {
    let f = figures::of(machine)?;
    let window = f.plan(1).window();
    let senders = ranks.next_multiple_of(machine.processes());
    Some(word_at(Word::Nwa(senders), window) as u64)
}

/// The part of a process's SO-DIMM that is its program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where in what the card shows it begins.
    pub shown: usize,
    /// Where in the process's part of the SO-DIMM it begins.
    pub from: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What of the SO-DIMM is left to programs; the same for each process of a job on this machine,
/// whatever the number of its ranks. `None`: nothing is, or the card is another.
pub fn room(machine: &Machine) -> Option<Room> {
    let f = figures::of(machine)?;
    let ranks = u32::try_from(machine.ranks_max()).ok()?;
    let plan = f.plan(machine.processes() as u16);
    let from = plan.memory(ranks).next_multiple_of(SHARED_ALIGNMENT);
    let bytes = f.sodimm.value.0.checked_sub(from).filter(|b| *b > 0)?;
    let shown = shown(machine, ranks)?.next_multiple_of(SHARED_ALIGNMENT);
    Some(Room {
        shown: shown as usize,
        from,
        bytes,
    })
}

/// All cards of a job.
pub struct Cards {
    window: u32,
    cards: Vec<Card>,
    processes: Vec<Process>,
    ranks: BTreeMap<Process, Rank>,
    network: Network,
    pace: Pace,
}

/// What the cards set for later.
pub enum Due {
    /// A card wanted to be told of this.
    Card(u16, Event),
    /// A packet comes to a link, or is there.
    Hop(network::Packet<Packet>),
}

impl Cards {
    /// The cards of `machine` for so many ranks; `None` if it has others.
    pub fn new(machine: &Machine, ranks: u32) -> Option<Cards> {
        let f = figures::of(machine)?;
        let processes: Vec<Process> = (0..ranks).map(|r| process_of(machine, r)).collect();
        let nodes = processes.last().map_or(1, |p| p.node + 1);
        let (shape, pace) = (f.shape(machine.processes() as u16), f.pace());
        Some(Cards {
            window: shape.window,
            cards: (0..nodes).map(|n| Card::new(n, shape, pace)).collect(),
            ranks: (0..).zip(&processes).map(|(r, p)| (*p, r)).collect(),
            processes,
            network: Network::new(&machine.network, nodes.into()),
            pace,
        })
    }

    /// What of each process's SO-DIMM is its program's lies in `arena` from now on.
    pub fn share(&mut self, machine: &Machine, arena: &Arena) {
        let Some(room) = room(machine) else {
            return;
        };
        if (arena.memory() as u64) < room.shown as u64 + room.bytes {
            return;
        }
        for (rank, process) in (0..).zip(&self.processes) {
            let shared = Shared {
                arena: arena.clone(),
                rank,
                shown: room.shown,
                from: room.from,
            };
            self.cards[usize::from(process.node)].share(process.port, shared);
        }
    }

    /// What the links are called.
    pub fn links(&self) -> Vec<String> {
        self.network.names()
    }

    /// What each card has done.
    pub fn tallies(&self) -> Vec<Tally> {
        self.cards.iter().map(Card::tally).collect()
    }

    fn follow(&mut self, node: u16, effects: Vec<Effect>, kernel: &mut Kernel<Due>) {
        for effect in effects {
            match effect {
                Effect::Later(at, event) => {
                    let whose = self.first_rank(node);
                    if kernel.traced() {
                        let name = self.cards[usize::from(node)].names(&event);
                        kernel.span(Track::Card(node.into()), name, kernel.now(), at);
                    }
                    kernel.at(at, whose, Due::Card(node, event));
                }
                Effect::Send(packet) => {
                    let (now, to) = (kernel.now(), packet.to.node);
                    if usize::from(to) < self.cards.len() {
                        let way = (node.into(), to.into());
                        let what = (self.first_rank(node), packet.bytes().into());
                        self.network.send(kernel, now, way, what, packet, Due::Hop);
                    }
                }
                Effect::Changed(port, seen) => {
                    let Some(&rank) = self.ranks.get(&Process { node, port }) else {
                        continue;
                    };
                    let card = &self.cards[usize::from(node)];
                    match seen {
                        Seen::Word(word) => {
                            let at = word_at(word, self.window);
                            kernel.write(rank, at, &card.word(port, word).to_le_bytes());
                            kernel.tell(rank, LOOK, &[]);
                        }
                        // A counter that changes at the same time will tell.
                        Seen::Window(at, bytes) => {
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

    /// Orders what cards do at the same instant.
    fn first_rank(&self, node: u16) -> Rank {
        let first = Process { node, port: 0 };
        self.ranks.get(&first).copied().unwrap_or(0)
    }
}

impl Model for Cards {
    type Event = Due;

    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<Due>,
    ) -> Result<(), Nonsense> {
        let now = kernel.now();
        let process = *self
            .processes
            .get(from as usize)
            .ok_or(Nonsense("a rank without a card"))?;
        let card = &mut self.cards[usize::from(process.node)];
        let effects = match kind {
            kind::STORE => {
                let (at, bytes) = bytes
                    .split_first_chunk()
                    .ok_or(Nonsense("a store without a place"))?;
                card.store(process.port, u32::from_le_bytes(*at), bytes)
                    .map_err(|_| Nonsense("a store beyond the Write Window"))?;
                Vec::new()
            }
            kind::COMMAND => {
                let (words, _) = bytes.as_chunks::<4>();
                let words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
                let command = Command::from_words(&words)
                    .map_err(|_| Nonsense("words in the User Registers that are no command"))?;
                card.command(now, process.port, command)
            }
            kind::CONSUME => {
                let (words, _) = bytes.as_chunks::<4>();
                let [sender, nra] = words else {
                    return Err(Nonsense("a Next Read Addr without a ring"));
                };
                let (sender, nra) = (u32::from_le_bytes(*sender), u32::from_le_bytes(*nra));
                card.consume(now, process.port, sender, nra)
            }
            _ => return Err(Nonsense("no access to a DIMMnet-2 card")),
        };
        self.follow(process.node, effects, kernel);
        Ok(())
    }

    fn due(&mut self, event: Due, kernel: &mut Kernel<Due>) {
        let now = kernel.now();
        let (node, effects) = match event {
            Due::Card(node, event) => (node, self.cards[usize::from(node)].event(now, event)),
            Due::Hop(packet) => {
                let Some(packet) = self.network.due(kernel, packet, Due::Hop) else {
                    return;
                };
                let node = packet.to.node;
                (node, self.cards[usize::from(node)].arrive(now, packet))
            }
        };
        self.follow(node, effects, kernel);
    }

    fn lookahead(&self) -> Time {
        // Whatever one process does, another sees it by a packet.
        self.network.latency() + self.pace.received()
    }

    fn reaction(&self, kind: u32) -> Time {
        match kind {
            kind::STORE => Time::MAX,
            kind::COMMAND => self.pace.executed(),
            kind::CONSUME => self.pace.consumed(),
            _ => Time::ZERO,
        }
    }

    fn sight(&self, event: &Due) -> Sight {
        match event {
            Due::Card(node, _) => Sight::Node((*node).into(), Time::ZERO),
            Due::Hop(packet) => Sight::Node(packet.cargo.to.node.into(), self.pace.received()),
        }
    }

    fn node(&self, rank: Rank) -> u32 {
        let process = self.processes.get(rank as usize);
        process.map_or(0, |p| p.node.into())
    }

    fn counts(&self, kind: u32) -> bool {
        kind == kind::COMMAND
    }

    fn used(&self, whole: Time) -> Vec<(String, String)> {
        let share = |busy: Time| 100.0 * busy.seconds() / whole.seconds().max(1e-12);
        let cards = self.cards.iter().enumerate().map(|(node, card)| {
            let t = card.tally();
            let line = format!(
                "{} commands, {} of them with a stride or a list, busy {:.1} %; {} packets, {} B; {} full rings",
                t.commands,
                t.vectors,
                share(t.busy),
                t.packets,
                t.bytes,
                t.stops
            );
            (format!("card of node {node}"), line)
        });
        let links = self.network.used().into_iter().map(|l| {
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

/// A rank's side of its card: windows and registers, as the driver sees them.
pub struct Mapped<C> {
    /// The rank's seat in the job.
    pub client: C,
    window: u32,
}

impl<C: BorrowMut<Client>> Mapped<C> {
    /// The card of the rank whose seat this is.
    pub fn new(client: C, window: u32) -> Mapped<C> {
        Mapped { client, window }
    }

    fn forget_events(&mut self) {
        while self.client.borrow_mut().event().is_some() {}
    }
}

impl<C: BorrowMut<Client>> Port for Mapped<C> {
    fn charge(&mut self, cause: &'static str, cost: Time) {
        self.client.borrow_mut().charge(cause, cost);
    }

    fn store(&mut self, window: u32, bytes: &[u8]) {
        self.client
            .borrow_mut()
            .command(kind::STORE, &[&window.to_le_bytes(), bytes]);
    }

    fn command(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.client.borrow_mut().command(kind::COMMAND, &[&bytes]);
    }

    fn consume(&mut self, sender: u32, nra: u32) {
        let words = [sender.to_le_bytes(), nra.to_le_bytes()];
        self.client
            .borrow_mut()
            .command(kind::CONSUME, &[words.as_flattened()]);
    }

    fn look(&mut self) {
        self.client.borrow_mut().sync();
        self.forget_events();
    }

    fn can_put_off(&self) -> bool {
        self.client.borrow().can_put_off()
    }

    fn put_off(&mut self) {
        self.client.borrow_mut().put_off();
    }

    fn look_or_wait(&mut self, period: Time) {
        self.client.borrow_mut().sync_or_wait(period);
        self.forget_events();
    }

    fn word(&self, word: Word) -> u32 {
        self.client.borrow().word(word_at(word, self.window))
    }

    fn load(&self, window: u32, into: &mut [u8]) {
        self.client.borrow().read(window as usize, into);
    }

    fn wait(&mut self, period: Time) {
        self.client.borrow_mut().wait(period);
        self.forget_events();
    }
}
