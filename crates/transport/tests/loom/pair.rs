//! A pair: messages by fastbox, ring and cells stay in order, and a cell has one owner at a time.

use super::cells::Cells;
use super::check;
use super::fastbox::{FASTBOX_MAX_BYTES, Fastbox};
use super::memory::{self, shared};
use super::pair::{Next, Pair};
use super::ring::{Reader, Writer};
use loom::sync::Notify;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// Both sides of a pair, that of the lower-numbered process first.
pub fn pairs() -> (Pair, Pair) {
    let (there, back) = (shared(), shared());
    // SAFETY: each ring has one writer and one reader, and fastbox and cells one side for each
    // process.
    unsafe {
        (
            Pair::new(
                Writer::new(there.clone()),
                Reader::new(back.clone()),
                Fastbox::new(there.clone(), true),
                Cells::new(there.clone(), back.clone(), true, memory::CELLS_PER_PAIR),
            ),
            Pair::new(
                Writer::new(back.clone()),
                Reader::new(there.clone()),
                Fastbox::new(there.clone(), false),
                Cells::new(back, there, false, memory::CELLS_PER_PAIR),
            ),
        )
    }
}

/// Takes one message, which must be `n`, if there is one.
pub fn take(pair: &mut Pair, n: usize) -> bool {
    take_and_wake(pair, n, None)
}

/// Takes message `n`, if there is one, and wakes the writer if it must be woken.
fn take_and_wake(pair: &mut Pair, n: usize, bell: Option<&Notify>) -> bool {
    let right = |message: u8, bytes: &[u8]| {
        assert_eq!((usize::from(message), bytes), (n, &vec![n as u8; n][..]))
    };
    let wakes = match pair.next() {
        Next::Nothing => return false,
        Next::Malformed => panic!("a record was torn"),
        Next::Fastbox(message, bytes) => {
            right(message, bytes);
            return true;
        }
        Next::Record(message, bytes, _) => {
            right(message, bytes);
            pair.release()
        }
        Next::InCell(message, bytes, ..) => {
            right(message, bytes);
            pair.release_cell()
        }
        Next::Early(message, record) => {
            let mut whole = Vec::new();
            while whole.len() < record.body_len {
                let bytes = pair.early_bytes(whole.len());
                if bytes.is_empty() {
                    thread::yield_now();
                }
                whole.extend_from_slice(bytes);
            }
            right(message, &whole);
            pair.release_cell()
        }
    };
    if wakes && let Some(bell) = bell {
        bell.notify();
    }
    true
}

pub fn send(pair: &mut Pair, n: usize) {
    assert!(
        pair.send(n as u8, 0, n, |out| out.fill(n as u8)),
        "the ring is large enough for all"
    );
}

/// Sends message `n` by a cell, if there is one.
fn send_in_cell(pair: &mut Pair, n: usize) -> bool {
    pair.send_in_cell(n as u8, &[], n, |out| out.fill(n as u8))
}

/// Messages go both ways by cells, each written into a cell that the other has read. Messages in
/// between, by fastbox and ring, stay in order.
#[test]
fn cells_belong_to_one_side_at_a_time() {
    check(2, || {
        let (mut lower, mut upper) = pairs();
        let other = thread::spawn(move || {
            while !take(&mut upper, 9) {
                thread::yield_now();
            }
            assert!(send_in_cell(&mut upper, 7));
            while !take(&mut upper, 2) {
                thread::yield_now();
            }
            assert!(send_in_cell(&mut upper, 8));
        });
        assert!(send_in_cell(&mut lower, 9));
        send(&mut lower, 2);
        for n in [7, 8] {
            while !take(&mut lower, n) {
                thread::yield_now();
            }
        }
        assert!(send_in_cell(&mut lower, 3));
        other.join().unwrap();
    });
}

/// The reader copies a body while it is written, and answers in the same cell.
#[test]
fn early_records_are_read_while_they_are_written() {
    let send_early = |pair: &mut Pair, n: usize| {
        assert!(pair.send_early(n as u8, &[], n, &mut |out| out.fill(n as u8)));
    };
    check(2, move || {
        let (mut lower, mut upper) = pairs();
        let other = thread::spawn(move || {
            while !take(&mut upper, 100) {
                thread::yield_now();
            }
            send_early(&mut upper, 101);
        });
        send_early(&mut lower, 100);
        while !take(&mut lower, 101) {
            thread::yield_now();
        }
        other.join().unwrap();
    });
}

/// Messages go one way only. The reader gives cells back, and a writer that sleeps for one is
/// woken.
#[test]
fn cells_that_pile_up_are_given_back() {
    const SENT: [usize; 4] = [11, 12, 13, 14];
    check(2, || {
        let (mut lower, mut upper) = pairs();
        let bell = Arc::new(Notify::new());
        let ring = bell.clone();
        let other = thread::spawn(move || {
            for n in SENT {
                while !send_in_cell(&mut lower, n) {
                    lower.request_wakeup();
                    fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                    if !lower.has_room() {
                        bell.wait();
                    }
                }
            }
        });
        for n in SENT {
            while !take_and_wake(&mut upper, n, Some(&ring)) {
                thread::yield_now();
            }
        }
        other.join().unwrap();
    });
}

#[test]
fn both_ways_stay_in_order_over_fastbox_and_ring() {
    check(2, || {
        let (mut lower, mut upper) = pairs();
        // The first goes by the fastbox. The second goes by the ring, as the fastbox is taken.
        // After the answer the fastbox serves again.
        let other = thread::spawn(move || {
            for n in [1, 2] {
                while !take(&mut upper, n) {
                    thread::yield_now();
                }
            }
            send(&mut upper, 7);
            while !take(&mut upper, 3) {
                thread::yield_now();
            }
            send(&mut upper, 8);
        });
        send(&mut lower, 1);
        send(&mut lower, 2);
        while !take(&mut lower, 7) {
            thread::yield_now();
        }
        send(&mut lower, 3);
        while !take(&mut lower, 8) {
            thread::yield_now();
        }
        other.join().unwrap();
    });
}

#[test]
fn messages_that_cross_stay_in_order() {
    check(2, || {
        let (mut lower, mut upper) = pairs();
        let other = thread::spawn(move || {
            send(&mut upper, 5);
            while !take(&mut upper, 1) {
                thread::yield_now();
            }
            send(&mut upper, 6);
            while !take(&mut upper, FASTBOX_MAX_BYTES) {
                thread::yield_now();
            }
        });
        send(&mut lower, 1);
        while !take(&mut lower, 5) {
            thread::yield_now();
        }
        send(&mut lower, FASTBOX_MAX_BYTES);
        while !take(&mut lower, 6) {
            thread::yield_now();
        }
        other.join().unwrap();
    });
}
