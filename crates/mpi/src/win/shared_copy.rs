//! Long puts and gets on memory of a peer of the node that this process does not map: the origin
//! copies one part, and a target that waits in MPI and polls the other at the same time.
//!
//! The origin leaves the target's part in its update slot, and copies its own. If the target has
//! not begun by then, the origin takes that part back and copies it, too: nobody waits for a target
//! that computes.

use super::Win;
use super::short_update::leave;
use super::target::Target;
use super::transfer::{Way, copy_runs};
use crate::device::{FindPeer, Offered, PeerMemory, ReadError, UPDATE_WORDS};
use std::ops::Range;

/// The shortest copy that is shared, bytes. A choice: below, a call takes longer than its bytes.
pub(super) const SHARED_MIN_BYTES: usize = 32 << 10;
/// Bytes that are shared at a time. A choice: the target does nothing else during its part, which
/// takes some 25 microseconds.
const SHARED_MAX_BYTES: usize = 512 << 10;
/// The origin's part is a multiple of so many bytes, a page: no page is copied by both.
const PART_BYTES: u64 = 4096;

/// Operation in an update slot: the target copies from the origin's memory to its own.
const PUT_PART: u64 = 3;
/// Operation in an update slot: the target copies from its own memory to the origin's.
const GET_PART: u64 = 4;

/// The target's part of a copy.
///
/// ```text
/// word 0  bits 16-31 the operation, 32- the bytes
/// word 1  address in the target
/// word 2  address in the origin
/// word 3  the origin's process
/// ```
pub(super) struct CopyPart([u64; UPDATE_WORDS]);

impl CopyPart {
    /// The part that the words in an update slot tell of. `None`: they are another update's.
    pub fn of_words(words: [u64; UPDATE_WORDS]) -> Option<CopyPart> {
        let op = words[0] >> 16 & 0xffff;
        matches!(op, PUT_PART | GET_PART).then_some(CopyPart(words))
    }

    fn new(way: Way, there: u64, here: *mut u8, len: usize, origin: u32) -> CopyPart {
        let op = match way {
            Way::Put => PUT_PART,
            Way::Get => GET_PART,
        };
        let here = here.expose_provenance() as u64;
        CopyPart([op << 16 | (len as u64) << 32, there, here, origin.into()])
    }

    /// Copies it, in the target. Returns 1 if it has, 0 if the system refuses.
    pub fn copy(self, find: FindPeer<'_>) -> u64 {
        let [what, own, origins, process] = self.0;
        let Some(memory) = find(process as u32) else {
            return 0;
        };
        let (writes, len) = (what >> 16 & 0xffff == GET_PART, (what >> 32) as usize);
        let own = std::ptr::with_exposed_provenance_mut(own as usize);
        // SAFETY: the origin has found that these bytes are in the window, and the system checks
        // that they can be accessed.
        let copied = unsafe { copy_runs(memory, writes, &[(own, len)], &[(origins, len)]) };
        u64::from(copied.is_ok())
    }
}

impl Win {
    /// Copies `len` bytes at `here` to `there` in a peer's memory, or from there.
    ///
    /// # Safety
    /// `here` is readable, or writable if it is a get, for `len` bytes.
    pub(super) unsafe fn copy_with_target(
        &self,
        (target, memory): (&Target, PeerMemory),
        way: Way,
        here: *mut u8,
        there: u64,
        len: usize,
    ) -> Result<(), ReadError> {
        let copy = |bytes: Range<usize>| {
            let (at, far) = (here.wrapping_add(bytes.start), there + bytes.start as u64);
            let runs = ([(at, bytes.len())], [(far, bytes.len())]);
            // SAFETY: the caller's promise.
            unsafe { copy_runs(memory, way == Way::Put, &runs.0, &runs.1) }
        };
        let mut done = 0;
        while len - done >= SHARED_MIN_BYTES {
            let end = len.min(done + SHARED_MAX_BYTES);
            let middle = there + (done + (end - done) / 2) as u64;
            let middle = (middle.next_multiple_of(PART_BYTES) - there) as usize;
            let part = CopyPart::new(
                way,
                there + middle as u64,
                here.wrapping_add(middle),
                end - middle,
                self.comm.peer(self.rank()),
            );
            let mut own = None;
            let with_target = self.leave_part(target, part, || {
                own.get_or_insert_with(|| copy(done..middle));
            })?;
            own.unwrap_or_else(|| copy(done..middle))?;
            if !with_target {
                copy(middle..end)?;
            }
            done = end;
        }
        if done < len || len == 0 {
            copy(done..len)?;
        }
        Ok(())
    }

    /// Leaves a part with the target, and does `meanwhile` until it is copied. Returns whether it
    /// was.
    ///
    /// Errors: the target has died.
    fn leave_part(
        &self,
        target: &Target,
        part: CopyPart,
        meanwhile: impl FnMut(),
    ) -> Result<bool, ReadError> {
        let Some(slot) = target.update_slot.filter(|_| !target.offers.pauses()) else {
            return Ok(false);
        };
        match leave(target, slot, part.0, meanwhile) {
            Offered::Done(1) => return Ok(true),
            Offered::Refused => {}
            Offered::Done(_) | Offered::TakenBack => target.offers.pause(),
            Offered::Abandoned => return Err(ReadError::Failed(libc::ESRCH)),
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_from_other_updates() {
        let mut byte = 0;
        for (way, op) in [(Way::Put, PUT_PART), (Way::Get, GET_PART)] {
            let part = CopyPart::new(way, 4096, &raw mut byte, SHARED_MAX_BYTES, 7);
            let [what, there, here, origin] = CopyPart::of_words(part.0).unwrap().0;
            assert_eq!(
                (what >> 16 & 0xffff, what >> 32),
                (op, SHARED_MAX_BYTES as u64)
            );
            assert_eq!(
                (there, here, origin),
                (4096, (&raw mut byte).addr() as u64, 7)
            );
        }
        for op in [0, 1, 2, 0x21] {
            assert!(CopyPart::of_words([op << 16 | 8 << 32 | 3, 0, 0, 0]).is_none());
        }
    }
}
