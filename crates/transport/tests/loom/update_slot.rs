//! The update slot: each update is done once, with the words that its origin has left, or taken
//! back.

use super::check;
use super::update_slot::{OfferState, Offered, UpdateSlot};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// Offers updates one after the other and looks `looks` times for the end of each. Returns the sum
/// of those that were done.
fn origin(slot: &UpdateSlot, updates: &[u64], looks: u32) -> u64 {
    let mut sum = 0;
    for &value in updates {
        let mut left = looks;
        let ended = slot.offer([value, !value, 0, 0], |state| {
            thread::yield_now();
            left = left.saturating_sub(1);
            left > 0 || state == OfferState::Taken
        });
        if let Offered::Done(result) = ended {
            assert_eq!(result, value * 10);
            sum += value;
        }
    }
    sum
}

/// Serves the slot `times` times.
fn target(slot: &UpdateSlot, sum: &AtomicU64, times: u32) {
    for _ in 0..times {
        slot.serve(|[value, check, ..]| {
            assert_eq!(check, !value);
            sum.store(sum.load(Ordering::Relaxed) + value, Ordering::Relaxed);
            value * 10
        });
        thread::yield_now();
    }
    slot.stop();
}

fn run(origins: &'static [&'static [u64]], looks: u32, serves: u32, preemptions: usize) {
    check(preemptions, move || {
        let (slot, sum) = (Arc::new(UpdateSlot::free()), Arc::new(AtomicU64::new(0)));
        slot.serve(|_| unreachable!("nothing was offered"));
        let all: Vec<_> = origins
            .iter()
            .map(|updates| {
                let slot = slot.clone();
                thread::spawn(move || origin(&slot, updates, looks))
            })
            .collect();
        target(&slot, &sum, serves);
        let done: u64 = all.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(sum.load(Ordering::SeqCst), done);
        // It is free again: a target that polls does the next one.
        slot.serve(|_| unreachable!("nothing was offered"));
        let ended = slot.offer([5, !5, 0, 0], |_| {
            slot.serve(|[value, ..]| value);
            true
        });
        assert_eq!(ended, Offered::Done(5));
    });
}

#[test]
fn an_update_is_done_once_or_taken_back() {
    run(&[&[1, 2]], 1, 2, 3);
    run(&[&[1, 2]], 2, 3, 3);
}

#[test]
fn origins_do_not_take_each_others_results() {
    run(&[&[1], &[2]], 2, 2, 2);
}
