//! A reader that falls asleep: a message that arrives meanwhile wakes it.

use super::check;
use super::pair_model::{pairs, send, take};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// The sleeping process as in `shm::control`: who has brought something looks whether it sleeps,
/// and wakes it.
struct Process {
    asleep: AtomicU32,
    futex: Notify,
}

impl Process {
    fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            self.futex.notify();
        }
    }
}

#[test]
fn a_reader_that_falls_asleep_is_woken() {
    for sent in [[1, 2], [100, 2]] {
        check(3, move || {
            let (mut lower, mut upper) = pairs();
            let process = Arc::new(Process {
                asleep: AtomicU32::new(0),
                futex: Notify::new(),
            });
            let other_side = process.clone();
            let other = thread::spawn(move || {
                for n in sent {
                    send(&mut lower, n);
                    other_side.wake_if_asleep();
                }
            });
            for n in sent {
                while !take(&mut upper, n) {
                    process.asleep.store(1, Ordering::SeqCst);
                    fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                    if take(&mut upper, n) {
                        process.asleep.store(0, Ordering::Relaxed);
                        break;
                    }
                    process.futex.wait();
                }
            }
            other.join().unwrap();
        });
    }
}

/// The progress thread polls the wakeup word for a while before it sleeps (`shm::wakeup_word`).
/// While it polls nobody wakes it, and a signal that comes as it stops is not missed.
#[test]
fn a_reader_that_stops_polling_is_woken() {
    const STEP: u32 = 2;
    const POLLED: u32 = 1;
    struct Polled {
        asleep: AtomicU32,
        word: AtomicU32,
        futex: Notify,
    }
    check(3, || {
        let (mut lower, mut upper) = pairs();
        let process = Arc::new(Polled {
            asleep: AtomicU32::new(0),
            word: AtomicU32::new(0),
            futex: Notify::new(),
        });
        let other_side = process.clone();
        let other = thread::spawn(move || {
            for n in [1, 2] {
                send(&mut lower, n);
                if other_side.asleep.load(Ordering::Relaxed) != 0
                    && other_side.asleep.swap(0, Ordering::SeqCst) != 0
                    && other_side.word.fetch_add(STEP, Ordering::SeqCst) & POLLED == 0
                {
                    other_side.futex.notify();
                }
            }
        });
        for n in [1, 2] {
            while !take(&mut upper, n) {
                let seen = process.word.load(Ordering::SeqCst);
                process.asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if take(&mut upper, n) {
                    process.asleep.store(0, Ordering::Relaxed);
                    break;
                }
                process.word.fetch_or(POLLED, Ordering::SeqCst);
                // It polls, and then stops.
                process.word.fetch_and(!POLLED, Ordering::SeqCst);
                if process.word.load(Ordering::SeqCst) == seen {
                    process.futex.wait();
                }
            }
        }
        other.join().unwrap();
    });
}
