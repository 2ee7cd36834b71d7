//! A rank that waits, leaves and comes back, with the model played by the test.

use super::*;
use std::sync::atomic::AtomicBool;

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

fn give_turn(mailbox: &Mailbox) {
    mailbox.turn.fetch_add(1, Ordering::SeqCst);
    wake(&mailbox.turn);
}

fn await_state(mailbox: &Mailbox, state: u32) {
    while mailbox.state.load(Ordering::SeqCst) != state {
        std::thread::yield_now();
    }
}

/// The turn is there when `turn` says so: not when the state does, and not because somebody was
/// woken.
#[test]
fn rejoining_waits_for_the_turn_itself() {
    let segment = ModelSegment::create(1, 0, b"").unwrap();
    let mut client = Client::join(segment, 0);
    let mailbox = client.mailbox;
    client.leave();
    let back = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            client.ensure_turn();
            back.store(true, Ordering::SeqCst);
        });
        await_state(mailbox, state::RESUMING);
        mailbox.state.store(state::RUNNING, Ordering::SeqCst);
        for _ in 0..2000 {
            wake_one(&mailbox.wakeup);
            wake(&mailbox.turn);
            std::thread::yield_now();
            assert!(!back.load(Ordering::SeqCst), "before its turn");
        }
        give_turn(mailbox);
    });
    assert!(back.into_inner());
}

/// A rank that rests and whose bell is rung by another of its threads is counted out once for
/// each turn.
#[test]
fn a_wakeup_between_wait_and_turn_is_no_turn() {
    let segment = ModelSegment::create(1, 0, b"").unwrap();
    let mut client = Client::join(segment.clone(), 0);
    let (mailbox, header) = (client.mailbox, segment.header());
    client.set_concurrent();
    let (word, seen) = client.begin_wait(Time::ZERO).expect("nothing is there");
    wake_one(&mailbox.wakeup);
    sleep(word, seen);
    std::thread::scope(|s| {
        s.spawn(|| {
            client.resume();
            client.catch_up();
        });
        for stopped in [state::RESUMING, state::SYNCING] {
            await_state(mailbox, stopped);
            assert_eq!(header.running.load(Ordering::SeqCst), 0);
            header.running.store(1, Ordering::SeqCst);
            mailbox.state.store(state::RUNNING, Ordering::SeqCst);
            give_turn(mailbox);
        }
    });
}
