//! The buffers of messages: where a send reads and a receive writes.

use ferry_transport::short_copy;

/// A buffer of several memory runs, described by a derived datatype of the crates above.
///
/// Offsets and lengths count *packed* bytes, as they are sent.
pub trait Layout: Send {
    /// Copies packed bytes `offset..offset + out.len()` of the buffer into `out`.
    ///
    /// # Safety
    /// The user's buffer must be readable and stay so.
    unsafe fn pack(&self, offset: u64, out: &mut [u8]);

    /// Stores `data` as packed bytes `offset..offset + data.len()` of the buffer.
    ///
    /// # Safety
    /// The user's buffer must be writable and stay so.
    unsafe fn unpack(&self, offset: u64, data: &[u8]);

    /// Pushes the memory runs (address, bytes) that hold packed bytes from `offset` on. Stops when
    /// `runs` has no spare capacity or the buffer ends. Returns the packed bytes in these runs.
    fn runs(&self, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64;
}

/// The buffer of a send. Its memory must stay valid and unchanged until the send completes.
pub enum Source {
    /// One run of bytes.
    Bytes {
        /// First byte (may be null if `len` is 0).
        ptr: *const u8,
        /// Bytes.
        len: usize,
    },
    /// A scattered buffer of `len` packed bytes.
    Layout {
        /// The buffer.
        view: Box<dyn Layout>,
        /// Packed bytes.
        len: usize,
    },
    /// Bytes that the device owns: a buffered send, a control message.
    Owned(Box<[u8]>),
}

/// The buffer of a receive. Its memory must stay valid until the receive completes.
pub enum Sink {
    /// One run of bytes.
    Bytes {
        /// First byte (may be null if `cap` is 0).
        ptr: *mut u8,
        /// Bytes that fit.
        cap: usize,
    },
    /// A scattered buffer with room for `cap` packed bytes.
    Layout {
        /// The buffer.
        view: Box<dyn Layout>,
        /// Packed bytes that fit.
        cap: usize,
    },
}

// SAFETY: the pointers are the user's buffers, handed to MPI for the duration of the operation; the
// device touches them only under its lock.
unsafe impl Send for Source {}
// SAFETY: as for `Source`.
unsafe impl Send for Sink {}

impl Source {
    /// Packed bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Source::Bytes { len, .. } | Source::Layout { len, .. } => *len,
            Source::Owned(b) => b.len(),
        }
    }

    /// Is there nothing to send?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies packed bytes from `offset` on into `out`.
    ///
    /// # Safety
    /// The memory behind the source must be readable.
    #[inline]
    pub unsafe fn read(&self, offset: usize, out: &mut [u8]) {
        match self {
            Source::Bytes { ptr, len } => {
                debug_assert!(offset + out.len() <= *len);
                // SAFETY: the caller's promise. The caller keeps the range within len().
                unsafe {
                    std::ptr::copy_nonoverlapping(ptr.add(offset), out.as_mut_ptr(), out.len())
                }
            }
            // SAFETY: the caller's promise.
            Source::Layout { view, .. } => unsafe { view.pack(offset as u64, out) },
            Source::Owned(b) => out.copy_from_slice(&b[offset..offset + out.len()]),
        }
    }
}

impl Sink {
    /// Packed bytes that fit.
    #[inline]
    pub fn capacity(&self) -> usize {
        match self {
            Sink::Bytes { cap, .. } | Sink::Layout { cap, .. } => *cap,
        }
    }

    /// Stores `data` at packed offset `offset`. Bytes that do not fit are dropped, and the caller
    /// reports truncation.
    ///
    /// # Safety
    /// The memory behind the sink must be writable.
    #[inline]
    pub unsafe fn write(&mut self, offset: usize, data: &[u8]) {
        let room = self.capacity().saturating_sub(offset);
        let data = &data[..data.len().min(room)];
        if data.is_empty() {
            return;
        }
        match self {
            // SAFETY: the caller's promise; the range lies within the capacity.
            Sink::Bytes { ptr, .. } => unsafe {
                short_copy(data.as_ptr(), ptr.add(offset), data.len());
            },
            // SAFETY: the caller's promise.
            Sink::Layout { view, .. } => unsafe { view.unpack(offset as u64, data) },
        }
    }
}
