//! After which messages a poll of shared memory stops, so that the program can post a receive for
//! what comes next.
#![cfg(not(loom))]

use ferry_job::{NodeJob, Segment};
use ferry_transport::shm::Shm;
use ferry_transport::{Body, Inbox, ProcId, SendStatus, Transport};

/// The lengths of what has arrived, and whether there are receives for it.
#[derive(Default)]
struct Lengths {
    all: Vec<usize>,
    unexpected: bool,
}

impl Inbox for Lengths {
    fn on_message(&mut self, _: ProcId, _: u8, bytes: &[u8]) -> bool {
        self.all.push(bytes.len());
        self.unexpected
    }
}

/// Both of two processes on this many cores.
fn pair(cores: u32) -> [Shm; 2] {
    let node = NodeJob::new(5, 2, 2).unwrap();
    [0, 1].map(|me| {
        let fd = node.segment.fd.try_clone().unwrap();
        let segment = Segment::open(fd, 2, Some(node.segment.layout.total_bytes())).unwrap();
        Shm::open(segment, vec![0, 1], me, 5, cores).unwrap()
    })
}

/// How many messages of `len` bytes each poll finds, of four that are there. `unexpected`: none of
/// them has a receive.
fn found(cores: u32, len: usize, unexpected: bool) -> Vec<usize> {
    let [mut from, mut to] = pair(cores);
    let mut inbox = Lengths {
        all: Vec::new(),
        unexpected,
    };
    let mut send = |len| {
        let body = vec![1; len];
        let sent = from.send(1, 0, &[], Body::Bytes(&body)).unwrap();
        assert!(matches!(sent, SendStatus::Done));
    };
    // From here on the other process may write the fastbox, so messages go by the ring.
    send(8);
    while to.poll(&mut inbox).unwrap() == 0 {}
    for _ in 0..4 {
        send(len);
    }
    let mut polls = Vec::new();
    while polls.iter().sum::<usize>() < 4 {
        let before = inbox.all.len();
        to.poll(&mut inbox).unwrap();
        polls.push(inbox.all.len() - before);
    }
    assert_eq!(inbox.all, [8, len, len, len, len]);
    polls
}

#[test]
fn where_processes_share_cores_messages_worth_a_copy_come_one_at_a_time() {
    assert_eq!(found(1, 100, false), [4]);
    assert_eq!(found(1, 4096, false), [1; 4]);
    assert_eq!(found(1, 40_000, false), [1; 4]);
}

#[test]
fn where_each_has_one_only_long_ones_do() {
    assert_eq!(found(2, 100, false), [4]);
    assert_eq!(found(2, 4096, false), [4]);
    assert!(found(2, 40_000, false).iter().all(|&n| n <= 1));
}

#[test]
fn where_receives_come_late_all_do() {
    for cores in [1, 2] {
        for len in [100, 4096, 40_000] {
            let polls = found(cores, len, true);
            assert!(polls.iter().all(|&n| n <= 1), "{len} bytes: {polls:?}");
        }
    }
}
