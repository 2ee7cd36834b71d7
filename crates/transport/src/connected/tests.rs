//! Several processes' transports in one process, on the loopback, with a directory in memory.

use super::poll::BUSY_POLL_AFTER_READS;
use super::*;
use crate::tcp::{BusinessCard, Settings, Tcp};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

#[path = "../../tests/memory/mod.rs"]
mod memory;
use memory::{Cards, Memory};

fn rank_info(rank: u32, size: u32) -> RankInfo {
    RankInfo {
        job: 99,
        cores: 2,
        key: [7; 32],
        ..RankInfo::on_one_host(rank, size, "here")
    }
}

fn settings() -> Settings {
    Settings {
        interfaces: Some("127.0.0.1".into()),
        timeout: Duration::from_secs(10),
    }
}

fn transports(n: u32, encrypt: bool) -> (Vec<ConnTransport>, Cards) {
    let cards = Cards::default();
    let open = |rank| {
        let directory = Memory {
            rank,
            cards: cards.clone(),
        };
        Tcp::open(
            &rank_info(rank, n),
            Box::new(directory),
            &settings(),
            encrypt,
        )
        .unwrap()
    };
    ((0..n).map(open).collect(), cards)
}

#[derive(Default)]
struct Keep(Vec<(ProcId, u8, Vec<u8>)>);

impl Inbox for Keep {
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.0.push((from, message, bytes.to_vec()));
        true
    }
}

/// Polls all transports until `done`. Panics after a while.
fn until(
    transports: &mut [ConnTransport],
    keeps: &mut [Keep],
    mut done: impl FnMut(&mut [ConnTransport], &[Keep]) -> bool,
) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(transports, keeps) {
        for (transport, keep) in transports.iter_mut().zip(keeps.iter_mut()) {
            transport.poll(keep).unwrap();
        }
        assert!(Instant::now() < end, "it takes too long");
    }
}

/// The address at which process 1 listens.
fn listening(cards: &Cards) -> crate::tcp::Listening {
    let cards = cards.lock().unwrap();
    let parts = business_card::decode(&cards[&1]).unwrap();
    BusinessCard::decode(parts[0].1).unwrap().0[0]
}

fn keeps(n: usize) -> Vec<Keep> {
    (0..n).map(|_| Keep::default()).collect()
}

fn connections(transport: &ConnTransport) -> usize {
    let open = |p: &&Peer| matches!(p.state, PeerState::Open(_));
    transport.peers.iter().filter(open).count()
}

#[test]
fn nothing_is_connected_before_somebody_speaks() {
    let (mut all, _) = transports(3, false);
    let mut keeps = keeps(3);
    for _ in 0..10 {
        until(&mut all, &mut keeps, |_, _| true);
    }
    assert!(all.iter().all(|w| w.peers.is_empty()));
    let mut sent = false;
    until(&mut all, &mut keeps, |w, k| {
        sent = sent || w[0].send(2, 1, b"a", Body::Bytes(b"b")).unwrap() == SendStatus::Done;
        k[2].0 == [(0, 1, b"ab".to_vec())]
    });
    assert_eq!(all.iter().map(connections).collect::<Vec<_>>(), [1, 0, 1]);
}

/// Does what `transport` sleeps on become readable soon?
fn awake(transport: &ConnTransport) -> bool {
    let fd = transport.event_fd().unwrap();
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let limit = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0
}

#[test]
fn what_is_read_directly_wakes_who_sleeps() {
    let (mut all, _) = transports(2, false);
    let mut keeps = keeps(2);
    // Reads since the last sleep are counted. A read may bring several messages, so they go one at
    // a time.
    for n in 1..=2 * BUSY_POLL_AFTER_READS as usize {
        let mut sent = false;
        until(&mut all, &mut keeps, |w, k| {
            sent =
                sent || w[0].send(1, 1, &[], Body::Bytes(&[0; 5000])).unwrap() == SendStatus::Done;
            k[1].0.len() == n
        });
    }
    let PeerState::Open(conn) = &all[1].peers[0].state else {
        panic!("there is no connection");
    };
    assert_eq!(conn.interest, PollInterest::Nothing, "it is read directly");
    all[1].arm(Sleeper::Program);
    assert!(!awake(&all[1]), "nothing has come");
    let sent = all[0].send(1, 1, &[], Body::Bytes(b"!"));
    assert_eq!(sent.unwrap(), SendStatus::Done);
    assert!(awake(&all[1]), "one byte is enough");
    all[1].disarm();
    let before = keeps[1].0.len();
    until(&mut all, &mut keeps, |_, k| k[1].0.len() > before);
}

/// Takes streams, and drops their bytes.
#[derive(Default)]
struct Drain(Vec<u8>);

impl Inbox for Drain {
    fn on_message(&mut self, _: ProcId, _: u8, _: &[u8]) -> bool {
        true
    }
    fn stream_buffer(&mut self, _: ProcId, _: u8, _: &[u8], left: usize) -> Option<&mut [u8]> {
        self.0.resize(left.max(self.0.len()), 0);
        self.0.get_mut(..left)
    }
}

#[test]
fn room_in_a_socket_wakes_who_has_filled_it_again_before_the_sleep() {
    let (mut all, _) = transports(2, false);
    let mut keeps = keeps(2);
    let body = vec![7; 64 << 20];
    let mut taken = 0;
    until(&mut all, &mut keeps, |w, _| {
        taken += w[0].stream(1, 1, &[], &body[taken..]).unwrap().taken;
        taken > 0
    });
    let mut fill = |w: &mut ConnTransport| {
        let before = taken;
        while let n @ 1.. = w.stream(1, 1, &[], &body[taken..]).unwrap().taken {
            taken += n;
        }
        assert!(taken < body.len(), "a socket takes all of it");
        taken - before
    };
    let mut drain = Drain::default();
    let mut until_room = |w: &mut [ConnTransport]| {
        while !awake(&w[0]) {
            assert_ne!(w[1].poll(&mut drain).unwrap(), 0, "it sleeps for ever");
        }
    };
    fill(&mut all[0]);
    all[0].arm(Sleeper::Program);
    until_room(&mut all);
    // This poll sees the room. The caller fills it, and sleeps without another look.
    all[0].poll(&mut keeps[0]).unwrap();
    assert!(fill(&mut all[0]) > 0, "there is no room");
    until_room(&mut all);
}

#[test]
fn a_poll_ends_with_a_message_whose_receive_comes_late() {
    const MESSAGES: usize = 20;
    let (mut all, _) = transports(2, false);
    let mut keeps = keeps(2);
    let body = [7; 20_000];
    let mut met = false;
    until(&mut all, &mut keeps, |w, k| {
        met = met || w[0].send(1, 1, &[], Body::Bytes(b"!")).unwrap() == SendStatus::Done;
        !k[1].0.is_empty()
    });
    // All have arrived before any is read.
    let mut sent = 0;
    until(&mut all[..1], &mut keeps[..1], |w, _| {
        if sent < MESSAGES {
            let status = w[0].send(1, 1, &[], Body::Bytes(&body)).unwrap();
            sent += usize::from(status == SendStatus::Done);
        }
        let PeerState::Open(conn) = &w[0].peers[0].state else {
            panic!("there is no connection");
        };
        sent == MESSAGES && !conn.is_behind() && conn.unacknowledged() == 0
    });
    let mut came = Vec::new();
    while keeps[1].0.len() < 1 + MESSAGES {
        let before = keeps[1].0.len();
        all[1].poll(&mut keeps[1]).unwrap();
        came.push(keeps[1].0.len() - before);
    }
    // The first read fills the scratch memory. After it each poll brings one message, so that the
    // program may post a receive for the next. A poll that asks the poll set reads twice.
    let at_first = conn::SCRATCH_BYTES / body.len() + 2;
    assert!(came[0] <= at_first, "{came:?}");
    assert!(came[1..].iter().all(|&n| n <= 2), "{came:?}");
    assert!(keeps[1].0[1..].iter().all(|m| m.2 == body));
}

#[test]
fn two_that_connect_to_each_other_at_once_have_one_connection_and_lose_nothing() {
    for round in 0..20 {
        let (mut all, _) = transports(2, false);
        let mut keeps = keeps(2);
        let mut sent = [0u8; 2];
        until(&mut all, &mut keeps, |w, k| {
            for me in 0..2usize {
                // The second one starts a little later each time.
                let late = me == 1 && round > 10 && k[0].0.is_empty() && sent[0] < 1;
                if sent[me] < 50 && !late {
                    let body = [sent[me]];
                    let status = w[me].send(1 - me as u32, 1, &[], Body::Bytes(&body));
                    sent[me] += u8::from(status.unwrap() == SendStatus::Done);
                }
            }
            k.iter().all(|k| k.0.len() == 50)
        });
        for keep in &keeps {
            let order: Vec<u8> = keep.0.iter().map(|m| m.2[0]).collect();
            assert_eq!(order, (0..50).collect::<Vec<_>>());
        }
        assert_eq!((connections(&all[0]), connections(&all[1])), (1, 1));
    }
}

#[test]
fn encrypted_connections_carry_everything_and_a_wiretap_sees_nothing() {
    let (mut all, _) = transports(2, true);
    let mut keeps = keeps(2);
    let sizes = [0, 1, 100, EAGER_MAX_BYTES, frame::WHOLE_MAX_BYTES];
    let mut next = 0;
    until(&mut all, &mut keeps, |w, k| {
        if next < sizes.len() {
            let body = vec![next as u8; sizes[next]];
            let status = w[0].send(1, next as u8, &[], Body::Bytes(&body)).unwrap();
            next += usize::from(status == SendStatus::Done);
        }
        k[1].0.len() == sizes.len()
    });
    for (i, (_, message, bytes)) in keeps[1].0.iter().enumerate() {
        assert_eq!(usize::from(*message), i);
        assert_eq!(*bytes, vec![i as u8; sizes[i]]);
    }
    let PeerState::Open(conn) = &mut all[0].peers[0].state else {
        panic!("no connection");
    };
    // Bytes that are no genuine record end the connection, and are not delivered.
    rustix::net::send(conn.fd(), &[0u8; 64], rustix::net::SendFlags::empty()).unwrap();
    let before = keeps[1].0.len();
    let end = Instant::now() + Duration::from_secs(10);
    let fault = loop {
        match all[1].poll(&mut keeps[1]) {
            Ok(_) => assert!(Instant::now() < end),
            Err(e) => break e.to_string(),
        }
    };
    assert!(
        fault.contains("not genuine") && fault.contains("process 0 on host here"),
        "{fault}"
    );
    assert_eq!(keeps[1].0.len(), before);
}

#[test]
fn a_peer_that_leaves_is_no_fault_and_one_that_vanishes_is() {
    for notifies in [true, false] {
        let (mut all, _) = transports(2, false);
        let mut keeps = keeps(2);
        let mut sent = false;
        until(&mut all, &mut keeps, |w, k| {
            sent = sent || w[0].send(1, 1, &[], Body::Bytes(b"last")).unwrap() == SendStatus::Done;
            sent && (!notifies || w[0].settle()) && !k[1].0.is_empty()
        });
        drop(all.remove(0));
        let end = Instant::now() + Duration::from_millis(if notifies { 1500 } else { 10_000 });
        let fault = loop {
            match all[0].poll(&mut keeps[1]) {
                Ok(_) if Instant::now() > end => break None,
                Ok(_) => {}
                Err(e) => break Some(e),
            }
        };
        match fault {
            None => assert!(notifies),
            Some(e) => {
                assert!(!notifies, "{e}");
                assert_eq!(e.peer(), Some(0));
                assert!(e.to_string().contains("process 0 on host here"), "{e}");
            }
        }
        let again = all[0].send(0, 1, &[], Body::Bytes(b"hello?"));
        assert!(again.is_err());
    }
}

#[test]
fn nobody_listening_is_said_with_every_address() {
    let (mut all, cards) = transports(2, false);
    let dead = all.remove(1);
    let at = listening(&cards);
    drop(dead);
    let mut keep = Keep::default();
    assert_eq!(
        all[0].send(1, 1, &[], Body::Bytes(b"")).unwrap(),
        SendStatus::Full
    );
    let end = Instant::now() + Duration::from_secs(10);
    let fault = loop {
        match all[0].poll(&mut keep) {
            Ok(_) => assert!(Instant::now() < end),
            Err(e) => break e.to_string(),
        }
    };
    let tried = format!("127.0.0.1:{}", at.port);
    assert!(
        fault.contains(&tried) && fault.contains("refused"),
        "{fault}"
    );
}

#[test]
fn strangers_are_sent_away_and_stall_nobody() {
    let (mut all, cards) = transports(2, false);
    let mut keeps = keeps(2);
    let at = listening(&cards);
    let at = SocketAddr::new(at.address.ip, at.port);
    let mut silent: Vec<TcpStream> = (0..PENDING_MAX + 10)
        .map(|_| TcpStream::connect(at).unwrap())
        .collect();
    let mut scanner = TcpStream::connect(at).unwrap();
    scanner.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut liar = TcpStream::connect(at).unwrap();
    let other = HandshakeConfig::new(
        &JobKey::from_bytes(&[8; 32]),
        Identity {
            job: 99,
            process: 0,
            purpose: PURPOSE,
            encrypt: false,
        },
    );
    liar.write_all(&other.initiate(1).unwrap().1).unwrap();
    let mut sent = false;
    until(&mut all, &mut keeps, |w, k| {
        sent = sent || w[0].send(1, 1, &[], Body::Bytes(b"ours")).unwrap() == SendStatus::Done;
        let d = w[1].rejections();
        k[1].0.len() == 1 && d.unknown_protocol == 1 && d.proof == 1 && d.backlog_full >= 10
    });
    assert_eq!(keeps[1].0, [(0, 1, b"ours".to_vec())]);
    let mut answer = Vec::new();
    let _ = scanner.read_to_end(&mut answer);
    assert!(answer.is_empty(), "an unknown process was answered");
    silent.clear();
}

/// A process that knows the key and then sends nonsense loses its own connection, and nothing else.
#[test]
fn nonsense_from_a_process_of_the_job_ends_its_connection_alone() {
    let (mut all, cards) = transports(3, false);
    let mut keeps = keeps(3);
    let at = listening(&cards);
    let mut bad = TcpStream::connect(SocketAddr::new(at.address.ip, at.port)).unwrap();
    let local = Identity {
        job: 99,
        process: 2,
        purpose: PURPOSE,
        encrypt: false,
    };
    let config = HandshakeConfig::new(&JobKey::from_bytes(&[7; 32]), local);
    let (mut handshake, hello) = config.initiate(1).unwrap();
    bad.write_all(&hello).unwrap();
    bad.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    until(&mut all[..2], &mut keeps[..2], |_, _| {
        let mut space = [0; ferry_auth::RESPONSE_BYTES];
        let n = bad
            .read(&mut space[..ferry_auth::RESPONSE_BYTES - answer.len()])
            .unwrap_or(0);
        answer.extend_from_slice(&space[..n]);
        answer.len() == ferry_auth::RESPONSE_BYTES
    });
    let ferry_auth::Step::Done(_, finish) = handshake.feed(&config, &mut &answer[..]).unwrap()
    else {
        panic!("no answer");
    };
    bad.write_all(&finish).unwrap();
    bad.write_all(&[0xff; 100]).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    let fault = loop {
        match all[1].poll(&mut keeps[1]) {
            Ok(_) => assert!(Instant::now() < end),
            Err(e) => break e,
        }
    };
    assert_eq!(fault.peer(), Some(2));
    assert!(keeps[1].0.is_empty());
    let mut sent = false;
    until(&mut all[..2], &mut keeps[..2], |w, k| {
        sent = sent || w[0].send(1, 1, &[], Body::Bytes(b"ours")).unwrap() == SendStatus::Done;
        k[1].0.len() == 1
    });
}

/// Two transports with a connection. The first coalesces.
fn coalescing() -> (Vec<ConnTransport>, Vec<Keep>) {
    let (mut all, _) = transports(2, false);
    let mut keeps = keeps(2);
    all[0].set_coalescing(true);
    let mut sent = false;
    until(&mut all, &mut keeps, |w, k| {
        sent = sent || w[0].send(1, 1, b"a", Body::Bytes(b"b")).unwrap() == SendStatus::Done;
        k[1].0.len() == 1
    });
    keeps[1].0.clear();
    (all, keeps)
}

#[test]
fn coalesced_messages_go_without_another_call() {
    let (mut all, mut keeps) = coalescing();
    for round in 0..20 {
        all[0].poll(&mut keeps[0]).unwrap();
        for n in 0..50 {
            let sent = all[0].send_eager(1, n, b"head", Body::Bytes(&[round; 100]));
            assert_eq!(sent.unwrap(), SendStatus::Done);
        }
        assert!(all[0].has_unsent(), "the first has gone, others are kept");
        // The sender does not poll: the flush thread sends them. Between rounds it may have
        // forgotten the connection.
        until(&mut all[1..], &mut keeps[1..], |_, k| {
            k[0].0.len() == 50 * (1 + round as usize)
        });
        if round % 4 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for (i, (from, message, bytes)) in keeps[1].0.iter().enumerate() {
        assert_eq!((*from, *message as usize), (0, i % 50));
        assert_eq!(bytes[..4], *b"head");
        assert_eq!(bytes[4..], [(i / 50) as u8; 100]);
    }
}

#[test]
fn coalesced_messages_keep_their_order_among_all_others() {
    let (mut all, mut keeps) = coalescing();
    let mut random = 1u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (random >> 33) % n
    };
    let (mut sent, mut expected) = (0u32, Vec::new());
    let mut bytes = Vec::new();
    while sent < 20_000 {
        let len = match below(20) {
            0 => below(60_000),
            1..4 => below(17_000),
            _ => below(300),
        };
        bytes.clear();
        bytes.extend_from_slice(&sent.to_le_bytes());
        bytes.resize(4 + len as usize, sent as u8);
        let (head, body) = bytes.split_at(4);
        let status = match below(10) {
            0 => {
                let mut fill = |out: &mut [u8]| out.copy_from_slice(body);
                all[0].send(1, 7, head, Body::Fill(body.len(), &mut fill))
            }
            1 => all[0].send(1, 7, head, Body::Bytes(body)),
            2 => {
                let batch = BatchMessage {
                    message: 7,
                    head,
                    body,
                    stream: false,
                };
                let sent = all[0].send_batch(1, &[batch]).unwrap();
                Ok(match sent.whole {
                    1 => SendStatus::Done,
                    _ => SendStatus::Full,
                })
            }
            _ => all[0].send_eager(1, 7, head, Body::Bytes(body)),
        };
        let done = status.unwrap() == SendStatus::Done;
        if done {
            expected.push((4 + len) as usize);
            sent += 1;
        }
        if !done || below(30) == 0 {
            all[0].poll(&mut keeps[0]).unwrap();
        }
        if below(30) == 0 {
            all[1].poll(&mut keeps[1]).unwrap();
        }
    }
    until(&mut all, &mut keeps, |_, k| k[1].0.len() == sent as usize);
    assert!(!all[0].has_unsent());
    for (i, (_, message, bytes)) in keeps[1].0.iter().enumerate() {
        assert_eq!((*message, bytes.len()), (7, expected[i]));
        assert_eq!(bytes[..4], (i as u32).to_le_bytes());
        assert!(bytes[4..].iter().all(|&b| b == i as u8));
    }
}

#[test]
fn a_single_message_is_not_kept() {
    let (mut all, mut keeps) = coalescing();
    for n in 0..100 {
        all[0].poll(&mut keeps[0]).unwrap();
        let sent = all[0].send_eager(1, n, &[], Body::Bytes(b"alone"));
        assert_eq!(sent.unwrap(), SendStatus::Done);
        assert!(!all[0].has_unsent());
    }
}
