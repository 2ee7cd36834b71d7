//! The flat board: nobody writes where another member may still read, and who sleeps is woken.

use super::counter_board::SLOT_MAX_BYTES;
use super::flat_board::Post;
use super::memory::{self, shared};
use super::{check, flat_board, unordered_flat_board};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// Two members' slots, which loom watches, in the order of their addresses.
type Slots = Arc<[loom::cell::UnsafeCell<u64>; 2 * memory::PHASES]>;

/// The slot whose data have this address.
fn slot_of(slots: &Slots, data: *mut u8) -> &loom::cell::UnsafeCell<u64> {
    &slots[data.addr() / SLOT_MAX_BYTES]
}

/// Short and long data by turns, in two phases each.
fn post_in(phase: u64) -> Post {
    let len = if phase / 2 % 2 == 0 { 8 } else { 800 };
    Post { len, by_all: true }
}

/// One of two members of a board, and all slots.
struct Player {
    board: flat_board::FlatBoard,
    slots: Slots,
    me: usize,
    phase: u64,
}

// SAFETY: loom checks that no slot is used by both at once.
unsafe impl Send for Player {}

impl Player {
    fn slot(&self, i: usize) -> &loom::cell::UnsafeCell<u64> {
        slot_of(&self.slots, self.board.data(i as u32, post_in(self.phase)))
    }
    fn begin(&mut self) {
        self.phase += 1;
        self.board.next();
    }
    fn write(&mut self) {
        while !self.board.is_free() {
            thread::yield_now();
        }
        let value = self.phase * 10 + self.me as u64;
        // SAFETY: loom checks.
        self.slot(self.me).with_mut(|p| unsafe { *p = value });
    }
    fn read(&self, i: usize) {
        while self.board.posted(i as u32) != Some(3) {
            thread::yield_now();
        }
        // SAFETY: loom checks.
        let value = self.slot(i).with(|p| unsafe { *p });
        assert_eq!(value, self.phase * 10 + i as u64);
    }
    /// Both post and read.
    fn exchange(&mut self) {
        self.begin();
        self.write();
        self.board.post(3);
        self.read(1 - self.me);
        self.board.end_full_phase();
    }
    /// One posts and goes on.
    fn broadcast(&mut self, root: usize) {
        self.begin();
        if self.me == root {
            self.write();
            self.board.end_phase_before_post();
            self.board.post(3);
        } else {
            self.read(root);
            self.board.end_phase();
        }
    }
}

fn players() -> [Player; 2] {
    let base = shared();
    let slots: Slots = Arc::new(std::array::from_fn(|_| loom::cell::UnsafeCell::new(0)));
    [0, 1].map(|me| Player {
        // SAFETY: two members on words of zeros.
        board: unsafe { flat_board::FlatBoard::new(base.clone(), 2, me as u32) },
        slots: slots.clone(),
        me,
        phase: 0,
    })
}

fn both_play(preemptions: usize, part: impl Fn(&mut Player) + Send + Sync + Clone + 'static) {
    check(preemptions, move || {
        let [mut a, mut b] = players();
        let other_part = part.clone();
        let other = thread::spawn(move || other_part(&mut b));
        part(&mut a);
        other.join().unwrap();
    });
}

#[test]
fn a_rounds_slots_are_not_used_before_all_have_read() {
    both_play(3, |p| (0..4).for_each(|_| p.exchange()));
}

#[test]
fn who_only_posts_in_a_round_waits_for_room() {
    both_play(3, |p| {
        [0, 0, 0, 1].into_iter().for_each(|root| p.broadcast(root))
    });
    both_play(3, |p| {
        p.broadcast(1);
        p.exchange();
        p.broadcast(0);
        p.broadcast(0);
        p.exchange();
    });
}

#[test]
fn a_player_that_sleeps_is_woken() {
    check(3, || {
        let [mut a, mut b] = players();
        let asleep = Arc::new(AtomicU32::new(0));
        let bell = Arc::new(Notify::new());
        let (flag, ring) = (asleep.clone(), bell.clone());
        let other = thread::spawn(move || {
            b.begin();
            while b.board.posted(0).is_none() {
                asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if b.board.posted(0).is_none() {
                    bell.wait();
                }
            }
        });
        a.begin();
        a.board.post(3);
        if flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0 {
            ring.notify();
        }
        other.join().unwrap();
    });
}

/// One of two members of an unordered board.
struct Unordered {
    board: unordered_flat_board::UnorderedFlatBoard,
    slots: Slots,
    me: usize,
}

// SAFETY: loom checks that no slot is used by both at once.
unsafe impl Send for Unordered {}

impl Unordered {
    fn slot(&self, i: usize, phase: u64) -> &loom::cell::UnsafeCell<u64> {
        slot_of(
            &self.slots,
            self.board.data(i as u32, phase, post_in(phase)),
        )
    }
    /// `only`: it reads nothing in this phase.
    fn post(&mut self, phase: u64, only: bool) {
        while !self.board.is_free(phase) {
            thread::yield_now();
        }
        let value = phase * 10 + self.me as u64;
        // SAFETY: loom checks.
        self.slot(self.me, phase)
            .with_mut(|p| unsafe { *p = value });
        if only {
            self.board.end_before_post(phase);
        }
        self.board.post(phase, 3);
    }
    fn read(&mut self, phase: u64) {
        let other = 1 - self.me;
        while self.board.posted(other as u32, phase) != Some(3) {
            thread::yield_now();
        }
        // SAFETY: loom checks.
        let value = self.slot(other, phase).with(|p| unsafe { *p });
        assert_eq!(value, phase * 10 + other as u64);
        self.board.end(phase);
    }
}

fn both_unordered(part: impl Fn(&mut Unordered) + Send + Sync + Clone + 'static) {
    check(3, move || {
        let [mut a, mut b] = players().map(|p| Unordered {
            board: p.board.unordered(),
            slots: p.slots,
            me: p.me,
        });
        let other_part = part.clone();
        let other = thread::spawn(move || other_part(&mut b));
        part(&mut a);
        other.join().unwrap();
    });
}

#[test]
fn phases_of_an_unordered_board_end_in_any_order() {
    both_unordered(|p| {
        for (phase, next) in [(1, 2), (3, 4)] {
            p.post(phase, false);
            p.post(next, false);
            p.read(next);
            p.read(phase);
        }
    });
}

#[test]
fn who_only_posts_on_an_unordered_board_waits_for_room() {
    both_unordered(|p| match p.me {
        0 => (1..=4).for_each(|phase| p.post(phase, true)),
        _ => [2, 1, 3, 4].into_iter().for_each(|phase| p.read(phase)),
    });
}
