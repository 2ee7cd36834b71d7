//! A lower level in memory, for tests. Messages and completions of different nodes and mailboxes
//! are delayed and overtake each other at random; those of one sender to one mailbox keep their
//! order, as the hardware keeps it.

use crate::kernel::{Event, Rank};
use crate::rapidio::command::{Physical, Piece, QueueId, SendId};
use crate::rapidio::driver::lower::{Host, Lower, LowerEvent, LowerLimits};
use crate::rapidio::driver::physical::PhysicalMemory;
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// A processor whose clock counts what is charged.
#[derive(Default)]
pub struct FakeHost(pub Time);

impl Host for FakeHost {
    fn now(&self) -> Time {
        self.0
    }
    fn charge(&mut self, _cause: &'static str, cost: Time) {
        self.0 += cost;
    }
    fn command(&mut self, _kind: u32, _bytes: &[u8]) {
        unreachable!("no card");
    }
    fn event(&mut self) -> Option<Event> {
        unreachable!("no card");
    }
}

/// A message under way.
struct InFlight {
    bytes: Vec<u8>,
    id: SendId,
}

/// A dedicated queue that is open.
struct Open {
    from: Rank,
    mailbox: u8,
    pieces: Vec<Piece>,
    landed: usize,
}

#[derive(Default)]
struct Node {
    open: BTreeMap<QueueId, Open>,
    events: VecDeque<LowerEvent>,
    /// Bytes to be written when the node looks next.
    deposits: VecDeque<(Physical, Vec<u8>)>,
    /// Messages that its card has not finished sending.
    sending: usize,
    /// Messages in its general queue that it has not taken.
    general: usize,
}

/// All nodes' cards.
pub struct Fabric {
    nodes: Vec<Node>,
    /// By sender, receiver, mailbox: messages in order.
    in_flight: BTreeMap<(Rank, Rank, u8), VecDeque<InFlight>>,
    random: u64,
    limits: LowerLimits,
    sends_max: usize,
    general_max: usize,
}

impl Fabric {
    /// The cards of `nodes` nodes.
    pub fn new(nodes: usize, seed: u64, limits: LowerLimits) -> Arc<Mutex<Fabric>> {
        Arc::new(Mutex::new(Fabric {
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            in_flight: BTreeMap::new(),
            random: seed | 1,
            limits,
            sends_max: 3,
            general_max: 2,
        }))
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    /// One of the messages under way arrives, or is refused. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        self.in_flight.retain(|_, messages| !messages.is_empty());
        if self.in_flight.is_empty() {
            return false;
        }
        let at = self.random(self.in_flight.len());
        let Some((&(from, to, mailbox), _)) = self.in_flight.iter().nth(at) else {
            return false;
        };
        let node = &mut self.nodes[to as usize];
        let queue = node.open.iter_mut();
        let queue = { queue }.find(|(_, q)| (q.from, q.mailbox) == (from, mailbox));
        if queue.is_none() && node.general >= self.general_max {
            return true; // Refused: it is sent again.
        }
        let Some(InFlight { bytes, id }) = self
            .in_flight
            .get_mut(&(from, to, mailbox))
            .and_then(VecDeque::pop_front)
        else {
            return false;
        };
        match queue {
            Some((&queue, open)) => {
                let piece = open.pieces[open.landed];
                assert_eq!(bytes.len(), piece.bytes.into(), "sizes that differ");
                node.deposits.push_back((piece.at, bytes));
                open.landed += 1;
                if open.landed == open.pieces.len() {
                    node.open.remove(&queue);
                    node.events.push_back(LowerEvent::Received { queue });
                }
            }
            None => {
                node.general += 1;
                node.events.push_back(LowerEvent::Unexpected {
                    from,
                    mailbox,
                    bytes,
                });
            }
        }
        let sender = &mut self.nodes[from as usize];
        sender.sending -= 1;
        if id != 0 {
            sender.events.push_back(LowerEvent::Sent { id });
        }
        true
    }

    /// Returns whether no queue is open and no event waits.
    pub fn is_idle(&self) -> bool {
        let idle = |n: &Node| n.open.is_empty() && n.events.is_empty() && n.deposits.is_empty();
        self.nodes.iter().all(idle)
    }
}

/// The lower level of one node.
pub struct FakeLower {
    pub me: Rank,
    pub fabric: Arc<Mutex<Fabric>>,
    pub memory: PhysicalMemory,
}

impl Lower for FakeLower {
    fn limits(&self) -> LowerLimits {
        self.fabric.lock().unwrap().limits
    }

    fn send(
        &mut self,
        _: &mut dyn Host,
        to: Rank,
        mailbox: u8,
        pieces: &[Piece],
        id: SendId,
    ) -> bool {
        let mut fabric = self.fabric.lock().unwrap();
        assert!(id != 0 && pieces.len() <= fabric.limits.send_max);
        let most = fabric.sends_max;
        let node = &mut fabric.nodes[self.me as usize];
        if node.sending >= most {
            return false;
        }
        node.sending += pieces.len();
        for (at, piece) in pieces.iter().enumerate() {
            let mut bytes = vec![0; piece.bytes.into()];
            self.memory.read(piece.at, &mut bytes).unwrap();
            let id = if at + 1 == pieces.len() { id } else { 0 };
            let in_flight = fabric.in_flight.entry((self.me, to, mailbox)).or_default();
            in_flight.push_back(InFlight { bytes, id });
        }
        true
    }

    fn receive(&mut self, _: &mut dyn Host) -> Option<LowerEvent> {
        let mut fabric = self.fabric.lock().unwrap();
        let node = &mut fabric.nodes[self.me as usize];
        for (at, bytes) in node.deposits.drain(..) {
            self.memory.write(at, &bytes).unwrap();
        }
        let event = node.events.pop_front()?;
        if matches!(event, LowerEvent::Unexpected { .. }) {
            node.general -= 1;
        }
        Some(event)
    }

    fn expect(
        &mut self,
        _: &mut dyn Host,
        queue: QueueId,
        from: Rank,
        mailbox: u8,
        pieces: &[Piece],
    ) -> bool {
        let mut fabric = self.fabric.lock().unwrap();
        let limits = fabric.limits;
        let open = &mut fabric.nodes[self.me as usize].open;
        assert!(queue.0 < limits.queues && mailbox < limits.mailboxes && mailbox > 0);
        assert!(!pieces.is_empty() && pieces.len() <= limits.expect_max);
        let mut others = open.values();
        assert!(others.all(|q| (q.from, q.mailbox) != (from, mailbox)));
        let new = Open {
            from,
            mailbox,
            pieces: pieces.to_vec(),
            landed: 0,
        };
        open.insert(queue, new).is_none()
    }

    fn doorbell(&mut self, _: &mut dyn Host, to: Rank, info: u16) {
        let from = self.me;
        let mut fabric = self.fabric.lock().unwrap();
        let events = &mut fabric.nodes[to as usize].events;
        events.push_back(LowerEvent::Doorbell { from, info });
    }

    fn write(&mut self, _: &mut dyn Host, to: Rank, at: Physical, data: &[u8]) {
        let mut fabric = self.fabric.lock().unwrap();
        assert!(data.len() <= fabric.limits.io_max);
        let deposits = &mut fabric.nodes[to as usize].deposits;
        deposits.push_back((at, data.to_vec()));
    }

    fn read(&mut self, _: &mut dyn Host, _: Rank, _: Physical, bytes: u16, id: SendId) {
        let mut fabric = self.fabric.lock().unwrap();
        let bytes = vec![self.me as u8; bytes.into()];
        let events = &mut fabric.nodes[self.me as usize].events;
        events.push_back(LowerEvent::Read { id, bytes });
    }

    fn segment(&mut self, _: &mut dyn Host, _: u64, _: u64, _: bool) {}

    fn forget(&mut self, _: &mut dyn Host, node: Rank) {
        let mut fabric = self.fabric.lock().unwrap();
        let own = &mut fabric.nodes[self.me as usize];
        let mut places = Vec::new();
        own.open.retain(|_, queue| {
            if queue.from == node {
                places.extend(queue.pieces.iter().map(|p| p.at));
            }
            queue.from != node
        });
        own.deposits.retain(|(at, _)| !places.contains(at));
        // Messages from there are stopped, so that none lands in a queue of another use.
        fabric
            .in_flight
            .retain(|(from, to, mailbox), _| (*from, *to) != (node, self.me) || *mailbox == 0);
        let me = self.me;
        let dropped = fabric
            .in_flight
            .extract_if(.., |(from, to, _), _| (*from, *to) == (me, node));
        let dropped: Vec<_> = dropped.flat_map(|(_, messages)| messages).collect();
        let own = &mut fabric.nodes[me as usize];
        own.sending -= dropped.len();
        let ids = dropped.iter().map(|m| m.id).filter(|id| *id != 0);
        own.events.extend(ids.map(|id| LowerEvent::Sent { id }));
        own.events.push_back(LowerEvent::Forgotten { node });
    }

    fn memory(&mut self) -> &mut PhysicalMemory {
        &mut self.memory
    }
}

/// A card of the usual size, with so many queues and mailboxes, and messages of a queue.
pub fn limits(queues: u8, mailboxes: u8, expect_max: usize, send_max: usize) -> LowerLimits {
    LowerLimits {
        mailboxes,
        queues,
        message_max: 4096,
        segment_max: 256,
        alignment: 8,
        expect_max,
        send_max,
        io_max: 8,
    }
}
