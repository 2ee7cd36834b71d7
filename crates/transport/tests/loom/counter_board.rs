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
    /// Both members post in as many phases as the board has parts at once, and read in each.
    fn exchange_run(&mut self) {
        const COUNT: u64 = memory::PHASES as u64;
        let first = self.phase + 1;
        while !self.board.are_free(first, COUNT) {
            thread::yield_now();
        }
        for phase in first..first + COUNT {
            self.phase = phase;
            self.write(self.me, phase * 10 + self.me as u64);
        }
        if self.board.add(first, 1) == 2 {
            self.board.open(first);
        }
        while !self.board.is_open(first) {
            thread::yield_now();
        }
        for phase in first..first + COUNT {
            self.phase = phase;
            assert_eq!(self.read(0) + self.read(1), phase * 20 + 1);
        }
        self.board.end_run(first, COUNT);
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

#[test]
fn a_run_of_phases_waits_for_all_of_its_parts() {
    both(3, |m| (0..3).for_each(|_| m.exchange_run()));
    both(3, |m| {
        m.exchange_run();
        m.exchange();
        m.exchange_run();
        m.broadcast(1);
    });
    both(3, |m| {
        m.broadcast(0);
        m.broadcast(0);
        m.exchange_run();
        m.broadcast(1);
        m.exchange_run();
    });
}

/// Sleeps until `until` holds. Others ring the bell when they have seen the flag.
fn sleep_until(asleep: &AtomicU32, bell: &Notify, until: impl Fn() -> bool) {
    while !until() {
        asleep.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
        if !until() {
            bell.wait();
        }
    }
}

/// Both members go through a run, and then wait for one of its parts each. They sleep whenever they
/// wait. Each wakes the other once for the data, and once for all parts.
#[test]
fn a_member_that_waits_for_a_run_is_woken() {
    use counter_board::Awaited::{Data, Part};
    const COUNT: u64 = memory::PHASES as u64;
    check(2, || {
        let asleep = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let bells = Arc::new([Notify::new(), Notify::new()]);
        let member = move |m: Member, last: u64| {
            let (asleep, bells) = (asleep.clone(), bells.clone());
            move || {
                let (b, other) = (&m.board, 1 - m.me);
                let wait = |what, until: &dyn Fn() -> bool| {
                    if !until() {
                        b.begin_wait(what);
                        sleep_until(&asleep[m.me], &bells[m.me], until);
                        b.end_wait(what);
                    }
                };
                let wake = |what| {
                    if b.has_waiting(what) && asleep[other].swap(0, Ordering::SeqCst) != 0 {
                        bells[other].notify();
                    }
                };
                let first = 1;
                wait(Part, &|| b.are_free(first, COUNT));
                if b.add(first, 1) == 2 {
                    b.open(first);
                    wake(Data);
                } else {
                    wait(Data, &|| b.is_open(first));
                }
                if b.end_run(first, COUNT) == 2 * counter_board::COUNT_PER_MEMBER as i64 {
                    wake(Part);
                }
                // Waits for one part of those that the run has used, whichever it is.
                wait(Part, &|| b.are_free(last, 1));
            }
        };
        let [a, b] = members();
        let (a, b) = (member(a, 1 + COUNT), member(b, 2 + COUNT));
        let other = thread::spawn(b);
        a();
        other.join().unwrap();
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
