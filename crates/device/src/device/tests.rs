//! What becomes of receives whose sender is lost.

use crate::base::buffer::Sink;
use crate::base::header::{self, Header};
use crate::base::key::{ContextId, Key, Pattern, Tags};
use crate::progress::device::Device;
use crate::progress::state::WaitPolicy;
use crate::protocol::failure::last_failure;
use crate::{SendMode, Source};
use ferry_job::{RankInfo, RankStatus};
use ferry_transport::{Inbox, TransportError};

fn pattern(source: u32) -> Pattern {
    Pattern {
        context: ContextId::WORLD,
        source: Some(source),
        tag: Tags::one(7),
    }
}

fn alone() -> Device {
    let status: &RankStatus = Box::leak(Box::default());
    let policy = WaitPolicy::new(1, 1);
    let alone = RankInfo::on_one_host(0, 1, "here");
    let mut device = Device::new(&alone, None, None, status, policy, false).unwrap();
    // Process 1 is of the same job.
    device.worker.engine.size = 2;
    device
}

fn cable_pulled() -> TransportError {
    TransportError::Lost {
        peer: 1,
        host: "far".into(),
        what: "the cable was pulled".into(),
    }
}

#[test]
fn a_deferred_receive_fails_with_its_sender_announced_or_not() {
    let mut d = alone();
    let mut rooms = [vec![0u8; 100_000], vec![0u8; 100_000]];
    let mut deferred = Vec::new();
    for room in &mut rooms {
        let sink = Sink::Bytes {
            ptr: room.as_mut_ptr(),
            cap: room.len(),
        };
        // SAFETY: the room outlives the device's use of it.
        deferred.push(unsafe { d.receive_deferred(1, pattern(1), sink, [0, 0]) });
    }
    let key = Key {
        context: ContextId::WORLD,
        source: 1,
        tag: 7,
    };
    let head = Header::new().key(&key).u64(100_000).u64(0).u32(5);
    d.worker.engine.on_message(1, header::RTS, head.bytes());
    assert!(d.is_announced(deferred[0]) && !d.is_announced(deferred[1]));
    assert!(deferred.iter().all(|&req| !d.is_complete(req)));
    d.worker.fail_transport(&cable_pulled());
    // The program touches the bytes of the message.
    d.release_deferred(deferred[0]);
    d.release_deferred(deferred[1]);
    for req in deferred {
        assert!(d.has_edges(req));
        assert!(d.take_deferred(req).fault.is_some());
    }
}

#[test]
fn only_receives_from_a_lost_process_fail_at_once() {
    let mut d = alone();
    let (mut early, mut late) = ([0u8; 4], [0u8; 4]);
    let into = |buffer: &mut [u8; 4]| Sink::Bytes {
        ptr: buffer.as_mut_ptr(),
        cap: 4,
    };
    // SAFETY: the buffers outlive the device's use of them.
    let waiting = unsafe { d.receive_from(1, pattern(1), into(&mut early)) };
    assert!(!d.is_lost(1) && !d.is_complete(waiting));
    d.worker.fail_transport(&cable_pulled());
    assert!(d.is_lost(1) && !d.is_lost(0));
    assert!(d.take(waiting).fault.is_some());
    // SAFETY: `early` outlives the device, and the first receive into it has ended.
    let again = unsafe { d.receive_from(1, pattern(1), into(&mut early)) };
    assert!(d.take(again).fault.is_some());
    assert!(last_failure().unwrap().contains("the cable was pulled"));

    // From those who are there messages still come.
    // SAFETY: `late` outlives the device's use of it.
    let own = unsafe { d.receive_from(0, pattern(0), into(&mut late)) };
    assert!(!d.is_complete(own));
    let key = Key {
        context: ContextId::WORLD,
        source: 0,
        tag: 7,
    };
    let word = *b"here";
    let source = Source::Bytes {
        ptr: word.as_ptr(),
        len: 4,
    };
    // SAFETY: `word` outlives the send.
    unsafe { d.send(0, key, source, SendMode::Standard) };
    while !d.is_complete(own) {
        d.progress();
    }
    assert!(d.take(own).fault.is_none());
    assert_eq!(&late, b"here");
}

#[test]
fn active_messages_to_a_lost_process_are_dropped() {
    let mut d = alone();
    d.worker.fail_transport(&cable_pulled());
    d.send_active(1, Box::new([1, 2, 3]));
    assert!(!d.sends_pending() && d.is_lost(1));
}

#[test]
fn a_lost_process_of_another_job_fails_what_may_come_from_it() {
    let mut d = alone();
    let (with_it, without_it) = (ContextId::random(1 << 30), ContextId::random(2 << 30));
    crate::add_foreign_members(with_it, &[9]);
    crate::add_foreign_members(without_it, &[8]);
    let mut rooms = [[0u8; 4]; 3];
    let contexts = [with_it, without_it, ContextId::random(3 << 30)];
    let receives: Vec<_> = contexts
        .into_iter()
        .zip(&mut rooms)
        .map(|(context, room)| {
            let sink = Sink::Bytes {
                ptr: room.as_mut_ptr(),
                cap: 4,
            };
            let from = Pattern {
                context,
                ..pattern(0)
            };
            // SAFETY: the rooms outlive the device's use of them.
            unsafe { d.receive(from, sink) }
        })
        .collect();
    d.fail_foreign(9, "it was killed");
    assert!(d.take(receives[0]).fault.is_some());
    assert!(!d.is_complete(receives[1]) && !d.is_complete(receives[2]));
    crate::remove_foreign_members(with_it, &[9]);
    crate::remove_foreign_members(without_it, &[8]);
}
