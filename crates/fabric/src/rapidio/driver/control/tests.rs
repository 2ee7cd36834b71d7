//! Control levels above a lower level in memory.

use super::fake::{Fabric, FakeHost, FakeLower, limits};
use super::*;
use crate::rapidio::command::Physical;
use crate::time::Time;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const COSTS: ControlCosts = ControlCosts {
    call: Time::ns(1),
    page: Time::ns(1),
    copy: Rate::bits_per_second(8_000_000_000),
    cache: 16384,
    write_back: Rate::bits_per_second(8_000_000_000),
};

struct Nodes {
    fabric: Arc<Mutex<Fabric>>,
    all: Vec<(ControlLevel<FakeLower>, FakeHost)>,
}

fn nodes(count: usize, seed: u64, limits: LowerLimits) -> Nodes {
    let fabric = Fabric::new(count, seed, limits);
    let node = |me| {
        let lower = FakeLower {
            me,
            fabric: fabric.clone(),
            memory: PhysicalMemory::new(),
        };
        (ControlLevel::new(lower, me, COSTS), FakeHost::default())
    };
    let all = (0..count as u32).map(node).collect();
    Nodes { fabric, all }
}

use crate::rapidio::driver::physical::PhysicalMemory;

impl Nodes {
    fn with<T>(
        &mut self,
        me: Rank,
        act: impl FnOnce(&mut ControlLevel<FakeLower>, &mut FakeHost) -> T,
    ) -> T {
        let (level, host) = &mut self.all[me as usize];
        act(level, host)
    }

    /// Messages arrive until none is under way. All nodes look in between.
    fn run(&mut self) {
        loop {
            let moved = self.fabric.lock().unwrap().step();
            let mut seen = 0;
            for (level, host) in &mut self.all {
                seen += level.progress(host).unwrap();
            }
            if !moved && seen == 0 {
                return;
            }
        }
    }
}

proptest! {
    #[test]
    fn data_arrive_whole_and_in_order(
        seed: u64,
        sizes in prop::collection::vec((0u32..3, 0u32..3, 0usize..2, 0usize..20_000), 1..60),
    ) {
        let mut nodes = nodes(3, seed, limits(8, 64, 64, 1));
        let users: Vec<[User; 2]> = (0..3)
            .map(|me| nodes.with(me, |n, _| [n.register_user(), n.register_user()]))
            .collect();
        let mut sent: FxHashMap<(Rank, Rank, usize), Vec<Vec<u8>>> = FxHashMap::default();
        for (number, &(from, to, user, bytes)) in sizes.iter().enumerate() {
            let content: Vec<u8> = (0..bytes).map(|i| (i * 5 + number) as u8).collect();
            let user_number = users[from as usize][user];
            let mut accepted = false;
            while !accepted {
                accepted = nodes.with(from, |n, c| {
                    n.send_datum(c, user_number, to, DataType::Small, &[&content])
                });
                if !accepted {
                    nodes.run();
                }
            }
            sent.entry((from, to, user)).or_default().push(content);
        }
        nodes.run();
        let mut received: FxHashMap<(Rank, Rank, usize), Vec<Vec<u8>>> = FxHashMap::default();
        for to in 0..3 {
            for (number, user) in users[to as usize].iter().enumerate() {
                while let Some(event) = nodes.with(to, |n, _| n.event(*user)) {
                    let ControlEvent::Datum { from, data_type, bytes } = event else {
                        panic!("{event:?}");
                    };
                    prop_assert_eq!(data_type, DataType::Small);
                    received.entry((from, to, number)).or_default().push(bytes);
                }
            }
        }
        prop_assert!(sent == received);
        for (level, _) in &mut nodes.all {
            prop_assert_eq!(level.counts(), [0; 4]);
            prop_assert_eq!(level.lower_mut().memory().pages(), 0);
        }
    }

    /// Buffers with canaries around them, on few queues and mailboxes.
    #[test]
    fn transfers_arrive_and_nothing_else_is_written(
        seed: u64,
        queues in 1u8..5,
        mailboxes in 2u8..5,
        send_max in 1usize..4,
        transfers in prop::collection::vec(
            (0u32..3, 0u32..3, 1usize..30_000, 0usize..5000, 0usize..5000, any::<bool>()),
            1..25,
        ),
    ) {
        const AROUND: usize = 512;
        let mut nodes = nodes(3, seed, limits(queues, mailboxes, 64, send_max));
        let user = (0..3).map(|me| nodes.with(me, |n, _| n.register_user())).last().unwrap();
        struct One {
            from: Rank,
            to: Rank,
            content: Vec<u8>,
            source: UserMemory,
            target: Vec<u8>,
            place: usize,
            cut: Cut,
            buffer: BufferId,
            received: bool,
        }
        let mut all: FxHashMap<RequestId, One> = FxHashMap::default();
        let mut ready = Vec::new();
        for (number, &(from, to, bytes, at, place, like)) in transfers.iter().enumerate() {
            // Half of them lie alike in their pages.
            let content: Vec<u8> =
                (0..bytes + 3 * PAGE_BYTES).map(|i| (i * 3 + number) as u8 % 251).collect();
            let target = vec![0xee; bytes + 3 * PAGE_BYTES + 2 * AROUND];
            let page = |v: &Vec<u8>| PAGE_BYTES - v.as_ptr().addr() % PAGE_BYTES;
            let place = page(&target) + AROUND + place % PAGE_BYTES;
            let at = if like { place } else { at };
            let at = page(&content) + at % PAGE_BYTES;
            let memory = UserMemory::of(&target).part(place..place + bytes);
            let source = UserMemory::of(&content).part(at..at + bytes);
            let cut = Cut::of(memory);
            let (request, buffer, mailbox) = nodes.with(to, |n, c| {
                // SAFETY: `target` lives until the end, and is read after the transfer.
                let buffer = unsafe { n.register_buffer(memory, cut) };
                let (request, mailbox) = n.request_queue(c, user, from, buffer).unwrap();
                (request, buffer, mailbox)
            });
            let one = One {
                from, to, content, source, target, place, cut, buffer, received: false,
            };
            // The numbers of requests are a node's own.
            let key = request * 4 + to;
            all.insert(key, one);
            ready.extend(mailbox.map(|m| (key, m)));
        }
        let mut sending: FxHashMap<(Rank, TransferId), BufferId> = FxHashMap::default();
        let mut left = 2 * all.len();
        while left > 0 {
            for (key, mailbox) in ready.drain(..) {
                let one = &all[&key];
                let transfer = nodes.with(one.from, |n, c| {
                    // SAFETY: `content` lives until the end.
                    let buffer = unsafe { n.register_buffer(one.source, one.cut) };
                    (n.send_buffer(c, user, one.to, mailbox, buffer), buffer)
                });
                sending.insert((one.from, transfer.0), transfer.1);
            }
            nodes.run();
            let before = left;
            for me in 0..3 {
                while let Some(event) = nodes.with(me, |n, _| n.event(user)) {
                    match event {
                        ControlEvent::Opened { request, mailbox } => {
                            ready.push((request * 4 + me, mailbox));
                        }
                        ControlEvent::Received { request } => {
                            let one = all.get_mut(&(request * 4 + me)).unwrap();
                            prop_assert!(!one.received);
                            one.received = true;
                            left -= 1;
                            nodes.with(me, |n, _| n.release_buffer(one.buffer));
                        }
                        ControlEvent::Sent { transfer } => {
                            let buffer = sending.remove(&(me, transfer)).unwrap();
                            left -= 1;
                            nodes.with(me, |n, _| n.release_buffer(buffer));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            prop_assert!(left < before || !ready.is_empty(), "stuck");
        }
        for one in all.values() {
            let (place, bytes) = (one.place, one.source.bytes);
            let at = one.source.address - one.content.as_ptr().addr();
            prop_assert!(one.target[place..place + bytes] == one.content[at..at + bytes]);
            let mut around = one.target[..place].iter().chain(&one.target[place + bytes..]);
            prop_assert!(around.all(|b| *b == 0xee));
        }
        prop_assert!(nodes.fabric.lock().unwrap().is_idle());
        for (level, _) in &mut nodes.all {
            prop_assert_eq!(level.counts(), [0; 4]);
            prop_assert_eq!(level.lower_mut().memory().pages(), 0);
        }
    }
}

proptest! {
    /// A node is lost while transfers from it and to it are under way. The others drop it, use the
    /// memory for something else, and go on with what they have among themselves.
    #[test]
    fn what_a_lost_node_had_is_free_again(
        seed: u64,
        queues in 1u8..4,
        mailboxes in 2u8..4,
        steps in 0usize..60,
        transfers in prop::collection::vec((0u32..3, 0u32..3, 1usize..30_000), 1..20),
    ) {
        const LOST: Rank = 2;
        let mut nodes = nodes(3, seed, limits(queues, mailboxes, 64, 1));
        let user = (0..3).map(|me| nodes.with(me, |n, _| n.register_user())).last().unwrap();
        struct One {
            from: Rank,
            content: Vec<u8>,
            target: Vec<u8>,
            into: BufferId,
            transfer: Option<(TransferId, BufferId)>,
            received: bool,
            sent: bool,
        }
        let mut all: FxHashMap<(Rank, RequestId), One> = FxHashMap::default();
        let mut ready = Vec::new();
        for (number, &(from, to, bytes)) in transfers.iter().enumerate() {
            let content: Vec<u8> = (0..bytes).map(|i| (i * 3 + number) as u8 % 251).collect();
            let target = vec![0xee; bytes];
            let memory = UserMemory::of(&target);
            let (request, into, mailbox) = nodes.with(to, |n, c| {
                // SAFETY: `target` lives until the end, and is accessed after the transfer.
                let into = unsafe { n.register_buffer(memory, Cut::of(memory)) };
                let (request, mailbox) = n.request_queue(c, user, from, into).unwrap();
                (request, into, mailbox)
            });
            let one = One {
                from, content, target, into, transfer: None, received: false, sent: false,
            };
            all.insert((to, request), one);
            ready.extend(mailbox.map(|m| (to, request, m)));
        }
        let among_others = |to: Rank, one: &One| one.from != LOST && to != LOST;
        for step in 0.. {
            for (to, request, mailbox) in ready.drain(..) {
                let one = all.get_mut(&(to, request)).unwrap();
                let source = UserMemory::of(&one.content);
                let cut = Cut::of(UserMemory::of(&one.target));
                one.transfer = Some(nodes.with(one.from, |n, c| {
                    // SAFETY: `content` lives until the end.
                    let buffer = unsafe { n.register_buffer(source, cut) };
                    (n.send_buffer(c, user, to, mailbox, buffer), buffer)
                }));
            }
            let moved = nodes.fabric.lock().unwrap().step();
            let mut seen = 0;
            let alive = if step < steps { 3 } else { LOST };
            for me in 0..alive {
                seen += nodes.with(me, |n, c| n.progress(c).unwrap());
                while let Some(event) = nodes.with(me, |n, _| n.event(user)) {
                    seen += 1;
                    match event {
                        ControlEvent::Opened { request, mailbox } => {
                            ready.push((me, request, mailbox));
                        }
                        ControlEvent::Received { request } => {
                            let one = all.get_mut(&(me, request)).unwrap();
                            prop_assert!(step <= steps || one.from != LOST);
                            one.received = true;
                            prop_assert!(one.target == one.content);
                            nodes.with(me, |n, _| n.release_buffer(one.into));
                        }
                        ControlEvent::Sent { transfer } => {
                            let mut sends = all.iter_mut();
                            let is = |one: &One| {
                                one.from == me && one.transfer.is_some_and(|t| t.0 == transfer)
                            };
                            let ((to, _), one) = sends.find(|(_, one)| is(one)).unwrap();
                            prop_assert!(step <= steps || *to != LOST);
                            one.sent = true;
                            nodes.with(me, |n, _| n.release_buffer(one.transfer.unwrap().1));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            if step == steps {
                ready.retain(|(to, request, _)| among_others(*to, &all[&(*to, *request)]));
                for me in 0..LOST {
                    nodes.with(me, |n, c| n.forget_peer(c, LOST));
                }
                for ((to, _), one) in &mut all {
                    if *to != LOST && one.from == LOST && !one.received {
                        nodes.with(*to, |n, _| n.release_buffer(one.into));
                        one.target.fill(0x77);
                    }
                    if let Some((_, buffer)) = one.transfer
                        && *to == LOST && one.from != LOST && !one.sent
                    {
                        nodes.with(one.from, |n, _| n.release_buffer(buffer));
                    }
                }
            } else if step > steps && !moved && seen == 0 && ready.is_empty() {
                break;
            }
        }
        for ((to, _), one) in &all {
            if among_others(*to, one) {
                prop_assert!(one.received && one.sent && one.target == one.content);
            } else if one.from == LOST && *to != LOST && !one.received {
                prop_assert!(one.target.iter().all(|b| *b == 0x77));
            }
        }
        for (level, _) in &mut nodes.all[..LOST as usize] {
            prop_assert_eq!(level.counts(), [0; 4]);
            prop_assert_eq!(level.lower_mut().memory().pages(), 0);
        }
    }
}

#[test]
fn doorbells_and_short_transactions_find_their_user() {
    let mut nodes = nodes(2, 1, limits(8, 64, 64, 1));
    for me in 0..2 {
        nodes.with(me, |n, _| (n.register_user(), n.register_user()));
    }
    let id = nodes.with(0, |n, c| {
        n.doorbell(c, User(1), 1, 77);
        n.read(c, User(0), 1, Physical(0), 8)
    });
    nodes.run();
    let rung = nodes.with(1, |n, _| (n.event(User(0)), n.event(User(1))));
    let doorbell = ControlEvent::Doorbell {
        from: 0,
        number: 77,
    };
    assert_eq!(rung, (None, Some(doorbell)));
    let answer = nodes.with(0, |n, _| n.event(User(0)));
    let bytes = vec![0; 8];
    assert_eq!(answer, Some(ControlEvent::Read { id, bytes }));
    // Another user's doorbell is an error of the peer.
    nodes.with(0, |n, c| n.doorbell(c, User(9), 1, 0));
    let what = nodes.with(1, |n, c| n.progress(c));
    assert_eq!(what.unwrap_err().0, 0);
}

#[test]
fn fuzz_rapidio_general_queue() {
    let header = |total: u32, offset, sequence| Header {
        data_type: DataType::Small,
        user: 0,
        sequence,
        total,
        offset,
    };
    let small = [&header(5, 0, 0).encode()[..], b"bytes"].concat();
    let first = [&header(9, 0, 0).encode()[..], b"part"].concat();
    let fabric = Fabric::new(2, 1, limits(8, 64, 64, 1));
    ferry_fuzz::fuzz("fuzz_rapidio_general_queue", &[small, first], |bytes| {
        let lower = FakeLower {
            me: 1,
            fabric: fabric.clone(),
            memory: PhysicalMemory::new(),
        };
        let mut level = ControlLevel::new(lower, 1, COSTS);
        let user = level.register_user();
        let mut host = FakeHost::default();
        let first = level.on_message(&mut host, 0, 0, bytes);
        let again = level.on_message(&mut host, 0, 0, bytes);
        let whole = level.peers[&0].assembly.is_empty();
        let header = Header::parse(bytes).map(|(h, part)| (h.encode()[0], part.len()));
        (
            first.is_ok(),
            again.map_err(|e| e.1),
            whole,
            header,
            level.event(user).is_some(),
        )
    });
}
