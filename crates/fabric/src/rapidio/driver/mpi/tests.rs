//! MPI's drivers and their cards, ranks being threads. The checker looks at each command.

use super::*;
use crate::kernel::{ModelSegment, Server};
use crate::machine::{self, Nic};
use crate::rapidio::card::Cards;

#[derive(Default)]
struct Received {
    messages: Vec<(Rank, u8, Vec<u8>)>,
    /// What came of large messages in parts, by their heads.
    bodies: HashMap<Vec<u8>, Vec<u8>>,
    /// Bytes of large messages that came to where they belong, by their heads.
    placed: HashMap<Vec<u8>, usize>,
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
    /// Sends a large message that was asked for, from one run or in parts.
    fn send_large(&mut self, to: Rank, head: &[u8], body: &[u8], in_parts: bool) {
        let mut done = 0;
        self.again(|n| {
            while done < body.len() {
                let rest = &body[done..];
                if in_parts {
                    let part = Body::Bytes(&rest[..rest.len().min(3000)]);
                    let bytes = part.len();
                    if !n.driver.send(&mut n.c, to, DATA, head, part) {
                        return false;
                    }
                    done += bytes;
                    continue;
                }
                let taken = n.driver.stream(&mut n.c, to, DATA, head, rest);
                if taken == 0 {
                    return false;
                }
                done += taken;
            }
            true
        });
    }
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
        let running = s.spawn(|| server.run(|now| panic!("stuck at {now}")));
        let all: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, body) = (segment.clone(), &body);
                s.spawn(move || {
                    let mut node = Node {
                        c: Client::join(segment, me),
                        driver: RapidioDriver::new(platform, figures, me),
                        received: Received::default(),
                    };
                    node.driver.poll(&mut node.c, &mut node.received).unwrap();
                    body(&mut node);
                    // What is still under way is completions.
                    node.again(|n| n.driver.settle(&mut n.c));
                    for _ in 0..2 {
                        node.c.charge("rest", Time::us(1_000_000));
                        node.driver.poll(&mut node.c, &mut node.received).unwrap();
                    }
                    assert_eq!(node.driver.mx.control().counts(), [0; 4]);
                    // The receive that is always posted.
                    assert_eq!(node.driver.mx.counts(), [1, 1, 0]);
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
        assert_eq!(ended.invalid, None);
        ended.time
    })
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
                        n.send_large(1, b"head", &large, parts);
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
                    n.send_large(1, b"head", memory, false);
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
