//! The card alone, under a clock of the tests' own.

use super::command::{Addressing, Location};
use super::packet::image;
use super::pattern::Pattern;
use super::pattern::tests::patterns;
use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const CAPACITY: Capacity = Capacity {
    processes: 2,
    window_bytes: 4096,
    memory_bytes: 64 * 1024,
    packet_max_bytes: 2048,
};
const TIMING: Timing = Timing {
    cycle: Time::ns(10),
    bytes_per_cycle: 8,
    command_cycles: 9,
    send_cycles: 6,
    receive_cycles: 6,
    memory_cycles: 10,
    block_cycles: 4,
    append_cycles: 50,
};
const WIRE: Time = Time::ns(300);

fn process(node: u16, port: u16) -> Process {
    Process { node, port }
}

/// Two cards and a cable.
struct Bench {
    cards: [Card; 2],
    now: Time,
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    what: Vec<Option<(usize, What)>>,
}

enum What {
    CardEvent(CardEvent),
    Packet(Packet),
}

impl Bench {
    fn new() -> Bench {
        Bench {
            cards: [0, 1].map(|n| Card::new(n, CAPACITY, TIMING)),
            now: Time::ZERO,
            due: BinaryHeap::new(),
            what: Vec::new(),
        }
    }

    fn set(&mut self, at: Time, node: usize, what: What) {
        let n = self.what.len();
        self.what.push(Some((node, what)));
        self.due.push(Reverse((at, n as u64, n)));
    }

    fn follow(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Schedule(at, event) => self.set(at, node, What::CardEvent(event)),
                Effect::Send(packet) => {
                    let to = usize::from(packet.to.node);
                    self.set(self.now + WIRE, to, What::Packet(packet));
                }
                Effect::Changed(..) => {}
            }
        }
    }

    /// Does all that is due; at most so many steps.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let Some(Reverse((at, _, n))) = self.due.pop() else {
                return;
            };
            self.now = at;
            let (node, what) = self.what[n].take().unwrap();
            let effects = match what {
                What::CardEvent(event) => self.cards[node].event(at, event),
                What::Packet(packet) => self.cards[node].arrive(at, packet),
            };
            self.follow(node, effects);
        }
        assert!(steps < 1_000_000, "it never ends");
    }

    fn command(&mut self, node: usize, port: u16, command: Command) {
        let effects = self.cards[node].command(self.now, port, command);
        self.follow(node, effects);
    }

    fn all(&mut self) {
        self.run(1_000_000);
    }

    fn errors(&self) -> [u32; 2] {
        [0, 1].map(|n| self.cards[n].word(0, LlcmWord::Errors))
    }
}

#[test]
fn a_vector_load_takes_what_its_parts_take() {
    let mut bench = Bench::new();
    bench.command(
        0,
        1,
        Command::VectorLoad {
            window: 64,
            memory: 0,
            what: Addressing::Contiguous(128),
        },
    );
    bench.all();
    // 9 cycles for the command, 10 for the memory, 16 words.
    assert_eq!(bench.now, Time::ns(350));
    assert_eq!(bench.cards[0].word(1, LlcmWord::VectorsDone), 1);
    assert_eq!(bench.cards[0].word(0, LlcmWord::VectorsDone), 0);
}

#[test]
fn windows_have_edges_and_alignment() {
    let cases = [
        (
            Command::VectorLoad {
                window: 4,
                memory: 0,
                what: Addressing::Contiguous(8),
            },
            CardError::Alignment,
        ),
        (
            Command::VectorStore {
                window: 4096 - 8,
                memory: 0,
                what: Addressing::Contiguous(16),
            },
            CardError::Window,
        ),
        (
            Command::VectorLoad {
                window: 0,
                memory: 64 * 1024 - 8,
                what: Addressing::Contiguous(9),
            },
            CardError::Memory,
        ),
        (
            Command::VectorLoad {
                window: 0,
                memory: 0,
                what: Addressing::List {
                    block: 8,
                    count: 2,
                    list: 4,
                },
            },
            CardError::Alignment,
        ),
        (
            Command::BlockOnTheFly {
                window: 8,
                bytes: 64,
            },
            CardError::Alignment,
        ),
        (
            Command::BlockOnTheFly {
                window: 0,
                bytes: 64,
            },
            CardError::Image,
        ),
        (
            Command::BlockOnTheFly {
                window: 4032,
                bytes: 128,
            },
            CardError::Window,
        ),
        (
            Command::RemoteStore {
                to: process(1, 0),
                from: Location::Memory(0),
                memory: 0,
                what: Addressing::Stride {
                    block: 64,
                    stride: 128,
                    count: 33,
                },
            },
            CardError::Packet,
        ),
        (
            Command::Rings {
                base: 0,
                size: 60,
                senders: 2,
            },
            CardError::Rings,
        ),
        (
            Command::Rings {
                base: 0,
                size: 1 << 15,
                senders: 3,
            },
            CardError::Rings,
        ),
    ];
    for (command, error) in cases {
        let mut bench = Bench::new();
        bench.command(0, 0, command);
        bench.all();
        let last = bench.cards[0].word(0, LlcmWord::LastError);
        assert_eq!(CardError::from_number(last), Some(error), "{command:?}");
        assert_eq!(bench.errors(), [1, 0]);
        // The card goes on: the command counts as done.
        let card = &bench.cards[0];
        assert_eq!(
            card.word(0, LlcmWord::VectorsDone) + card.word(0, LlcmWord::SendsDone),
            1
        );
    }
}

#[test]
fn a_process_cannot_reach_beyond_another_ones_memory() {
    let mut bench = Bench::new();
    for (memory, bytes) in [(64 * 1024 - 4, 8), (u32::MAX, 64)] {
        bench.command(
            0,
            0,
            Command::RemoteStore {
                to: process(1, 0),
                from: Location::Window(0),
                memory,
                what: Addressing::Contiguous(bytes),
            },
        );
        bench.command(
            0,
            0,
            Command::RemoteLoad {
                from: process(1, 0),
                into: Location::Window(0),
                memory,
                what: Addressing::Contiguous(bytes),
            },
        );
    }
    // No such process: nothing comes of it.
    bench.command(
        0,
        0,
        Command::RemoteStore {
            to: process(1, 9),
            from: Location::Window(0),
            memory: 0,
            what: Addressing::Contiguous(8),
        },
    );
    bench.all();
    assert_eq!(bench.errors(), [2, 2]);
    assert_eq!(bench.cards[0].word(0, LlcmWord::LoadsDone), 2);
    assert_eq!(bench.cards[0].word(0, LlcmWord::SendsDone), 5);
}

#[test]
fn a_wrong_read_address_changes_nothing() {
    let mut bench = Bench::new();
    for sender in [0, 7] {
        let effects = bench.cards[0].set_read_addr(Time::ZERO, 0, sender, 8);
        bench.follow(0, effects);
    }
    bench.all();
    assert_eq!(bench.errors(), [2, 0]);
}

#[test]
fn a_record_longer_than_its_ring_is_refused_and_the_next_one_comes() {
    let mut bench = Bench::new();
    bench.command(
        1,
        0,
        Command::Rings {
            base: 0,
            size: 64,
            senders: 4,
        },
    );
    for len in [64, 8] {
        let data = vec![5; len];
        let image = image(process(1, 0), &Request::Append { data }).unwrap();
        bench.cards[0].store(0, 0, &image).unwrap();
        let bytes = image.len() as u32;
        bench.command(0, 0, Command::BlockOnTheFly { window: 0, bytes });
        bench.all();
    }
    assert_eq!(bench.errors(), [0, 1]);
    assert_eq!(bench.cards[1].word(0, LlcmWord::Nwa(0)), 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// VS and VL with any addressing: what was stored is loaded, and no other byte has changed.
    #[test]
    fn what_is_stored_is_loaded(
        pattern in patterns(),
        memory in 0u32..1000,
        remote in any::<bool>(),
    ) {
        let mut bench = Bench::new();
        let list = pattern.list();
        bench.cards[0].store(0, 2048, &list).unwrap();
        let data: Vec<u8> = (0..pattern.bytes()).map(|i| i as u8 | 1).collect();
        bench.cards[0].store(0, 0, &data).unwrap();
        let (_, block, stride, count) = pattern.fields();
        let what = match pattern {
            Pattern::Contiguous { bytes } => Addressing::Contiguous(bytes),
            Pattern::Stride { .. } => Addressing::Stride { block, stride, count },
            Pattern::List { .. } => Addressing::List { block, count, list: 2048 },
            Pattern::PackedList { .. } => Addressing::PackedList { block, count, list: 2048 },
        };
        let (owner, store, load) = if remote {
            let to = process(1, 0);
            (
                1,
                Command::RemoteStore { to, from: Location::Window(0), memory, what },
                Command::RemoteLoad { from: to, into: Location::Window(512), memory, what },
            )
        } else {
            (
                0,
                Command::VectorStore { window: 0, memory, what },
                Command::VectorLoad { window: 512, memory, what },
            )
        };
        bench.command(0, 0, store);
        bench.command(0, 0, load);
        bench.all();
        prop_assert_eq!(bench.errors(), [0, 0]);
        let mut back = vec![0; data.len()];
        bench.cards[0].load(0, 512, &mut back).unwrap();
        prop_assert_eq!(&back, &data);
        let mut expected = vec![0; 10_000];
        let mut at = 0;
        for (offset, bytes) in pattern.runs() {
            let to = memory as usize + offset as usize;
            expected[to..to + bytes as usize].copy_from_slice(&data[at..at + bytes as usize]);
            at += bytes as usize;
        }
        let mut whole = vec![0; expected.len()];
        bench.cards[owner].processes[0].memory.read(0, &mut whole);
        prop_assert!(whole == expected);
    }

    /// One run of any length from SO-DIMM to SO-DIMM is cut into packets and put together again.
    #[test]
    fn long_runs_are_cut(bytes in 0u32..20_000, from in 0u32..5000, to in 0u32..5000) {
        let mut bench = Bench::new();
        let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8 | 1).collect();
        bench.cards[0].processes[0].memory.write(from.into(), &data);
        let what = Addressing::Contiguous(bytes);
        let peer = process(1, 0);
        let own = Location::Memory(from);
        bench.command(0, 0, Command::RemoteStore { to: peer, from: own, memory: to, what });
        let into = Location::Memory(40_000);
        bench.command(0, 0, Command::RemoteLoad { from: peer, into, memory: to, what });
        bench.all();
        prop_assert_eq!(bench.errors(), [0, 0]);
        prop_assert_eq!(bench.cards[0].word(0, LlcmWord::LoadsDone), 1);
        for (card, at) in [(1, to), (0, 40_000)] {
            let mut back = vec![0; data.len()];
            bench.cards[card].processes[0].memory.read(at.into(), &mut back);
            prop_assert!(back == data);
        }
    }

    /// Records of any length from two senders into small rings, read at any time: each ring gives
    /// back what its sender appended, in order, and the senders stop rather than overwrite. RVS
    /// between them keeps its place in the order.
    #[test]
    fn rings_stop_and_lose_nothing(
        size in 4u32..40,
        steps in proptest::collection::vec((0u16..2, 0usize..60, 0usize..40), 1..80),
    ) {
        let size = size * 8;
        let mut bench = Bench::new();
        let base = 4096;
        bench.command(1, 0, Command::Rings { base, size, senders: 4 });
        let mut sent: [Vec<Vec<u8>>; 2] = Default::default();
        let mut issued = [0u32; 2];
        let mut nra = [0u32; 2];
        let mut read = [0usize; 2];
        for (port, len, run) in steps {
            let len = len.min(size as usize - 8);
            // A slot is used again only when its packet has left.
            let slot = issued[usize::from(port)] % 16;
            let done = bench.cards[0].word(port, LlcmWord::SendsDone);
            if issued[usize::from(port)] - done < 16 {
                let n = sent[usize::from(port)].len();
                let data: Vec<u8> = (0..len).map(|i| (n * 7 + i) as u8).collect();
                let image = image(process(1, 0), &Request::Append { data: data.clone() }).unwrap();
                bench.cards[0].store(port, slot * 128, &image).unwrap();
                let bytes = image.len() as u32;
                bench.command(0, port, Command::BlockOnTheFly { window: slot * 128, bytes });
                issued[usize::from(port)] += 1;
                sent[usize::from(port)].push(data);
            }
            bench.run(run);
            if run % 3 == 0 {
                for sender in 0..2 {
                    read_some(&mut bench, sender, base, size, &sent, &mut nra, &mut read)?;
                }
            }
        }
        for _ in 0..200 {
            bench.all();
            for sender in 0..2 {
                read_some(&mut bench, sender, base, size, &sent, &mut nra, &mut read)?;
            }
        }
        prop_assert_eq!(read, [sent[0].len(), sent[1].len()]);
        prop_assert_eq!(bench.errors(), [0, 0]);
        let stats = [bench.cards[0].stats(), bench.cards[1].stats()];
        prop_assert_eq!(stats[1].packets, 2 * stats[1].stops, "each Stop has its Go");
    }
}

/// Reads one record of a sender's ring, if there is one, as a process would.
fn read_some(
    bench: &mut Bench,
    sender: usize,
    base: u32,
    size: u32,
    sent: &[Vec<Vec<u8>>; 2],
    nra: &mut [u32; 2],
    read: &mut [usize; 2],
) -> Result<(), TestCaseError> {
    let nwa = bench.cards[1].word(0, LlcmWord::Nwa(sender as u32));
    let Some(next) = sent[sender].get(read[sender]) else {
        prop_assert_eq!(nwa, nra[sender], "more than was sent");
        return Ok(());
    };
    let taken = (next.len() as u32).next_multiple_of(8);
    let there = ring::filled(nra[sender], nwa, size);
    if there < taken.max(1) && taken > 0 {
        prop_assert_eq!(there, 0, "a part of a record");
        return Ok(());
    }
    if taken > 0 {
        let first = u64::from(base) + (sender as u64) * u64::from(size);
        let mut bytes = Vec::new();
        for (at, len) in ring::runs(first, size, nra[sender], next.len() as u32) {
            let mut run = vec![0; len as usize];
            bench.cards[1].processes[0].memory.read(at, &mut run);
            bytes.extend(run);
        }
        prop_assert_eq!(&bytes, next);
        nra[sender] = (nra[sender] + taken) % size;
        let effects = bench.cards[1].set_read_addr(bench.now, 0, sender as u32, nra[sender]);
        bench.follow(1, effects);
    }
    read[sender] += 1;
    Ok(())
}
