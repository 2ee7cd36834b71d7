//! The shadow: memory in which a guard's data land. It is as large as what is guarded, with the
//! same offset in pages and huge pages.

use crate::{GuardError, PAGE_BYTES};
use std::ops::Range;

/// Bytes of a huge page. The shadow has the program's offset in it, so that huge pages can move
/// whole.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Anonymous memory of the library.
pub(crate) struct Shadow {
    base: *mut libc::c_void,
    len: usize,
    /// Difference between a guarded address and its address in the shadow (wrapping).
    pub delta: usize,
}

// SAFETY: an address range of the process, owned by this value.
unsafe impl Send for Shadow {}
// SAFETY: shared references only read the two numbers and the address.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// Maps a shadow of the pages that `span` touches.
    pub fn of(span: &Range<usize>) -> Result<Shadow, GuardError> {
        let first = span.start / PAGE_BYTES * PAGE_BYTES;
        let bytes = span.end.next_multiple_of(PAGE_BYTES) - first;
        let len = bytes + HUGE_PAGE_BYTES;
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(GuardError::last_os_error(
                "mapping memory for data under way",
            ));
        }
        let start = base as usize;
        let move_pages = first.wrapping_sub(start) % HUGE_PAGE_BYTES;
        Ok(Shadow {
            base,
            len,
            delta: (start + move_pages).wrapping_sub(first),
        })
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nobody uses it any more.
        unsafe { libc::munmap(self.base, self.len) };
    }
}
