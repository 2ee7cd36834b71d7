//! Registered buffers: how a transfer is cut into messages, and the physical memory of each.
//!
//! Sender and receiver must agree on the number of messages and on the size of each. Both compute
//! them from a [`Cut`], which the receiver chooses and sends. So they agree by construction.
//!
//! A message never spans two pages: the physical addresses of neighbours are not neighbours. It
//! goes straight from or to the user's page where it begins and ends there at a multiple of 256
//! bytes. Otherwise it goes through a bounce page. That is the head and the tail of a transfer if
//! both sides lie alike in their pages. It is everything on a side whose address does not fit the
//! cut.
//!
//! Each message is rounded up to 256 bytes, so that all of its segments are whole. The card writes
//! a last segment that comes first at 256 * (segments - 1). With whole segments that is its right
//! place. What is rounded up lies in a bounce page, never in the user's memory.

use super::header::SEGMENT_BYTES;
use crate::rapidio::command::Piece;
use crate::rapidio::driver::physical::{PhysicalMemory, Registration};
use std::ops::Range;

/// Bytes of a page, and of the longest message.
pub const PAGE_BYTES: usize = crate::rapidio::command::PAGE_BYTES as usize;

/// A user's memory: an address in this process, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserMemory {
    /// Address of the first byte.
    pub address: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl UserMemory {
    /// The memory of a slice.
    pub fn of(bytes: &[u8]) -> UserMemory {
        UserMemory {
            address: bytes.as_ptr().expose_provenance(),
            bytes: bytes.len(),
        }
    }

    /// Its part in this range. Panics if it is not within.
    pub fn part(self, range: Range<usize>) -> UserMemory {
        assert!(range.start <= range.end && range.end <= self.bytes);
        UserMemory {
            address: self.address + range.start,
            bytes: range.len(),
        }
    }

    /// A copy of its bytes.
    ///
    /// # Safety
    /// The memory is valid for reading, and nobody writes to it meanwhile.
    pub unsafe fn read(self, out: &mut [u8]) {
        let from: *const u8 = std::ptr::with_exposed_provenance(self.address);
        let n = out.len().min(self.bytes);
        // SAFETY: the caller says that the memory is valid; `out` is another object.
        unsafe { out.as_mut_ptr().copy_from(from, n) };
    }

    /// Writes bytes to its front, as many as fit.
    ///
    /// # Safety
    /// The memory is valid for writing, and nobody has a reference to it.
    pub unsafe fn write(self, bytes: &[u8]) {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address);
        let n = bytes.len().min(self.bytes);
        // SAFETY: the caller says that the memory is valid; `bytes` is another object.
        unsafe { to.copy_from(bytes.as_ptr(), n) };
    }
}

/// How the bytes of a transfer are cut into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Bytes of the transfer.
    pub bytes: usize,
    /// Most bytes of the first message. Further ones have a page.
    pub first: u16,
}

impl Cut {
    /// The cut at the page boundaries of this memory.
    pub fn of(memory: UserMemory) -> Cut {
        Cut {
            bytes: memory.bytes,
            first: (PAGE_BYTES - memory.address % PAGE_BYTES) as u16,
        }
    }

    /// Returns whether a peer's cut can be one.
    pub fn is_valid(&self) -> bool {
        (1..=PAGE_BYTES).contains(&usize::from(self.first)) && self.bytes > 0
    }

    /// Messages of the transfer.
    pub fn messages(&self) -> usize {
        let after_first = self.bytes.saturating_sub(self.first.into());
        1 + after_first.div_ceil(PAGE_BYTES)
    }

    /// The bytes that a message carries.
    pub fn range(&self, message: usize) -> Range<usize> {
        let end = usize::from(self.first) + message * PAGE_BYTES;
        let start = match message {
            0 => 0,
            _ => end - PAGE_BYTES,
        };
        start.min(self.bytes)..end.min(self.bytes)
    }

    /// This cut, shortened to no more than so many messages.
    pub fn shortened(self, messages: usize) -> Cut {
        let most = self.range(messages.saturating_sub(1)).end;
        Cut {
            bytes: self.bytes.min(most),
            ..self
        }
    }
}

/// One message's memory.
struct Part {
    memory: Registration,
    piece: Piece,
}

/// A registered buffer.
pub(super) struct Buffer {
    pub cut: Cut,
    user: UserMemory,
    /// The card's alignment.
    alignment: usize,
    /// The memory of the first messages. All have theirs after [`Buffer::translate_all`].
    parts: Vec<Part>,
    /// Messages over whose pages the cache has been written back.
    written_back: usize,
    /// Bytes of these that lie in the user's pages.
    translated_bytes: u64,
}

impl Buffer {
    /// A user's memory, cut so. No page is translated yet. `alignment` is the card's: with 1 it
    /// takes any address.
    ///
    /// # Safety
    /// The memory stays valid until [`Buffer::release`], for reading, and for writing if it is
    /// received into. Nobody has a reference to it that this breaks.
    pub unsafe fn new(user: UserMemory, cut: Cut, alignment: u64) -> Buffer {
        // The paper: addresses of 8 bytes, and of 256 for the rounding of sizes.
        let alignment = if alignment > 1 { SEGMENT_BYTES } else { 1 };
        let parts = Vec::with_capacity(cut.messages());
        Buffer {
            cut,
            user,
            alignment,
            parts,
            written_back: 0,
            translated_bytes: 0,
        }
    }

    /// Translates the pages of the first `messages` messages that have not been, and allocates
    /// bounce pages where address or size does not suit the card. Returns how many were translated.
    pub fn translate(&mut self, memory: &mut PhysicalMemory, messages: usize) -> u64 {
        let mut translated = 0;
        for message in self.parts.len()..messages {
            let part = self.user.part(self.cut.range(message));
            let rounded = part.bytes.next_multiple_of(SEGMENT_BYTES);
            let fits = part.address.is_multiple_of(self.alignment)
                && rounded == part.bytes
                && part.address % PAGE_BYTES + part.bytes <= PAGE_BYTES;
            let memory = match fits {
                // SAFETY: a part of what `new`'s caller says is valid.
                true => unsafe { memory.register(part.address, part.bytes) },
                false => memory.allocate(rounded),
            };
            translated += u64::from(fits);
            let piece = Piece {
                at: memory.runs[0].at,
                bytes: rounded as u16,
            };
            self.parts.push(Part { memory, piece });
        }
        translated
    }

    /// As [`Buffer::translate`], for all messages.
    pub fn translate_all(&mut self, memory: &mut PhysicalMemory) -> u64 {
        self.translate(memory, self.cut.messages())
    }

    /// Returns the bytes of the user's pages translated since the last call, but in all calls
    /// together no more than the `cache` bytes that the processor's cache holds.
    pub fn write_back(&mut self, cache: u64) -> u64 {
        let before = self.translated_bytes.min(cache);
        let direct = |m: usize| self.cut.range(m).len() as u64 - self.bounced_bytes_of(m);
        let new: u64 = (self.written_back..self.parts.len()).map(direct).sum();
        self.written_back = self.parts.len();
        self.translated_bytes += new;
        self.translated_bytes.min(cache) - before
    }

    /// Bytes of a message that are copied through its bounce page.
    pub fn bounced_bytes_of(&self, message: usize) -> u64 {
        match self.parts[message].memory.is_bounce() {
            true => self.cut.range(message).len() as u64,
            false => 0,
        }
    }

    /// Bytes of all messages that are copied through bounce pages.
    pub fn bounced_bytes(&self) -> u64 {
        let messages = 0..self.parts.len();
        messages.map(|m| self.bounced_bytes_of(m)).sum()
    }

    /// The physical memory of all messages.
    pub fn pieces(&self) -> Vec<Piece> {
        self.pieces_of(0..self.parts.len())
    }

    /// The physical memory of some messages.
    pub fn pieces_of(&self, messages: Range<usize>) -> Vec<Piece> {
        self.parts[messages].iter().map(|p| p.piece).collect()
    }

    /// Copies what a message sends into its bounce page, if it has one.
    pub fn fill_bounce_page(&self, memory: &mut PhysicalMemory, message: usize) {
        let part = &self.parts[message];
        if !part.memory.is_bounce() {
            return;
        }
        let mut bytes = vec![0; self.cut.range(message).len()];
        let user = self.user.part(self.cut.range(message));
        // SAFETY: valid for reading until the release, as `new` demands.
        unsafe { user.read(&mut bytes) };
        let written = memory.write(part.piece.at, &bytes);
        debug_assert!(written.is_ok(), "a bounce page is registered");
    }

    /// Copies what has been received into bounce pages to where it belongs.
    pub fn empty_bounce_pages(&self, memory: &mut PhysicalMemory) {
        for (message, part) in self.parts.iter().enumerate() {
            if !part.memory.is_bounce() {
                continue;
            }
            let range = self.cut.range(message);
            let mut bytes = vec![0; range.len()];
            let read = memory.read(part.piece.at, &mut bytes);
            debug_assert!(read.is_ok(), "a bounce page is registered");
            // SAFETY: valid for writing until the release, as `new` demands.
            unsafe { self.user.part(range).write(&bytes) };
        }
    }

    /// Gives its pages back.
    pub fn release(self, memory: &mut PhysicalMemory) {
        for part in self.parts {
            memory.release(part.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_cover_a_transfer_and_stay_within_their_pages(
            bytes in 1usize..40_000,
            receiver in 0usize..2 * PAGE_BYTES,
            sender in 0usize..2 * PAGE_BYTES,
            limit in 1usize..12,
        ) {
            let content: Vec<u8> = (0..bytes + 3 * PAGE_BYTES).map(|i| (i * 7) as u8).collect();
            let base = content.as_ptr().expose_provenance().next_multiple_of(PAGE_BYTES);
            let at = |offset| UserMemory { address: base + offset, bytes };
            let cut = Cut::of(at(receiver));
            let mut end = 0;
            for message in 0..cut.messages() {
                let range = cut.range(message);
                prop_assert!(range.start == end && !range.is_empty());
                end = range.end;
            }
            prop_assert!(cut.is_valid() && end == bytes);
            let short = cut.shortened(limit);
            prop_assert_eq!(short.messages(), limit.min(cut.messages()));
            prop_assert_eq!(short.bytes, cut.range(short.messages() - 1).end);
            let mut memory = PhysicalMemory::new();
            for user in [at(receiver), at(sender)] {
                // SAFETY: within `content`, which is only read.
                let mut buffer = unsafe { Buffer::new(user, cut, 8) };
                buffer.translate(&mut memory, 1);
                buffer.translate_all(&mut memory);
                for (message, piece) in buffer.pieces().iter().enumerate() {
                    let in_page = piece.at.0 as usize % PAGE_BYTES;
                    prop_assert!(in_page + usize::from(piece.bytes) <= PAGE_BYTES);
                    prop_assert!(in_page.is_multiple_of(8) && piece.bytes.is_multiple_of(256));
                    buffer.fill_bounce_page(&mut memory, message);
                    // Direct or not, its bytes are the user's, and a direct one has no others.
                    let range = cut.range(message);
                    let mut bytes = vec![0; range.len()];
                    prop_assert!(memory.read(piece.at, &mut bytes).is_ok());
                    let place = user.address - content.as_ptr().addr();
                    prop_assert!(bytes == content[place..][range.clone()]);
                    if buffer.bounced_bytes_of(message) == 0 {
                        prop_assert_eq!(range.len(), piece.bytes.into());
                    }
                }
                buffer.release(&mut memory);
            }
            prop_assert_eq!(memory.pages(), 0);
        }
    }

    #[test]
    fn only_head_and_tail_bounce_where_both_sides_lie_alike() {
        let content = vec![0; 40 * PAGE_BYTES];
        let base = content
            .as_ptr()
            .expose_provenance()
            .next_multiple_of(PAGE_BYTES);
        let mut memory = PhysicalMemory::new();
        let mut register = |address: usize, bytes, like: usize| {
            let at = |address| UserMemory {
                address: base + address,
                bytes,
            };
            // SAFETY: within `content`, to which nobody has a reference.
            let mut buffer = unsafe { Buffer::new(at(address), Cut::of(at(like)), 8) };
            let pages = buffer.translate_all(&mut memory);
            (buffer.bounced_bytes(), pages)
        };
        let head = PAGE_BYTES - 16;
        let alike = register(PAGE_BYTES + 16, 100_000, 16);
        assert_eq!(alike.0 as usize, head + (100_000 - head) % PAGE_BYTES);
        let aligned = register(PAGE_BYTES, 65_536, 0);
        assert_eq!(aligned, (0, 16));
        // A side that does not fit the other's cut copies everything.
        assert_eq!(register(256, 65_536, 0), (65_536, 0));
    }
}
