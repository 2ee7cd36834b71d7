//! A pair of processes as one of them sees it: the ring to the peer, the ring from the peer, and
//! the fastbox and cells of both.
//!
//! Messages of one process to the other stay in order, whichever way each goes. The fastbox is
//! written only while the peer is known to have read everything on the ring. It is read before any
//! record that was written after it. A body in a cell has its record in the ring.

use super::cells::{CellRef, Cells, HEAD_MAX_BYTES};
use super::fastbox::{FASTBOX_MAX_BYTES, Fastbox};
use super::memory::{LINE_BYTES, Ordering, fence};
use super::ring::{Found, Reader, Writer};
use super::streaming_copy::{self, STREAMING_MIN_BYTES};

/// Bytes of an early record's body after which its reader is told. Measured (docs/measured/shm.md):
/// 4 to 16 KiB make no difference, 24 KiB are slower for short messages.
const EARLY_RUN_BYTES: usize = if cfg!(loom) { LINE_BYTES } else { 12 * 1024 };

/// Messages of more than this many bytes, with their head, go in cells while both processes send
/// such messages. Measured (docs/measured/shm.md).
pub const EXCHANGE_MIN_BYTES: usize = if cfg!(loom) { 64 } else { 4 * 1024 };
/// Maximum number of messages in cells since the peer's last long one. A choice: programs rarely
/// have more in flight.
const LONG_MESSAGES_MAX: u8 = 64;

/// Messages of more than this many bytes, with their head, go in cells where those of both
/// processes cross. Measured (docs/measured/shm.md).
pub const CROSSED_MIN_BYTES: usize = if cfg!(loom) { 64 } else { 512 };
/// Most bytes of the ring that the peer has yet to read where a message that crosses goes in a
/// cell: the longest message that would not wait for a cell, or records of messages in cells. More
/// are a stream. A choice; a few lines are too little (docs/measured/shm.md).
const CROSSED_UNREAD_MAX_BYTES: u64 = (EXCHANGE_MIN_BYTES + 4 * LINE_BYTES) as u64;
/// Messages in a row from the peer, none of which has crossed one of this process's, after which
/// messages count as sent in turns. A choice: an exchange goes on if one process is late now and
/// then.
const UNCROSSED_MESSAGES_MAX: u8 = 4;

/// One process's side of a pair.
pub struct Pair {
    writer: Writer,
    reader: Reader,
    fastbox: Fastbox,
    /// In memory of their own: messages by fastbox and ring do not touch it.
    cells: Box<Cells>,
    /// The cell of the record last returned by [`Pair::next`], if it is in one.
    cell: Option<CellRef>,
    /// Messages that may still go in cells before the peer sends another long one. Set to
    /// [`LONG_MESSAGES_MAX`] by each long one.
    long_messages_left: u8,
    /// Messages that may still come from the peer without having crossed one of this process's
    /// before [`Pair::crosses`] is false. Set to [`UNCROSSED_MESSAGES_MAX`] by each that has.
    uncrossed_messages_left: u8,
    /// Messages in cells that may still follow the peer's last message of more than
    /// [`CROSSED_MIN_BYTES`] before [`Pair::crosses`] is false.
    unanswered_messages_left: u8,
    /// A core takes long to write lines that are in the other's cache.
    costly_lines: bool,
}

/// What came from the peer.
pub enum Next<'a> {
    /// Nothing new.
    Nothing,
    /// A message from the fastbox: its number, head and body.
    Fastbox(u8, &'a [u8]),
    /// A message from the ring, or a part of a split message: its number, its bytes, and whether
    /// more parts follow. [`Pair::release`] frees it.
    Record(u8, &'a [u8], bool),
    /// A message, or a part of one, whose body is in a cell: its number, its bytes, whether more
    /// parts follow, and whether this memory is used for the first time. [`Pair::release_cell`]
    /// frees it.
    InCell(u8, &'a [u8], bool, bool),
    /// A message from an early record: its number, and what is known of it.
    /// [`Pair::early_bytes`] returns what is there of its body. When all was read,
    /// [`Pair::release_cell`] frees it; until then it is returned again.
    Early(u8, EarlyRecord),
    /// Bytes that no writer writes.
    Malformed,
}

/// A record that is published before its body is written to a cell.
pub struct EarlyRecord {
    head: [u8; HEAD_MAX_BYTES],
    head_len: usize,
    /// Bytes of the body, at least 1.
    pub body_len: usize,
    /// It is returned for the first time, and its memory was not used before.
    pub first_touch: bool,
}

impl EarlyRecord {
    /// The message's head.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

impl Pair {
    /// The side of the process that writes `writer`, reads `reader` and has these sides of the
    /// fastbox and of the cells.
    pub fn new(writer: Writer, reader: Reader, fastbox: Fastbox, cells: Cells) -> Pair {
        Pair {
            writer,
            reader,
            fastbox,
            cells: Box::new(cells),
            cell: None,
            long_messages_left: 0,
            uncrossed_messages_left: 0,
            unanswered_messages_left: 0,
            costly_lines: false,
        }
    }

    /// The same for two processes with a core each where
    /// [lines are costly](streaming_copy::lines_are_costly). Of a pair that was not used.
    pub fn with_costly_lines(self) -> Pair {
        Pair {
            writer: self.writer.with_short_laps(),
            reader: self.reader.with_short_laps(),
            costly_lines: true,
            ..self
        }
    }

    /// Returns whether a body of `len` bytes is copied to the ring past the caches: it is part of a
    /// stream, whose lines are in the peer's cache.
    #[inline]
    pub fn is_streaming(&self, len: usize) -> bool {
        self.costly_lines && len >= STREAMING_MIN_BYTES && !self.writer.is_read()
    }

    /// The same of a copy to the next cell. Not while both processes send long messages: what each
    /// writes is soon written again by the other.
    #[inline]
    fn is_streaming_to_cell(&mut self, len: usize) -> bool {
        self.costly_lines
            && len >= STREAMING_MIN_BYTES
            && self.long_messages_left == 0
            && self.cells.has(1)
            && self.cells.next_was_given_back()
    }

    /// Writes a message by `fill` and publishes it with a full barrier. It has `len` bytes. Its
    /// head is the first `head` bytes. False: no room.
    #[inline(always)]
    pub fn send(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let read = self.reader.tell();
        if len <= FASTBOX_MAX_BYTES && self.fastbox.my_turn() && self.writer.is_read() {
            self.fastbox.write(message, head, len, read, fill);
            true
        } else {
            self.writer.write(message, head, len, read, fill)
        }
    }

    /// Writes a message whose body goes into a cell. Its head has up to [`HEAD_MAX_BYTES`].
    /// Publishes it with a full barrier. False: no room.
    pub fn send_bytes_in_cell(&mut self, message: u8, head: &[u8], body: &[u8]) -> bool {
        let streaming = self.is_streaming_to_cell(body.len());
        self.send_in_cell(message, head, body.len(), |out| {
            streaming_copy::copy(body, out, streaming);
        })
    }

    /// The same of a body of `len` bytes that `fill` writes.
    #[inline(never)]
    pub fn send_in_cell(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.can_cell() && self.write_in_cell(message, head, len, fill)
    }

    /// Returns whether both processes send long messages, and the peer has some of this one's yet
    /// to read. What follows goes in cells, and waits for one: the lines of a cell that was just
    /// read are in this core's cache, those of the ring in the other's.
    #[inline]
    pub fn exchanges(&self) -> bool {
        self.long_messages_left > 0 && !self.writer.is_read()
    }

    /// Returns whether the messages of both processes cross on their way, as where each sends
    /// before it receives, the peer has few to read, and there is a cell. One of the two would find
    /// the fastbox taken and write to the ring, whose lines are in the other's cache. In cells each
    /// writes where it has just read.
    #[inline]
    pub fn crosses(&mut self) -> bool {
        self.uncrossed_messages_left > 0
            && self.unanswered_messages_left > 0
            && self.writer.unread_bytes() <= CROSSED_UNREAD_MAX_BYTES
            && self.can_cell()
    }

    /// Returns whether there is room for a record in a cell.
    fn can_cell(&mut self) -> bool {
        self.cells.has(1) && self.writer.has_line()
    }

    /// Writes a record in a cell. There must be room.
    fn write_in_cell(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.long_messages_left = self.long_messages_left.saturating_sub(1);
        self.unanswered_messages_left = self.unanswered_messages_left.saturating_sub(1);
        let read = self.reader.tell();
        let cell = self.cells.write(len, fill).word();
        let written = self.writer.write_in_cell(message, cell, head, read, true);
        debug_assert!(written, "there was room");
        written
    }

    /// Writes a message as an early record: it is published first, then the body, of `len` bytes,
    /// is written to a cell by `fill`, which is called for one run of it after the other. The
    /// reader copies a run while the next is written. The head has up to [`HEAD_MAX_BYTES`]. Ends
    /// with a full barrier. False: no room.
    #[inline(never)]
    pub fn send_early(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        debug_assert!(len > 0);
        if !self.can_cell() {
            return false;
        }
        self.unanswered_messages_left = self.unanswered_messages_left.saturating_sub(1);
        let read = self.reader.tell();
        let cell = self.cells.begin_early(len);
        let published = self
            .writer
            .write_in_cell(message, cell.word(), head, read, false);
        debug_assert!(published, "there was room");
        let mut at = 0;
        while at < len {
            let rest = len - at;
            // No short run at the end.
            let run = if rest < EARLY_RUN_BYTES * 3 / 2 {
                rest
            } else {
                EARLY_RUN_BYTES
            };
            self.cells.write_run(cell, at, run, fill);
            at += run;
        }
        // The caller next looks whether the reader sleeps.
        fence(Ordering::SeqCst);
        true
    }

    /// Writes a message of up to [`SPLIT_MAX_BYTES`](super::ring::SPLIT_MAX_BYTES) bytes. It is
    /// split over several records if one does not hold it; each is published with a full barrier.
    /// It is an early record if the reader has read everything before, as far as is known.
    /// `core_each`: both processes have a core of their own, so that one reads while the other
    /// writes, and the body may go into cells. False: no room, and nothing was written.
    #[inline(never)]
    pub fn send_split(&mut self, message: u8, head: &[u8], body: &[u8], core_each: bool) -> bool {
        let in_cell = core_each && head.len() <= HEAD_MAX_BYTES;
        if in_cell && self.send_early_or_in_cell(message, head, body) {
            return true;
        }
        if in_cell && self.exchanges() {
            return false;
        }
        let read = self.reader.tell();
        self.writer.write_split(message, head, body, read)
    }

    /// Writes a message whose body goes into a cell: as an early record if the reader has read
    /// everything before, as far as is known. The head has up to [`HEAD_MAX_BYTES`]. Publishes it
    /// with a full barrier. False: no room for a record in a cell.
    #[inline(never)]
    pub fn send_early_or_in_cell(&mut self, message: u8, head: &[u8], body: &[u8]) -> bool {
        if self.writer.is_read() {
            let streaming = self.is_streaming_to_cell(body.len());
            let mut rest = body;
            let mut fill = |out: &mut [u8]| {
                let (run, later) = rest.split_at(out.len());
                streaming_copy::copy(run, out, streaming);
                rest = later;
            };
            return self.send_early(message, head, body.len(), &mut fill);
        }
        self.send_bytes_in_cell(message, head, body)
    }

    /// The next message from the peer.
    #[inline]
    pub fn next(&mut self) -> Next<'_> {
        // The fastbox first, and again once a record has been seen: what is in the fastbox then is
        // older than the record.
        let mut found = self.fastbox.poll();
        if found.is_none() {
            if !self.reader.ready() {
                return Next::Nothing;
            }
            found = self.fastbox.poll();
        }
        if let Some((message, read, len)) = found {
            self.writer.set_read(read);
            if len > CROSSED_MIN_BYTES {
                self.unanswered_messages_left = LONG_MESSAGES_MAX;
                self.uncrossed_messages_left =
                    uncrossed_left_after(self.uncrossed_messages_left, !self.writer.is_read());
            }
            return Next::Fastbox(message, self.fastbox.bytes(len));
        }
        match self.reader.peek() {
            Found::Nothing => Next::Nothing,
            Found::Record {
                message,
                bytes,
                more,
                in_cell,
                read,
            } => {
                self.writer.set_read(read);
                let len = if in_cell {
                    CellRef::message_len(bytes)
                } else {
                    bytes.len()
                };
                if len > EXCHANGE_MIN_BYTES {
                    self.long_messages_left = LONG_MESSAGES_MAX;
                }
                // An early record is counted when it is returned for the first time.
                if len > CROSSED_MIN_BYTES && self.cell.is_none() {
                    self.unanswered_messages_left = LONG_MESSAGES_MAX;
                    // What the fastbox has room for was sent while a message of this process's was
                    // there.
                    let fits = !in_cell && len <= FASTBOX_MAX_BYTES;
                    let crossed = !self.writer.is_read() || fits && !self.fastbox.my_turn();
                    self.uncrossed_messages_left =
                        uncrossed_left_after(self.uncrossed_messages_left, crossed);
                }
                if in_cell {
                    return record_in_cell(&mut self.cells, &mut self.cell, message, bytes, more);
                }
                Next::Record(message, bytes, more)
            }
            Found::Malformed => Next::Malformed,
        }
    }

    /// Frees the record last returned by [`Pair::next`]. True: the peer sleeps for room, and the
    /// caller must wake it.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.reader.release()
    }

    /// What is there of the body of the early record last returned by [`Pair::next`], from byte
    /// `from` on.
    #[inline]
    pub fn early_bytes(&self, from: usize) -> &[u8] {
        self.cell
            .map_or(&[], |cell| self.cells.early_bytes(cell, from))
    }

    /// Frees the record last returned by [`Pair::next`] if it was in a cell, and takes the cell.
    /// True: the peer sleeps for room, and the caller must wake it.
    pub fn release_cell(&mut self) -> bool {
        let must_wake = self.reader.release();
        let gave_back = self.cell.take().is_some_and(|cell| self.cells.read(cell));
        must_wake || gave_back && self.reader.must_wake()
    }

    /// Returns whether the peer, as far as is known, has read everything.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.writer.is_read()
    }

    /// Returns whether all of the ring's memory has been used before.
    #[inline]
    pub fn is_touched(&self) -> bool {
        self.reader.has_read_all_once()
    }

    /// Records that have gone and come through cell memory that was used for the first time.
    #[inline]
    pub fn first_touches(&self) -> u64 {
        self.cells.first_touches()
    }

    /// Asks the peer for a wakeup when it next frees room. The caller looks for room once more
    /// afterwards.
    pub fn request_wakeup(&self) {
        self.writer.request_wakeup();
    }

    /// Returns whether there is room for a message of any size.
    pub fn has_room(&mut self) -> bool {
        self.writer.has_room() && self.cells.has_enough()
    }
}

/// What is left of [`UNCROSSED_MESSAGES_MAX`] after one more message from the peer. `crossed`: the
/// peer had not read all of this process's messages when it sent it.
#[inline]
fn uncrossed_left_after(left: u8, crossed: bool) -> u8 {
    if crossed {
        UNCROSSED_MESSAGES_MAX
    } else {
        left.saturating_sub(1)
    }
}

/// Decodes a record whose body is in a cell. Not inlined, so that it costs nothing for those that
/// are not.
#[inline(never)]
fn record_in_cell<'a>(
    cells: &'a mut Cells,
    cell: &mut Option<CellRef>,
    message: u8,
    record: &[u8],
    more: bool,
) -> Next<'a> {
    if CellRef::is_early(record) {
        let Some((found, head)) = cells.early(record) else {
            return Next::Malformed;
        };
        let mut early = EarlyRecord {
            head: [0; HEAD_MAX_BYTES],
            head_len: head.len(),
            body_len: found.len(),
            first_touch: false,
        };
        early.head[..head.len()].copy_from_slice(head);
        if *cell != Some(found) {
            *cell = Some(found);
            early.first_touch = cells.count_use(found);
        }
        return Next::Early(message, early);
    }
    let Some((found, bytes, first_touch)) = cells.bytes(record) else {
        return Next::Malformed;
    };
    *cell = Some(found);
    Next::InCell(message, bytes, more, first_touch)
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
