//! The ring: records arrive whole and in order, at its end, too, and a writer that sleeps for room
//! is woken.

use super::check;
use super::memory::shared;
use super::ring::{Found, Reader, Writer};
use loom::sync::Notify;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// Both ends of a new ring.
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

/// Writes and reads these messages, so that the next one is at the ring's end.
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
        writer.set_read(reader.tell());
        pass(writer, &mut reader, &[100, 20, 240, 10]);
        assert!(reader.tell() > 16, "the end was skipped");
    });
}

#[test]
fn a_writer_that_sleeps_for_room_is_woken() {
    /// Bytes of each message: five lines. Three messages fill the ring but for one line.
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
        // One line is left. The lines that are read first are written over last.
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
