//! The protocols of rings and fastboxes under every order of steps and every delay of stores that
//! the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p ferry-transport --test loom`
//!
//! The code is the transport's own; only the memory below it is loom's, with a ring of 16 lines.
//! Each line has a marker that loom watches, so that a write to bytes which the other side may
//! still read is found even if the values happen to be right.
#![cfg(loom)]
#![allow(dead_code)]

use loom::thread;

#[path = "loom/memory.rs"]
mod memory;

#[path = "../src/shm/cells/mod.rs"]
mod cells;
#[path = "../src/shm/coll/counter_board.rs"]
mod counter_board;
#[path = "../src/shm/fastbox.rs"]
mod fastbox;
#[path = "../src/shm/coll/flat_board.rs"]
mod flat_board;
#[path = "loom/flat_board.rs"]
mod flat_board_model;
#[path = "../src/shm/pair/mod.rs"]
mod pair;
#[path = "../src/shm/ring/mod.rs"]
mod ring;

use cells::Cells;
use fastbox::{FASTBOX_MAX_BYTES, Fastbox};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use memory::shared;
use pair::{Next, Pair};
use ring::{Found, Reader, Writer};
use std::sync::Arc;

fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(body);
}

fn ends() -> (Writer, Reader) {
    let base = shared();
    // SAFETY: one writer and one reader of a ring of zeros.
    unsafe { (Writer::new(base.clone()), Reader::new(base)) }
}

/// Message `n` is `n` times a byte that depends on it.
fn write(writer: &mut Writer, n: usize) -> bool {
    writer.write(n as u8, 0, n, 0, |out| out.fill(n as u8 ^ 0x55))
}

fn expect(found: Found<'_>, n: usize) -> bool {
    match found {
        Found::Nothing => false,
        Found::Malformed => panic!("a record was torn"),
        Found::Record { message, bytes, .. } => {
            assert_eq!((message, bytes), (n as u8, &vec![n as u8 ^ 0x55; n][..]));
            true
        }
    }
}

/// Moves both ends on, alone, so that what follows meets the ring's end.
fn advance(writer: &mut Writer, reader: &mut Reader, messages: &[usize]) {
    for &n in messages {
        assert!(write(writer, n) && expect(reader.peek(), n));
        reader.release();
    }
}

#[test]
fn records_come_whole_and_in_order() {
    const SENT: [usize; 3] = [10, 100, 56];
    check(3, || {
        let (mut writer, mut reader) = ends();
        let other = thread::spawn(move || {
            for n in SENT {
                assert!(write(&mut writer, n), "the ring is large enough for all");
            }
        });
        for n in SENT {
            while !expect(reader.peek(), n) {
                thread::yield_now();
            }
            reader.release();
        }
        other.join().unwrap();
    });
}

/// One thread writes these messages, waiting for room, while this one reads them.
fn pass(mut writer: Writer, reader: &mut Reader, sent: &'static [usize]) {
    let other = thread::spawn(move || {
        for &n in sent {
            while !write(&mut writer, n) {
                thread::yield_now();
            }
        }
    });
    for &n in sent {
        while !expect(reader.peek(), n) {
            thread::yield_now();
        }
        reader.release();
    }
    other.join().unwrap();
}

#[test]
fn the_end_is_skipped_and_old_lines_are_used_again() {
    check(2, || {
        let (mut writer, mut reader) = ends();
        // 13 lines of 16: the first message skips three.
        advance(&mut writer, &mut reader, &[240, 240, 240, 20]);
        pass(writer, &mut reader, &[200, 100, 220]);
    });
}

#[test]
fn a_writer_that_has_been_read_starts_again_at_the_beginning() {
    check(2, || {
        let (mut writer, mut reader) = ends();
        // Seven lines of 16; the beginning has old words in it.
        advance(&mut writer, &mut reader, &[20, 240, 120]);
        writer.set_read(reader.position());
        pass(writer, &mut reader, &[100, 20, 240, 10]);
        assert!(reader.position() > 16, "the end was skipped");
    });
}

#[test]
fn a_writer_that_sleeps_for_room_is_woken() {
    /// Bytes of each message: five lines, of which three messages fill the ring but for one.
    const LONG: usize = 300;
    check(3, || {
        let (mut writer, mut reader) = ends();
        let bell = Arc::new(Notify::new());
        let ring = bell.clone();
        for _ in 0..3 {
            assert!(write(&mut writer, LONG));
        }
        let other = thread::spawn(move || {
            while !write(&mut writer, LONG) {
                writer.request_wakeup();
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if !writer.has_room() {
                    bell.wait();
                }
            }
        });
        for _ in 0..4 {
            while !expect(reader.peek(), LONG) {
                thread::yield_now();
            }
            if reader.release() {
                ring.notify();
            }
        }
        other.join().unwrap();
    });
}

#[test]
fn room_is_used_after_it_was_given() {
    check(2, || {
        let (mut writer, mut reader) = ends();
        for _ in 0..3 {
            assert!(write(&mut writer, 300));
        }
        // One line is left. What has been read first is written over last.
        let other = thread::spawn(move || {
            for n in [20, 50] {
                while !write(&mut writer, n) {
                    thread::yield_now();
                }
            }
        });
        for n in [300, 300, 300, 20, 50] {
            while !expect(reader.peek(), n) {
                thread::yield_now();
            }
            reader.release();
        }
        other.join().unwrap();
    });
}

/// The ends of a process with the lower number and of its peer.
fn pairs() -> (Pair, Pair) {
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
fn take(pair: &mut Pair, n: usize) -> bool {
    take_and_wake(pair, n, None)
}

/// The same, and wakes the writer if that is to be.
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
    };
    if wakes && let Some(bell) = bell {
        bell.notify();
    }
    true
}

fn send(pair: &mut Pair, n: usize) {
    assert!(
        pair.send(n as u8, 0, n, |out| out.fill(n as u8)),
        "the ring is large enough for all"
    );
}

/// Sends message `n` by a cell, if there is one.
fn send_in_cell(pair: &mut Pair, n: usize) -> bool {
    pair.send_in_cell(n as u8, &[], n, |out| out.fill(n as u8))
}

/// Messages go both ways by cells, each written into cells that the other has read; what comes in
/// between by fastbox and ring stays in order.
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

/// One way only: the reader gives cells back, and a writer that sleeps until there is one is woken.
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
        // The first goes by the fastbox, the second by the ring as the fastbox is taken; once
        // answered, the fastbox serves again.
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

/// The wakeup word as `shm::control` has it: whoever has brought something looks whether the
/// process sleeps, and rings.
struct Wakeup {
    asleep: AtomicU32,
    bell: Notify,
}

impl Wakeup {
    fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            self.bell.notify();
        }
    }
}

#[test]
fn a_reader_that_falls_asleep_is_woken() {
    for sent in [[1, 2], [100, 2]] {
        check(3, move || {
            let (mut lower, mut upper) = pairs();
            let bell = Arc::new(Wakeup {
                asleep: AtomicU32::new(0),
                bell: Notify::new(),
            });
            let ring = bell.clone();
            let other = thread::spawn(move || {
                for n in sent {
                    send(&mut lower, n);
                    ring.wake_if_asleep();
                }
            });
            for n in sent {
                while !take(&mut upper, n) {
                    bell.asleep.store(1, Ordering::SeqCst);
                    fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                    if take(&mut upper, n) {
                        bell.asleep.store(0, Ordering::Relaxed);
                        break;
                    }
                    bell.bell.wait();
                }
            }
            other.join().unwrap();
        });
    }
}

/// The same where the progress thread polls the wakeup word for a while before it sleeps (`wakeup
/// word`): while it polls nobody wakes it, and who rings as it stops is not missed.
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
        let bell = Arc::new(Polled {
            asleep: AtomicU32::new(0),
            word: AtomicU32::new(0),
            futex: Notify::new(),
        });
        let ring = bell.clone();
        let other = thread::spawn(move || {
            for n in [1, 2] {
                send(&mut lower, n);
                if ring.asleep.load(Ordering::Relaxed) != 0
                    && ring.asleep.swap(0, Ordering::SeqCst) != 0
                    && ring.word.fetch_add(STEP, Ordering::SeqCst) & POLLED == 0
                {
                    ring.futex.notify();
                }
            }
        });
        for n in [1, 2] {
            while !take(&mut upper, n) {
                let seen = bell.word.load(Ordering::SeqCst);
                bell.asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if take(&mut upper, n) {
                    bell.asleep.store(0, Ordering::Relaxed);
                    break;
                }
                bell.word.fetch_or(POLLED, Ordering::SeqCst);
                // It polls, and has had enough.
                bell.word.fetch_and(!POLLED, Ordering::SeqCst);
                if bell.word.load(Ordering::SeqCst) == seen {
                    bell.futex.wait();
                }
            }
        }
        other.join().unwrap();
    });
}

/// Two members of a board, and their slots in both parts, which loom watches.
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
    /// All post and read.
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
    /// One posts and goes on.
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
fn a_member_that_sleeps_is_woken() {
    check(3, || {
        let [mut a, mut b] = members();
        let asleep = Arc::new(AtomicU32::new(0));
        let bell = Arc::new(Notify::new());
        let (flag, ring) = (asleep.clone(), bell.clone());
        let other = thread::spawn(move || {
            b.begin();
            b.board.wait(1);
            while !b.board.is_open(1) {
                asleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if !b.board.is_open(1) {
                    bell.wait();
                }
            }
            b.board.wait(-1);
        });
        a.begin();
        a.board.open(1);
        if a.board.has_waiting() && flag.swap(0, Ordering::SeqCst) != 0 {
            ring.notify();
        }
        other.join().unwrap();
    });
}
