//! The counter board: no part is used before all members have read it, and who sleeps is woken.

use super::memory::{self, shared};
use super::{check, counter_board};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// A member of a board of two. loom watches both members' slots in both parts.
struct Member {
    board: counter_board::CounterBoard,
    slots: Arc<[[loom::cell::UnsafeCell<u64>; 2]; 2]>,
    me: usize,
    phase: u64,
}

fn members() -> [Member; 2] {
    let base = shared();
    let slots: Arc<[[loom::cell::UnsafeCell<u64>; 2]; 2]> = Arc::new(std::array::from_fn(|_| {
        std::array::from_fn(|_| loom::cell::UnsafeCell::new(0))
    }));
    [0, 1].map(|me| {
        // SAFETY: two members on words of zeros.
        let board = unsafe { counter_board::CounterBoard::new(base.clone(), 2) };
        Member {
            board,
            slots: slots.clone(),
            me,
            phase: 0,
        }
    })
}

// SAFETY: loom checks that no slot is used by both at once.
unsafe impl Send for Member {}

impl Member {
    fn begin(&mut self) {
        self.phase += 1;
        while self.board.progress(self.phase) < 0 {
            thread::yield_now();
        }
    }
    fn part(&self) -> usize {
        self.phase as usize % memory::PHASES
    }
    fn write(&self, i: usize, value: u64) {
        // SAFETY: loom checks.
        self.slots[self.part()][i].with_mut(|p| unsafe { *p = value });
    }
    fn read(&self, i: usize) -> u64 {
        // SAFETY: loom checks.
        self.slots[self.part()][i].with(|p| unsafe { *p })
    }
    /// Both members post and read.
    fn exchange(&mut self) {
        self.begin();
        self.write(self.me, self.phase * 10 + self.me as u64);
        if self.board.add(self.phase, 1) == 2 {
            self.board.open(self.phase);
        }
        while !self.board.is_open(self.phase) {
            thread::yield_now();
        }
        let sum = self.read(0) + self.read(1);
        assert_eq!(sum, self.phase * 20 + 1);
        self.board.add(self.phase, 1);
    }
    /// One member posts and goes on.
    fn broadcast(&mut self, root: usize) {
        self.begin();
        if self.me == root {
            self.write(0, self.phase);
            self.board.open(self.phase);
        } else {
            while !self.board.is_open(self.phase) {
                thread::yield_now();
            }
            assert_eq!(self.read(0), self.phase);
        }
        self.board.add(self.phase, counter_board::COUNT_PER_MEMBER);
    }
}

fn both(preemptions: usize, part: impl Fn(&mut Member) + Send + Sync + Clone + 'static) {
    check(preemptions, move || {
        let [mut a, mut b] = members();
        let other_part = part.clone();
        let other = thread::spawn(move || other_part(&mut b));
        part(&mut a);
        other.join().unwrap();
    });
}

#[test]
fn a_boards_parts_are_not_used_before_all_have_read() {
    both(3, |m| (0..3).for_each(|_| m.exchange()));
}

#[test]
fn a_root_runs_ahead_by_no_more_than_the_board_has_room_for() {
    both(3, |m| {
        [0, 0, 0, 1].into_iter().for_each(|root| m.broadcast(root))
    });
    both(3, |m| {
        m.broadcast(1);
        m.exchange();
        m.broadcast(0);
        m.exchange();
    });
}

/// Two phases are under way at once, and end in another order than they began.
#[test]
fn phases_of_different_parts_end_in_any_order() {
    both(3, |m| {
        let (first, second) = (1, 2);
        let slot = |phase: u64, i: usize| &m.slots[phase as usize % memory::PHASES][i];
        // A phase in which both post, then one in which the first one alone does.
        // SAFETY: loom checks.
        slot(first, m.me).with_mut(|p| unsafe { *p = 10 + m.me as u64 });
        if m.board.add(first, 1) == 2 {
            m.board.open(first);
        }
        if m.me == 0 {
            // SAFETY: loom checks.
            slot(second, 0).with_mut(|p| unsafe { *p = 20 });
            m.board.open(second);
        }
        for phase in [second, first] {
            while !m.board.is_open(phase) {
                thread::yield_now();
            }
        }
        if m.me == 1 {
            // SAFETY: loom checks.
            assert_eq!(slot(second, 0).with(|p| unsafe { *p }), 20);
        }
        m.board.add(second, counter_board::COUNT_PER_MEMBER);
        for i in 0..2 {
            // SAFETY: loom checks.
            let found = slot(first, i).with(|p| unsafe { *p });
            assert_eq!(found, 10 + i as u64);
        }
        m.board.add(first, 1);
    });
}

/// A member whose part of the board is in use waits for it asleep.
#[test]
fn a_member_that_waits_for_a_part_is_woken() {
    check(3, || {
        let [mut a, mut b] = members();
        let asleep = Arc::new(AtomicU32::new(0));
        let bell = Arc::new(Notify::new());
        let (flag, ring) = (asleep.clone(), bell.clone());
        let awaited = counter_board::Awaited::Part;
        let later = 1 + memory::PHASES as u64;
        // The other member is done with the part's first phase, and wants the next one.
        b.begin();
        b.board.add(1, counter_board::COUNT_PER_MEMBER);
        let other = thread::spawn(move || {
            b.board.begin_wait(awaited);
            while b.board.progress(later) < 0 {
                asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if b.board.progress(later) < 0 {
                    bell.wait();
                }
            }
            b.board.end_wait(awaited);
        });
        a.begin();
        let all = 2 * counter_board::COUNT_PER_MEMBER as i64;
        let last = a.board.add(1, counter_board::COUNT_PER_MEMBER) == all;
        if last && a.board.has_waiting(awaited) && flag.swap(0, Ordering::SeqCst) != 0 {
            ring.notify();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_member_that_sleeps_is_woken() {
    check(3, || {
        let [mut a, mut b] = members();
        let asleep = Arc::new(AtomicU32::new(0));
        let bell = Arc::new(Notify::new());
        let (flag, ring) = (asleep.clone(), bell.clone());
        let other = thread::spawn(move || {
            b.begin();
            b.board.begin_wait(counter_board::Awaited::Data);
            while !b.board.is_open(1) {
                asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if !b.board.is_open(1) {
                    bell.wait();
                }
            }
            b.board.end_wait(counter_board::Awaited::Data);
        });
        a.begin();
        a.board.open(1);
        if a.board.has_waiting(counter_board::Awaited::Data) && flag.swap(0, Ordering::SeqCst) != 0
        {
            ring.notify();
        }
        other.join().unwrap();
    });
}
