//! A pair of processes as one of them sees it: the ring to the peer, the ring from it, and the front of both.
//!
//! Messages of one process to the other stay in order whichever way each goes: the front is written only while the peer is
//! known to have read everything on the ring, and it is looked at before any record that was written after it.

use super::front::{FRONT_MAX, Front};
use super::ring::{Found, Reader, Writer};

/// One process's ends.
pub struct Pair {
    writer: Writer,
    reader: Reader,
    front: Front,
}

/// What came from the peer.
pub enum Next<'a> {
    /// Nothing new.
    Nothing,
    /// A message from the front: its number, head and body.
    Front(u8, &'a [u8]),
    /// A message from the ring, or a part of one that is longer than a record: whether more of it follows. [`Pair::release`] it when done.
    Record(u8, &'a [u8], bool),
    /// Nonsense.
    Malformed,
}

impl Pair {
    /// The ends of the process that writes `writer`, reads `reader` and has this side of the front.
    pub fn new(writer: Writer, reader: Reader, front: Front) -> Pair {
        Pair {
            writer,
            reader,
            front,
        }
    }

    /// Writes a message whose head, of `head` bytes, and body, of `len` bytes together, come from `fill`; publishes it with a full barrier. False: no room.
    #[inline]
    pub fn send(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let read = self.reader.position();
        if len <= FRONT_MAX && self.front.my_turn() && self.writer.is_read() {
            self.front.write(message, head, len, read, fill);
            true
        } else {
            self.writer.write(message, head, len, read, fill)
        }
    }

    /// Writes a message of up to [`LONG_MAX`](super::ring::LONG_MAX) bytes, in several records if one does not hold it; publishes each with a full barrier.
    /// `halves`: in two where the peer is not waiting for it. False: no room, and nothing was written.
    pub fn send_long(&mut self, message: u8, head: &[u8], body: &[u8], halves: bool) -> bool {
        let read = self.reader.position();
        self.writer.write_long(message, head, body, read, halves)
    }

    /// The next message from the peer.
    #[inline]
    pub fn next(&mut self) -> Next<'_> {
        // The front first, and again once a record has been seen: what stands there then is older than the record.
        let mut found = self.front.poll();
        if found.is_none() {
            if !self.reader.ready() {
                return Next::Nothing;
            }
            found = self.front.poll();
        }
        if let Some((message, read, len)) = found {
            self.writer.note_read(read);
            return Next::Front(message, self.front.bytes(len));
        }
        match self.reader.peek() {
            Found::Nothing => Next::Nothing,
            Found::Record {
                message,
                bytes,
                more,
                read,
            } => {
                self.writer.note_read(read);
                Next::Record(message, bytes, more)
            }
            Found::Malformed => Next::Malformed,
        }
    }

    /// Frees the record last returned by [`Pair::next`]. True: the peer sleeps for room and must be woken.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.reader.release()
    }

    /// Asks the peer to ring when it next frees room. Look for room once more afterwards.
    pub fn starve(&self) {
        self.writer.starve();
    }

    /// Is there room for a message of any size?
    pub fn has_room(&mut self) -> bool {
        self.writer.has_room()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "pair/fuzz.rs"]
mod fuzz;
