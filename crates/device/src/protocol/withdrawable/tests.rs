//! Slots, when messages are eager instead, and what comes from a peer.

use super::*;
use crate::base::buffer::Sink;
use crate::base::key::{ContextId, Pattern};
use ferry_transport::Inbox;
use ferry_transport::shm::AnnouncementWords;

fn peer() -> Peer {
    let words = || &*Box::leak(Box::new(AnnouncementWords::free()));
    Peer::new(Some(Announcements {
        own: words(),
        peers: words(),
        core_each: true,
    }))
}

#[test]
fn a_withdrawn_slot_is_free_when_it_has_come_back() {
    let mut peer = peer();
    let own = peer.words.unwrap().own;
    let slots: Vec<_> = std::iter::from_fn(|| peer.next_slot()).collect();
    assert_eq!(slots, (0..ANNOUNCEMENTS_MAX).collect::<Vec<_>>());
    peer.close(7, Response::Read);
    assert_eq!((peer.next_slot(), peer.next_slot()), (Some(7), None));
    assert!(own.withdraw(9));
    peer.withdrawn |= 1 << 9;
    peer.open -= 1;
    assert_eq!(peer.next_slot(), None);
    assert!(!own.claim(9) && own.claim(10), "the receiver's claims");
    assert_eq!((peer.next_slot(), peer.next_slot()), (Some(9), None));
    // A peer gives back what was not withdrawn.
    assert!(!own.claim(10));
    assert_eq!(peer.next_slot(), None);
}

#[test]
fn a_stream_that_is_asked_for_is_not_eager() {
    let mut peer = peer();
    let mut open: std::collections::VecDeque<_> = (0..2).map(|_| peer.next_slot()).collect();
    for _ in 0..ASKED_MESSAGES_MAX {
        open.push_back(peer.next_slot());
        let slot = open.pop_front().flatten().expect("announced");
        peer.close(slot, Response::Asked { chosen: true });
    }
}

/// Messages until the next one is announced.
fn eager_messages(peer: &mut Peer) -> (u32, u32) {
    for eager in 0.. {
        if let Some(slot) = peer.next_slot() {
            return (eager, slot);
        }
    }
    unreachable!()
}

#[test]
fn messages_are_eager_for_a_while_when_the_receiver_asks_for_them() {
    let mut peer = peer();
    let by_choice = ASKED_MESSAGES_MAX / CHOSEN_WEIGHT - 1;
    for chosen in (0..CHOSEN_WEIGHT)
        .map(|_| false)
        .chain((0..by_choice).map(|_| true))
    {
        let (eager, slot) = eager_messages(&mut peer);
        assert_eq!(eager, 0);
        peer.close(slot, Response::Asked { chosen });
    }
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let (eager, slot) = eager_messages(&mut peer);
        pauses.push(eager);
        peer.close(slot, Response::Asked { chosen: true });
    }
    assert_eq!(pauses, [8, 16, 16, 16, 16]);
    let (eager, slot) = eager_messages(&mut peer);
    assert_eq!(eager, ASKED_EAGER_MESSAGES_MAX);
    peer.close(slot, Response::Read);
    assert_eq!(eager_messages(&mut peer).0, 0, "the receiver reads again");
}

const FROM: ProcId = 1;

fn key() -> Key {
    Key {
        context: ContextId::WORLD,
        source: FROM,
        tag: 4,
    }
}

/// An engine that has got an announcement of 100 bytes with slot 3, and the message that it matched
/// with a receive into `memory`.
fn announced(memory: &mut [u8]) -> (Engine, MatchedRts) {
    let mut engine = Engine::new(0);
    let head = Header::new().key(&key()).u64(100).u64(0x1000);
    engine.on_message(FROM, header::RTS_WITHDRAWABLE, head.u32(9).u32(3).bytes());
    let found = engine.matcher.match_receive(&Pattern {
        context: ContextId::WORLD,
        source: Some(FROM),
        tag: Some(4).into(),
    });
    let req = engine.requests.insert(Operation::Receive {
        context: ContextId::WORLD,
        sink: Sink::Bytes {
            ptr: memory.as_mut_ptr(),
            cap: memory.len(),
        },
        stream: None,
    });
    engine.on_matched_unexpected(req, found.unwrap());
    let task = engine.single_copies.next_task().unwrap();
    assert_eq!((task.rts.slot, task.rts.request), (Some(3), 9));
    (engine, task.rts)
}

fn withdrawn(engine: &mut Engine, slot: u32, bytes: &[u8]) {
    let message = [Header::new().u32(slot).bytes(), bytes].concat();
    engine.on_message(FROM, header::WITHDRAWN, &message);
}

#[test]
fn withdrawn_bytes_come_before_or_after_the_receive_has_matched() {
    for bytes_first in [true, false] {
        for room in [100, 40] {
            let mut memory = vec![0; room];
            let (mut engine, rts) = announced(&mut memory);
            if bytes_first {
                withdrawn(&mut engine, 3, &[7; 100]);
            }
            engine.match_withdrawn(&rts, 3);
            assert_eq!(engine.requests.is_complete(rts.req), bytes_first);
            if !bytes_first {
                withdrawn(&mut engine, 3, &[7; 100]);
            }
            let ended = engine.requests.peek(rts.req).unwrap();
            assert_eq!((ended.envelope.len, ended.received), (100, room as u64));
            assert_eq!(ended.fault.is_some(), room < 100);
            assert_eq!(engine.malformed, 0);
            assert_eq!(memory, vec![7; room]);
        }
    }
}

#[test]
fn nonsense_is_counted_and_dropped() {
    let mut memory = [0; 100];
    let (mut engine, rts) = announced(&mut memory);
    withdrawn(&mut engine, ANNOUNCEMENTS_MAX, &[7; 100]);
    engine.on_message(FROM, header::WITHDRAWN, &[1, 2]);
    let head = |slot, address| {
        Header::new()
            .key(&key())
            .u64(100)
            .u64(address)
            .u32(9)
            .u32(slot)
    };
    let rts_message = |slot, address| head(slot, address).bytes().to_vec();
    engine.on_message(FROM, header::RTS_WITHDRAWABLE, &rts_message(64, 0x1000));
    engine.on_message(FROM, header::RTS_WITHDRAWABLE, &rts_message(1, 0));
    engine.on_message(FROM, header::RTS_WITHDRAWABLE, &rts_message(1, 8)[..36]);
    assert_eq!(engine.malformed, 5);
    withdrawn(&mut engine, 3, &[7; 100]);
    withdrawn(&mut engine, 3, &[8; 100]);
    assert_eq!(engine.malformed, 6, "the same slot twice");
    // A lost peer's bytes are gone with it.
    engine.withdrawables.forget(FROM);
    engine.match_withdrawn(&rts, 3);
    assert!(!engine.requests.is_complete(rts.req));
    engine.withdrawables.forget(FROM);
    assert!(engine.withdrawables.awaited.is_empty());
}
