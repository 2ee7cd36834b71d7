//! What every transport must do, whichever it is: each check runs over all of them.
//!
//! The processes of a job are threads or turns of this one; a transport cannot tell.
#![cfg(not(loom))]

mod memory;

use ferry_fabric::{Arena, machine};
use ferry_job::{NodeJob, Segment, Welcome};
use ferry_transport::model::Model;
use ferry_transport::self_loop::SelfLoop;
use ferry_transport::shm::Shm;
use ferry_transport::tcp::{Settings, Tcp};
use ferry_transport::tipc::{self, Tipc};
use ferry_transport::{
    Answer, BatchMessage, Body, Expected, Features, Inbox, ProcId, RendezvousOffload, Sleeper,
    Streamed, Transport, TransportError, VirtualTime, ZeroCopy,
};
use memory::{Cards, Memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Machines of each kind of card that there is.
const MODELS: [&str; 4] = ["mpc1", "mpc2", "loggp", "dimmnet2"];

/// The transports of all processes of a job.
type Transports = Vec<Box<dyn Transport>>;

fn welcome(rank: u32, size: u32) -> Welcome {
    Welcome {
        job: 5,
        cores: 2,
        key: [3; 32],
        ..Welcome::on_one_host(rank, size, "here")
    }
}

fn shm(size: u32) -> Transports {
    let node = NodeJob::new(5, size, 2).unwrap();
    let open = |me: u32| {
        let fd = node.segment.fd.try_clone().unwrap();
        let segment = Segment::open(fd, size, node.segment.layout.total()).unwrap();
        let wire = Shm::open(segment, (0..size).collect(), me as usize, 5, 1).unwrap();
        Box::new(wire) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

fn tcp(size: u32, encrypt: bool) -> Transports {
    let cards = Cards::default();
    let settings = Settings {
        interfaces: Some("127.0.0.1".into()),
        timeout: Duration::from_secs(20),
    };
    let open = |rank| {
        let directory = Memory {
            rank,
            cards: cards.clone(),
        };
        let wire = Tcp::open(
            &welcome(rank, size),
            Box::new(directory),
            &settings,
            encrypt,
        )
        .unwrap();
        Box::new(wire) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

fn tipc(size: u32, encrypt: bool) -> Transports {
    let cards = Cards::default();
    let settings = tipc::Settings {
        kind: tipc::DEFAULT_KIND,
    };
    let open = |rank| {
        let directory = Memory {
            rank,
            cards: cards.clone(),
        };
        let directory = Box::new(directory);
        let wire = Tipc::open(&welcome(rank, size), directory, &settings, encrypt).unwrap();
        Box::new(wire) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// A modelled machine's wire in one of many processes that all are this one: whenever it has done
/// something it leaves, so that the others' turn can come; it comes back by itself.
struct Turns(Model);

impl Turns {
    fn turn<T>(&mut self, what: impl FnOnce(&mut Model) -> T) -> T {
        let did = what(&mut self.0);
        self.0.leave_mpi(false, true);
        did
    }
}

impl Transport for Turns {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn reaches(&self, peer: ProcId) -> bool {
        self.0.reaches(peer)
    }
    fn features(&self, peer: ProcId) -> Features {
        self.0.features(peer)
    }
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError> {
        self.turn(|m| m.send(to, message, head, body))
    }
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        self.turn(|m| m.poll(inbox))
    }
    fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.turn(|m| m.stream(to, message, head, body))
    }
    fn settle(&mut self) -> bool {
        self.turn(|m| m.settle())
    }
    fn rendezvous_offload(&mut self) -> Option<&mut dyn RendezvousOffload> {
        Some(self)
    }
}

impl RendezvousOffload for Turns {
    fn before_rts(&mut self, to: ProcId, len: usize) {
        self.turn(|m| m.before_rts(to, len));
    }
    fn before_cts(&mut self, from: ProcId, what: &Expected<'_>) {
        self.turn(|m| m.before_cts(from, what));
    }
}

fn model(size: u32, name: &str) -> Transports {
    let (file, text) = machine::find(name).unwrap();
    let machine = machine::read(&file, &text).unwrap();
    let arena = Arena::create(size, machine.card_memory(), &machine.encode()).unwrap();
    let hardware = arena.clone();
    std::thread::spawn(move || ferry_fabric::serve(&machine, hardware, None, |_| {}));
    let open = |rank| {
        let fd = arena.fd().try_clone_to_owned().unwrap();
        let mut wire = Turns(Model::open(fd, rank, size, true).unwrap());
        wire.turn(|_| ());
        Box::new(wire) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// Runs `check` with each transport in a job of `size` processes.
fn each(size: u32, check: impl Fn(&str, Transports)) {
    check("shm", shm(size));
    check("tcp", tcp(size, false));
    check("tcp, encrypted", tcp(size, true));
    for name in MODELS {
        check(name, model(size, name));
    }
    // Few systems have TIPC; the guests of tests/tipc do, and say so.
    if std::env::var_os("FERRY_TEST_TIPC").is_some() {
        check("tipc", tipc(size, false));
        check("tipc, encrypted", tipc(size, true));
    }
}

/// Keeps messages and the bodies of streams.
#[derive(Default)]
struct Keep {
    messages: Vec<(ProcId, u8, Vec<u8>)>,
    stream: Vec<u8>,
    /// Streams are taken where they belong: in `stream`, which is that long from the start.
    place: Option<usize>,
}

impl Inbox for Keep {
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.messages.push((from, message, bytes.to_vec()));
        false
    }
    fn stream_buffer(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        let at = self.place?;
        let end = (at + left).min(self.stream.len());
        Some(&mut self.stream[at..end])
    }
    fn stream_placed(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: usize) {
        if let Some(at) = &mut self.place {
            *at += bytes;
        }
    }
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: &[u8]) {
        match &mut self.place {
            Some(at) => {
                self.stream[*at..*at + bytes.len()].copy_from_slice(bytes);
                *at += bytes.len();
            }
            None => self.stream.extend_from_slice(bytes),
        }
    }
}

fn bytes_of(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt * 7) as u8).collect()
}

/// Polls all until `done`.
fn until(
    name: &str,
    wires: &mut Transports,
    keeps: &mut [Keep],
    mut done: impl FnMut(&mut Transports, &mut [Keep]) -> bool,
) {
    let end = Instant::now() + PATIENCE;
    while !done(wires, keeps) {
        for (wire, keep) in wires.iter_mut().zip(keeps.iter_mut()) {
            wire.poll(keep).unwrap();
        }
        assert!(Instant::now() < end, "{name}: it takes too long");
    }
}

fn keeps(n: usize) -> Vec<Keep> {
    (0..n).map(|_| Keep::default()).collect()
}

/// Offers a message until it is taken.
fn offer(
    wire: &mut dyn Transport,
    keep: &mut Keep,
    to: ProcId,
    message: u8,
    head: &[u8],
    body: &[u8],
) {
    let end = Instant::now() + PATIENCE;
    while wire.send(to, message, head, Body::Bytes(body)).unwrap() == Answer::Full {
        wire.poll(keep).unwrap();
        assert!(Instant::now() < end, "no room");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_reaches_itself_by_self_and_others_by_the_others() {
    let mut me = SelfLoop::new(4);
    assert!(me.reaches(4) && !me.reaches(0));
    let mut keep = Keep::default();
    for len in [0, 1, 100_000] {
        offer(&mut me, &mut keep, 4, 9, b"head", &bytes_of(len, 1));
        me.poll(&mut keep).unwrap();
        let expected = [&b"head"[..], &bytes_of(len, 1)].concat();
        assert_eq!(keep.messages.pop(), Some((4, 9, expected)));
    }
    each(2, |name, mut wires| {
        assert!(wires[0].reaches(1) && wires[1].reaches(0), "{name}");
        assert!(!wires[0].reaches(2), "{name}");
        let beyond = wires[0].send(2, 1, &[], Body::Bytes(&[]));
        assert!(
            matches!(beyond, Err(TransportError::Unreachable { peer: 2, .. })),
            "{name}"
        );
    });
}

#[test]
fn every_size_arrives_whole_and_in_order() {
    each(2, |name, mut wires| {
        let max = wires[0].features(1).message_max - 16;
        let sizes: Vec<usize> = [0, 1, 7, 40, 41, 63, 64, 65, 1000, 4095, 4096, 4097]
            .into_iter()
            .chain([max / 2, max - 1, max])
            .filter(|&size| size <= max)
            .collect();
        let mut keeps = keeps(2);
        let mut next = 0;
        until(name, &mut wires, &mut keeps, |w, k| {
            while next < 2 * sizes.len() {
                let body = bytes_of(sizes[next / 2], next);
                let mut fill = |out: &mut [u8]| out.copy_from_slice(&body);
                // By a run of bytes and by a closure, in turns.
                let how = match next % 2 {
                    0 => Body::Bytes(&body),
                    _ => Body::Fill(body.len(), &mut fill),
                };
                let answer = w[0].send(1, next as u8, b"0123456789abcdef", how).unwrap();
                if answer == Answer::Full {
                    break;
                }
                next += 1;
            }
            k[1].messages.len() == 2 * sizes.len()
        });
        for (i, (from, message, bytes)) in keeps[1].messages.iter().enumerate() {
            assert_eq!((*from, usize::from(*message)), (0, i), "{name}");
            assert_eq!(&bytes[..16], b"0123456789abcdef", "{name}");
            assert_eq!(bytes[16..], bytes_of(sizes[i / 2], i), "{name}");
        }
    });
}

#[test]
fn a_full_wire_says_so_and_takes_more_when_it_is_emptied() {
    each(2, |name, mut wires| {
        let mut keeps = keeps(2);
        let body = bytes_of(8000.min(wires[0].features(1).message_max), 3);
        // First contact may take a while; what is wanted is a transport that is full.
        offer_through(name, &mut wires, &mut keeps);
        let mut sent = 0;
        while wires[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == Answer::Done {
            sent += 1;
            assert!(sent < 1_000_000, "{name}: it is never full");
        }
        let total = sent + 500;
        until(name, &mut wires, &mut keeps, |w, k| {
            while sent < total && w[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == Answer::Done
            {
                sent += 1;
            }
            k[1].messages.len() == total + 1
        });
        assert!(keeps[1].messages[1..].iter().all(|m| m.2 == body), "{name}");
    });
}

/// One message from 0 to 1, so that they know each other.
fn offer_through(name: &str, wires: &mut Transports, keeps: &mut [Keep]) {
    let mut sent = false;
    until(name, wires, keeps, |w, k| {
        sent = sent || w[0].send(1, 0, &[], Body::Bytes(b"first")).unwrap() == Answer::Done;
        !k[1].messages.is_empty()
    });
}

#[test]
fn streams_arrive_in_place_and_beside_messages() {
    each(2, |name, mut wires| {
        if !wires[0].features(1).stream {
            return;
        }
        for (len, place, lent) in [
            (1, true, false),
            (100_000, true, false),
            (100_000, false, true),
            (9_000_001, true, false),
            (9_000_001, true, true),
            (9_000_001, false, true),
        ] {
            // They have met by now.
            assert!(name != "tcp" || len == 1 || wires[0].zero_copy(1) != ZeroCopy::Never);
            if lent && wires[0].zero_copy(1) == ZeroCopy::Never {
                continue;
            }
            let mut keeps = keeps(2);
            if place {
                keeps[1].stream = vec![0; len];
                keeps[1].place = Some(0);
            }
            let body = bytes_of(len, len);
            // The receiver asks for it first.
            let what = Expected {
                address: place.then_some(keeps[1].stream.as_ptr().addr()),
                len,
                message: 8,
                head: b"head",
            };
            let mut asked = false;
            until(name, &mut wires, &mut keeps, |w, k| {
                if !asked {
                    if let Some(offload) = w[1].rendezvous_offload() {
                        offload.before_cts(0, &what);
                    }
                    let ask = Body::Bytes(b"ask");
                    asked = w[1].send(0, 6, &[], ask).unwrap() == Answer::Done;
                }
                !k[0].messages.is_empty()
            });
            let (mut at, mut small, mut between) = (0, 0u8, true);
            until(name, &mut wires, &mut keeps, |w, k| {
                // A small message whenever one may go.
                if between && small < 20 {
                    let answer = w[0].send(1, 7, &[], Body::Bytes(&[small])).unwrap();
                    small += u8::from(answer == Answer::Done);
                }
                if at < len {
                    // What goes by zero copy stays as it is until all has come.
                    let done = if lent {
                        w[0].stream_zero_copy(1, 8, b"head", &body[at..]).unwrap()
                    } else {
                        w[0].stream(1, 8, b"head", &body[at..]).unwrap()
                    };
                    at += done.taken;
                    between = done.between;
                }
                let came = k[1].place.unwrap_or(k[1].stream.len());
                came == len && small == 20 && k[1].messages.len() == 20
            });
            assert!(keeps[1].stream == body, "{name}: {len} bytes");
            let order: Vec<u8> = keeps[1].messages.iter().map(|m| m.2[0]).collect();
            assert_eq!(order, (0..20).collect::<Vec<_>>(), "{name}");
        }
    });
}

/// Sleeps as a process does that has nothing to do. False: nothing came in ten seconds.
#[test]
fn several_that_go_together_arrive_in_their_order() {
    each(2, |name, mut wires| {
        if !wires[0].features(1).batch {
            return;
        }
        // Far more than any transport takes at once: some go in part, whole messages and streams,
        // in heads and in bodies.
        let whole: Vec<Vec<u8>> = (0..600usize)
            .map(|i| bytes_of([0, 1, 300, 20_000, 60_000][i % 5], i))
            .collect();
        let streams: Vec<Vec<u8>> = (0..6usize)
            .map(|i| bytes_of([1, 70_000, 1 << 20, 3_000_000][i % 4], i))
            .collect();
        let mut rest: VecDeque<(u8, bool, &[u8])> = VecDeque::new();
        for (i, body) in whole.iter().enumerate() {
            rest.push_back((1, false, body));
            if i % 100 == 50 {
                rest.push_back((8, true, &streams[i / 100]));
            }
        }
        let mut keeps = keeps(2);
        let all = streams.concat();
        until(name, &mut wires, &mut keeps, |w, k| {
            let messages: Vec<BatchMessage<'_>> = rest
                .iter()
                .take(40)
                .map(|&(message, stream, body)| BatchMessage {
                    message,
                    head: b"head",
                    body,
                    stream,
                })
                .collect();
            if !messages.is_empty() {
                let gone = w[0].send_batch(1, &messages).unwrap();
                rest.drain(..gone.whole);
                if gone.taken > 0 {
                    assert!(rest[0].1, "{name}: a part of a whole message");
                    rest[0].2 = &rest[0].2[gone.taken..];
                    assert!(!rest[0].2.is_empty(), "{name}: it has gone");
                }
            }
            k[1].messages.len() == whole.len() && k[1].stream.len() == all.len()
        });
        assert!(keeps[1].stream == all, "{name}: the streams");
        for (i, (got, sent)) in keeps[1].messages.iter().zip(&whole).enumerate() {
            assert!(
                got.2 == [b"head", &sent[..]].concat(),
                "{name}: message {i}"
            );
        }
    });
}

fn sleep(wire: &mut dyn Transport, keep: &mut Keep) -> bool {
    let bell = wire.wakeup_word();
    let seen = bell.map(|b| b.load(std::sync::atomic::Ordering::SeqCst));
    wire.arm(Sleeper::Program);
    let before = keep.messages.len();
    wire.poll(keep).unwrap();
    let mut woken = keep.messages.len() > before;
    if !woken {
        let limit = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        woken = match (wire.event_fd(), bell, seen) {
            (Some(fd), ..) => poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) == Ok(1),
            (None, Some(bell), Some(seen)) => {
                let flags = rustix::thread::futex::Flags::empty();
                let slept = rustix::thread::futex::wait(bell, flags, seen, Some(&limit));
                slept != Err(rustix::io::Errno::TIMEDOUT)
            }
            _ => panic!("nothing to sleep on"),
        };
    }
    wire.disarm();
    wire.poll(keep).unwrap();
    woken
}

#[test]
fn sleepers_are_woken_by_messages_and_by_room() {
    each(2, |name, mut wires| {
        if wires[0].event_fd().is_none() && wires[0].wakeup_word().is_none() {
            // In virtual time a process rests instead, which the tests of the machines' kernel are
            // about.
            return;
        }
        let mut keeps = keeps(2);
        offer_through(name, &mut wires, &mut keeps);
        let (mut receiver, mut sender) = (wires.pop().unwrap(), wires.pop().unwrap());
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut keep = Keep::default();
                for _ in 0..200 {
                    while keep.messages.is_empty() {
                        assert!(sleep(receiver.as_mut(), &mut keep), "{name}: not woken");
                    }
                    keep.messages.remove(0);
                    offer(receiver.as_mut(), &mut keep, 0, 2, &[], b"answer");
                }
                // A sender that finds no room sleeps until this one makes some.
                std::thread::sleep(Duration::from_millis(50));
                let end = Instant::now() + PATIENCE;
                while keep.messages.len() < 2000 {
                    receiver.poll(&mut keep).unwrap();
                    assert!(Instant::now() < end, "{name}: the sender sleeps on");
                    std::thread::yield_now();
                }
            });
            let mut keep = Keep::default();
            for _ in 0..200 {
                offer(sender.as_mut(), &mut keep, 1, 1, &[], b"question");
                while keep.messages.is_empty() {
                    assert!(sleep(sender.as_mut(), &mut keep), "{name}: not woken");
                }
                keep.messages.clear();
            }
            let body = bytes_of(4000, 1);
            for _ in 0..2000 {
                while sender.send(1, 3, &[], Body::Bytes(&body)).unwrap() == Answer::Full {
                    // Armed with somebody waiting: room must wake it.
                    sleep(sender.as_mut(), &mut keep);
                }
            }
            let end = Instant::now() + PATIENCE;
            while !sender.settle() {
                sender.poll(&mut keep).unwrap();
                assert!(Instant::now() < end, "{name}: it never settles");
            }
        });
    });
}

#[test]
fn what_a_wire_still_holds_is_said_until_it_is_gone() {
    each(2, |name, mut wires| {
        let mut keeps = keeps(2);
        offer_through(name, &mut wires, &mut keeps);
        assert!(!wires[0].has_unsent(), "{name}");
        let before = keeps[1].messages.len();
        let (body, mut sent) = (bytes_of(3000, 1), 0);
        while wires[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == Answer::Done {
            sent += 1;
        }
        // Only connections have a queue in this process: shared memory and a modelled card have
        // taken what they have taken.
        let connects = name.starts_with("tcp") || name.starts_with("tipc");
        assert_eq!(wires[0].has_unsent(), connects, "{name}");
        until(name, &mut wires, &mut keeps, |_, k| {
            k[1].messages.len() == before + sent
        });
        assert!(!wires[0].has_unsent(), "{name}");
    });
}

/// Two jobs whose names fall together, as those of two numbers of jobs may: only ports and keys
/// tell them apart.
#[test]
fn two_jobs_under_the_same_names_never_meet() {
    if std::env::var_os("FERRY_TEST_TIPC").is_none() {
        return;
    }
    let mut jobs = [tipc(3, false), tipc(3, true), tipc(3, false)];
    let mut all: Vec<Vec<Keep>> = (0..3).map(|_| keeps(3)).collect();
    let mut sent = [[[false; 3]; 3]; 3];
    let end = Instant::now() + PATIENCE;
    while all.iter().flatten().any(|k| k.messages.len() < 2) {
        for (j, (wires, keeps)) in jobs.iter_mut().zip(&mut all).enumerate() {
            for (me, (wire, keep)) in wires.iter_mut().zip(keeps).enumerate() {
                for to in (0..3).filter(|&to| to != me) {
                    if !sent[j][me][to] {
                        let answer = wire.send(to as u32, 1, &[], Body::Bytes(&[j as u8]));
                        sent[j][me][to] = answer.unwrap() == Answer::Done;
                    }
                }
                wire.poll(keep).unwrap();
            }
        }
        assert!(Instant::now() < end, "it takes too long");
    }
    for (j, keep) in all.iter().enumerate() {
        let mut messages = keep.iter().flat_map(|k| &k.messages);
        assert!(messages.all(|m| m.2 == [j as u8]), "{j}: another job's");
    }
}
