//! Unit tests of the lock: its rules one by one, and many threads at once.

use super::*;
use crate::node::wait_set::WaitSet;
use Patience::{New, Starving, StarvingElsewhere};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread::{self, Thread};
use std::time::Instant;

#[test]
fn one_holds_it_alone_or_several_share_it() {
    let lock = NodeLock::new();
    assert!(lock.try_exclusive(7, New));
    assert_eq!(
        (lock.exclusive_holder(), lock.shared_holders()),
        (Some(7), 0)
    );
    assert!(!lock.try_exclusive(7, New) && !lock.try_shared(8, New));
    assert!(!lock.release_exclusive(), "nobody waits");
    assert!(lock.try_shared(0, New) && lock.try_shared(1, New));
    assert_eq!((lock.exclusive_holder(), lock.shared_holders()), (None, 2));
    assert!(!lock.try_exclusive(2, New));
    lock.release_shared();
    assert!(!lock.try_exclusive(2, New));
    lock.release_shared();
    assert!(lock.try_exclusive(0, New));
    assert_eq!(lock.exclusive_holder(), Some(0));
}

#[test]
fn a_release_tells_whether_somebody_waits() {
    let lock = NodeLock::new();
    assert!(lock.try_exclusive(1, New));
    lock.begin_wait();
    lock.begin_wait();
    assert_eq!(lock.exclusive_holder(), Some(1));
    assert!(lock.release_exclusive());
    assert!(lock.try_exclusive(2, New) && !lock.end_wait(2));
    assert!(lock.release_exclusive());
    assert!(!lock.end_wait(3), "it had no reservation");
    assert!(lock.try_exclusive(1, New) && !lock.release_exclusive());
}

#[test]
fn a_starving_writer_is_next_after_the_readers() {
    let lock = NodeLock::new();
    assert!(lock.try_shared(0, New) && lock.try_shared(1, New));
    lock.begin_wait();
    assert!(!lock.try_exclusive(2, New));
    assert!(lock.release_shared(), "it is woken to reserve");
    assert!(!lock.try_exclusive(2, Starving));
    assert_eq!(lock.reserved_by(), Some(2));
    assert!(!lock.try_shared(3, New) && !lock.try_shared(3, Starving));
    assert!(
        !lock.try_exclusive(4, Starving),
        "one reservation at a time"
    );
    assert!(lock.release_shared());
    assert!(!lock.try_exclusive(4, New) && !lock.try_shared(3, New));
    assert!(lock.try_exclusive(2, Starving));
    assert_eq!(lock.reserved_by(), None);
    assert!(!lock.end_wait(2) && !lock.release_exclusive());
    assert!(lock.try_shared(3, New));
}

#[test]
fn readers_that_remain_do_not_wake_a_writer_that_has_reserved() {
    let lock = NodeLock::new();
    assert!(lock.try_shared(0, New) && lock.try_shared(1, New));
    lock.begin_wait();
    assert!(!lock.try_exclusive(2, Starving));
    assert!(!lock.release_shared() && lock.release_shared());
}

#[test]
fn a_starving_reader_is_next_and_does_not_keep_out_readers() {
    let lock = NodeLock::new();
    assert!(lock.try_exclusive(0, New));
    lock.begin_wait();
    assert!(!lock.try_shared(1, Starving));
    assert_eq!(lock.reserved_by(), None, "not for itself alone");
    assert!(lock.release_exclusive());
    assert!(!lock.try_exclusive(2, New));
    assert!(lock.try_shared(3, New) && !lock.try_exclusive(2, Starving));
    lock.release_shared();
    assert!(
        !lock.try_exclusive(2, Starving),
        "reader 1 has not had its turn"
    );
    assert!(lock.try_shared(1, Starving) && !lock.end_wait(1));
    lock.release_shared();
    assert!(lock.try_exclusive(2, New));
}

#[test]
fn who_gives_up_drops_its_reservation_and_says_so() {
    let lock = NodeLock::new();
    assert!(lock.try_shared(0, New));
    lock.begin_wait();
    lock.begin_wait();
    assert!(!lock.try_exclusive(1, Starving) && !lock.try_shared(2, New));
    assert!(lock.end_wait(1), "process 2 waits");
    assert!(lock.try_shared(2, New));
    assert!(!lock.try_exclusive(3, Starving));
    assert!(!lock.end_wait(2), "no reservation of its own");
    assert_eq!(lock.reserved_by(), Some(3));
}

#[test]
fn a_reservation_lets_readers_in_again_after_a_while() {
    let reservation = |ms: u32| holder(1) | FOR_EXCLUSIVE | u64::from(ms) << TIME_SHIFT;
    for begin in [0, 5000, u32::MAX - 20] {
        let left = |after: u32| block_left(reservation(begin), begin.wrapping_add(after));
        assert_eq!((left(0), left(15)), (Some(16), Some(1)));
        assert_eq!((left(16), left(31)), (None, None));
        assert_eq!((left(32), left(63)), (Some(32), Some(1)));
        assert_eq!((left(64), left(127)), (None, None));
        assert_eq!(left(128), Some(128));
        assert!(
            (0..u32::MAX - 1)
                .step_by(999_983)
                .all(|t| left(t) != Some(0))
        );
    }
    let lock = NodeLock::new();
    assert!(lock.try_shared(0, New));
    assert_eq!(lock.again_in(false), None);
    assert!(!lock.try_exclusive(1, Starving) && !lock.try_shared(2, New));
    assert!(
        lock.again_in(false)
            .is_some_and(|left| left <= Duration::from_millis(16))
    );
    // Older by 20 ms.
    let older = lock
        .reservation
        .load(Ordering::Relaxed)
        .wrapping_sub(20 << TIME_SHIFT);
    lock.reservation.store(older, Ordering::Relaxed);
    assert!(lock.try_shared(2, New) && lock.again_in(false).is_none());
    assert_eq!(lock.reserved_by(), Some(1));
}

#[test]
fn a_reservation_for_another_node_lapses() {
    let lock = NodeLock::new();
    assert!(lock.try_exclusive(0, New));
    assert!(!lock.try_exclusive(1, StarvingElsewhere));
    lock.release_exclusive();
    assert!(!lock.try_exclusive(2, New) && !lock.try_shared(2, New));
    assert_eq!(lock.reserved_by(), None, "all are woken");
    for exclusive in [false, true] {
        let again = lock.again_in(exclusive);
        assert!(again.is_some_and(|left| left <= Duration::from_millis(16)));
    }
    let reserved = lock.reservation.load(Ordering::Relaxed);
    let older = reserved.wrapping_sub(20 << TIME_SHIFT);
    lock.reservation.store(older, Ordering::Relaxed);
    assert_eq!((lock.again_in(true), lock.again_in(false)), (None, None));
    assert!(lock.try_exclusive(2, New), "it has lapsed");
    assert_eq!(lock.reservation.load(Ordering::Relaxed), 0);
    // A new one takes the place of one that has lapsed, and its own turn comes.
    lock.reservation.store(older, Ordering::Relaxed);
    assert!(!lock.try_exclusive(3, StarvingElsewhere));
    lock.release_exclusive();
    assert!(!lock.try_exclusive(1, New) && lock.try_exclusive(3, New));
    assert_eq!(lock.reservation.load(Ordering::Relaxed), 0);
}

/// Words in memory of zeros are a free lock, as a new window's are.
#[test]
fn zeros_are_a_free_lock_and_large_numbers_are_told_apart() {
    let words = [0u64; 2];
    // SAFETY: the same size and alignment, and any bits make atomics.
    let lock: NodeLock = unsafe { std::mem::transmute(words) };
    for who in [0, 1, (1 << 24) - 2] {
        assert!(lock.try_exclusive(who, New));
        assert_eq!(lock.exclusive_holder(), Some(who));
        lock.release_exclusive();
    }
}

/// A word that is not atomic, below a lock.
struct Guarded {
    lock: NodeLock,
    value: UnsafeCell<[u64; 2]>,
    waiting: [AtomicU64; 1],
    asleep: [AtomicBool; 8],
}

// SAFETY: `value` is written by the exclusive holder only.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Takes the lock, asleep while it waits. Returns how often it slept.
    fn take(&self, me: usize, exclusive: bool) -> u32 {
        let set = WaitSet::new(&self.waiting);
        let attempt = |patience| match exclusive {
            true => self.lock.try_exclusive(me as u32, patience),
            false => self.lock.try_shared(me as u32, patience),
        };
        if attempt(New) {
            return 0;
        }
        let (began, mut sleeps) = (Instant::now(), 0);
        self.lock.begin_wait();
        loop {
            self.asleep[me].store(true, Ordering::SeqCst);
            set.add(me);
            if attempt(Patience::after(began.elapsed())) {
                break;
            }
            sleeps += 1;
            while self.asleep[me].load(Ordering::SeqCst) {
                match self.lock.again_in(exclusive) {
                    Some(left) => {
                        thread::park_timeout(left);
                        break;
                    }
                    None => thread::park(),
                }
            }
        }
        self.asleep[me].store(false, Ordering::SeqCst);
        set.remove(me);
        assert!(!self.lock.end_wait(me as u32));
        sleeps
    }

    fn release(&self, threads: &[Thread], exclusive: bool) {
        let wakes = match exclusive {
            true => self.lock.release_exclusive(),
            false => self.lock.release_shared(),
        };
        if wakes {
            WaitSet::new(&self.waiting).drain(|i| {
                if self.asleep[i].swap(false, Ordering::SeqCst) {
                    threads[i].unpark();
                }
            });
        }
    }
}

/// Threads that sleep while they wait, as many as there are members. Readers must never see half a
/// write, no write may be lost, and nobody may sleep for ever.
#[test]
fn many_threads_take_turns() {
    const TURNS: u32 = 5000;
    let guarded = Guarded {
        lock: NodeLock::new(),
        value: UnsafeCell::new([0; 2]),
        waiting: [AtomicU64::new(0)],
        asleep: Default::default(),
    };
    let writes = AtomicU32::new(0);
    let (guarded, writes) = (&guarded, &writes);
    let barrier = std::sync::Barrier::new(9);
    let threads = std::sync::OnceLock::new();
    thread::scope(|s| {
        let all: Vec<Thread> = (0..8usize)
            .map(|me| {
                let (barrier, threads) = (&barrier, &threads);
                let work = move || {
                    barrier.wait();
                    let threads: &Vec<Thread> = threads.get().unwrap();
                    for turn in 0..TURNS {
                        let exclusive = !(turn as usize + me).is_multiple_of(3);
                        guarded.take(me, exclusive);
                        // SAFETY: the lock is held.
                        unsafe {
                            let value = guarded.value.get();
                            let [a, b] = value.read();
                            assert_eq!(a, b);
                            if exclusive {
                                value.write([a + 1, b + 1]);
                                writes.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        if turn % 64 == 0 {
                            // Others find the lock held.
                            thread::yield_now();
                        }
                        guarded.release(threads, exclusive);
                    }
                };
                s.spawn(work).thread().clone()
            })
            .collect();
        threads.set(all).unwrap();
        barrier.wait();
    });
    // SAFETY: the threads have ended.
    let [value, _] = unsafe { guarded.value.get().read() };
    assert_eq!(value, u64::from(writes.load(Ordering::Relaxed)));
    assert!(value >= 8 * u64::from(TURNS) * 2 / 3);
    assert_eq!(guarded.lock.state.load(Ordering::Relaxed), 0);
    assert_eq!(guarded.lock.reservation.load(Ordering::Relaxed), 0);
}
