//! A pair of processes as one of them sees it: the ring to the peer, the ring from the peer, and
//! the fastbox and cells of both.
//!
//! Messages of one process to the other stay in order, whichever way each goes. The fastbox is
//! written only while the peer is known to have read everything on the ring. It is read before any
//! record that was written after it. A body in a cell has its record in the ring.

use super::cells::{CellRef, Cells, HEAD_MAX_BYTES};
use super::fastbox::{FASTBOX_MAX_BYTES, Fastbox};
use super::ring::{Found, RECORD_PART_BYTES, Reader, Writer};

/// One process's side of a pair.
pub struct Pair {
    writer: Writer,
    reader: Reader,
    fastbox: Fastbox,
    /// In memory of their own: messages by fastbox and ring do not touch it.
    cells: Box<Cells>,
    /// The cell of the record last returned by [`Pair::next`], if it is in one.
    cell: Option<CellRef>,
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
    /// Bytes that no writer writes.
    Malformed,
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
        }
    }

    /// Writes a message by `fill` and publishes it with a full barrier. It has `len` bytes. Its
    /// head is the first `head` bytes. False: no room.
    #[inline]
    pub fn send(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let read = self.reader.position();
        if len <= FASTBOX_MAX_BYTES && self.fastbox.my_turn() && self.writer.is_read() {
            self.fastbox.write(message, head, len, read, fill);
            true
        } else {
            self.writer.write(message, head, len, read, fill)
        }
    }

    /// Writes a message whose body, of `len` bytes, goes into a cell by `fill`. Its head has up to
    /// [`HEAD_MAX_BYTES`]. Publishes it with a full barrier. False: no
    /// room.
    #[inline(never)]
    pub fn send_in_cell(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.can_cell(1) && self.write_in_cell(message, head, len, false, fill)
    }

    /// Returns whether there is room for this many records in cells.
    fn can_cell(&mut self, records: usize) -> bool {
        self.cells.has(records) && self.writer.has_lines(records)
    }

    /// Writes a record in a cell. There must be room.
    fn write_in_cell(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        more: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let read = self.reader.position();
        let cell = self.cells.write(len, fill).word();
        let written = self.writer.write_in_cell(message, cell, head, more, read);
        debug_assert!(written, "there was room");
        written
    }

    /// Writes a message of up to [`SPLIT_MAX_BYTES`](super::ring::SPLIT_MAX_BYTES) bytes. It is
    /// split over several records if one does not hold it; each is published with a full barrier.
    /// `core_each`: both processes have a core of their own, so that one reads while the other
    /// writes, and the body may go into cells. False: no room, and nothing was written.
    #[inline(never)]
    pub fn send_split(&mut self, message: u8, head: &[u8], body: &[u8], core_each: bool) -> bool {
        let cells = if !core_each || 8 + head.len() > HEAD_MAX_BYTES {
            0
        } else if self.writer.is_read() {
            self.cells
                .split_max()
                .min(body.len().div_ceil(RECORD_PART_BYTES))
        } else {
            1
        };
        if cells == 0 || !self.can_cell(cells) {
            let read = self.reader.position();
            return self.writer.write_split(message, head, body, read);
        }
        if cells == 1 {
            return self.write_in_cell(message, head, body.len(), false, |out| {
                out.copy_from_slice(body);
            });
        }
        let total = (head.len() + body.len()) as u64;
        let mut first = [0; HEAD_MAX_BYTES];
        first[..8].copy_from_slice(&total.to_le_bytes());
        first[8..8 + head.len()].copy_from_slice(head);
        let mut head = &first[..8 + head.len()];
        let mut parts = body.chunks(body.len().div_ceil(cells)).peekable();
        let mut written = true;
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            written &= self.write_in_cell(message, head, part.len(), more, |out| {
                out.copy_from_slice(part);
            });
            head = &[];
        }
        written
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
    let Some((found, bytes, first_touch)) = cells.bytes(record) else {
        return Next::Malformed;
    };
    *cell = Some(found);
    Next::InCell(message, bytes, more, first_touch)
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
