//! Remote memory on each kind of card that has it, ranks being threads: random puts and gets of two
//! to four ranks against a flat model of the segments.

use ferry_fabric::driver::{Body, Driver, Upcall};
use ferry_fabric::machine::{self, Machine};
use ferry_fabric::remote_memory::{Blocks, RemoteError, RemoteMemory, SegmentKey};
use ferry_fabric::{Client, ModelSegment, Rank, Time};
use proptest::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Mutex;

const MACHINES: [&str; 6] = [
    "rapidio-1890vm6",
    "rapidio-1890vm6-io256",
    "mpc1",
    "mpc3",
    "dimmnet2",
    "dimmnet2-planned",
];

/// Message numbers.
const KEY: u8 = 1;
const DONE: u8 = 2;
const QUESTION: u8 = 3;
const ANSWER: u8 = 4;

#[derive(Default)]
struct Messages(Vec<(Rank, u8, Vec<u8>)>);

impl Upcall for Messages {
    fn on_message(&mut self, from: Rank, message: u8, bytes: &[u8]) {
        self.0.push((from, message, bytes.to_vec()));
    }
    fn stream_buffer(&mut self, _: Rank, _: u8, _: &[u8], _: usize) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _: Rank, _: u8, _: &[u8], _: usize) {}
    fn stream_part(&mut self, _: Rank, _: u8, _: &[u8], _: &[u8]) {}
}

struct Node {
    c: Client,
    driver: Box<dyn Driver>,
    messages: Messages,
}

impl Node {
    fn remote(&mut self) -> (&mut dyn RemoteMemory, &mut Client) {
        (self.driver.remote_memory().unwrap(), &mut self.c)
    }

    /// Tries, looks, tries again, and waits: what the device's loop does.
    fn until<T>(&mut self, mut attempt: impl FnMut(&mut Node) -> Option<T>) -> T {
        loop {
            if let Some(done) = attempt(self) {
                return done;
            }
            self.driver.poll(&mut self.c, &mut self.messages).unwrap();
            if let Some(done) = attempt(self) {
                return done;
            }
            self.c.wait(self.driver.poll_period());
        }
    }

    fn send(&mut self, to: Rank, message: u8, bytes: &[u8]) {
        self.until(|n| {
            let body = Body::Bytes(bytes);
            n.driver
                .send(&mut n.c, to, message, b"head", body)
                .then_some(())
        });
    }

    fn receive(&mut self, from: Rank, message: u8) -> Vec<u8> {
        self.until(|n| {
            let all = &mut n.messages.0;
            let at = all.iter().position(|m| (m.0, m.1) == (from, message))?;
            Some(all.remove(at).2.split_off(4))
        })
    }

    /// Allocates a segment, clears it, and exchanges the keys with all others. Returns its address,
    /// and all keys.
    fn share(&mut self, bytes: usize) -> (usize, Vec<SegmentKey>) {
        let (remote, c) = self.remote();
        let address = remote.allocate(c, bytes, 64).unwrap();
        assert!(remote.range(c).contains(&address) && address.is_multiple_of(64));
        // SAFETY: just allocated, and no other rank has a key yet.
        unsafe { pointer(address).write_bytes(0, bytes) };
        let key = remote.register(c, address, bytes).unwrap();
        let (me, ranks) = (self.c.me(), self.c.ranks());
        for other in (0..ranks).filter(|r| *r != me) {
            self.send(other, KEY, &key.encode());
        }
        let keys = (0..ranks).map(|rank| match rank == me {
            true => key,
            false => SegmentKey::decode(self.receive(rank, KEY).try_into().unwrap()),
        });
        (address, keys.collect())
    }

    /// Tells the others that all puts are done, and waits for them.
    fn meet(&mut self) {
        let (me, ranks) = (self.c.me(), self.c.ranks());
        let others = (0..ranks).filter(|r| *r != me);
        for other in others.clone() {
            let (remote, c) = self.remote();
            if remote.offer().flush {
                remote.flush(c, other).unwrap();
            }
            self.send(other, DONE, &[]);
        }
        for other in others {
            self.receive(other, DONE);
        }
    }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// The bytes of a segment of this process, at the rank's time.
fn bytes_of(c: &mut Client, address: usize, bytes: usize) -> Vec<u8> {
    c.sync();
    // SAFETY: within the mapped memory, which the model does not write while this rank runs.
    unsafe { std::slice::from_raw_parts(pointer(address), bytes) }.to_vec()
}

/// Runs `body` on each of `ranks` ranks of a machine. Returns what they return.
fn job<T: Send>(name: &str, ranks: u32, body: impl Fn(&mut Node) -> T + Sync) -> Vec<T> {
    let (file, text) = machine::find(name).unwrap();
    let machine: Machine = machine::read(&file, &text).unwrap();
    let segment = ModelSegment::create(ranks, machine.mapped_bytes(), &machine.encode()).unwrap();
    std::thread::scope(|s| {
        let model = s.spawn(|| {
            let stuck = |now| abort(&format!("stuck at {now}"));
            let outcome = machine.run(segment.clone(), Default::default(), stuck);
            if let Some(why) = outcome.unwrap().failure {
                abort(&why);
            }
        });
        let nodes: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, driver, body) = (segment.clone(), machine.driver(me), &body);
                s.spawn(move || {
                    let mut node = Node {
                        c: Client::join(segment, me),
                        driver,
                        messages: Messages::default(),
                    };
                    // Its window is mapped by the first poll.
                    node.driver.poll(&mut node.c, &mut node.messages).unwrap();
                    let result = body(&mut node);
                    node.until(|n| n.driver.settle(&mut n.c).then_some(()));
                    node.c.leave();
                    result
                })
            })
            .collect();
        let results = nodes.into_iter().map(|n| n.join().unwrap()).collect();
        segment.close();
        model.join().unwrap();
        results
    })
}

/// The model is gone, and the ranks sleep until it wakes them: nothing but this ends the test. What
/// a test prints is lost when it aborts, so this writes past that.
fn abort(why: &str) -> ! {
    let line = format!("{why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    std::process::abort()
}

/// One access of a rank to its own part of another's segment.
#[derive(Clone, Debug)]
struct Access {
    puts: bool,
    /// Counted from this rank on.
    peer: u32,
    offset: usize,
    block: usize,
    gap: usize,
    count: usize,
}

/// Bytes of each rank's part of each segment.
const PART: usize = 1500;

fn access() -> impl Strategy<Value = Access> {
    let shape = (0..PART, 1usize..300, 0usize..60, 1usize..6);
    (any::<bool>(), 0u32..4, shape).prop_map(|(puts, peer, (offset, block, gap, count))| {
        let block = block.min(PART - offset);
        let room = (PART - offset - block) / (block + gap);
        let count = count.min(room + 1);
        Access {
            puts,
            peer,
            offset,
            block,
            gap,
            count,
        }
    })
}

/// Does a rank's accesses. Returns what its part of each segment holds then.
fn play(
    node: &mut Node,
    keys: &[SegmentKey],
    accesses: &[Access],
    gets: bool,
) -> FxHashMap<Rank, Vec<u8>> {
    let (me, ranks) = (node.c.me(), node.c.ranks());
    let mut model: FxHashMap<Rank, Vec<u8>> = FxHashMap::default();
    for (number, access) in accesses.iter().enumerate() {
        let peer = (me + 1 + access.peer % (ranks - 1)) % ranks;
        let part = model.entry(peer).or_insert_with(|| vec![0; PART]);
        let blocks = Blocks {
            block: access.block,
            stride: (access.block + access.gap) as u64,
            count: access.count,
        };
        let place = |i: usize| access.offset + i * (access.block + access.gap);
        let offset = (me as usize * PART + access.offset) as u64;
        let (remote, c) = (node.driver.remote_memory().unwrap(), &mut node.c);
        let bytes = access.block * access.count;
        if access.puts {
            let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + number * 31) as u8).collect();
            let put = match access.count {
                1 => remote.put(c, peer, keys[peer as usize], offset, &data),
                _ => remote.put_blocks(c, peer, keys[peer as usize], offset, blocks, &data),
            };
            put.unwrap();
            for (i, block) in data.chunks(access.block).enumerate() {
                part[place(i)..][..access.block].copy_from_slice(block);
            }
        } else if gets {
            let mut got = vec![0xee; bytes];
            let result = match access.count {
                1 => remote.get(c, peer, keys[peer as usize], offset, &mut got),
                _ => remote.get_blocks(c, peer, keys[peer as usize], offset, blocks, &mut got),
            };
            result.unwrap();
            for (i, block) in got.chunks(access.block).enumerate() {
                assert!(block == &part[place(i)..][..access.block], "{access:?}");
            }
        }
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn segments_hold_what_was_put_and_gets_bring_it(
        machine in 0..MACHINES.len(),
        ranks in 2u32..5,
        accesses in prop::collection::vec(prop::collection::vec(access(), 1..25), 4),
    ) {
        let held = Mutex::new(FxHashMap::default());
        job(MACHINES[machine], ranks, |node| {
            let (me, bytes) = (node.c.me(), PART * node.c.ranks() as usize);
            let (address, keys) = node.share(bytes);
            let gets = node.remote().0.offer().get_max > 0;
            let model = play(node, &keys, &accesses[me as usize], gets);
            held.lock().unwrap().insert(me, model);
            node.meet();
            let segment = bytes_of(&mut node.c, address, bytes);
            let held = held.lock().unwrap();
            for (from, part) in (0..).zip(segment.chunks(PART)) {
                let zero = vec![0; PART];
                let put = held.get(&from).and_then(|m| m.get(&me)).unwrap_or(&zero);
                assert!(part == put, "what rank {from} put to rank {me}");
            }
        });
    }
}

#[test]
fn bytes_land_while_their_owner_computes() {
    for machine in MACHINES {
        job(machine, 2, |node| {
            let (address, keys) = node.share(4096);
            if node.c.me() == 0 {
                let (remote, c) = node.remote();
                remote.put(c, 1, keys[1], 100, &[7; 1000]).unwrap();
                if remote.offer().flush {
                    remote.flush(c, 1).unwrap();
                }
                assert!(c.now() < Time::us(20_000), "{machine}: {}", c.now());
            } else {
                // Neither poll nor wait.
                node.c.charge("computing", Time::us(20_000));
                let bytes = bytes_of(&mut node.c, address, 4096);
                assert!(bytes[100..1100] == [7; 1000] && bytes[..100] == [0; 100]);
                assert!(bytes[1100..] == [0; 2996], "{machine}");
            }
            node.meet();
        });
    }
}

#[test]
fn a_notification_does_not_overtake_a_put_and_wakes_its_receiver() {
    for machine in MACHINES {
        job(machine, 2, |node| {
            let (address, keys) = node.share(64);
            let peer = 1 - node.c.me();
            if !node.remote().0.offer().notify {
                let (remote, c) = node.remote();
                let refused = remote.notify(c, peer, 1);
                assert_eq!(refused, Err(RemoteError::NotOffered));
                return;
            }
            for round in 1..20u8 {
                if peer == 1 {
                    let (remote, c) = node.remote();
                    remote.put(c, peer, keys[1], 8, &[round; 40]).unwrap();
                    remote.notify(c, peer, round).unwrap();
                }
                let expected = (peer, round);
                let came = node.until(|n| n.remote().0.notification());
                assert_eq!(came, expected, "{machine}");
                if peer == 0 {
                    let bytes = bytes_of(&mut node.c, address, 64);
                    assert_eq!(bytes[8..48], [round; 40], "{machine}");
                    let (remote, c) = node.remote();
                    remote.notify(c, peer, round).unwrap();
                }
            }
        });
    }
}

#[test]
fn an_access_beyond_a_segment_is_refused_and_memory_is_given_back() {
    for machine in MACHINES {
        job(machine, 2, |node| {
            let (address, keys) = node.share(256);
            let peer = 1 - node.c.me();
            let (remote, c) = (node.driver.remote_memory().unwrap(), &mut node.c);
            let blocks = Blocks {
                block: 8,
                stride: 64,
                count: 5,
            };
            for result in [
                remote.put(c, peer, keys[peer as usize], 250, &[1; 7]),
                remote.put(c, peer, keys[peer as usize], u64::MAX, &[1; 7]),
                remote.put_blocks(c, peer, keys[peer as usize], 0, blocks, &[1; 40]),
                remote.get_blocks(c, peer, keys[peer as usize], 0, blocks, &mut [1; 40]),
            ] {
                let refused = matches!(result, Err(RemoteError::OutOfSegment { .. }));
                assert!(refused, "{machine}: {result:?}");
            }
            // Memory that the card does not reach.
            let own = [0u8; 64];
            assert_eq!(remote.register(c, own.as_ptr().addr(), 64), None);
            node.meet();
            let segment = bytes_of(&mut node.c, address, 256);
            assert!(segment.iter().all(|b| *b == 0));
            let me = node.c.me() as usize;
            let (remote, c) = node.remote();
            remote.deregister(c, keys[me]);
            assert!(remote.release(c, address) && !remote.release(c, address));
            assert_eq!(remote.allocate(c, 256, 64), Some(address));
        });
    }
}

#[test]
fn messages_go_on_beside_gets() {
    for machine in ["rapidio-1890vm6", "dimmnet2"] {
        job(machine, 3, |node| {
            let (_, keys) = node.share(512);
            let me = node.c.me();
            for round in 0..12u8 {
                // Each asks the next one, and gets much while the question of the one before comes.
                let (next, before) = ((me + 1) % 3, (me + 2) % 3);
                node.send(next, QUESTION, &[round]);
                let (remote, c) = node.remote();
                let mut got = [1; 200];
                remote
                    .get(c, next, keys[next as usize], 17, &mut got)
                    .unwrap();
                assert_eq!(got, [0; 200]);
                let question = node.receive(before, QUESTION);
                node.send(before, ANSWER, &question);
                assert_eq!(node.receive(next, ANSWER), [round]);
            }
        });
    }
}
