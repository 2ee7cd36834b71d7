//! The cards of a job and the wires between them, driven by the kernel of virtual time; and a rank's side of its card.

use super::card::{Card, Effect, Event, Pace, Seen, Shape, Tally, Word};
use super::command::Command;
use super::driver::Port;
use super::packet::{Packet, Process};
use crate::{Client, Kernel, Model, Nonsense, Rank, Time};
use std::collections::BTreeMap;

/// What carries packets from card to card.
pub trait Network {
    /// A packet of so many bytes begins to leave node `from` for node `to`: when it has come, whole. Asked in the order of time.
    fn carry(&mut self, now: Time, from: u16, to: u16, bytes: u32) -> Time;
}

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

/// Bytes that a card shows a rank, in a job with so many senders.
pub fn shown(window: u32, senders: u32) -> u64 {
    word_at(Word::Nwa(senders), window) as u64
}

/// All cards of a job.
pub struct Cards<N> {
    shape: Shape,
    cards: Vec<Card>,
    processes: Vec<Process>,
    ranks: BTreeMap<Process, Rank>,
    network: N,
}

/// What the cards set for later.
pub enum Due {
    /// A card wanted to be told of this.
    Card(u16, Event),
    /// A packet has come to its node.
    Arrived(Packet),
}

impl<N: Network> Cards<N> {
    /// The cards for a job whose ranks are these processes.
    pub fn new(shape: Shape, pace: Pace, processes: &[Process], network: N) -> Cards<N> {
        let nodes = processes.iter().map(|p| p.node + 1).max().unwrap_or(0);
        Cards {
            shape,
            cards: (0..nodes).map(|n| Card::new(n, shape, pace)).collect(),
            processes: processes.to_vec(),
            ranks: (0..).zip(processes).map(|(r, p)| (*p, r)).collect(),
            network,
        }
    }

    /// What each card has done.
    pub fn tallies(&self) -> Vec<Tally> {
        self.cards.iter().map(Card::tally).collect()
    }

    /// What carries the packets.
    pub fn network(&self) -> &N {
        &self.network
    }

    fn follow(&mut self, node: u16, effects: Vec<Effect>, kernel: &mut Kernel<Due>) {
        for effect in effects {
            match effect {
                Effect::Later(at, event) => {
                    let whose = self.first_rank(node);
                    kernel.at(at, whose, Due::Card(node, event));
                }
                Effect::Send(packet) => {
                    let (to, bytes) = (packet.to.node, packet.wire_bytes());
                    if usize::from(to) < self.cards.len() {
                        let at = self.network.carry(kernel.now(), node, to, bytes);
                        kernel.at(at, self.first_rank(node), Due::Arrived(packet));
                    }
                }
                Effect::Changed(port, seen) => {
                    let Some(&rank) = self.ranks.get(&Process { node, port }) else {
                        continue;
                    };
                    let card = &self.cards[usize::from(node)];
                    match seen {
                        Seen::Word(word) => {
                            let at = word_at(word, self.shape.window);
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

impl<N: Network> Model for Cards<N> {
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
            Due::Arrived(packet) => {
                let node = packet.to.node;
                (node, self.cards[usize::from(node)].arrive(now, packet))
            }
        };
        self.follow(node, effects, kernel);
    }
}

/// A rank's side of its card: windows and registers, as the driver sees them.
pub struct Mapped {
    /// The rank's seat in the job.
    pub client: Client,
    window: u32,
}

impl Mapped {
    /// The card of the rank whose seat this is.
    pub fn new(client: Client, window: u32) -> Mapped {
        Mapped { client, window }
    }

    fn forget_events(&mut self) {
        while self.client.event().is_some() {}
    }
}

impl Port for Mapped {
    fn charge(&mut self, cause: &'static str, cost: Time) {
        self.client.charge(cause, cost);
    }

    fn store(&mut self, window: u32, bytes: &[u8]) {
        self.client
            .command(kind::STORE, &[&window.to_le_bytes(), bytes]);
    }

    fn command(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.client.command(kind::COMMAND, &[&bytes]);
    }

    fn consume(&mut self, sender: u32, nra: u32) {
        let words = [sender.to_le_bytes(), nra.to_le_bytes()];
        self.client.command(kind::CONSUME, &[words.as_flattened()]);
    }

    fn look(&mut self) {
        self.client.sync();
        self.forget_events();
    }

    fn word(&self, word: Word) -> u32 {
        let mut bytes = [0; 4];
        self.client.read(word_at(word, self.window), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn load(&self, window: u32, into: &mut [u8]) {
        self.client.read(window as usize, into);
    }

    fn wait(&mut self, period: Time) {
        self.client.wait(period);
        self.forget_events();
    }
}
