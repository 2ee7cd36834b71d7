//! The fastbox of a pair: room for one message, which both processes write in turns.
//!
//! Who has read the last message there writes the next one there. A request and its reply then
//! share lines that both cores have in their caches; in the rings each would have to fetch lines
//! that the other had long ago. The fastbox is used only while the writer's ring has no unread
//! record. The smallest messages take a single line.
//!
//! ```text
//! word   bit 0: who wrote it (1: the lower-numbered process); 1..5: payload offset, in words of
//!        8 bytes; 8..24: length; 24..32: message number; 32..64: how far the writer has read the
//!        opposite ring, in lines
//! bytes  head and body; payload offset: from the word's beginning to them (see `ring`)
//! ```

use super::memory::{
    Base, FASTBOX_BYTES, FastboxMemory, INLINE_MAX_BYTES, LINE_BYTES, Ordering, fence,
};
use super::ring::payload_offset;

/// Largest head and body in the fastbox, bytes.
pub const FASTBOX_MAX_BYTES: usize = FASTBOX_BYTES - LINE_BYTES;
/// Largest head and body that take a single line, bytes: the line without the word.
#[cfg_attr(loom, allow(dead_code))]
pub const FASTBOX_LINE_MAX_BYTES: usize = LINE_BYTES - 8;

/// One process's side of the fastbox.
pub struct Fastbox {
    memory: FastboxMemory,
    /// This process has the lower number of the two.
    lower: bool,
    my_turn: bool,
    /// Where the message last found begins, bytes from the word's beginning.
    payload_offset: usize,
}

/// A message found in the fastbox: its number; how far the peer has read this process's ring, low
/// bits, in lines; and its length in bytes.
pub type Arrived = (u8, u32, usize);

impl Fastbox {
    /// This process's side of the fastbox at `fastbox`. `lower`: it has the lower number of the
    /// two, and the first turn.
    ///
    /// # Safety
    /// `fastbox` is FASTBOX_BYTES zeroed bytes of shared memory, aligned to 64, never unmapped;
    /// each process of the pair has one side.
    pub unsafe fn new(fastbox: Base, lower: bool) -> Fastbox {
        // SAFETY: the caller's promise.
        let memory = unsafe { FastboxMemory::new(fastbox) };
        Fastbox {
            memory,
            lower,
            my_turn: lower,
            payload_offset: 8,
        }
    }

    /// Returns whether this process may write now.
    #[inline]
    pub fn my_turn(&self) -> bool {
        self.my_turn
    }

    /// Writes a message of `len` bytes by `fill` and publishes it with a full barrier. The first
    /// `head` bytes are its head. `read`: how far this process has read the opposite ring. Only in
    /// this process's turn.
    #[inline]
    pub fn write(
        &mut self,
        message: u8,
        head: usize,
        len: usize,
        read: u32,
        fill: impl FnOnce(&mut [u8]),
    ) {
        debug_assert!(self.my_turn && len <= FASTBOX_MAX_BYTES);
        let payload_offset = payload_offset(head, len);
        // SAFETY: in its turn this process alone touches the fastbox's bytes.
        unsafe { self.memory.fill(payload_offset, len, fill) };
        let word = u64::from(self.lower)
            | (payload_offset as u64 / 8) << 1
            | (len as u64) << 8
            | u64::from(message) << 24
            | u64::from(read) << 32;
        // The caller next looks whether the reader sleeps. That look must not come before the word
        // is visible to the reader, hence the full barriers.
        if len > INLINE_MAX_BYTES {
            self.memory.word().store(word, Ordering::Release);
            self.memory.demote(payload_offset + len);
            fence(Ordering::SeqCst);
        } else {
            self.memory.word().swap(word, Ordering::SeqCst);
        }
        self.my_turn = false;
    }

    /// Returns what the peer has written, if it has. From then on it is this process's turn.
    #[inline]
    pub fn poll(&mut self) -> Option<Arrived> {
        if self.my_turn {
            return None;
        }
        let word = self.memory.word().load(Ordering::Acquire);
        if (word & 1 == 1) == self.lower {
            return None;
        }
        self.my_turn = true;
        // Nonsense from the peer is cut to the fastbox.
        self.payload_offset = ((word >> 1 & 0xf) as usize * 8).clamp(8, LINE_BYTES);
        let len = ((word >> 8 & 0xffff) as usize).min(FASTBOX_MAX_BYTES);
        Some(((word >> 24) as u8, (word >> 32) as u32, len))
    }

    /// The first `len` bytes of the message last returned by [`Fastbox::poll`], until this process
    /// writes.
    #[inline]
    pub fn bytes(&self, len: usize) -> &[u8] {
        debug_assert!(self.my_turn);
        // SAFETY: the peer published these bytes with the word, and will not touch them before its
        // turn.
        unsafe {
            self.memory
                .bytes(self.payload_offset, len.min(FASTBOX_MAX_BYTES))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; FASTBOX_BYTES]);

    fn pair(fastbox: &mut Lines) -> (Fastbox, Fastbox) {
        let at = fastbox.0.as_mut_ptr();
        // SAFETY: the fastbox outlives both sides in each test.
        unsafe { (Fastbox::new(at, true), Fastbox::new(at, false)) }
    }

    #[test]
    fn turns_alternate_and_start_with_the_lower() {
        let mut fastbox = Lines([0; FASTBOX_BYTES]);
        let (mut lower, mut upper) = pair(&mut fastbox);
        assert!(lower.my_turn() && !upper.my_turn());
        assert!(upper.poll().is_none());
        for round in 0..5u8 {
            lower.write(round, 0, 3, 7, |out| out.copy_from_slice(&[round; 3]));
            assert!(!lower.my_turn() && lower.poll().is_none());
            assert_eq!(upper.poll(), Some((round, 7, 3)));
            assert_eq!(upper.bytes(3), [round; 3]);
            assert!(upper.my_turn() && upper.poll().is_none());
            upper.write(9, 16, FASTBOX_MAX_BYTES, round.into(), |out| {
                out.fill(round)
            });
            assert_eq!(lower.poll(), Some((9, round.into(), FASTBOX_MAX_BYTES)));
            assert_eq!(lower.bytes(FASTBOX_MAX_BYTES), [round; FASTBOX_MAX_BYTES]);
        }
    }

    #[test]
    fn a_made_up_length_stays_in_the_fastbox() {
        let mut fastbox = Lines([0xff; FASTBOX_BYTES]);
        let (_, mut upper) = pair(&mut fastbox);
        assert_eq!(upper.poll().unwrap().2, FASTBOX_MAX_BYTES);
    }
}
