use super::*;
use crate::shm::memory::RECORDS_AT;
use crate::shm::test_ring::TestRing;
use proptest::prelude::*;

/// A ring with both ends.
struct Ring {
    memory: TestRing,
    writer: Writer,
    reader: Reader,
    written: usize,
    read: usize,
}

impl Ring {
    fn new() -> Ring {
        Ring::with_laps(false)
    }

    fn with_laps(short: bool) -> Ring {
        let mut memory = TestRing::new();
        let base: Base = memory.base();
        // SAFETY: the memory is zeroed and outlives the ends, of which there is one each.
        let (mut writer, mut reader) = unsafe { (Writer::new(base), Reader::new(base)) };
        if short {
            (writer, reader) = (writer.with_short_laps(), reader.with_short_laps());
        }
        Ring {
            memory,
            writer,
            reader,
            written: 0,
            read: 0,
        }
    }

    /// Writes the next record, if there is room. Its bytes are its number.
    fn write(&mut self, len: usize) -> bool {
        self.write_after(len, 0)
    }

    /// The same after this many lines of the opposite ring were read.
    fn write_after(&mut self, len: usize, opposite: u32) -> bool {
        let number = self.written as u8;
        let written = self
            .writer
            .write(number % 64, 0, len, opposite, |out| out.fill(number));
        self.written += usize::from(written);
        written
    }

    /// Reads the next record, if one is there. Returns its length.
    fn read(&mut self) -> Option<usize> {
        let number = self.read as u8;
        let len = match self.reader.peek() {
            Found::Nothing => return None,
            Found::Malformed => panic!("a record was torn"),
            Found::Record { message, bytes, .. } => {
                assert_eq!(message, number % 64);
                assert!(bytes.iter().all(|&b| b == number));
                bytes.len()
            }
        };
        self.reader.release();
        self.read += 1;
        Some(len)
    }

    /// Tells the writer the reader's position.
    fn tell(&mut self) {
        self.writer.set_read(self.reader.tell());
    }

    /// Bytes of the ring up to the last one that was written to.
    fn used(&self) -> usize {
        let last = self
            .memory
            .bytes()
            .take(RECORDS_AT + RING_DATA_BYTES)
            .enumerate();
        let last = last.filter(|&(at, b)| at >= RECORDS_AT && b != 0).last();
        last.map_or(0, |(at, _)| at + 1 - RECORDS_AT)
    }
}

#[test]
fn an_exchange_of_single_messages_stays_in_the_first_pages() {
    // The writer knows the reader's position at once, or (`late`) one record later.
    for (len, late) in [
        (100, false),
        (4096, false),
        (16384, false),
        (RECORD_MAX_BYTES, false),
        (100, true),
        (4096, true),
        (16384, true),
    ] {
        let mut ring = Ring::new();
        for _ in 0..4 * RING_DATA_BYTES / len {
            let before = ring.reader.tell();
            assert!(ring.write(len));
            assert_eq!(ring.read(), Some(len));
            let known = if late { before } else { ring.reader.tell() };
            ring.writer.set_read(known);
        }
        let laps = if len == RECORD_MAX_BYTES { 2 } else { 1 };
        assert!(ring.used() <= laps * LAP_BYTES as usize + LINE_BYTES);
        assert!(!ring.reader.has_read_all_once());
    }
}

#[test]
fn a_stream_uses_all_of_it() {
    let mut ring = Ring::new();
    for _ in 0..RING_DATA_BYTES / 4096 {
        assert!(ring.write(4096));
        assert_eq!(ring.read(), Some(4096));
    }
    assert!(ring.used() > RING_DATA_BYTES - 2 * 4096);
    assert!(ring.reader.has_read_all_once());
    // It stays so.
    ring.tell();
    for _ in 0..RING_DATA_BYTES / 4096 {
        assert!(ring.write(4096) && ring.read().is_some());
        ring.tell();
    }
    assert!(ring.reader.has_read_all_once());
}

#[test]
fn a_shorter_lap_leaves_room_for_a_long_message() {
    let mut ring = Ring::new();
    while ring.writer.tail < RING_DATA_BYTES as u64 {
        ring.tell();
        assert!(ring.write(1000) && ring.read().is_some());
    }
    assert!(ring.used() <= LAP_BYTES as usize + LINE_BYTES);
    let body = [7; SPLIT_MAX_BYTES - LINE_BYTES];
    assert!(ring.writer.write_split(0, &[1; LINE_BYTES], &body, 0));
}

/// Writes a stream of 400 records, of which up to two are unread, where the opposite ring has one
/// with this many lines to each. Returns how much of the ring was used.
fn used_by_a_stream(len: usize, opposite_lines: u32) -> usize {
    let mut ring = Ring::with_laps(true);
    for i in 0..400 {
        assert!(ring.write_after(len, i * opposite_lines));
        if i >= 2 {
            assert_eq!(ring.read(), Some(len));
        }
    }
    ring.used()
}

#[test]
fn a_stream_stays_in_short_laps() {
    let lap = SHORT_LAP_BYTES as usize + LINE_BYTES;
    assert!(used_by_a_stream(8, 0) <= lap && used_by_a_stream(1000, 0) <= lap);
    // Records that are too long for that go on.
    assert!(used_by_a_stream(4096, 0) > 16 * lap);
}

#[test]
fn an_exchange_of_streams_does_not_wait_for_short_laps() {
    assert!(used_by_a_stream(1000, 16) > 16 * SHORT_LAP_BYTES as usize);
}

#[test]
fn a_short_lap_goes_on_if_the_reader_does_not_follow() {
    let mut ring = Ring::with_laps(true);
    for _ in 0..100 {
        assert!(ring.write(1000));
    }
    assert!(ring.used() > 100_000);
    while ring.read().is_some() {}
    assert_eq!(ring.read, 100);
    // The reader follows again.
    let laps = ring.writer.tail / RING_DATA_BYTES as u64;
    for _ in 0..100 {
        assert!(ring.write(1000) && ring.read().is_some());
    }
    assert!(ring.writer.tail / RING_DATA_BYTES as u64 > laps + 5);
}

#[test]
fn a_split_message_has_room_wherever_a_short_lap_is() {
    for before in 0..60 {
        let mut ring = Ring::with_laps(true);
        for _ in 0..before {
            assert!(ring.write(500) && ring.read().is_some());
        }
        let body = [7; SPLIT_MAX_BYTES - LINE_BYTES - 16000];
        assert!(ring.writer.write_split(0, &[1; LINE_BYTES], &body, 0));
        let mut parts = 0;
        while let Found::Record { bytes, more, .. } = ring.reader.peek() {
            parts += usize::from(!bytes.is_empty());
            assert_eq!(more, parts < 4);
            ring.reader.release();
        }
        assert_eq!(parts, 4);
    }
}

#[test]
fn an_end_that_is_skipped_at_the_beginning_is_nonsense() {
    let mut ring = Ring::new();
    let skip = word(SKIP, Shape::SKIP, 0, 0);
    ring.writer.memory.word(0).store(skip, Ordering::Release);
    assert!(matches!(ring.reader.peek(), Found::Malformed));
}

proptest! {
    #[test]
    fn records_come_whole_and_in_order_however_far_the_reader_is_known_to_be(
        steps in prop::collection::vec((0usize..6, 0usize..RECORD_MAX_BYTES), 1..400),
        short_laps: bool,
    ) {
        let mut ring = Ring::with_laps(short_laps);
        for (step, len) in steps {
            match step {
                4.. => {
                    for _ in 0..8 {
                        let had_room = ring.write(len % 1500);
                        prop_assert!(had_room || ring.read < ring.written);
                    }
                    ring.read();
                }
                0 => {
                    let had_room = ring.write(len);
                    prop_assert!(had_room || ring.read < ring.written);
                }
                1 => {
                    ring.read();
                }
                2 => ring.tell(),
                _ => {
                    while ring.read().is_some() {}
                    ring.tell();
                }
            }
        }
        while ring.read().is_some() {}
        prop_assert_eq!(ring.read, ring.written);
    }
}
