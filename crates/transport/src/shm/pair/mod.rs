//! A pair of processes as one of them sees it: the ring to the peer, the ring from it, and the
//! front of both.
//!
//! Messages of one process to the other stay in order whichever way each goes: the fastbox is
//! written only while the peer is known to have read everything on the ring, and it is looked at
//! before any record that was written after it. What lies in a cell has its record in the ring.

use super::cells::{CellRef, Cells, HEAD_MAX};
use super::fastbox::{FASTBOX_MAX_BYTES, Fastbox};
use super::ring::{Found, RECORD_PART_BYTES, Reader, Writer};

/// One process's ends.
pub struct Pair {
    writer: Writer,
    reader: Reader,
    fastbox: Fastbox,
    /// Apart: what goes by fastbox and ring does not touch them.
    cells: Box<Cells>,
    /// Where the record last returned by [`Pair::next`] lies, if in a cell.
    lies: Option<CellRef>,
}

/// What came from the peer.
pub enum Next<'a> {
    /// Nothing new.
    Nothing,
    /// A message from the fastbox: its number, head and body.
    Fastbox(u8, &'a [u8]),
    /// A message from the ring, or a part of one that is longer than a record: whether more of it
    /// follows. [`Pair::release`] it when done.
    Record(u8, &'a [u8], bool),
    /// The same out of a cell, and whether that had not been used so far before.
    /// [`Pair::release_cell`] it when done.
    InCell(u8, &'a [u8], bool, bool),
    /// Nonsense.
    Malformed,
}

impl Pair {
    /// The ends of the process that writes `writer`, reads `reader` and has these sides of the
    /// front and of the cells.
    pub fn new(writer: Writer, reader: Reader, fastbox: Fastbox, cells: Cells) -> Pair {
        Pair {
            writer,
            reader,
            fastbox,
            cells: Box::new(cells),
            lies: None,
        }
    }

    /// Writes a message whose head, of `head` bytes, and body, of `len` bytes together, come from
    /// `fill`; publishes it with a full barrier. False: no room.
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

    /// The same by a cell: a head of up to [`HEAD_MAX`](super::cells::HEAD_MAX) and a body of `len`
    /// bytes, which comes from `fill`. False: none is free.
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

    /// Is there room for this many records that lie in cells?
    fn can_cell(&mut self, records: usize) -> bool {
        self.cells.has(records) && self.writer.has_lines(records)
    }

    fn write_in_cell(
        &mut self,
        message: u8,
        head: &[u8],
        len: usize,
        more: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let read = self.reader.position();
        let lies = self.cells.write(len, fill).word();
        let written = self.writer.write_in_cell(message, lies, head, more, read);
        debug_assert!(written, "there was room");
        written
    }

    /// Writes a message of up to [`SPLIT_MAX_BYTES`](super::ring::SPLIT_MAX_BYTES) bytes, in
    /// several records if one does not hold it; publishes each with a full barrier. `spare`: both
    /// processes have a core, so that one reads while the other writes, and it may lie in cells.
    /// False: no room, and nothing was written.
    #[inline(never)]
    pub fn send_split(&mut self, message: u8, head: &[u8], body: &[u8], spare: bool) -> bool {
        let cells = if !spare || 8 + head.len() > HEAD_MAX {
            0
        } else if self.writer.is_read() {
            self.cells
                .several()
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
        let mut first = [0; HEAD_MAX];
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
        // The fastbox first, and again once a record has been seen: what stands there then is older
        // than the record.
        let mut found = self.fastbox.poll();
        if found.is_none() {
            if !self.reader.ready() {
                return Next::Nothing;
            }
            found = self.fastbox.poll();
        }
        if let Some((message, read, len)) = found {
            self.writer.note_read(read);
            return Next::Fastbox(message, self.fastbox.bytes(len));
        }
        match self.reader.peek() {
            Found::Nothing => Next::Nothing,
            Found::Record {
                message,
                bytes,
                more,
                celled,
                read,
            } => {
                self.writer.note_read(read);
                if celled {
                    return record_in_cell(&mut self.cells, &mut self.lies, message, bytes, more);
                }
                Next::Record(message, bytes, more)
            }
            Found::Malformed => Next::Malformed,
        }
    }

    /// Frees the record last returned by [`Pair::next`]. True: the peer sleeps for room and must be
    /// woken.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.reader.release()
    }

    /// The same where it lay in a cell.
    pub fn release_cell(&mut self) -> bool {
        let wakes = self.reader.release();
        let gave = self.lies.take().is_some_and(|lies| self.cells.read(lies));
        wakes || gave && self.reader.wakes()
    }

    /// Has the peer, as far as is known, read everything, so that it waits for what comes next?
    #[inline]
    pub fn is_read(&self) -> bool {
        self.writer.is_read()
    }

    /// Does what comes next in the ring lie in memory that has been used before?
    #[inline]
    pub fn is_warm(&self) -> bool {
        self.reader.went_round()
    }

    /// How many records have gone and come through cells that had not been used so far.
    #[inline]
    pub fn cold(&self) -> u64 {
        self.cells.cold()
    }

    /// Asks the peer to ring when it next frees room. Look for room once more afterwards.
    pub fn starve(&self) {
        self.writer.starve();
    }

    /// Returns whether there is room for a message of any size.
    pub fn has_room(&mut self) -> bool {
        self.writer.has_room() && self.cells.has_enough()
    }
}

/// A record whose bytes lie in a cell; out of the way of those that do not.
#[inline(never)]
fn record_in_cell<'a>(
    cells: &'a mut Cells,
    lies: &mut Option<CellRef>,
    message: u8,
    record: &[u8],
    more: bool,
) -> Next<'a> {
    let Some((place, bytes, is_cold)) = cells.bytes(record) else {
        return Next::Malformed;
    };
    *lies = Some(place);
    Next::InCell(message, bytes, more, is_cold)
}

#[cfg(all(test, not(loom)))]
#[path = "fuzz.rs"]
mod fuzz;
