//! MPI's drivers and their cards, ranks being threads. The checker looks at each command.

use super::*;
use crate::kernel::{ModelSegment, Server};
use crate::machine::{self, Nic};
use crate::rapidio::card::Cards;
use proptest::prelude::*;

#[derive(Default)]
struct Received {
    messages: Vec<(Rank, u8, Vec<u8>)>,
    /// What came of large messages in parts, by their heads.
    bodies: FxHashMap<Vec<u8>, Vec<u8>>,
    /// Bytes of large messages that came to where they belong, by their heads.
    placed: FxHashMap<Vec<u8>, usize>,
}

impl Upcall for Received {
    fn on_message(&mut self, from: Rank, message: u8, bytes: &[u8]) {
        self.messages.push((from, message, bytes.to_vec()));
    }
    fn stream_buffer(&mut self, _: Rank, _: u8, _: &[u8], _: usize) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _: Rank, _: u8, head: &[u8], bytes: usize) {
        *self.placed.entry(head.to_vec()).or_default() += bytes;
    }
    fn stream_part(&mut self, _: Rank, _: u8, head: &[u8], bytes: &[u8]) {
        let body = self.bodies.entry(head.to_vec()).or_default();
        body.extend_from_slice(bytes);
    }
}

/// Message numbers of the tests.
const SMALL: u8 = 1;
const RTS: u8 = 3;
const CTS: u8 = 4;
const DATA: u8 = 5;

struct Node {
    c: Client,
    driver: RapidioDriver,
    received: Received,
    /// It ends in the middle of what it does.
    dies: bool,
}

impl Node {
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
    fn send(&mut self, to: Rank, message: u8, head: &[u8], body: &[u8]) {
        self.again(|n| {
            let body = Body::Bytes(body);
            n.driver.send(&mut n.c, to, message, head, body)
        });
    }
    /// Takes the first message of this number from a rank, if it has come.
    fn take(&mut self, from: Rank, message: u8) -> Option<Vec<u8>> {
        let all = &mut self.received.messages;
        let at = all.iter().position(|m| (m.0, m.1) == (from, message))?;
        Some(all.remove(at).2)
    }
    fn receive(&mut self, from: Rank, message: u8) -> Vec<u8> {
        let mut taken = None;
        self.again(|n| {
            taken = n.take(from, message);
            taken.is_some()
        });
        taken.unwrap()
    }
    /// Asks for a large message, the device's CTS: into memory, or in parts.
    fn ask(&mut self, from: Rank, head: &[u8], len: usize, into: Option<&mut [u8]>) {
        let what = Expected {
            address: into.map(|i| i.as_mut_ptr().expose_provenance()),
            len,
            message: DATA,
            head,
        };
        self.driver.before_cts(&mut self.c, from, &what);
        self.send(from, CTS, head, &[]);
    }
    /// Sends large messages that were asked for, side by side, as the device does.
    fn send_large(&mut self, mut bodies: Vec<Large<'_>>) {
        self.again(|n| {
            bodies.retain_mut(|large| !n.send_some(large));
            bodies.is_empty()
        });
    }
    /// Sends what there is room for of a large message. Returns whether that is all.
    fn send_some(&mut self, large: &mut Large<'_>) -> bool {
        while !large.rest.is_empty() {
            let taken = if large.in_parts {
                let part = Body::Bytes(&large.rest[..large.rest.len().min(3000)]);
                let bytes = part.len();
                let (driver, c) = (&mut self.driver, &mut self.c);
                match driver.send(c, large.to, DATA, &large.head, part) {
                    true => bytes,
                    false => 0,
                }
            } else {
                let (driver, c) = (&mut self.driver, &mut self.c);
                driver.stream(c, large.to, DATA, &large.head, large.rest)
            };
            if taken == 0 {
                return false;
            }
            large.rest = &large.rest[taken..];
        }
        true
    }
}

/// A large message that is being sent, from one run or in parts.
struct Large<'a> {
    to: Rank,
    head: Vec<u8>,
    rest: &'a [u8],
    in_parts: bool,
}

/// Runs a job on the machine with some of its figures changed. Returns virtual time at the end.
fn job(ranks: u32, change: impl Fn(&mut Figures) + Sync, body: impl Fn(&mut Node) + Sync) -> Time {
    let (file, text) = machine::find("rapidio-1890vm6").unwrap();
    let mut machine = machine::read(&file, &text).unwrap();
    let Nic::Rapidio(figures) = &mut machine.nic else {
        unreachable!("a RapidIO controller");
    };
    change(figures);
    let (platform, figures) = (&machine.platform, &**figures);
    let segment = ModelSegment::create(ranks, figures.window.value.0, b"").unwrap();
    let cards = Cards::new(platform, figures, ranks, true);
    let server = Server::new(segment.clone(), cards, None);
    std::thread::scope(|s| {
        let running = s.spawn(|| {
            let ended = server.run(|now| abort(&format!("stuck at {now}")));
            match &ended.failure {
                Some(why) => abort(why),
                None => ended,
            }
        });
        let all: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, body) = (segment.clone(), &body);
                s.spawn(move || {
                    let mut node = Node {
                        c: Client::join(segment, me),
                        driver: RapidioDriver::new(platform, figures, me),
                        received: Received::default(),
                        dies: false,
                    };
                    node.driver.poll(&mut node.c, &mut node.received).unwrap();
                    body(&mut node);
                    if node.dies {
                        return node.c.leave();
                    }
                    // What is still under way is completions.
                    node.again(|n| n.driver.settle(&mut n.c));
                    for _ in 0..2 {
                        node.c.charge("rest", Time::us(1_000_000));
                        node.driver.poll(&mut node.c, &mut node.received).unwrap();
                    }
                    assert_eq!(node.driver.mx.control().counts(), [0; 4]);
                    // The receives that are always posted.
                    assert_eq!(node.driver.mx.counts(), [RECEIVES, RECEIVES, 0]);
                    assert!(node.driver.incoming.is_empty() && node.driver.outgoing.is_empty());
                    node.c.leave();
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
        segment.close();
        let ended = running.join().unwrap();
        assert_eq!((ended.invalid, ended.failure), (None, None));
        ended.time
    })
}

/// The model is gone, and the ranks sleep until it wakes them: nothing but this ends the test. What
/// a test prints is lost when it aborts, so this writes past that.
fn abort(why: &str) -> ! {
    let line = format!("{why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    std::process::abort()
}

fn bytes_of(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt * 7) as u8).collect()
}

/// Bytes that begin at this offset in a page, within a vector.
fn at_offset(bytes: &mut Vec<u8>, len: usize, offset: usize) -> &mut [u8] {
    bytes.resize(len + 8192, 0xee);
    let start = (4096 - bytes.as_ptr().addr() % 4096) + offset;
    &mut bytes[start..start + len]
}

#[test]
fn messages_and_large_bodies_arrive() {
    for (parts, placed) in [(false, true), (true, false), (false, false), (true, true)] {
        job(
            2,
            |_| {},
            |n| {
                for len in [1, 5000, 70_000, 5_000_000] {
                    let small = bytes_of(100, len);
                    let large = bytes_of(len, len);
                    if n.c.me() == 0 {
                        n.send(1, SMALL, b"small", &small);
                        n.send(1, RTS, b"", &[]);
                        assert_eq!(n.receive(1, CTS), b"head");
                        n.send_large(vec![Large {
                            to: 1,
                            head: b"head".to_vec(),
                            rest: &large,
                            in_parts: parts,
                        }]);
                        continue;
                    }
                    assert_eq!(n.receive(0, SMALL)[5..], small);
                    n.receive(0, RTS);
                    let mut memory = Vec::new();
                    let target = at_offset(&mut memory, len, 16);
                    n.ask(0, b"head", len, placed.then_some(&mut *target));
                    n.again(|n| match placed {
                        true => n.received.placed.get(&b"head"[..]) == Some(&len),
                        false => n
                            .received
                            .bodies
                            .get(&b"head"[..])
                            .is_some_and(|b| b.len() == len),
                    });
                    match placed {
                        true => assert!(*target == *large),
                        false => assert!(n.received.bodies[&b"head"[..]] == large),
                    }
                    n.received.placed.clear();
                    n.received.bodies.clear();
                }
            },
        );
    }
}

/// A rank dies in the middle of a body for which the only dedicated queue is open. Those who have
/// dropped it use the queue, and the memory, for others.
#[test]
fn the_queue_of_a_lost_peer_is_free_again() {
    const LEN: usize = 300_000;
    let change = |f: &mut Figures| {
        f.queues.value.0 = 1;
        f.mailboxes.value.0 = 2;
        f.list.value.0 = 16;
    };
    job(3, change, |n| match n.c.me() {
        // Sends the part that was asked for first, but not all of it, and to a peer that no longer
        // listens.
        2 => {
            assert_eq!(n.receive(1, CTS), b"from 2");
            let body = bytes_of(LEN, 2);
            let mut rest = &body[..];
            n.again(|n| {
                let taken = n.driver.stream(&mut n.c, 1, DATA, b"from 2", rest);
                rest = &rest[taken..];
                taken > 0
            });
            n.driver.stream(&mut n.c, 1, DATA, b"from 2", rest);
            n.dies = true;
        }
        1 => {
            let mut memory = Vec::new();
            let target = at_offset(&mut memory, LEN, 0);
            n.ask(2, b"from 2", LEN, Some(&mut *target));
            // The request that is behind it waits for the queue.
            let mut other = Vec::new();
            let other = at_offset(&mut other, LEN, 16);
            n.ask(0, b"from 0", LEN, Some(&mut *other));
            n.send(2, SMALL, b"", b"never taken");
            // The first bytes are here: the transfer is under way.
            n.again(|n| {
                let [open, postponed, ..] = n.driver.mx.control().counts();
                (open, postponed) == (1, 1) && target[0] == bytes_of(1, 2)[0] && target[1] != 0xee
            });
            n.driver.forget_peer(&mut n.c, 2);
            target.fill(0x77);
            n.again(|n| n.received.placed.get(&b"from 0"[..]) == Some(&LEN));
            assert!(*other == *bytes_of(LEN, 0));
            assert!(target.iter().all(|b| *b == 0x77), "written after that");
            assert_eq!(n.received.placed.get(&b"from 2"[..]), None);
            n.driver.poll(&mut n.c, &mut n.received).unwrap();
        }
        _ => {
            assert_eq!(n.receive(1, CTS), b"from 0");
            n.send_large(vec![Large {
                to: 1,
                head: b"from 0".to_vec(),
                rest: &bytes_of(LEN, 0),
                in_parts: false,
            }]);
        }
    });
}

#[test]
fn aligned_bodies_are_faster() {
    let time = |offset| {
        job(
            2,
            |_| {},
            |n| {
                let mut memory = Vec::new();
                let memory =
                    at_offset(&mut memory, 1 << 18, if n.c.me() == 0 { offset } else { 0 });
                if n.c.me() == 0 {
                    assert_eq!(n.receive(1, CTS), b"head");
                    n.send_large(vec![Large {
                        to: 1,
                        head: b"head".to_vec(),
                        rest: memory,
                        in_parts: false,
                    }]);
                } else {
                    n.ask(0, b"head", 1 << 18, Some(memory));
                    n.again(|n| !n.received.placed.is_empty());
                }
            },
        )
    };
    let (aligned, shifted) = (time(0), time(8));
    assert!(aligned < shifted, "{aligned}, and with copies {shifted}");
    assert_eq!(aligned, time(0), "a run can be repeated");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// All to all, on few queues, mailboxes and buffers, with segments refused at random.
    #[test]
    fn nothing_is_lost_under_refusals(
        queues in 1u32..4,
        mailboxes in 2u32..4,
        general in 4u32..8,
        sends in 1u32..6,
        list in 1u32..8,
        refuse in 0.0f64..0.5,
        small in prop::collection::vec(0usize..3000, 0..12),
        large in prop::collection::vec((1usize..200_000, 0usize..4096, any::<bool>()), 0..6),
    ) {
        let change = |f: &mut Figures| {
            f.queues.value.0 = queues;
            f.mailboxes.value.0 = mailboxes;
            f.general.value.0 = general;
            f.sends.value.0 = sends;
            f.list.value.0 = list;
            f.refuse = Some(refuse);
        };
        job(3, change, |n| {
            let me = n.c.me();
            let others: Vec<_> = (0..3).filter(|o| *o != me).collect();
            for (i, &len) in small.iter().enumerate() {
                for &to in &others {
                    n.send(to, SMALL, b"x", &bytes_of(len, i));
                }
            }
            // All receives are asked for at once, so that requests for queues are postponed.
            let mut targets = vec![vec![Vec::new(); large.len()]; others.len()];
            for (&from, targets) in others.iter().zip(&mut targets) {
                for (i, (&(len, offset, placed), memory)) in large.iter().zip(targets).enumerate() {
                    let target = at_offset(memory, len, offset);
                    n.ask(from, &[i as u8, from as u8, me as u8], len, placed.then_some(target));
                }
            }
            let mut sources = vec![Vec::new(); large.len() * others.len()];
            let mut bodies = Vec::new();
            for (n_source, memory) in sources.iter_mut().enumerate() {
                let (i, to) = (n_source / others.len(), others[n_source % others.len()]);
                let (len, offset, _) = large[i];
                let head = n.receive(to, CTS);
                assert_eq!(head, [i as u8, me as u8, to as u8]);
                // Every other one lies as its target does.
                let rest = at_offset(memory, len, if i % 2 == 0 { offset } else { 9 });
                rest.copy_from_slice(&bytes_of(len, i + me as usize));
                let in_parts = i % 3 == 2;
                bodies.push(Large { to, head, rest, in_parts });
            }
            n.send_large(bodies);
            for (&from, targets) in others.iter().zip(&mut targets) {
                for (i, &len) in small.iter().enumerate() {
                    assert_eq!(n.receive(from, SMALL)[1..], bytes_of(len, i));
                }
                for (i, (&(len, offset, placed), memory)) in large.iter().zip(targets).enumerate() {
                    let head = vec![i as u8, from as u8, me as u8];
                    let want = bytes_of(len, i + from as usize);
                    if placed {
                        n.again(|n| n.received.placed.get(&head) == Some(&len));
                        assert!(*at_offset(memory, len, offset) == *want);
                        let other = memory.iter().filter(|b| **b == 0xee).count();
                        assert!(other >= 8192, "bytes around the memory were written");
                    } else {
                        n.again(|n| n.received.bodies.get(&head).is_some_and(|b| b.len() == len));
                        assert!(n.received.bodies[&head] == want);
                    }
                }
            }
        });
    }
}

#[test]
fn fuzz_rapidio_packets() {
    let grant = Grant::parse(
        &[
            [5, 0, 0, 0],
            [0; 4],
            [0; 4],
            [9, 0, 0, 0],
            [0; 4],
            [0, 16, 2, 0],
        ]
        .concat(),
    )
    .unwrap()
    .0
    .encode();
    let asks = [
        &[WITH_GRANT, 7, 5, 0, 0, 0][..],
        &grant,
        &9u64.to_le_bytes(),
        &[DATA, 2, b'h', b'd'],
        b"message",
    ]
    .concat();
    assert!(Packet::parse(&asks).unwrap().asked.is_some());
    let seeds = [[&[PLAIN, 3][..], b"message"].concat(), asks];
    ferry_fuzz::fuzz("fuzz_rapidio_packets", &seeds, |bytes| {
        let packet = Packet::parse(bytes)?;
        let head = packet.asked.map(|a| (a.grant, a.body.head.len()));
        Some((packet.message, head, packet.bytes.len()))
    });
}
