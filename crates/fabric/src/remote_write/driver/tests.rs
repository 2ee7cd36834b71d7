//! Two drivers and their cards, ranks being threads.

use super::*;
use crate::kernel::{ModelSegment, Server};
use crate::machine::{self, Nic};
use crate::remote_write::Card;
use proptest::prelude::*;
use std::sync::Mutex;

#[derive(Default)]
struct Received {
    messages: Vec<(Rank, u8, Vec<u8>)>,
    /// What came of large messages, by their heads.
    bodies: FxHashMap<Vec<u8>, Vec<u8>>,
}

impl Received {
    /// Bytes of the large message with this head that have come.
    fn body(&self, head: &[u8]) -> usize {
        self.bodies.get(head).map_or(0, Vec::len)
    }
}

impl Upcall for Received {
    fn on_message(&mut self, from: Rank, message: u8, bytes: &[u8]) {
        self.messages.push((from, message, bytes.to_vec()));
    }
    fn stream_buffer(&mut self, _: Rank, _: u8, _: &[u8], _: usize) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _: Rank, _: u8, _: &[u8], _: usize) {}
    fn stream_part(&mut self, _: Rank, _: u8, head: &[u8], bytes: &[u8]) {
        let body = self.bodies.entry(head.to_vec()).or_default();
        body.extend_from_slice(bytes);
    }
}

struct Node {
    c: Client,
    driver: RemoteWriteDriver,
    received: Received,
}

impl Node {
    /// Sends, polling while there is no room.
    fn send(&mut self, to: Rank, message: u8, head: &[u8], body: &[u8]) {
        self.again(|n| {
            let body = Body::Bytes(body);
            n.driver.send(&mut n.c, to, message, head, body)
        });
    }
    /// Tries, looks, tries again, and waits: what the device's loop does.
    fn again(&mut self, mut attempt: impl FnMut(&mut Node) -> bool) {
        while !attempt(self) {
            self.driver.poll(&mut self.c, &mut self.received).unwrap();
            if attempt(self) {
                return;
            }
            self.c.wait(self.driver.poll_period());
        }
    }
    fn until(&mut self, done: impl Fn(&Received) -> bool) {
        self.again(|n| done(&n.received));
    }
    /// A large message by rendezvous: the device's part of it.
    fn send_large(&mut self, to: Rank, body: &[u8]) {
        self.driver.before_rts(&mut self.c, to, body.len());
        self.send(to, 3, &(body.len() as u64).to_le_bytes(), &[]);
        self.until(|k| k.messages.iter().any(|m| m.1 == 4));
        self.received.messages.retain(|m| m.1 != 4);
        let mut done = 0;
        self.again(|n| {
            loop {
                let taken = n.driver.stream(&mut n.c, to, 5, b"head", &body[done..]);
                done += taken;
                if taken == 0 || done == body.len() {
                    return done == body.len();
                }
            }
        });
    }
    fn receive_large(&mut self, from: Rank, address: Option<usize>) -> Vec<u8> {
        self.until(|k| k.messages.iter().any(|m| m.1 == 3));
        let at = self
            .received
            .messages
            .iter()
            .position(|m| m.1 == 3)
            .unwrap();
        let (_, _, len) = self.received.messages.remove(at);
        let len = u64::from_le_bytes(len.try_into().unwrap()) as usize;
        let what = Expected {
            address,
            len,
            message: 5,
            head: b"head",
        };
        self.driver.before_cts(&mut self.c, from, &what);
        self.send(from, 4, b"ask", &[]);
        self.until(|k| k.body(b"head") == len);
        self.received.bodies.remove(&b"head"[..]).unwrap()
    }
}

/// Rank 1's driver on the machine `mpc2`.
fn driver_of_rank_1() -> RemoteWriteDriver {
    let (file, text) = machine::find("mpc2").unwrap();
    let machine = machine::read(&file, &text).unwrap();
    let Nic::RemoteWrite(figures) = &machine.nic else {
        unreachable!("a card with PUT");
    };
    RemoteWriteDriver::new(&machine.platform, figures, 1)
}

/// Runs a job on a machine that comes with Ferry, with some of its figures changed. Returns virtual
/// time at the end.
fn job(
    name: &str,
    ranks: u32,
    change: impl Fn(&mut Figures) + Sync,
    body: impl Fn(&mut Node) + Sync,
) -> Time {
    let (file, text) = machine::find(name).unwrap();
    let mut machine = machine::read(&file, &text).unwrap();
    let Nic::RemoteWrite(figures) = &mut machine.nic else {
        unreachable!("a card with PUT");
    };
    change(figures);
    let (platform, figures) = (&machine.platform, &*figures);
    let segment = ModelSegment::create(ranks, 0, b"").unwrap();
    let card = Card::new(platform, figures, ranks);
    let server = Server::new(segment.clone(), card, None);
    let credits = Mutex::new(FxHashMap::default());
    std::thread::scope(|s| {
        let running = s.spawn(|| server.run(|now| panic!("stuck at {now}")));
        let all: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, body, credits) = (segment.clone(), &body, &credits);
                s.spawn(move || {
                    let mut node = Node {
                        c: Client::join(segment, me),
                        driver: RemoteWriteDriver::new(platform, figures, me),
                        received: Received::default(),
                    };
                    body(&mut node);
                    // What is still under way is credits.
                    for _ in 0..2 {
                        node.c.charge("rest", Time::us(100_000));
                        node.driver.poll(&mut node.c, &mut node.received).unwrap();
                    }
                    for other in 0..ranks {
                        let both = node.driver.credits(other);
                        credits.lock().unwrap().insert((me, other), both);
                    }
                    node.c.leave();
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
        segment.close();
        let ended = running.join().unwrap();
        assert_eq!(ended.invalid, None);
        // None lost, none made: what a sender lacks its receiver owes.
        let credits = credits.lock().unwrap();
        for (&(a, b), &(has, _)) in credits.iter() {
            let (_, owed) = credits[&(b, a)];
            assert_eq!(has + owed, figures.credits.value.0, "from {a} to {b}");
        }
        ended.time
    })
}

fn bytes_of(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt * 7) as u8).collect()
}

#[test]
fn messages_and_large_bodies_arrive() {
    for name in ["mpc1", "mpc2", "mpc3", "cluster40", "loggp"] {
        for place in [Some(4096), None] {
            job(
                name,
                2,
                |_| {},
                |n| {
                    for len in [1, 5000, 70_000, 3_000_000] {
                        if n.c.me() == 0 {
                            n.send(1, 9, b"small", &bytes_of(100, 1));
                            n.send_large(1, &bytes_of(len, len));
                        } else {
                            n.until(|k| k.messages.iter().any(|m| m.1 == 9));
                            let at = n.received.messages.iter().position(|m| m.1 == 9).unwrap();
                            assert_eq!(n.received.messages.remove(at).2[5..], bytes_of(100, 1));
                            assert!(n.receive_large(0, place) == bytes_of(len, len), "{name}");
                        }
                    }
                },
            );
        }
    }
}

/// Several large messages are under way, and each head is used again as soon as the receiver has
/// all of one: the sender may not have heard that by then.
#[test]
fn a_head_may_be_used_again_at_once() {
    const MESSAGES: usize = 400;
    let len = |number: usize| 5000 + number * 7919 % 35_000;
    job(
        "mpc2",
        2,
        |_| {},
        |n| {
            if n.c.me() == 0 {
                let mut queue = VecDeque::new();
                let mut gone = 0;
                while gone < MESSAGES {
                    // It looks seldom, so that much has happened in between.
                    n.c.charge("rest", Time::us(gone as u64 % 13 * 100));
                    n.driver.poll(&mut n.c, &mut n.received).unwrap();
                    for (_, _, ask) in n.received.messages.drain(..) {
                        let number = usize::from_le_bytes(ask[3..].try_into().unwrap());
                        queue.push_back((ask[..3].to_vec(), bytes_of(len(number), number), 0));
                    }
                    // As the device does it: each in turn, until there is no room.
                    while let Some((head, body, done)) = queue.front_mut() {
                        let taken = n.driver.stream(&mut n.c, 1, 5, head, &body[*done..]);
                        *done += taken;
                        if *done == body.len() {
                            queue.pop_front();
                            gone += 1;
                        } else if taken > 0 {
                            queue.rotate_left(1);
                        } else {
                            break;
                        }
                    }
                }
                return;
            }
            let mut under_way = [None; 4];
            let mut next = 0;
            let mut came = 0;
            while came < MESSAGES {
                for (slot, number) in under_way.iter_mut().enumerate() {
                    let head = [b'n', b'o', slot as u8];
                    if let Some(known) = *number {
                        let body = n.received.body(&head);
                        assert!(body <= len(known), "{body} bytes of {}", len(known));
                        if body < len(known) {
                            continue;
                        }
                        let body = n.received.bodies.remove(&head[..]).unwrap();
                        assert!(body == bytes_of(len(known), known), "message {known}");
                        came += 1;
                        *number = None;
                    }
                    if next < MESSAGES {
                        let what = Expected {
                            address: None,
                            len: len(next),
                            message: 5,
                            head: &head,
                        };
                        n.driver.before_cts(&mut n.c, 0, &what);
                        n.send(0, 4, &head, &next.to_le_bytes());
                        *number = Some(next);
                        next += 1;
                    }
                }
                if n.driver.poll(&mut n.c, &mut n.received).unwrap() == 0 && came < MESSAGES {
                    n.c.wait(n.driver.poll_period());
                }
            }
        },
    );
}

#[test]
fn the_same_run_takes_the_same_time() {
    let run = || {
        job(
            "mpc2",
            4,
            |_| {},
            |n| {
                let (me, all) = (n.c.me(), n.c.ranks());
                for round in 0..20 {
                    for to in (0..all).filter(|&t| t != me) {
                        n.send(to, 1, b"x", &bytes_of(round * 10, round));
                    }
                    let wanted = (round + 1) * (all as usize - 1);
                    n.until(|k| k.messages.len() >= wanted);
                }
            },
        )
    };
    assert_eq!(run(), run());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn credits_are_never_negative_and_never_lost(
        credits in 2u32..9,
        entries in 4u32..20,
        control in 256u64..4096,
        interrupts: bool,
        sizes in prop::collection::vec(0usize..200, 1..60),
        large in prop::option::of(1usize..40_000),
    ) {
        let name = if interrupts { "mpc1" } else { "mpc2" };
        let change = |f: &mut Figures| {
            f.credits.value.0 = credits;
            f.entries.value.0 = entries;
            f.control.value.0 = control;
        };
        // Each sends to both others without looking, then takes all. (That a credit becomes
        // negative would panic: they are not signed.)
        job(name, 3, change, |n| {
            let me = n.c.me();
            for (i, &len) in sizes.iter().enumerate() {
                for to in (0..3).filter(|&t| t != me) {
                    n.send(to, 1, b"x", &bytes_of(len, i));
                }
            }
            n.until(|k| k.messages.iter().filter(|m| m.1 == 1).count() == 2 * sizes.len());
            for from in (0..3).filter(|&f| f != me) {
                let came = n.received.messages.iter().filter(|m| m.0 == from && m.1 == 1);
                for ((i, &len), (_, _, bytes)) in sizes.iter().enumerate().zip(came) {
                    assert_eq!(bytes[1..], bytes_of(len, i));
                }
            }
            if let Some(len) = large {
                match me {
                    0 => n.send_large(1, &bytes_of(len, 3)),
                    1 => assert_eq!(n.receive_large(0, Some(1)), bytes_of(len, 3)),
                    _ => {}
                }
            }
        });
    }

    #[test]
    fn what_a_peer_writes_is_checked(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        address in prop::option::of(any::<u64>()),
    ) {
        let segment = ModelSegment::create(2, 0, b"").unwrap();
        let mut c = Client::join(segment, 1);
        let mut driver = driver_of_rank_1();
        let head = head(0, NOTIFY, address.unwrap_or(0));
        let all = [&head[..], &bytes].concat();
        let mut received = Received::default();
        for _ in 0..40 {
            let _ = driver.on_written(&mut c, &all, &mut received);
        }
        let (credits, owed) = driver.credits(0);
        prop_assert!(credits <= 16 && owed <= 17, "{credits} {owed}");
    }
}

#[test]
fn fuzz_control_messages() {
    let segment = ModelSegment::create(2, 0, b"").unwrap();
    let mut c = Client::join(segment, 1);
    let short = [
        &head(0, NOTIFY, 0)[..],
        &[SHORT, 1, 0, 0, 0, 0, 0, 0],
        b"bytes",
    ]
    .concat();
    let answer = [
        &head(0, NOTIFY, 0)[..],
        &[RSP, 4, 0, 0, 1, 0, 0, 0],
        &[1; 12],
        &[5, 1, 9],
        b"x",
    ]
    .concat();
    ferry_fuzz::fuzz("fuzz_control_messages", &[short, answer], |bytes| {
        let mut driver = driver_of_rank_1();
        let mut received = Received::default();
        let came = driver.on_written(&mut c, bytes, &mut received);
        (came.map_err(|e| e.1), received.messages.len())
    });
}
