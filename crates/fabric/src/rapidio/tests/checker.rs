//! Bad programming: what hardware does with it, and what the checker says.

use super::{World, piece};
use crate::kernel::Model;
use crate::rapidio::command::Physical;
use crate::rapidio::driver::lower::{Lower, LowerEvent};

/// Asserts that the checker says all of this.
fn assert_said(world: &World, parts: &[&str]) {
    let said = world.failure();
    assert!(parts.iter().all(|p| said.contains(p)), "{said:?}");
}

#[test]
fn low_bits_of_an_address_are_dropped() {
    for check in [false, true] {
        let mut world = World::new(2, check, |_| {});
        let (_page, mut at) = world.buffer(1, &[0; 32]);
        at.at = at.at.plus(5);
        at.bytes = 16;
        assert!(world.expect(1, 0, 0, 1, &[at]));
        if check {
            assert_said(&world, &["rank 1, lower level, expect", "no multiple of 8"]);
            continue;
        }
        world.send(0, 1, 1, &[9; 16]);
        world.settle();
        let mut landed = [0; 32];
        world
            .memory(1)
            .read(Physical(at.at.0 - 5), &mut landed)
            .unwrap();
        assert_eq!((landed[..16].to_vec(), landed[16]), (vec![9; 16], 0));
    }
    let mut world = World::new(2, true, |_| {});
    let (_page, mut from) = world.buffer(0, &[1; 32]);
    from.at = from.at.plus(4);
    from.bytes = 16;
    world.call(0, |lower, host| lower.send(host, 1, 0, &[from], 0));
    assert_said(&world, &["rank 0, lower level, send", "no multiple of 8"]);
}

#[test]
fn sizes_that_differ_cut_the_message() {
    for check in [false, true] {
        let mut world = World::new(2, check, |_| {});
        let (_page, at) = world.buffer(1, &[0; 512]);
        world.expect(1, 0, 0, 1, &[piece(at.at, 256)]);
        world.send(0, 1, 1, &[9; 512]);
        world.settle();
        if check {
            assert_said(&world, &["rank 1", "expect", "256 bytes", "sent 512"]);
            continue;
        }
        let mut landed = [0; 512];
        world.memory(1).read(at.at, &mut landed).unwrap();
        assert_eq!((landed[255], landed[256]), (9, 0));
    }
}

#[test]
fn counts_that_differ_leave_a_queue_open_or_a_message_unexpected() {
    // One message too few.
    let mut world = World::new(2, true, |_| {});
    let (_page, at) = world.buffer(1, &[0; 256]);
    world.expect(1, 2, 0, 1, &[at, at]);
    world.send(0, 1, 1, &[9; 256]);
    let come = world.settle();
    assert!(come.iter().all(|(node, _)| *node == 0), "{come:?}");
    let said = world.cards.deadlock().unwrap();
    assert!(
        said.contains("rank 1, lower level, expect: dedicated queue 2")
            && said.contains("for 2 messages, and 1 came"),
        "{said}"
    );
    // One too many.
    for check in [false, true] {
        let mut world = World::new(2, check, |_| {});
        let (_page, at) = world.buffer(1, &[0; 256]);
        world.expect(1, 2, 0, 1, &[at]);
        world.send(0, 1, 1, &[9; 256]);
        world.send(0, 1, 1, &[8; 256]);
        let come = world.settle();
        if check {
            let parts = [
                "rank 0, lower level, send",
                "mailbox 1",
                "no dedicated queue",
            ];
            assert_said(&world, &parts);
            continue;
        }
        let stray = LowerEvent::Unexpected {
            from: 0,
            mailbox: 1,
            bytes: vec![8; 256],
        };
        assert!(come.contains(&(1, stray)));
    }
}

#[test]
fn the_first_queue_of_a_mailbox_takes_it_all() {
    for check in [false, true] {
        let mut world = World::new(2, check, |_| {});
        let (_one, first) = world.buffer(1, &[0; 256]);
        let (_two, second) = world.buffer(1, &[0; 256]);
        world.expect(1, 4, 0, 1, &[first]);
        world.expect(1, 0, 0, 1, &[second]);
        if check {
            assert_said(&world, &["rank 1", "expect", "dedicated queue 4 already"]);
            continue;
        }
        world.send(0, 1, 1, &[9; 256]);
        world.settle();
        for (at, byte) in [(first.at, 9), (second.at, 0)] {
            let mut landed = [0; 256];
            world.memory(1).read(at, &mut landed).unwrap();
            assert_eq!(landed, [byte; 256]);
        }
    }
}

/// A message of 300 bytes has segments of 152 and 148 bytes. The last one that comes first lands at
/// byte 256, and so on bytes 300 to 403 besides.
#[test]
fn a_last_segment_that_comes_first_corrupts_what_is_behind_a_short_buffer() {
    let message: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
    let mut corrupted = 0;
    for tries in 0..40 {
        let mut world = World::new(2, false, |f| f.refuse = Some(0.5));
        // Both buffers are on one page.
        let (_page, at) = world.buffer(1, &[0xaa; 1024]);
        for _ in 0..tries {
            world.send(0, 1, 0, b"another state of the generator");
        }
        world.settle();
        world.expect(1, 0, 0, 1, &[piece(at.at, 300)]);
        world.send(0, 1, 1, &message);
        world.settle();
        let mut landed = [0; 1024];
        world.memory(1).read(at.at, &mut landed).unwrap();
        assert_eq!(landed[..300], message, "the message itself is right");
        assert_eq!(landed[404..], [0xaa; 620]);
        if world.cards.stats()[1].misplaced > 0 {
            corrupted += 1;
            assert_eq!(landed[300..404], message[196..], "tries {tries}");
        } else {
            assert_eq!(landed[300..404], [0xaa; 104]);
        }
    }
    assert!((1..40).contains(&corrupted), "{corrupted} of 40");
    // The checker says so before it happens.
    let mut world = World::new(2, true, |_| {});
    let (_page, at) = world.buffer(1, &[0; 512]);
    world.expect(1, 0, 0, 1, &[piece(at.at, 300)]);
    assert_said(
        &world,
        &["rank 1", "expect", "300 bytes", "not rounded up to 256"],
    );
}

#[test]
fn memory_that_is_not_registered_is_always_reported() {
    let mut world = World::new(2, false, |_| {});
    world.expect(1, 0, 0, 1, &[piece(Physical(0x5000), 64)]);
    world.send(0, 1, 1, &[9; 64]);
    world.settle();
    assert_said(
        &world,
        &["rank 1, lower level, receive", "0x5000", "64 bytes"],
    );
    let mut world = World::new(2, false, |_| {});
    world.call(0, |lower, host| {
        lower.send(host, 1, 1, &[piece(Physical(0x7000), 64)], 0)
    });
    assert_said(&world, &["rank 0, lower level, send", "0x7000"]);
}
