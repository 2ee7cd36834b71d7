//! Cards and the drivers' lower levels of several nodes, without ranks and without MPI.

mod checker;
mod traffic;

use super::Figures;
use super::card::{Cards, ModelEvent};
use super::command::{PAGE_BYTES, Physical, Piece, QueueId};
use super::driver::lower::{Host, Lower, LowerEvent, LowerLevel};
use super::driver::physical::{PhysicalMemory, Registration};
use crate::kernel::{Event, Kernel, Model, ModelSegment, Rank};
use crate::machine::{self, Machine, Nic};
use crate::time::Time;
use std::collections::VecDeque;

/// The machine that comes with Ferry, after `change`.
fn machine(change: impl FnOnce(&mut Figures)) -> (Machine, Figures) {
    let text = include_str!("../../../../machines/rapidio-1890vm6.toml");
    let machine = machine::read("rapidio-1890vm6.toml", text).unwrap();
    let Nic::Rapidio(figures) = &machine.nic else {
        panic!("another kind of card");
    };
    let mut figures = figures.as_ref().clone();
    change(&mut figures);
    (machine, figures)
}

/// A rank's processor whose work takes no time.
#[derive(Default)]
struct TestHost {
    now: Time,
    events: VecDeque<Event>,
    commands: Vec<(u32, Vec<u8>)>,
}

impl Host for TestHost {
    fn now(&self) -> Time {
        self.now
    }
    fn charge(&mut self, _cause: &'static str, _cost: Time) {}
    fn command(&mut self, kind: u32, bytes: &[u8]) {
        self.commands.push((kind, bytes.to_vec()));
    }
    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Nodes, their cards and the network.
struct World {
    cards: Cards,
    kernel: Kernel<ModelEvent>,
    nodes: Vec<(LowerLevel, TestHost)>,
}

impl World {
    fn new(nodes: u32, check: bool, change: impl FnOnce(&mut Figures)) -> World {
        let (machine, figures) = machine(change);
        let segment = ModelSegment::create(nodes, figures.window.value.0, b"").unwrap();
        World {
            cards: Cards::new(&machine.platform, &figures, nodes, check),
            kernel: Kernel::of(segment),
            nodes: (0..nodes)
                .map(|_| (LowerLevel::new(&figures), TestHost::default()))
                .collect(),
        }
    }

    /// Calls the lower level of a node. Its commands reach the card at once.
    fn call<T>(&mut self, node: Rank, call: impl FnOnce(&mut LowerLevel, &mut TestHost) -> T) -> T {
        let (lower, host) = &mut self.nodes[node as usize];
        host.now = self.kernel.now();
        let result = call(lower, host);
        for (kind, bytes) in std::mem::take(&mut host.commands) {
            let done = self.cards.command(node, kind, &bytes, &mut self.kernel);
            done.unwrap();
        }
        result
    }

    /// Does the next thing that is due. Returns false if nothing is left.
    fn step(&mut self) -> bool {
        let Some(event) = self.kernel.next_event() else {
            return false;
        };
        self.cards.event(event, &mut self.kernel);
        true
    }

    /// What has come for a node.
    fn receive(&mut self, node: Rank) -> Option<LowerEvent> {
        let events = self.kernel.take_events(node);
        let host = &mut self.nodes[node as usize].1;
        host.events
            .extend(
                events
                    .into_iter()
                    .map(|(time, kind, bytes)| Event { time, kind, bytes }),
            );
        if host.events.is_empty() {
            return None;
        }
        self.call(node, |lower, host| lower.receive(host))
    }

    /// Does all that is due. Returns what has come for each node, in order.
    fn settle(&mut self) -> Vec<(Rank, LowerEvent)> {
        let mut come = Vec::new();
        while self.step() {
            for node in 0..self.nodes.len() as Rank {
                while let Some(event) = self.receive(node) {
                    come.push((node, event));
                }
            }
        }
        come
    }

    fn memory(&mut self, node: Rank) -> &mut PhysicalMemory {
        self.nodes[node as usize].0.memory()
    }

    /// A bounce buffer with these bytes, as a piece.
    fn buffer(&mut self, node: Rank, bytes: &[u8]) -> (Registration, Piece) {
        let buffer = self.memory(node).allocate(bytes.len());
        let piece = piece(buffer.runs[0].at, bytes.len());
        self.memory(node).write(piece.at, bytes).unwrap();
        (buffer, piece)
    }

    /// Sends bytes from a bounce buffer.
    fn send(&mut self, from: Rank, to: Rank, mailbox: u8, bytes: &[u8]) -> bool {
        let (buffer, piece) = self.buffer(from, bytes);
        let sent = self.call(from, |lower, host| {
            lower.send(host, to, mailbox, &[piece], 0)
        });
        self.memory(from).release(buffer);
        sent
    }

    /// Opens a dedicated queue.
    fn expect(&mut self, node: Rank, queue: u8, from: Rank, mailbox: u8, pieces: &[Piece]) -> bool {
        self.call(node, |lower, host| {
            lower.expect(host, QueueId(queue), from, mailbox, pieces)
        })
    }

    fn failure(&self) -> &str {
        self.kernel.failure().unwrap_or("")
    }
}

fn piece(at: Physical, bytes: usize) -> Piece {
    Piece {
        at,
        bytes: bytes as u16,
    }
}

#[test]
fn messages_come_through_both_kinds_of_queue() {
    let mut world = World::new(2, true, |_| {});
    let (_landing, at) = world.buffer(1, &[0; 512]);
    assert!(world.expect(1, 3, 0, 5, &[at]));
    assert!(!world.expect(1, 3, 0, 6, &[at]), "the queue is open");
    assert!(world.send(0, 1, 5, &[7; 512]));
    assert!(world.send(0, 1, 0, b"unexpected"));
    world.call(0, |lower, host| lower.doorbell(host, 1, 0xbe11));
    let come = world.settle();
    assert!(come.contains(&(1, LowerEvent::Received { queue: QueueId(3) })));
    assert!(come.contains(&(
        1,
        LowerEvent::Unexpected {
            from: 0,
            mailbox: 0,
            bytes: b"unexpected".to_vec(),
        }
    )));
    let info = 0xbe11;
    assert!(come.contains(&(1, LowerEvent::Doorbell { from: 0, info })));
    assert_eq!(
        come.iter().filter(|c| c.0 == 0).count(),
        2,
        "both are accepted"
    );
    let mut landed = [0; 512];
    world.memory(1).read(at.at, &mut landed).unwrap();
    assert_eq!((landed, world.failure()), ([7; 512], ""));
}

#[test]
fn nread_and_nwrite_reach_the_window() {
    let mut world = World::new(2, true, |_| {});
    let at = super::command::WINDOW_AT.plus(16);
    world.call(1, |lower, host| lower.segment(host, 16, 8, true));
    world.call(0, |lower, host| {
        lower.write(host, 1, at, b"8 bytes!");
        lower.read(host, 1, at.plus(2), 6, 9);
    });
    let bytes = b"bytes!".to_vec();
    assert_eq!(world.settle(), [(0, LowerEvent::Read { id: 9, bytes })]);
    // A doorbell that follows an NWRITE does not overtake it.
    let (_page, piece) = world.buffer(1, &[0; 8]);
    world.call(0, |lower, host| {
        lower.write(host, 1, piece.at, b"doorbell");
        lower.doorbell(host, 1, 1);
    });
    world.settle();
    let mut written = [0; 8];
    world.memory(1).read(piece.at, &mut written).unwrap();
    assert_eq!(&written, b"doorbell");
    let stats = world.cards.stats();
    assert_eq!((stats[0].io, stats[0].doorbells), (3, 1));
    world.call(0, |lower, host| {
        lower.read(host, 1, Physical(PAGE_BYTES), 8, 0)
    });
    world.settle();
    assert!(world.failure().starts_with("rank 0, lower level, read"));
}

#[test]
fn a_card_lets_others_reach_open_segments_only() {
    type Access = fn(&mut LowerLevel, &mut TestHost, Physical);
    let accesses: [Access; 2] = [
        |lower, host, at| lower.write(host, 1, at, b"8 bytes!"),
        |lower, host, at| lower.read(host, 1, at, 8, 1),
    ];
    for access in accesses {
        // The segment, its neighbours on both sides, the window's end, and the segment once closed.
        for (offset, closes, is_reached) in [
            (64, false, true),
            (60, false, false),
            (68, false, false),
            ((16 << 20) - 4, false, false),
            (u64::MAX - 8, false, false),
            (64, true, false),
        ] {
            // Checked or not: it is the card that looks.
            let mut world = World::new(2, false, |_| {});
            world.call(1, |lower, host| lower.segment(host, 64, 8, true));
            if closes {
                world.call(1, |lower, host| lower.segment(host, 64, 8, false));
            }
            let at = super::command::WINDOW_AT.plus(offset);
            world.call(0, |lower, host| access(lower, host, at));
            world.settle();
            assert_eq!(world.failure().is_empty(), is_reached, "{offset}");
        }
    }
}

#[test]
fn congestion_refuses_segments_and_nothing_is_lost() {
    // Three nodes send to one whose input buffer is emptied slowly.
    let mut world = World::new(4, true, |f| {
        f.input.value.0 = 4;
        f.drain.value = crate::time::Rate::bits_per_second(400_000_000);
    });
    for from in 1..4 {
        for n in 0..8 {
            assert!(world.send(from, 0, 0, &[16 * from as u8 + n; 4096]));
        }
    }
    let come = world.settle();
    for from in 1..4 {
        let bytes: Vec<u8> = come
            .iter()
            .filter_map(|(_, event)| match event {
                LowerEvent::Unexpected { from: f, bytes, .. } if *f == from => Some(bytes[0]),
                _ => None,
            })
            .collect();
        let base = 16 * from as u8;
        assert_eq!(bytes, (base..base + 8).collect::<Vec<u8>>());
    }
    assert!(world.cards.stats()[0].refused > 0);
    assert_eq!(world.cards.unfinished(0).1, 0);
}
