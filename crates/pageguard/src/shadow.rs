//! The area in which a guard's data land: as large as what is guarded, and lying alike in its
//! pages.

use crate::{PAGE, Refusal};
use std::ops::Range;

/// A huge page: the shadow lies alike in these, so that they can move whole.
const HUGE: usize = 2 << 20;

/// Own anonymous memory.
pub(crate) struct Shadow {
    base: *mut libc::c_void,
    len: usize,
    /// To be added to a guarded address (wrapping).
    pub delta: usize,
}

// SAFETY: an address range of the process, owned by this value.
unsafe impl Send for Shadow {}
// SAFETY: shared references only read the two numbers and the address.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// For the pages that `span` touches.
    pub fn of(span: &Range<usize>) -> Result<Shadow, Refusal> {
        let first = span.start / PAGE * PAGE;
        let bytes = span.end.next_multiple_of(PAGE) - first;
        let len = bytes + HUGE;
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Refusal::last("mapping memory for data under way"));
        }
        let start = base as usize;
        let shift = first.wrapping_sub(start) % HUGE;
        Ok(Shadow {
            base,
            len,
            delta: (start + shift).wrapping_sub(first),
        })
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nobody uses it any more.
        unsafe { libc::munmap(self.base, self.len) };
    }
}
