//! MX levels above a lower level in memory.

use super::*;
use crate::rapidio::driver::control::ControlCosts;
use crate::rapidio::driver::control::fake::{Fabric, FakeHost, FakeLower, limits};
use crate::rapidio::driver::physical::PhysicalMemory;
use crate::time::Rate;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const EAGER_MAX_BYTES: usize = 3000;

struct Nodes {
    fabric: Arc<Mutex<Fabric>>,
    all: Vec<(Mx<FakeLower>, FakeHost, Endpoint)>,
}

fn nodes(count: usize, seed: u64, queues: u8, mailboxes: u8, expect_max: usize) -> Nodes {
    let fabric = Fabric::new(count, seed, limits(queues, mailboxes, expect_max, 1));
    let node = |me| {
        let lower = FakeLower {
            me,
            fabric: fabric.clone(),
            memory: PhysicalMemory::new(),
        };
        let costs = ControlCosts {
            call: Time::ns(1),
            page: Time::ns(1),
            copy: Rate::bits_per_second(1_000_000_000),
            cache: 16384,
            write_back: Rate::bits_per_second(1_000_000_000),
        };
        let costs_of_mx = MxCosts {
            call: Time::ns(1),
            poll: Time::ns(1),
            eager_max: EAGER_MAX_BYTES,
        };
        let mut mx = Mx::new(ControlLevel::new(lower, me, costs), costs_of_mx);
        let endpoint = mx.open(0).unwrap();
        (mx, FakeHost::default(), endpoint)
    };
    let all = (0..count as u32).map(node).collect();
    Nodes { fabric, all }
}

impl Nodes {
    fn run(&mut self) {
        loop {
            let moved = self.fabric.lock().unwrap().step();
            let mut seen = 0;
            for (mx, host, _) in &mut self.all {
                seen += mx.progress(host).unwrap();
            }
            if !moved && seen == 0 {
                return;
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, bits: u64, bytes: &[u8], sync: bool) -> Request {
        let (mx, c, endpoint) = &mut self.all[from as usize];
        let to = address(to);
        let memory = UserMemory::of(bytes);
        let mode = match sync {
            true => SendMode::Synchronous,
            false => SendMode::Standard,
        };
        // SAFETY: the tests keep `bytes` until the send is done.
        unsafe { mx.isend(c, *endpoint, to, bits, memory, mode) }
    }

    fn receive(&mut self, me: u32, wanted: Match, into: &mut [u8]) -> Request {
        let (mx, c, endpoint) = &mut self.all[me as usize];
        let memory = UserMemory {
            address: into.as_mut_ptr().expose_provenance(),
            bytes: into.len(),
        };
        // SAFETY: the tests look at `into` after the receive.
        unsafe { mx.irecv(c, *endpoint, wanted, memory).unwrap() }
    }

    fn test(&mut self, me: u32, request: Request) -> Option<Status> {
        self.all[me as usize].0.test(request)
    }

    fn assert_nothing_is_left(&mut self) {
        assert!(self.fabric.lock().unwrap().is_idle());
        for (mx, _, _) in &mut self.all {
            assert_eq!(mx.counts(), [0; 3]);
            assert!(mx.is_settled());
            assert_eq!(mx.control().counts(), [0; 4]);
            assert_eq!(mx.control().lower_mut().memory().pages(), 0);
            assert!(mx.queue_requests.is_empty() && mx.transfers.is_empty());
            assert!(mx.grants.is_empty() && mx.granted.is_empty() && mx.done.is_empty());
        }
    }
}

fn address(rank: u32) -> Address {
    Address { rank, endpoint: 0 }
}

fn content(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + salt * 7) as u8).collect()
}

/// Match bits: the sender, and a tag.
fn bits(from: u32, tag: u64) -> u64 {
    u64::from(from) << 32 | tag
}

proptest! {
    /// Messages of all sizes, posted before and after they come, on few queues: each receive gets
    /// the oldest message that matches it.
    #[test]
    fn messages_match_in_order(
        seed: u64,
        queues in 1u8..4,
        mailboxes in 2u8..5,
        expect_max in 1usize..8,
        messages in prop::collection::vec(
            (0u32..3, 0u32..3, 0u64..2, any::<bool>(), prop_oneof![0usize..200, 2000usize..40_000]),
            1..25,
        ),
        early in any::<u32>(),
    ) {
        let mut nodes = nodes(3, seed, queues, mailboxes, expect_max);
        let mut expected: BTreeMap<(u32, u32, u64), VecDeque<Vec<u8>>> = BTreeMap::new();
        let sources: Vec<Vec<u8>> =
            messages.iter().enumerate().map(|(n, m)| content(m.4, n)).collect();
        for (m, source) in messages.iter().zip(&sources) {
            expected.entry((m.0, m.1, m.2)).or_default().push_back(source.clone());
        }
        let mut receives = Vec::new();
        let mut targets: Vec<Vec<u8>> = messages.iter().map(|_| vec![0; 40_000]).collect();
        for late in [false, true] {
            for (n, (m, target)) in messages.iter().zip(&mut targets).enumerate() {
                if (early >> n & 1 == 0) == late {
                    let wanted = Match { bits: bits(m.0, m.2), mask: u64::MAX };
                    receives.push((n, nodes.receive(m.1, wanted, target)));
                }
            }
            if !late {
                let sends: Vec<_> = messages.iter().zip(&sources)
                    .map(|(m, s)| (m.0, nodes.send(m.0, m.1, bits(m.0, m.2), s, m.3)))
                    .collect();
                nodes.run();
                receives.push((usize::MAX, Request(0)));
                for send in sends {
                    receives.push((usize::MAX - 1 - send.0 as usize, send.1));
                }
            }
        }
        nodes.run();
        for (n, request) in receives {
            if n == usize::MAX {
                continue;
            }
            if n > messages.len() {
                let me = (usize::MAX - 1 - n) as u32;
                prop_assert!(nodes.test(me, request).is_some(), "a send is not done");
                continue;
            }
            let m = messages[n];
            let status = nodes.test(m.1, request).expect("a receive is not done");
            let first = expected.get_mut(&(m.0, m.1, m.2)).and_then(VecDeque::pop_front).unwrap();
            prop_assert_eq!(status.message_bytes, first.len());
            prop_assert!(!status.is_truncated() && status.peer == address(m.0));
            prop_assert!(targets[n][..first.len()] == first[..]);
            prop_assert!(targets[n][first.len()..].iter().all(|b| *b == 0));
        }
        nodes.assert_nothing_is_left();
    }
}

#[test]
fn masks_probes_truncation_and_cancel() {
    let mut nodes = nodes(2, 5, 8, 64, 64);
    let (small, large) = (content(100, 1), content(50_000, 2));
    let tag = |tag| Match {
        bits: tag,
        mask: 0xff,
    };
    let sends = [
        nodes.send(0, 1, 0x101, &small, false),
        nodes.send(0, 1, 0x202, &large, false),
    ];
    assert!(nodes.test(0, sends[0]).is_some(), "an eager send is done");
    nodes.run();
    let (mx, c, endpoint) = &mut nodes.all[1];
    assert_eq!(mx.iprobe(c, *endpoint, tag(3)), None);
    let probed = mx.iprobe(c, *endpoint, tag(2)).unwrap();
    assert_eq!((probed.bits, probed.message_bytes), (0x202, 50_000));
    // The receive of tag 2 takes the second message, and no more of it than fits.
    let mut into = vec![0; 20_000];
    let request = nodes.receive(1, tag(2), &mut into);
    nodes.run();
    let status = nodes.test(1, request).unwrap();
    assert!(status.is_truncated() && status.bytes == 20_000);
    assert!(into == large[..20_000]);
    assert!(nodes.test(0, sends[1]).is_some());
    let mut rest = vec![0; 60];
    let request = nodes.receive(1, Match::ANY, &mut rest);
    let status = nodes.test(1, request).unwrap();
    assert_eq!(
        (status.bits, status.bytes, status.message_bytes),
        (0x101, 60, 100)
    );
    assert!(rest == small[..60]);
    let request = nodes.receive(1, tag(9), &mut rest);
    let (mx, c, endpoint) = &mut nodes.all[1];
    assert!(mx.cancel(c, request) && !mx.cancel(c, request));
    assert!(mx.close(*endpoint) && mx.open(0).is_some());
    nodes.assert_nothing_is_left();
}

#[test]
fn a_synchronous_send_waits_for_its_match() {
    let mut nodes = nodes(2, 7, 8, 64, 64);
    for (from, to) in [(0, 1), (0, 0)] {
        let bytes = content(10, 3);
        let send = nodes.send(from, to, 1, &bytes, true);
        nodes.run();
        assert_eq!(nodes.test(from, send), None);
        let mut into = vec![0; 10];
        let receive = nodes.receive(to, Match::ANY, &mut into);
        nodes.run();
        assert!(nodes.test(from, send).is_some() && nodes.test(to, receive).is_some());
        assert_eq!(into, bytes);
    }
    // A large message to the own node needs no card.
    let bytes = content(100_000, 4);
    let mut into = vec![0; 100_000];
    let receive = nodes.receive(0, Match::ANY, &mut into);
    let send = nodes.send(0, 0, 1, &bytes, false);
    let (mx, _, endpoint) = &mut nodes.all[0];
    let done = [
        mx.test_any(*endpoint, Match::ANY),
        mx.test_any(*endpoint, Match::ANY),
    ];
    assert!(
        done.map(|d| d.unwrap().0)
            .iter()
            .all(|r| [send, receive].contains(r))
    );
    assert_eq!(mx.test_any(*endpoint, Match::ANY), None);
    assert!(into == bytes);
    nodes.assert_nothing_is_left();
}

/// Large messages that the layer above announces: the grant goes with its message.
#[test]
fn a_granted_message_needs_no_rts() {
    // Two messages on one queue: the second one's grant goes by CTS.
    let mut nodes = nodes(2, 9, 1, 64, 4);
    let sources = [content(30_000, 1), content(10_000, 2)];
    let mut targets = [vec![0; 30_000], vec![0; 10_000]];
    let mut announced = Vec::new();
    for target in &mut targets {
        let (mx, c, endpoint) = &mut nodes.all[1];
        let memory = UserMemory {
            address: target.as_mut_ptr().expose_provenance(),
            bytes: target.len(),
        };
        // SAFETY: `target` is looked at after the receive.
        let receive = unsafe { mx.receive_granted(c, *endpoint, address(0), memory) };
        let (receive, grant) = receive.unwrap();
        announced.push((receive, mx.number(receive), grant));
    }
    assert!(announced[0].2.is_some() && announced[1].2.is_none());
    // The grant by CTS may come before the send or after it.
    nodes.run();
    let mut sends = Vec::new();
    for (source, (_, number, grant)) in sources.iter().zip(&announced) {
        let (mx, c, endpoint) = &mut nodes.all[0];
        if let Some(grant) = grant {
            let encoded = grant.encode();
            let (parsed, rest) = Grant::parse(&encoded).unwrap();
            assert!(parsed == *grant && rest.is_empty());
            mx.accept_grant(1, parsed);
        }
        let memory = UserMemory::of(source);
        // SAFETY: `source` stays until the end.
        let send = unsafe { mx.send_granted(c, *endpoint, address(1), *number, memory) };
        sends.push(send.unwrap());
    }
    nodes.run();
    for (at, (receive, _, _)) in announced.iter().enumerate() {
        assert_eq!(nodes.all[0].0.bytes_sent(sends[at]), sources[at].len());
        assert!(nodes.test(0, sends[at]).is_some());
        assert!(nodes.test(1, *receive).is_some());
    }
    assert!(sources[0] == targets[0] && sources[1] == targets[1]);
    nodes.assert_nothing_is_left();
}

#[test]
fn fuzz_mx_messages() {
    let grant = Grant {
        receive: 5,
        offset: 0,
        cut: Cut {
            bytes: 9000,
            first: 4096,
        },
        mailbox: 2,
    };
    let head = |kind, request| Head {
        kind,
        to: 0,
        from: 0,
        request,
        bits: 7,
    };
    let seeds = [
        [&head(Kind::Eager, 0).encode()[..], b"bytes"].concat(),
        [&head(Kind::Rts, 1).encode()[..], &9000u64.to_le_bytes()].concat(),
        [&head(Kind::Cts, 1).encode()[..], &grant.encode()].concat(),
        head(Kind::Ack, 2).encode().to_vec(),
    ];
    let source = content(9000, 1);
    ferry_fuzz::fuzz("fuzz_mx_messages", &seeds, |bytes| {
        let mut nodes = nodes(2, 1, 8, 64, 64);
        // Requests 1 and 2 are a large send and a small synchronous one.
        let mut target = vec![0; 100];
        nodes.send(1, 0, 7, &source, false);
        nodes.send(1, 0, 7, &source[..10], true);
        nodes.receive(1, Match::ANY, &mut target);
        let (mx, c, _) = &mut nodes.all[1];
        let result = mx.on_datum(c, 0, bytes);
        let counts = mx.counts();
        (result.map_err(|e| e.1), counts)
    });
}

use crate::rapidio::driver::control::Cut;
