//! One direction between two processes: a ring of records in shared memory with one writer and one
//! reader.
//!
//! A record starts on a cache line with a word that says how long it is and what it is; the word is
//! written last, so a message whose head and body fit behind it costs one line's trip. The writer
//! clears the word behind a record before it publishes the record (mostly one record ahead, off the
//! message's way), so the reader can wait on that word whatever lay there before. Longer records
//! keep their body out of the word's line, which the reader polls: it begins with the next line,
//! and only their head stands behind the word, at the line's end. While the peer waits, such a
//! record is followed by a gap: a core that reads line after line fetches the next ones unasked,
//! and would take them away from the writer, who is about to need them. A message that is too long
//! for a record goes in several, one behind the other; the first says how long it is. While no more
//! than a record or two are unread the writer goes round the first quarter of the ring only.
//!
//! ```text
//! line 0       head: how far the reader has read (published now and then)
//! line 1       starved: the writer sleeps until there is room; given: cells that the reader gives
//!              back (see `cells`)
//! FASTBOX_AT   the pair's fastbox (see `fastbox`), used in one of its two rings
//! RECORDS_AT   RING_DATA_BYTES bytes of records
//! ```

use super::memory::{
    Base, LINE_BYTES, Ordering, RING_DATA_BYTES, RingMemory, SEPARATE_MIN_BYTES, fence,
};

/// Largest head and body of one record, bytes. Several fit the ring, so that the reader copies one
/// while the next is written.
pub const RECORD_MAX_BYTES: usize = if RING_DATA_BYTES / 4 < 60 * 1024 {
    RING_DATA_BYTES / 4
} else {
    60 * 1024
} + LINE_BYTES;
/// Largest head and body of a message that goes in several records, bytes; up to a record where the
/// ring is too small for more.
#[cfg_attr(loom, allow(dead_code))]
pub const SPLIT_MAX_BYTES: usize = if RING_DATA_BYTES >= 16 * RECORD_PART_BYTES {
    4 * RECORD_PART_BYTES + LINE_BYTES
} else {
    RECORD_MAX_BYTES
};
/// Of such a message's body, bytes that one record takes: the first is to be there soon, as the
/// reader may be waiting for it.
pub const RECORD_PART_BYTES: usize = 16384;
/// The reader publishes its position at least this often, bytes. With RECORD_MAX_BYTES this leaves
/// room for any record in an empty ring.
const PUBLISH: u64 = (RING_DATA_BYTES / 4) as u64;
/// Whenever a writer has come so far, bytes, it starts again at the ring's beginning if its reader
/// has read all but a record or two: exchanges of single messages stay in few pages. A stream goes
/// on, as far as it is one: the reader's core still has lines that it has read lately, and the
/// writer would wait for them.
const LAP: u64 = (RING_DATA_BYTES / 4) as u64;
/// This many records may be unread then, of the length of the next.
const UNREAD: u64 = 2;
/// Marks the unused end of the ring: the next record starts at its beginning.
const SKIP: u64 = 0xff;
const VALID: u64 = 1 << 63;
/// The record's lead, in words of 8 bytes, 4 bits.
const LEAD: u32 = 56;
/// The record is followed by a gap.
const GAPPED: u64 = 1 << 60;
/// The record's bytes say which cell the message's lie in (see `cells`).
const IN_CELL: u64 = 1 << 62;
/// The message goes on in the next record.
const MORE: u64 = 1 << 61;
/// Bytes of a gap: as far as today's cores read ahead of a program.
const GAP: u64 = 20 * LINE_BYTES as u64;
/// Shorter records get no gap, bytes: their reader is done before its core begins to guess.
const GAP_FROM: u64 = 10 * LINE_BYTES as u64;
/// The writer clears first words so far ahead, bytes, when it has time: right after it has
/// published, not right before.
const AHEAD: u64 = 2 * LINE_BYTES as u64;
/// In a stream of messages the writer asks for the lines of this many records ahead: the barrier
/// with which a record is published waits for every line that has been written to, if only to clear
/// its first word, and one that has yet to come from the reader's core takes as long as the message
/// itself.
const SOON: u64 = 4;
/// Least distance ahead, bytes.
const SOON_MIN: u64 = 4 * LINE_BYTES as u64;
/// Not those of longer records, bytes: a core that writes line after line fetches the next ones
/// unasked.
const SOON_MAX: u64 = 34 * LINE_BYTES as u64;

/// A record's first word: valid bit, `marks` (whether the message goes on, whether it lies in a
/// cell), gap, how far behind the word the bytes begin, how far the writer has read the opposite
/// ring (low bits, in lines), message number, length.
fn word(message: u64, shape: Shape, marks: u64, read: u32) -> u64 {
    let gapped = if shape.gap > 0 { GAPPED } else { 0 };
    let lead = (shape.lead as u64 / 8) << LEAD;
    VALID | gapped | marks | lead | u64::from(read) << 24 | message << 16 | shape.len as u64
}

/// What a record takes of the ring, bytes.
#[derive(Clone, Copy)]
struct Shape {
    /// From its word to its bytes.
    lead: usize,
    /// Its bytes.
    len: usize,
    /// Behind it.
    gap: u64,
}

impl Shape {
    /// Of the mark that skips the ring's end.
    const SKIP: Shape = Shape {
        lead: 8,
        len: 0,
        gap: 0,
    };

    /// What a word says, true or not.
    #[inline]
    fn of(word: u64) -> Shape {
        Shape {
            lead: (word >> LEAD) as usize % 16 * 8,
            len: (word & 0xffff) as usize,
            gap: if word & GAPPED == 0 { 0 } else { GAP },
        }
    }

    /// From the word to the end of its last line.
    #[inline]
    fn lines(self) -> u64 {
        (self.lead + self.len).next_multiple_of(LINE_BYTES) as u64
    }

    /// Lines and gap.
    #[inline]
    fn span(self) -> u64 {
        self.lines() + self.gap
    }
}

/// Most that a record without a gap takes, bytes.
const SPAN_MAX: u64 = (LINE_BYTES + RECORD_MAX_BYTES).next_multiple_of(LINE_BYTES) as u64;
/// Most that a part takes.
const PART_SPAN: u64 = (RECORD_PART_BYTES + 3 * LINE_BYTES) as u64;
/// Most that the records of a message take: whole parts, what is left, and the first one's head.
const PARTS_SPAN: u64 = (SPLIT_MAX_BYTES / RECORD_PART_BYTES + 1) as u64 * PART_SPAN;
/// The same with an end that they skip.
const LONG_SPAN: u64 = PARTS_SPAN + PART_SPAN;
/// Most that any message takes: a record and the skipped end before it, each less than
/// RECORD_MAX_BYTES and a line, or several records.
const ANY_SPAN: u64 = if SPLIT_MAX_BYTES > RECORD_MAX_BYTES && LONG_SPAN > 2 * SPAN_MAX {
    LONG_SPAN
} else {
    2 * SPAN_MAX
};
// Even with as much unpublished as there may be an empty ring has room for it.
const _: () = assert!(ANY_SPAN + PUBLISH < RING_DATA_BYTES as u64 || cfg!(loom));

/// Bytes from the word of a record to its `len` bytes, the first `head` of which are the head.
#[inline]
pub(super) fn lead(head: usize, len: usize) -> usize {
    if len <= SEPARATE_MIN_BYTES {
        8
    } else {
        (LINE_BYTES - head.min(LINE_BYTES - 8)).next_multiple_of(8)
    }
}

/// Bytes left before the ring's end at position `at`.
fn to_end(at: u64) -> u64 {
    RING_DATA_BYTES as u64 - (at & (RING_DATA_BYTES as u64 - 1))
}

/// The writing end.
pub struct Writer {
    memory: RingMemory,
    tail: u64,
    /// Where the reader was when last looked.
    head: u64,
    /// Lines from `tail` up to here have their first word cleared.
    cleared: u64,
    /// A record that ends behind this is looked at first: whether it crosses the ring's end, or is
    /// to start at its beginning.
    turn: u64,
}

/// The reading end.
pub struct Reader {
    memory: RingMemory,
    head: u64,
    /// What the record last peeked at takes.
    peeked: u64,
    published: u64,
    /// From here on the ring's end has been reached, if it has, without a shorter lap.
    lap: u64,
}

/// What a reader found.
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
        /// Head and body lie in a cell, and `bytes` say in which.
        celled: bool,
        /// Low bits of how far the peer has read the opposite ring, in lines.
        read: u32,
    },
    /// Nonsense.
    Malformed,
}

impl Writer {
    /// The writing end of the ring at `memory`.
    ///
    /// # Safety
    /// `memory` is a mapping of RING zeroed or ring-written bytes, page aligned, never unmapped,
    /// and this is its only writer, from its beginning.
    pub unsafe fn new(memory: Base) -> Writer {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(memory) };
        Writer {
            memory,
            tail: 0,
            head: 0,
            cleared: AHEAD,
            turn: LAP,
        }
    }

    /// Returns whether there is room for `need` bytes and the cleared word behind them.
    #[inline]
    fn room(&mut self, need: u64) -> bool {
        let enough =
            |head: u64, tail: u64| tail - head + need + LINE_BYTES as u64 <= RING_DATA_BYTES as u64;
        if enough(self.head, self.tail) {
            return true;
        }
        self.head = self.memory.head().load(Ordering::Acquire).min(self.tail);
        enough(self.head, self.tail)
    }

    /// Writes a record of `len` bytes by `fill`, of which the first `head` are the message's head,
    /// and publishes it with a full barrier. `read`: how far this process has read the opposite
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
        let alone = self.is_read();
        self.write_record(message, head, len, 0, alone, read, fill)
    }

    /// Writes a message of up to [`SPLIT_MAX_BYTES`] bytes in as many records as it takes, the
    /// first of which begins with the message's length, 8 bytes. False: no room for all of them.
    pub fn write_split(&mut self, message: u8, head: &[u8], body: &[u8], read: u32) -> bool {
        let total = head.len() + body.len();
        debug_assert!(body.len() > RECORD_PART_BYTES && total <= SPLIT_MAX_BYTES);
        if !self.room(LONG_SPAN) {
            return false;
        }
        let mut parts = body.chunks(RECORD_PART_BYTES).peekable();
        let first = parts.next().unwrap_or_default();
        let lead = 8 + head.len();
        let more = if parts.peek().is_some() { MORE } else { 0 };
        let mut written = self.write_record(
            message,
            lead,
            lead + first.len(),
            more,
            false,
            read,
            |out| {
                out[lead..].copy_from_slice(first);
                out[8..lead].copy_from_slice(head);
                out[..8].copy_from_slice(&(total as u64).to_le_bytes());
            },
        );
        while let Some(part) = parts.next() {
            let more = if parts.peek().is_some() { MORE } else { 0 };
            written &= self.write_record(message, 0, part.len(), more, false, read, |out| {
                out.copy_from_slice(part);
            });
        }
        debug_assert!(written, "there was room for all");
        written
    }

    /// Writes a record whose body lies in a cell, as `lies` says, and publishes it with a full
    /// barrier. `more`: the message goes on in the next record. False: no room.
    #[inline]
    pub fn write_in_cell(
        &mut self,
        message: u8,
        lies: [u8; 8],
        head: &[u8],
        more: bool,
        read: u32,
    ) -> bool {
        let marks = IN_CELL | if more { MORE } else { 0 };
        let len = 8 + head.len();
        self.write_record(message, len, len, marks, false, read, |out| {
            out[..8].copy_from_slice(&lies);
            out[8..].copy_from_slice(head);
        })
    }

    /// Writes a record. `alone`: the reader is waiting for it.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn write_record(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        marks: u64,
        alone: bool,
        read: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        debug_assert!(len <= RECORD_MAX_BYTES);
        let mut shape = Shape {
            lead: lead(head, len),
            len,
            gap: 0,
        };
        if alone && shape.lines() >= GAP_FROM && shape.lines() + GAP <= to_end(self.tail) {
            shape.gap = GAP;
        }
        let need = shape.span();
        let has_room = if self.tail + need > self.turn {
            self.pass_turn(need)
        } else {
            self.room(need)
        };
        if !has_room {
            return false;
        }
        // SAFETY: the reader has passed these bytes (room), and does not look at them before the
        // word is published.
        unsafe { self.memory.fill(self.tail, shape.lead, len, fill) };
        self.clear_to(self.tail + need + LINE_BYTES as u64);
        // The caller next looks whether the reader sleeps, and that look must not come before the
        // word is there for the reader to see.
        let published = self.memory.word(self.tail);
        let word = word(u64::from(message), shape, marks, read);
        if alone {
            published.store(word, Ordering::Release);
            // The reader is waiting for these lines (the first it has seen by now), and the next
            // message will probably be as long. They are on their way before the
            // barrier: an exchange would first have waited until they are all written.
            let (line, lines) = (LINE_BYTES as u64, shape.lines());
            self.memory.hand_over(self.tail + line, lines - line);
            fence(Ordering::SeqCst);
            self.memory.take_over(self.tail + need, lines);
        } else {
            if need <= SOON_MAX {
                self.ask_ahead(need);
            }
            published.swap(word, Ordering::SeqCst);
        }
        self.tail += need;
        // Off the message's way: the stores drain while the caller waits for an answer.
        let ahead = self.tail + AHEAD;
        while self.cleared < ahead
            && self.cleared + LINE_BYTES as u64 <= self.head + RING_DATA_BYTES as u64
        {
            self.memory.word(self.cleared).store(0, Ordering::Relaxed);
            self.cleared += LINE_BYTES as u64;
        }
        true
    }

    /// Makes room for a record that takes `need` bytes and ends behind `turn`. False: there is
    /// none.
    #[cold]
    #[inline(never)]
    fn pass_turn(&mut self, need: u64) -> bool {
        let end = to_end(self.tail);
        let (begun, unread) = (RING_DATA_BYTES as u64 - end, self.tail - self.head);
        // Until the reader has passed the mark there is no more room than this; a message that goes
        // in several records has found some for all.
        let rest = if cfg!(loom) { SPAN_MAX } else { PARTS_SPAN };
        let ends_lap =
            unread <= UNREAD * need && unread + need.max(rest) + LINE_BYTES as u64 <= begun;
        if need > end || ends_lap {
            // The record must not cross the end, or need not go there: skip what is left, and have
            // room for both.
            if !self.room(end + need) {
                return false;
            }
            self.clear_to(self.tail + end + LINE_BYTES as u64);
            self.memory
                .word(self.tail)
                .store(word(SKIP, Shape::SKIP, 0, 0), Ordering::Release);
            self.tail += end;
        } else if !self.room(need) {
            return false;
        }
        self.turn = (self.tail + need).next_multiple_of(LAP);
        true
    }

    /// Asks for the lines of a later record that takes as much as the present one, `need` bytes.
    /// Kept out of the way of messages that are no part of a stream.
    #[inline(never)]
    fn ask_ahead(&self, need: u64) {
        let from = self.tail + need + (SOON * need).max(SOON_MIN);
        self.memory.take_over(from, need);
    }

    /// Sees to it that the line that ends at `end`, behind a record about to be published, has its
    /// word cleared.
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

    /// The reader has told, in lines and by the low bits, how far it has read.
    #[inline]
    pub fn note_read(&mut self, lines: u32) {
        let behind = ((self.tail / LINE_BYTES as u64) as u32).wrapping_sub(lines);
        let head = self
            .tail
            .saturating_sub(u64::from(behind) * LINE_BYTES as u64);
        // What a peer made up must not move the position back, nor beyond what was written.
        self.head = self.head.max(head);
    }

    /// Is there room for this many records of a line each, and an end that one of them skips?
    #[inline]
    pub fn has_lines(&mut self, records: usize) -> bool {
        self.room((records + 1) as u64 * LINE_BYTES as u64)
    }

    /// Asks the reader to ring when it next frees room. Look for room once more afterwards.
    pub fn starve(&self) {
        self.memory.starved().store(1, Ordering::SeqCst);
    }

    /// Returns whether there is room for a message of any size.
    pub fn has_room(&mut self) -> bool {
        self.head = self.memory.head().load(Ordering::SeqCst).min(self.tail);
        self.room(ANY_SPAN)
    }
}

impl Reader {
    /// The reading end of the ring at `memory`.
    ///
    /// # Safety
    /// As for [`Writer::new`], and this is its only reader.
    pub unsafe fn new(memory: Base) -> Reader {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(memory) };
        Reader {
            memory,
            head: 0,
            peeked: 0,
            published: 0,
            lap: 0,
        }
    }

    /// Returns whether a record is there, or the mark that skips the ring's end.
    #[inline]
    pub fn ready(&self) -> bool {
        self.memory.word(self.head).load(Ordering::Acquire) != 0
    }

    /// Returns whether all of the ring has been read once.
    #[inline]
    pub fn went_round(&self) -> bool {
        self.head - self.lap >= RING_DATA_BYTES as u64
    }

    /// How far this process has read: low bits, in lines.
    #[inline]
    pub fn position(&self) -> u32 {
        (self.head / LINE_BYTES as u64) as u32
    }

    /// Looks at the next record; [`Reader::release`] it when done.
    #[inline]
    pub fn peek(&mut self) -> Found<'_> {
        loop {
            let w = self.memory.word(self.head).load(Ordering::Acquire);
            if w == 0 {
                return Found::Nothing;
            }
            let (message, shape) = ((w >> 16) & 0xff, Shape::of(w));
            let Shape { lead, len, .. } = shape;
            if w & VALID == 0 || len > RECORD_MAX_BYTES || !(8..=LINE_BYTES).contains(&lead) {
                return Found::Malformed;
            }
            if message == SKIP {
                if !self.pass_end() {
                    return Found::Malformed;
                }
                continue;
            }
            if shape.span() > to_end(self.head) {
                return Found::Malformed;
            }
            self.peeked = shape.span();
            // SAFETY: the writer published these bytes with the word and does not touch them before
            // `head` passes them.
            let bytes = unsafe { self.memory.bytes(self.head, lead, len) };
            return Found::Record {
                message: message as u8,
                bytes,
                more: w & MORE != 0,
                celled: w & IN_CELL != 0,
                read: (w >> 24) as u32,
            };
        }
    }

    /// Goes on at the ring's beginning. False: it is there.
    #[cold]
    #[inline(never)]
    fn pass_end(&mut self) -> bool {
        let end = to_end(self.head);
        // One that lies must not send its reader around for ever.
        if end == RING_DATA_BYTES as u64 {
            return false;
        }
        let whole = self.went_round() || end < SPAN_MAX;
        self.head += end;
        if !whole {
            self.lap = self.head;
        }
        true
    }

    /// Frees the record last peeked at. True: the writer sleeps for room and must be woken.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.head += std::mem::take(&mut self.peeked);
        if self.head - self.published < PUBLISH {
            return false;
        }
        self.publish()
    }

    /// Publishes the reader's position. True: the writer sleeps for room and must be woken.
    fn publish(&mut self) -> bool {
        self.published = self.head;
        self.memory.head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wakes()
    }

    /// Does the writer sleep for room, of which there is some now, and must be woken? What made
    /// room must have been written with a full barrier.
    #[inline]
    pub fn wakes(&self) -> bool {
        let starved = self.memory.starved();
        starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
