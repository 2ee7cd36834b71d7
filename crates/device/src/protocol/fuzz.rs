//! What a peer may send, and what it must not: nothing that a transport delivers reaches past a
//! receive's buffer, completes what is not under way, or ends the process.

use crate::base::buffer::{Sink, Source};
use crate::base::header::{self, Header};
use crate::base::key::{ContextId, Key, Pattern, Tags};
use crate::base::message::Content;
use crate::base::request::{Cts, Operation, ReqId};
use crate::protocol::early_cts::EARLY;
use crate::protocol::engine::Engine;
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_fuzz::fuzz;
use ferry_transport::Inbox;

/// Bytes of each receive's buffer, and of the guard on either side of it.
const ROOM: usize = 48;
const GUARD: usize = 16;
const PEERS: u32 = 3;

/// A type of message that no peer sends, behind which the harness posts a receive.
const POSTS_RECEIVE: u8 = 255;

/// An engine with receives posted and sends under way, and the receives' memory.
struct Scene {
    engine: Engine,
    memory: Vec<Box<[u8]>>,
    receives: Vec<ReqId>,
}

fn key(source: u32, tag: u32) -> Key {
    Key {
        context: ContextId::WORLD,
        source,
        tag,
    }
}

impl Scene {
    fn new() -> Scene {
        let mut scene = Scene {
            engine: Engine::new(0),
            memory: Vec::new(),
            receives: Vec::new(),
        };
        scene.engine.size = PEERS;
        for (source, tag) in [
            (Some(0), Some(1)),
            (Some(1), None),
            (None, Some(2)),
            (None, None),
            (Some(2), Some(7)),
        ] {
            scene.receive(Pattern {
                context: ContextId::WORLD,
                source,
                tag: tag.into(),
            });
        }
        for to in 0..PEERS {
            let source = Source::Owned(vec![7; 100].into());
            scene.engine.requests.insert(Operation::SendLarge {
                to,
                source,
                cts: Cts::Awaited,
            });
            scene.engine.requests.insert(Operation::SendSync { to });
        }
        scene
    }

    fn receive(&mut self, pattern: Pattern) {
        let mut memory = vec![0xee; ROOM + 2 * GUARD].into_boxed_slice();
        let sink = Sink::Bytes {
            ptr: memory[GUARD..].as_mut_ptr(),
            cap: ROOM,
        };
        let waiting = self.engine.matcher.match_receive(&pattern);
        let req = self.engine.requests.insert(Operation::Receive {
            context: pattern.context,
            sink,
            stream: None,
        });
        match waiting {
            None => self.engine.matcher.post(pattern, req),
            Some(message) => {
                // As Device::receive does.
                let (key, from) = (message.key, message.from);
                let announced = matches!(message.content, Content::Rts { address: 0, .. });
                self.engine.on_matched_unexpected(req, message);
                if announced {
                    self.engine.request_early(from, &key);
                }
            }
        }
        self.memory.push(memory);
        self.receives.push(req);
    }

    fn check(&self) {
        for (memory, &req) in self.memory.iter().zip(&self.receives) {
            let guards = memory[..GUARD].iter().chain(&memory[GUARD + ROOM..]);
            assert!(
                guards.into_iter().all(|&b| b == 0xee),
                "a write beyond the buffer"
            );
            if let Some(completion) = self.engine.requests.peek(req) {
                assert!(completion.received <= ROOM as u64);
                assert_eq!(
                    completion.fault.is_some(),
                    completion.envelope.len > ROOM as u64
                );
            }
        }
    }
}

/// A packet of the harness: who sends, which message, how many bytes.
fn packet(from: u8, message: u8, head: Header, body: &[u8]) -> Vec<u8> {
    let bytes = [head.bytes(), body].concat();
    [&[from, message, bytes.len() as u8], &bytes[..]].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let announce = |from, tag, len, address| {
        packet(
            from,
            header::RTS,
            Header::new()
                .key(&key(from.into(), tag))
                .u64(len)
                .u64(address)
                .u32(9),
            &[],
        )
    };
    let mut seeds = vec![
        packet(0, header::EAGER, Header::new().key(&key(0, 1)), b"hello"),
        packet(1, header::EAGER, Header::new().key(&key(1, 5)), &[1; 60]),
        packet(
            2,
            header::EAGER_SYNC,
            Header::new().key(&key(2, 7)).u32(3),
            b"so long",
        ),
        announce(0, 1, 100, 0x1000),
        // Asked for piece by piece: the pieces name the receive.
        [
            announce(1, 4, 40, 0),
            packet(1, header::DATA, Header::new().u32(1), &[5; 40]),
        ]
        .concat(),
        [
            announce(1, 4, 90, 0),
            packet(1, header::DATA, Header::new().u32(1), &[5; 50]),
            packet(1, header::DATA, Header::new().u32(1), &[6; 50]),
        ]
        .concat(),
    ];
    seeds.push(packet(2, header::UNEXPECTED, Header::new(), &[]));
    // Unannounced, in pieces: to a receive, and to none.
    for tag in [2, 9] {
        let head = Header::new().key(&key(2, tag)).u64(70);
        let piece = |len| packet(2, header::SPECULATIVE, head, &[3; 40][..len]);
        seeds.push([piece(40), piece(30)].concat());
    }
    seeds.extend(early_seeds());
    for peer in 0..PEERS as u8 {
        // Requests 5 and 6 and so on are the sends.
        let announced = 5 + 2 * u32::from(peer);
        seeds.push(packet(
            peer,
            header::CTS,
            Header::new().u32(announced).u32(77),
            &[],
        ));
        seeds.push(packet(peer, header::FIN, Header::new().u32(announced), &[]));
        seeds.push(packet(
            peer,
            header::FIN,
            Header::new().u32(announced + 1),
            &[],
        ));
    }
    let all = seeds.concat();
    seeds.push(all);
    seeds
}

/// Announced messages beyond the posted receives, a later receive that requests the last two early,
/// and the bytes of these before, between and after their receives.
fn early_seeds() -> Vec<Vec<u8>> {
    let announce = |request| {
        let head = Header::new().key(&key(1, 4)).u64(40).u64(0);
        packet(1, header::RTS, head.u32(request), &[])
    };
    let part = |number: u32, bytes: &[u8]| {
        packet(1, header::DATA, Header::new().u32(EARLY | number), bytes)
    };
    // A message that is dropped, behind which the harness posts a receive.
    let receive = packet(1, POSTS_RECEIVE, Header::new(), &[]);
    let announced: Vec<u8> = (20..25).flat_map(announce).collect();
    let start = [announced, receive.clone()].concat();
    vec![
        [&start[..], &part(0, &[5; 40]), &receive, &part(1, &[6; 40])].concat(),
        [
            &start[..],
            &receive,
            &receive,
            &part(1, &[5; 9]),
            &part(0, &[6; 40]),
        ]
        .concat(),
        [
            &start[..],
            &part(0, &[5; 30]),
            &receive,
            &part(0, &[6; 10]),
            &part(1, &[7; 41]),
            &receive,
        ]
        .concat(),
    ]
}

#[test]
fn valid_messages_are_understood() {
    for seed in seeds() {
        let (mut scene, mut rest) = (Scene::new(), &seed[..]);
        let mut packets = 0;
        while let [from, message, len, tail @ ..] = rest {
            let (bytes, tail) = tail.split_at(usize::from(*len));
            scene.engine.on_message(u32::from(*from), *message, bytes);
            packets += 1;
            rest = tail;
        }
        scene.check();
        if packets < 4 {
            assert_eq!(scene.engine.malformed, 0, "{}", seed.escape_ascii());
        }
    }
}

#[test]
fn stream_bytes_wait_for_their_report() {
    let stream = |zero_copy_decided| Outgoing {
        message: header::DATA,
        head: Header::new(),
        payload: Payload::Stream {
            req: ReqId(0),
            offset: 0,
            zero_copy_decided,
        },
    };
    // Whether the first stream was offered, and the expected order of the messages.
    for (settled, order) in [
        (
            false,
            [header::RTS, header::CTS, header::DATA, header::DATA],
        ),
        (true, [header::DATA, header::RTS, header::CTS, header::DATA]),
    ] {
        let mut engine = Engine::new(0);
        engine.outbox.push(1, stream(settled));
        engine
            .outbox
            .push(1, Outgoing::header_only(header::RTS, Header::new()));
        engine.outbox.push(1, stream(false));
        engine
            .outbox
            .push(1, Outgoing::header_only(header::CTS, Header::new()));
        let queue: Vec<u8> = engine
            .outbox
            .queue(1)
            .unwrap()
            .iter()
            .map(|o| o.message)
            .collect();
        assert_eq!(queue, order);
    }
}

#[test]
fn lent_messages_are_accepted_when_complete() {
    for (head, said) in [
        (Header::new().u32(1).u32(9), true),
        // The request's number is missing.
        (Header::new().u32(1), false),
    ] {
        let mut scene = Scene::new();
        let announce = Header::new().key(&key(1, 4)).u64(40).u64(0).u32(9);
        scene.engine.on_message(1, header::RTS, announce.bytes());
        let taken = |scene: &Scene| {
            let queue = scene.engine.outbox.queue(1).unwrap();
            let all: Vec<u8> = queue.iter().map(|o| o.message).collect();
            let same = queue
                .back()
                .is_some_and(|o| o.head.bytes() == 9u32.to_le_bytes());
            (all, same)
        };
        scene
            .engine
            .stream_part(1, header::ZCOPY_DATA, head.bytes(), &[5; 30]);
        assert_eq!(taken(&scene).0, [header::CTS_PREPOSTED]);
        scene
            .engine
            .stream_part(1, header::ZCOPY_DATA, head.bytes(), &[5; 10]);
        scene.check();
        if said {
            assert_eq!(
                taken(&scene),
                (vec![header::CTS_PREPOSTED, header::FIN], true)
            );
        } else {
            assert_eq!(taken(&scene).0, [header::CTS_PREPOSTED]);
        }
        assert_eq!(scene.engine.malformed, u64::from(!said));
        assert_eq!(scene.memory[1][GUARD..GUARD + 40], [5; 40]);
    }
}

#[test]
fn fuzz_arrivals() {
    fuzz("arrivals", &seeds(), |input| {
        let (mut scene, mut rest) = (Scene::new(), input);
        let mut outcome = Vec::new();
        while let [from, message, len, tail @ ..] = rest {
            let (bytes, tail) = tail.split_at(usize::from(*len).min(tail.len()));
            rest = tail;
            let before = scene.engine.activity();
            scene
                .engine
                .on_message(u32::from(*from) % PEERS, *message, bytes);
            assert!(scene.engine.activity() > before);
            // What the device does with tasks, without the reading itself.
            while let Some(task) = scene.engine.single_copies.next_task() {
                let rts = task.rts;
                let understood = rts.request % 2 == 0;
                if understood {
                    scene
                        .engine
                        .complete_stream(rts.req, rts.len.min(ROOM as u64));
                } else {
                    scene
                        .engine
                        .queue_cts(rts.req, rts.from, rts.request, None, false);
                }
            }
            if message % 16 == POSTS_RECEIVE % 16 {
                // A later receive may take what has arrived meanwhile.
                let source = (*from < 128).then_some(u32::from(*from) % PEERS);
                scene.receive(Pattern {
                    context: ContextId::WORLD,
                    source,
                    tag: Tags::ANY,
                });
            }
            scene.check();
            outcome.push((
                *message,
                scene.engine.malformed,
                scene.engine.requests.completed(),
            ));
        }
        (outcome, scene.engine.outbox.is_empty())
    });
}

#[test]
fn fuzz_messages_taken_as_they_come() {
    // Like a transport: a message that has begun is completed before the peer's next one.
    fuzz("messages taken as they come", &seeds(), |input| {
        let (mut scene, mut rest) = (Scene::new(), input);
        let mut taken = 0;
        while let [from, message, len, tail @ ..] = rest {
            let (bytes, tail) = tail.split_at(usize::from(*len).min(tail.len()));
            rest = tail;
            let from = u32::from(*from) % PEERS;
            if scene.engine.takes_fragments(*message) {
                // As a body that is read while it is written.
                let head_len = if *message == header::DATA { 4 } else { 24 };
                let (head, mut body) = bytes.split_at(head_len.min(bytes.len()));
                while !body.is_empty() {
                    let run = body.len().div_ceil(2);
                    let engine = &mut scene.engine;
                    let placed = match engine.stream_buffer(from, *message, head, run) {
                        Some(room) => {
                            let n = room.len().min(run);
                            room[..n].copy_from_slice(&body[..n]);
                            n
                        }
                        None => 0,
                    };
                    if placed > 0 {
                        let last = placed == body.len();
                        engine.fragment_written(from, *message, head, placed, last);
                        body = &body[placed..];
                    } else {
                        let (part, later) = body.split_at(run);
                        engine.fragment_part(from, *message, head, part, later.is_empty());
                        body = later;
                    }
                    taken += 1;
                }
                scene.check();
                continue;
            }
            let start = &bytes[..bytes.len() / 2];
            match scene
                .engine
                .on_message_start(from, *message, start, bytes.len())
            {
                None => {
                    scene.engine.on_message(from, *message, bytes);
                }
                Some(head_len) => {
                    taken += 1;
                    let (head, mut body) = bytes.split_at(head_len);
                    while !body.is_empty() {
                        let half = body.len().div_ceil(2);
                        let placed = match scene.engine.stream_buffer(from, *message, head, half) {
                            Some(room) if !room.is_empty() => {
                                let n = room.len().min(half);
                                room[..n].copy_from_slice(&body[..n]);
                                n
                            }
                            _ => 0,
                        };
                        if placed > 0 {
                            scene.engine.stream_written(from, *message, head, placed);
                        } else {
                            scene
                                .engine
                                .stream_part(from, *message, head, &body[..half]);
                        }
                        body = &body[if placed > 0 { placed } else { half }..];
                    }
                    assert!(scene.engine.streams.no_eager(), "it is complete");
                }
            }
            scene.check();
        }
        (taken, scene.engine.requests.completed())
    });
}

/// Delivers a packet as a connection does, whose bytes of large messages come as a stream: half of
/// what is left at a time.
fn deliver(scene: &mut Scene, from: u32, message: u8, bytes: &[u8]) {
    let head_len = match message {
        header::DATA => 4,
        header::ZCOPY_DATA => 8,
        header::SPECULATIVE => 24,
        _ => {
            scene.engine.on_message(from, message, bytes);
            if message % 16 == POSTS_RECEIVE % 16 {
                scene.receive(Pattern {
                    context: ContextId::WORLD,
                    source: Some(from),
                    tag: Tags::ANY,
                });
            }
            return;
        }
    };
    let (head, mut body) = bytes.split_at(head_len.min(bytes.len()));
    while !body.is_empty() {
        let half = body.len().div_ceil(2);
        let engine = &mut scene.engine;
        let _ = engine.stream_is_unexpected(from, message, head);
        let placed = engine.stream_buffer(from, message, head, half).map(|room| {
            let n = room.len().min(half);
            room[..n].copy_from_slice(&body[..n]);
            n
        });
        match placed {
            Some(n) if n > 0 => {
                engine.stream_written(from, message, head, n);
                body = &body[n..];
            }
            _ => {
                engine.stream_part(from, message, head, &body[..half]);
                body = &body[half..];
            }
        }
    }
}

/// The packets of an input: sender, message, bytes.
fn packets(mut input: &[u8]) -> impl Iterator<Item = (u32, u8, &[u8])> {
    std::iter::from_fn(move || {
        let [from, message, len, tail @ ..] = input else {
            return None;
        };
        let (bytes, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        input = tail;
        Some((u32::from(*from) % PEERS, *message, bytes))
    })
}

#[test]
fn messages_requested_early_reach_their_receives() {
    for (seed, malformed) in early_seeds().iter().zip([2, 3, 4]) {
        // What makes no sense posts receives, and once it is a byte too many.
        let mut scene = Scene::new();
        for (from, message, bytes) in packets(seed) {
            deliver(&mut scene, from, message, bytes);
            scene.check();
        }
        assert_eq!(scene.engine.malformed, malformed);
        let last = scene.receives.len() - 1;
        let done: Vec<u64> = scene.receives[last - 1..]
            .iter()
            .filter_map(|&req| Some(scene.engine.requests.peek(req)?.received))
            .collect();
        assert!(done.contains(&40), "{}", seed.escape_ascii());
    }
}

#[test]
fn fuzz_streams_of_a_connection() {
    fuzz("streams of a connection", &seeds(), |input| {
        let mut scene = Scene::new();
        let mut outcome = Vec::new();
        for (from, message, bytes) in packets(input) {
            deliver(&mut scene, from, message, bytes);
            scene.check();
            outcome.push((
                message,
                scene.engine.malformed,
                scene.engine.requests.completed(),
                scene.engine.early_cts.any(),
            ));
        }
        for peer in 0..PEERS {
            scene.engine.early_cts.forget(peer);
            scene.engine.speculative.forget(peer);
        }
        outcome
    });
}
