//! Mapping the shared memory into this process.

use super::ModelSegmentError;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{io, ptr};

/// The shared memory in this process, until it is dropped.
pub(super) struct Mapping {
    pub(super) fd: OwnedFd,
    /// Where it begins.
    pub(super) at: *mut u8,
    /// Bytes of the whole.
    pub(super) len: usize,
    /// Ranks of the job.
    pub(super) ranks: u32,
    /// Bytes that each rank's card maps.
    pub(super) mapped_bytes: usize,
    /// Bytes of the machine's description.
    pub(super) machine_bytes: usize,
}

// SAFETY: the mapping is shared memory that is only touched through atomics, or by the side that
// has the turn.
unsafe impl Send for Mapping {}
// SAFETY: what several threads reach at once are atomics; the rest belongs to the side that has the
// turn.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrowed from it outlives the Arc (Client leaks its
        // clone).
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Maps `len` bytes of the memory behind `fd`.
pub(super) fn map(
    fd: OwnedFd,
    len: usize,
    ranks: u32,
    mapped_bytes: usize,
    machine_bytes: usize,
) -> Result<Mapping, ModelSegmentError> {
    // SAFETY: a new shared mapping, placed by the kernel, of bytes that the file has: its length
    // was set or looked at, and is sealed.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(ModelSegmentError::Refused(
            "mapping it",
            io::Error::last_os_error(),
        ));
    }
    Ok(Mapping {
        fd,
        at: at.cast(),
        len,
        ranks,
        mapped_bytes,
        machine_bytes,
    })
}
