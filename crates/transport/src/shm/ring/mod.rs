//! One direction between two processes: a ring of records in shared memory with one writer and one
//! reader.
//!
//! A record begins on a cache line with a *word*: its length and kind. The word is written last, so
//! a message whose head and body fit behind it moves one line from core to core. The writer clears
//! the word behind a record before it publishes the record. So the reader can wait on that word,
//! whatever was there before. Mostly the writer clears ahead, when no message waits for it.
//!
//! Longer records:
//! - The body begins on the next line, because the reader polls the word's. Only the head is there.
//! - If the reader waits for the record, a *gap* follows it: a core that reads line after line
//!   prefetches the next ones, and would take them from the writer.
//! - A message that is too long for a record is split over several. The first has its length.
//!
//! While only a record or two are unread, the writer stays in the first quarter of the ring, so
//! that exchanges of single messages touch few pages. On some processors the records of a stream
//! stay in the first 8 KiB, too ([`Writer::with_short_laps`]).
//!
//! ```text
//! line 0       head: the reader's position, published now and then
//! line 1       wakeup_requested: the writer sleeps until there is room
//!              returned: cells that the reader gives back (see `cells`)
//! FASTBOX_AT   the pair's fastbox (see `fastbox`), used in one of its two rings
//! RECORDS_AT   RING_DATA_BYTES bytes of records
//!
//! word         bit 63: valid, 62: in a cell, 61: more follows, 60: gap; 16..24: number;
//!              56..60: payload offset / 8; 24..56: opposite ring's read position; 0..16: length
//! ```

mod reader;
mod short_laps;

use super::memory::{
    Base, INLINE_MAX_BYTES, LINE_BYTES, Ordering, RING_DATA_BYTES, RingMemory, fence,
};
use short_laps::{SHORT_LAP_BYTES, SHORT_LAP_PUBLISH_BYTES, SHORT_LAP_RECORD_MAX_BYTES, ShortLaps};

/// Largest head and body of one record, bytes: 60 KiB of body and a line of head. Measured
/// (docs/measured/shm.md): fragments of 60 KiB beside 16 KiB. Several fit the ring, so that the
/// reader copies one while the next is written; the ring of the loom models is smaller.
pub const RECORD_MAX_BYTES: usize = if RING_DATA_BYTES / 4 < 60 * 1024 {
    RING_DATA_BYTES / 4
} else {
    60 * 1024
} + LINE_BYTES;
/// Largest head and body of a message that is split over several records, bytes: four parts of the
/// body and a line of head. One record where the ring is too small for more (loom models).
#[cfg_attr(loom, allow(dead_code))]
pub const SPLIT_MAX_BYTES: usize = if RING_DATA_BYTES >= 16 * RECORD_PART_BYTES {
    4 * RECORD_PART_BYTES + LINE_BYTES
} else {
    RECORD_MAX_BYTES
};
/// Bytes of a split message's body that one record takes. A choice: the first part should be there
/// soon, as the reader may be waiting for it.
pub const RECORD_PART_BYTES: usize = 16384;
/// Bytes after which the reader publishes its position at the latest. A choice: rarely, because it
/// takes the line from the writer, but with room for any message in an empty ring.
const PUBLISH_BYTES: u64 = (RING_DATA_BYTES / 4) as u64;
/// At each multiple of this many bytes the writer starts again at the ring's beginning, if the
/// reader has read all but [`LAP_UNREAD_RECORDS`]. Exchanges of single messages then stay in few
/// pages; measured (docs/measured/shm.md). A stream goes on to the ring's end: the reader's core
/// still has the lines that it has just read, and the writer would wait for them.
const LAP_BYTES: u64 = (RING_DATA_BYTES / 4) as u64;
/// Most unread records, of the next one's length, with which the writer starts again. A choice.
const LAP_UNREAD_RECORDS: u64 = 2;
/// Message number that marks the unused end of the ring. The next record is at its beginning.
const SKIP: u64 = 0xff;
/// Set in every word. A word without it is nonsense unless it is 0.
const VALID: u64 = 1 << 63;
/// Where a word's 4 bits for the record's payload offset begin. Their unit is 8 bytes.
const PAYLOAD_OFFSET_SHIFT: u32 = 56;
/// Set if a gap follows the record.
const GAPPED: u64 = 1 << 60;
/// Set if the body is in a cell. The record's bytes name it (see `cells`).
const IN_CELL: u64 = 1 << 62;
/// Set if the message goes on in the next record.
const MORE: u64 = 1 << 61;
/// Bytes of a gap: as far as a Xeon's cores prefetch. Measured (docs/measured/shm.md).
const GAP_BYTES: u64 = 20 * LINE_BYTES as u64;
/// Shortest record with a gap behind it, bytes. A choice: shorter ones are read without prefetch.
const GAP_MIN_BYTES: u64 = 10 * LINE_BYTES as u64;
/// Bytes ahead of its position in which the writer has cleared first words. It clears right after
/// it has published, while it waits anyway. A choice: two short records.
const CLEAR_AHEAD_BYTES: u64 = 2 * LINE_BYTES as u64;
/// Records of the present one's length between it and the lines that the writer prefetches in a
/// stream. The barrier of a publication waits for every line that was written to, even if only a
/// first word was cleared there. A line that must come from the reader's core takes as long as the
/// message itself. Measured (docs/measured/shm.md).
const PREFETCH_RECORDS: u64 = 4;
/// Least distance of that prefetch, bytes. A choice.
const PREFETCH_MIN_BYTES: u64 = 4 * LINE_BYTES as u64;
/// Longest record whose lines are prefetched, bytes: 2 KiB of body, a head and a word. A choice: a
/// core that writes more lines in a row prefetches by itself.
const PREFETCH_RECORD_MAX_BYTES: u64 = 34 * LINE_BYTES as u64;

/// Encodes a record's word. `marks`: [`MORE`] and [`IN_CELL`]. `read`: how far the writer has read
/// the opposite ring, low bits, in lines.
fn word(message: u64, shape: Shape, marks: u64, read: u32) -> u64 {
    let gapped = if shape.gap > 0 { GAPPED } else { 0 };
    let offset = (shape.payload_offset as u64 / 8) << PAYLOAD_OFFSET_SHIFT;
    VALID | gapped | marks | offset | u64::from(read) << 24 | message << 16 | shape.len as u64
}

/// The parts of a record, in bytes.
#[derive(Clone, Copy)]
struct Shape {
    /// From the beginning of its word to head and body.
    payload_offset: usize,
    /// Head and body.
    len: usize,
    /// The gap behind it, or 0.
    gap: u64,
}

impl Shape {
    /// The mark that skips the ring's end.
    const SKIP: Shape = Shape {
        payload_offset: 8,
        len: 0,
        gap: 0,
    };

    /// Decodes a word, without checks.
    #[inline]
    fn of(word: u64) -> Shape {
        Shape {
            payload_offset: (word >> PAYLOAD_OFFSET_SHIFT) as usize % 16 * 8,
            len: (word & 0xffff) as usize,
            gap: if word & GAPPED == 0 { 0 } else { GAP_BYTES },
        }
    }

    /// From the word to the end of its last line.
    #[inline]
    fn lines(self) -> u64 {
        (self.payload_offset + self.len).next_multiple_of(LINE_BYTES) as u64
    }

    /// Lines and gap.
    #[inline]
    fn span(self) -> u64 {
        self.lines() + self.gap
    }
}

/// Most bytes that a record without a gap takes.
const SPAN_MAX_BYTES: u64 = (LINE_BYTES + RECORD_MAX_BYTES).next_multiple_of(LINE_BYTES) as u64;
/// Most bytes that one part of a split message takes.
const PART_SPAN_BYTES: u64 = (RECORD_PART_BYTES + 3 * LINE_BYTES) as u64;
/// Most bytes that all parts of a split message take: whole parts, the last part, and the head.
const PARTS_SPAN_BYTES: u64 = (SPLIT_MAX_BYTES / RECORD_PART_BYTES + 1) as u64 * PART_SPAN_BYTES;
/// Most bytes that a split message takes if its parts skip the ring's end.
const SPLIT_SPAN_BYTES: u64 = PARTS_SPAN_BYTES + PART_SPAN_BYTES;
/// Most bytes that any message takes: a skipped end and a record, or a split message's parts.
const ANY_SPAN_BYTES: u64 =
    if SPLIT_MAX_BYTES > RECORD_MAX_BYTES && SPLIT_SPAN_BYTES > 2 * SPAN_MAX_BYTES {
        SPLIT_SPAN_BYTES
    } else {
        2 * SPAN_MAX_BYTES
    };
// An empty ring has room for any message, even if the reader has not published its position.
const _: () = assert!(ANY_SPAN_BYTES + PUBLISH_BYTES < RING_DATA_BYTES as u64 || cfg!(loom));

/// Bytes from the beginning of a record's word to its `len` bytes, whose first `head` are the head.
#[inline]
pub(super) fn payload_offset(head: usize, len: usize) -> usize {
    if len <= INLINE_MAX_BYTES {
        8
    } else {
        (LINE_BYTES - head.min(LINE_BYTES - 8)).next_multiple_of(8)
    }
}

/// Bytes from position `at` to the ring's end.
fn to_end(at: u64) -> u64 {
    RING_DATA_BYTES as u64 - (at & (RING_DATA_BYTES as u64 - 1))
}

/// The writing end.
pub struct Writer {
    memory: RingMemory,
    /// Where the next record goes.
    tail: u64,
    /// The reader's position, as far as is known.
    head: u64,
    /// The last position that the reader has told.
    told: u32,
    /// Lines from `tail` up to here have their first word cleared.
    cleared: u64,
    /// Position from which a record may cross the ring's end, or start again at its beginning.
    boundary: u64,
    /// Set if laps may be short.
    short_laps: Option<ShortLaps>,
}

/// The reading end.
pub struct Reader {
    memory: RingMemory,
    /// Where the next record is.
    head: u64,
    /// Bytes of the record last peeked at, gap included.
    peeked: u64,
    /// The position that was last published.
    published: u64,
    /// Bytes after which it is published again, unless it was told otherwise.
    publish_bytes: u64,
    /// The position that was last told to the writer in a message to it.
    told: u64,
    /// Position from which on the writer has not skipped more than a record's length.
    lap_start: u64,
}

/// How a record is published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publication {
    /// With a full barrier. The reader has read everything before it, as far as is known, and waits
    /// for it.
    Awaited,
    /// With a full barrier.
    Barrier,
    /// Without one: the caller has more to write, and sets one at the end.
    NoBarrier,
}

/// What a reader has found.
pub enum Found<'a> {
    /// Nothing new.
    Nothing,
    /// A record.
    Record {
        /// Message number.
        message: u8,
        /// Head and body.
        bytes: &'a [u8],
        /// The message goes on in the next record.
        more: bool,
        /// The body is in a cell, which `bytes` name.
        in_cell: bool,
        /// How far the peer has read the opposite ring: low bits, in lines.
        read: u32,
    },
    /// Bytes that no writer writes.
    Malformed,
}

impl Writer {
    /// The writing end of the ring at `memory`.
    ///
    /// # Safety
    /// `memory` is a mapping of RING_BYTES zeroed or ring-written bytes, page aligned, never
    /// unmapped. This is its only writer, from its beginning.
    pub unsafe fn new(memory: Base) -> Writer {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(memory) };
        Writer {
            memory,
            tail: 0,
            head: 0,
            told: 0,
            cleared: CLEAR_AHEAD_BYTES,
            boundary: LAP_BYTES,
            short_laps: None,
        }
    }

    /// Returns whether there is room for `need` bytes and the cleared word behind them.
    #[inline]
    fn has_room_for(&mut self, need: u64) -> bool {
        let enough =
            |head: u64, tail: u64| tail - head + need + LINE_BYTES as u64 <= RING_DATA_BYTES as u64;
        if enough(self.head, self.tail) {
            return true;
        }
        self.head = self.memory.head().load(Ordering::Acquire).min(self.tail);
        enough(self.head, self.tail)
    }

    /// Writes a record of `len` bytes by `fill` and publishes it with a full barrier. The first
    /// `head` bytes are the message's head. `read`: how far this process has read the opposite
    /// ring. False: no room.
    #[inline]
    pub fn write(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        read: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let publication = if self.is_read() {
            Publication::Awaited
        } else {
            Publication::Barrier
        };
        self.write_record(message, head, len, 0, publication, read, fill)
    }

    /// Writes a message of up to [`SPLIT_MAX_BYTES`] bytes, split over several records. The first
    /// begins with the message's length, 8 bytes. False: no room for all of them.
    pub fn write_split(&mut self, message: u8, head: &[u8], body: &[u8], read: u32) -> bool {
        let total = head.len() + body.len();
        debug_assert!(body.len() > RECORD_PART_BYTES && total <= SPLIT_MAX_BYTES);
        if !self.has_room_for(SPLIT_SPAN_BYTES) {
            return false;
        }
        self.set_in_split(true);
        let mut parts = body.chunks(RECORD_PART_BYTES).peekable();
        let first = parts.next().unwrap_or_default();
        let body_offset = 8 + head.len();
        let more = if parts.peek().is_some() { MORE } else { 0 };
        let mut written = self.write_record(
            message,
            body_offset,
            body_offset + first.len(),
            more,
            Publication::Barrier,
            read,
            |out| {
                out[body_offset..].copy_from_slice(first);
                out[8..body_offset].copy_from_slice(head);
                out[..8].copy_from_slice(&(total as u64).to_le_bytes());
            },
        );
        while let Some(part) = parts.next() {
            let more = if parts.peek().is_some() { MORE } else { 0 };
            written &= self.write_record(
                message,
                0,
                part.len(),
                more,
                Publication::Barrier,
                read,
                |out| {
                    out.copy_from_slice(part);
                },
            );
        }
        debug_assert!(written, "there was room for all");
        self.set_in_split(false);
        written
    }

    /// Writes a record whose body is in `cell`, and publishes it. `barrier`: with a full barrier.
    /// False: no room.
    #[inline]
    pub fn write_in_cell(
        &mut self,
        message: u8,
        cell: [u8; 8],
        head: &[u8],
        read: u32,
        barrier: bool,
    ) -> bool {
        let len = 8 + head.len();
        let publication = if barrier {
            Publication::Barrier
        } else {
            Publication::NoBarrier
        };
        self.write_record(message, len, len, IN_CELL, publication, read, |out| {
            out[..8].copy_from_slice(&cell);
            out[8..].copy_from_slice(head);
        })
    }

    /// Writes a record and publishes it.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn write_record(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        marks: u64,
        publication: Publication,
        read: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        debug_assert!(len <= RECORD_MAX_BYTES);
        let mut shape = Shape {
            payload_offset: payload_offset(head, len),
            len,
            gap: 0,
        };
        if publication == Publication::Awaited
            && shape.lines() >= GAP_MIN_BYTES
            && shape.lines() + GAP_BYTES <= to_end(self.tail)
        {
            shape.gap = GAP_BYTES;
        }
        let need = shape.span();
        let has_room = if self.tail + need > self.boundary {
            self.pass_boundary(need, read)
        } else {
            self.has_room_for(need) || self.gets_room_for(need)
        };
        if !has_room {
            return false;
        }
        // SAFETY: the reader has passed these bytes (room), and does not look at them before the
        // word is published.
        unsafe { self.memory.fill(self.tail, shape.payload_offset, len, fill) };
        self.clear_to(self.tail + need + LINE_BYTES as u64);
        // The caller next looks whether the reader sleeps. That look must not come before the word
        // is visible to the reader, hence the full barriers below.
        let published = self.memory.word(self.tail);
        let word = word(u64::from(message), shape, marks, read);
        if publication == Publication::NoBarrier {
            published.store(word, Ordering::Release);
        } else if publication == Publication::Awaited {
            published.store(word, Ordering::Release);
            // The reader waits for these lines; the first it has seen by now. They are demoted
            // before the barrier: an exchange would wait until all are written. The next message
            // will probably be as long, so its lines are prefetched.
            let (line, lines) = (LINE_BYTES as u64, shape.lines());
            self.memory.demote(self.tail + line, lines - line);
            fence(Ordering::SeqCst);
            self.memory.prefetch_for_write(self.tail + need, lines);
        } else {
            if need <= PREFETCH_RECORD_MAX_BYTES {
                self.prefetch(need);
            }
            published.swap(word, Ordering::SeqCst);
        }
        self.tail += need;
        let ahead = self.tail + CLEAR_AHEAD_BYTES;
        while self.cleared < ahead
            && self.cleared + LINE_BYTES as u64 <= self.head + RING_DATA_BYTES as u64
        {
            self.memory.word(self.cleared).store(0, Ordering::Relaxed);
            self.cleared += LINE_BYTES as u64;
        }
        true
    }

    /// Makes room for a record that takes `need` bytes and ends behind `boundary`. Skips the rest
    /// of the ring if the record would cross its end, or need not go there. False: no room.
    #[cold]
    #[inline(never)]
    fn pass_boundary(&mut self, need: u64, read: u32) -> bool {
        let end = to_end(self.tail);
        let lap = if self.short_laps.is_some() && need <= SHORT_LAP_RECORD_MAX_BYTES {
            SHORT_LAP_BYTES
        } else {
            LAP_BYTES
        };
        let ends_lap = if lap == SHORT_LAP_BYTES {
            self.ends_short_lap(end, read)
        } else {
            self.ends_lap(end, need)
        };
        if need > end || ends_lap {
            if !self.has_room_for(end + need) {
                return false;
            }
            self.clear_to(self.tail + end + LINE_BYTES as u64);
            self.memory
                .word(self.tail)
                .store(word(SKIP, Shape::SKIP, 0, 0), Ordering::Release);
            self.tail += end;
            if let Some(laps) = &mut self.short_laps {
                laps.begin = self.tail;
            }
        } else if !self.has_room_for(need) {
            return false;
        }
        self.boundary = (self.tail + need).next_multiple_of(lap);
        true
    }

    /// Returns whether the writer starts again at the ring's beginning, `end` bytes before its end,
    /// with a record that takes `need` bytes.
    fn ends_lap(&self, end: u64, need: u64) -> bool {
        let (begun, unread) = (RING_DATA_BYTES as u64 - end, self.tail - self.head);
        // Until the reader has passed the mark, only the bytes in front of it are free. The parts
        // of a split message, which has found room for all of them, must fit there.
        let rest = if cfg!(loom) {
            SPAN_MAX_BYTES
        } else {
            PARTS_SPAN_BYTES
        };
        unread <= LAP_UNREAD_RECORDS * need && unread + need.max(rest) + LINE_BYTES as u64 <= begun
    }

    /// Prefetches the lines of a later record of the present one's length, `need` bytes. Not
    /// inlined, so that it costs nothing where messages are no stream.
    #[inline(never)]
    fn prefetch(&self, need: u64) {
        let from = self.tail + need + (PREFETCH_RECORDS * need).max(PREFETCH_MIN_BYTES);
        self.memory.prefetch_for_write(from, need);
    }

    /// Clears the word of the line that ends at `end`, behind a record about to be published, if it
    /// is not cleared yet.
    #[inline]
    fn clear_to(&mut self, end: u64) {
        if self.cleared < end {
            self.memory
                .word(end - LINE_BYTES as u64)
                .store(0, Ordering::Relaxed);
            self.cleared = end;
        }
    }

    /// Returns whether the reader, as far as is known, has read everything.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.head == self.tail
    }

    /// Bytes of the ring that the reader, as far as is known, has not read.
    #[inline]
    pub fn unread_bytes(&self) -> u64 {
        self.tail - self.head
    }

    /// Takes the position that the reader has told: low bits, in lines.
    #[inline]
    pub fn set_read(&mut self, lines: u32) {
        if lines == self.told {
            return;
        }
        self.told = lines;
        let behind = ((self.tail / LINE_BYTES as u64) as u32).wrapping_sub(lines);
        let head = self
            .tail
            .saturating_sub(u64::from(behind) * LINE_BYTES as u64);
        // What a peer made up must not move the position back, nor beyond what was written.
        self.head = self.head.max(head);
    }

    /// Returns whether there is room for a record of one line, which may skip the ring's end.
    #[inline]
    pub fn has_line(&mut self) -> bool {
        self.has_room_for(2 * LINE_BYTES as u64)
    }

    /// Asks the reader for a wakeup when it next frees room. The caller looks for room once more
    /// afterwards.
    pub fn request_wakeup(&self) {
        self.memory.wakeup_requested().store(1, Ordering::SeqCst);
    }

    /// Returns whether there is room for a message of any size.
    pub fn has_room(&mut self) -> bool {
        self.head = self.memory.head().load(Ordering::SeqCst).min(self.tail);
        self.has_room_for(ANY_SPAN_BYTES)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
