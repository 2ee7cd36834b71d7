//! Random traffic under refusals and congestion: no byte lost, doubled or out of order, nothing
//! written outside a registered buffer.

use super::{World, piece};
use crate::kernel::Rank;
use crate::rapidio::command::{PAGE_BYTES, Piece, QueueId};
use crate::rapidio::driver::lower::LowerEvent;
use crate::rapidio::driver::physical::Registration;
use crate::time::Rate;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What memory around a buffer holds.
const GUARD: u8 = 0xa5;
/// Segments of [`long_traffic_is_whole`]. `FERRY_RAPIDIO_SEGMENTS` asks for more.
const LONG_SEGMENTS: u64 = 1_500_000;

/// Xorshift, George Marsaglia, 2003.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % end
    }
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let start = self.below(256) as usize;
        let step = 2 * self.below(128) as usize + 1;
        (0..len).map(|n| (start + n * step) as u8).collect()
    }
}

/// A transfer through a dedicated queue.
struct Transfer {
    from: Rank,
    to: Rank,
    mailbox: u8,
    queue: QueueId,
    /// What is to arrive, message by message.
    messages: Vec<Vec<u8>>,
    sent: usize,
    /// The receiver's memory, whole pages, with the buffers' bytes as they are to be at the end.
    memory: Vec<u8>,
    wanted: Vec<u8>,
    registered: Vec<Registration>,
}

impl Transfer {
    /// A random transfer to a free queue of `to`. The queue is open.
    fn open(
        world: &mut World,
        random: &mut Random,
        (from, to): (Rank, Rank),
        queue: u8,
    ) -> Transfer {
        let page = PAGE_BYTES as usize;
        let count = 1 + random.below(6) as usize;
        let mut memory = vec![GUARD; (count + 1) * page];
        let start = memory.as_ptr().align_offset(page);
        let mut wanted = memory.clone();
        let (mut messages, mut pieces, mut registered) = (Vec::new(), Vec::<Piece>::new(), vec![]);
        for n in 0..count {
            let len = match random.below(3) {
                0 => 1 + random.below(256) as usize,
                1 => 256 * (1 + random.below(16) as usize),
                _ => page,
            };
            let bytes = random.bytes(len);
            let offset = start + n * page + 8 * random.below((page - len) as u64 / 8 + 1) as usize;
            wanted[offset..offset + len].copy_from_slice(&bytes);
            let address = memory[offset..].as_mut_ptr().expose_provenance();
            // SAFETY: `memory` lives until the registration is released in `check`, and nothing
            // else uses it before.
            let buffer = unsafe { world.memory(to).register(address, len) };
            pieces.push(piece(buffer.runs[0].at, len));
            registered.push(buffer);
            messages.push(bytes);
        }
        // Mailboxes from 1 on: one for each queue.
        let mailbox = queue + 1;
        assert!(world.expect(to, queue, from, mailbox, &pieces));
        Transfer {
            from,
            to,
            mailbox,
            queue: QueueId(queue),
            messages,
            sent: 0,
            memory,
            wanted,
            registered,
        }
    }

    /// Sends as much as the send list takes.
    fn advance(&mut self, world: &mut World) {
        while let Some(bytes) = self.messages.get(self.sent)
            && world.send(self.from, self.to, self.mailbox, bytes)
        {
            self.sent += 1;
        }
    }

    /// The queue is complete: every byte is where it belongs, and no other has changed.
    fn check(mut self, world: &mut World) {
        assert_eq!(self.sent, self.messages.len());
        for buffer in self.registered.drain(..) {
            world.memory(self.to).release(buffer);
        }
        assert!(
            self.memory == self.wanted,
            "bytes in or around a buffer are wrong"
        );
    }
}

/// Runs traffic until at least `segments` segments have been sent, and then until all is quiet.
fn run(world: &mut World, mut random: Random, segments: u64) {
    let nodes = world.nodes.len() as Rank;
    let queues = 8;
    let mut transfers: Vec<Transfer> = Vec::new();
    // By sender and receiver: messages of the general queue that are to come.
    let mut small: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); (nodes * nodes) as usize];
    let mut general_buffers = None;
    loop {
        let sent: u64 = world.cards.stats().iter().map(|s| s.segments).sum();
        let goes_on = sent < segments;
        let room = transfers.len() < 4 * nodes as usize;
        if goes_on && room {
            general_buffers.get_or_insert(world.cards.unfinished(0).2);
            let from = random.below(nodes.into()) as Rank;
            let to = random.below(nodes.into()) as Rank;
            if random.below(3) == 0 {
                let len = 1 + random.below(PAGE_BYTES) as usize;
                let bytes = random.bytes(len);
                if world.send(from, to, 0, &bytes) {
                    small[(from * nodes + to) as usize].push_back(bytes);
                }
            } else {
                let free = (0..queues).find(|q| {
                    let uses = |t: &Transfer| t.to == to && t.queue == QueueId(*q);
                    !transfers.iter().any(uses)
                });
                if let Some(queue) = free {
                    let transfer = Transfer::open(world, &mut random, (from, to), queue);
                    transfers.push(transfer);
                }
            }
        }
        for transfer in &mut transfers {
            transfer.advance(world);
        }
        let steps = 1 + random.below(60);
        let moved = (0..steps).filter(|_| world.step()).count();
        let mut came = 0;
        for node in 0..nodes {
            while let Some(event) = world.receive(node) {
                came += 1;
                match event {
                    LowerEvent::Unexpected { from, bytes, .. } => {
                        let due = small[(from * nodes + node) as usize].pop_front();
                        assert_eq!(due, Some(bytes), "lost, doubled or out of order");
                    }
                    LowerEvent::Received { queue } => {
                        let place = transfers
                            .iter()
                            .position(|t| t.to == node && t.queue == queue);
                        transfers.swap_remove(place.unwrap()).check(world);
                    }
                    LowerEvent::Sent { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(world.failure(), "");
        if !goes_on
            && moved == 0
            && came == 0
            && transfers.iter().all(|t| t.sent == t.messages.len())
        {
            break;
        }
    }
    let quiet: Vec<_> = (0..nodes).map(|n| world.cards.unfinished(n)).collect();
    let left: usize = small.iter().map(VecDeque::len).sum();
    assert_eq!((transfers.len(), left), (0, 0), "{quiet:?}");
    for node in 0..nodes {
        let general = general_buffers.unwrap_or_default();
        assert_eq!(world.cards.unfinished(node), (0, 0, general));
        assert_eq!(world.memory(node).pages(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn random_traffic_is_whole(
        nodes in 1u32..5,
        refuse in 0.0..0.6f64,
        input in 1u32..20,
        general in 4u32..20,
        sends in 1u32..20,
        drain_mbit in 50u64..4000,
        seed in 1u64..u64::MAX,
    ) {
        let mut world = World::new(nodes, true, |f| {
            f.refuse = Some(refuse);
            f.input.value.0 = input;
            f.general.value.0 = general;
            f.sends.value.0 = sends;
            f.drain.value = Rate::bits_per_second(drain_mbit * 1_000_000);
        });
        run(&mut world, Random(seed), 2000);
    }
}

/// One long run on four nodes.
#[test]
fn long_traffic_is_whole() {
    let asked = std::env::var("FERRY_RAPIDIO_SEGMENTS").ok();
    let segments = asked.and_then(|s| s.parse().ok()).unwrap_or(LONG_SEGMENTS);
    let mut world = World::new(4, true, |f| {
        f.refuse = Some(0.05);
        f.input.value.0 = 8;
    });
    run(&mut world, Random(0x1890), segments);
    let stats = world.cards.stats();
    let misplaced: u64 = stats.iter().map(|s| s.misplaced).sum();
    let refused: u64 = stats.iter().map(|s| s.refused).sum();
    assert!(misplaced > 10, "{misplaced} misplaced");
    assert!(refused > segments / 40, "{refused} refused");
}
