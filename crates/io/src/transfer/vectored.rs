//! One run of the file and many of memory, without a copy in between.

use super::file::uninterrupted;
use crate::error::{Error, Result};
use crate::store::StoredFile;
use std::io::{self, IoSlice, IoSliceMut};

/// Bytes of all buffers.
fn total<'a>(lens: impl Iterator<Item = &'a [u8]>) -> u64 {
    lens.map(|buf| buf.len() as u64).sum()
}

/// Reads neighbouring bytes of the file into the buffers, until all are full or the file ends.
/// Returns the number of bytes. The buffers are used up. Blocks until the bytes are there.
///
/// # Errors
/// What the system says, with the place where the call that failed began.
pub fn read_vectored_or_end(
    file: &dyn StoredFile,
    mut bufs: &mut [IoSliceMut<'_>],
    offset: u64,
) -> Result<usize> {
    let mut done = 0;
    loop {
        // Empty buffers in front would look like the end of the file.
        IoSliceMut::advance_slices(&mut bufs, 0);
        if bufs.is_empty() {
            return Ok(done);
        }
        let at = offset.saturating_add(done as u64);
        match uninterrupted(|| file.read_vectored_at(bufs, at)) {
            Ok(0) => return Ok(done),
            Ok(n) => {
                done += n;
                IoSliceMut::advance_slices(&mut bufs, n);
            }
            Err(error) => {
                let rest = total(bufs.iter().map(|buf| &**buf));
                return Err(Error::at("preadv", file.path(), at, rest, error));
            }
        }
    }
}

/// Writes the buffers to neighbouring bytes of the file. They are used up. Blocks until the system
/// has all bytes.
///
/// # Errors
/// What the system says, with the place where the call that failed began. What was written before
/// stands.
pub fn write_all_vectored(
    file: &dyn StoredFile,
    mut bufs: &mut [IoSlice<'_>],
    offset: u64,
) -> Result<()> {
    let mut at = offset;
    loop {
        IoSlice::advance_slices(&mut bufs, 0);
        if bufs.is_empty() {
            return Ok(());
        }
        let written = match uninterrupted(|| file.write_vectored_at(bufs, at)) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        match written {
            Ok(n) => {
                at = at.saturating_add(n as u64);
                IoSlice::advance_slices(&mut bufs, n);
            }
            Err(error) => {
                let rest = total(bufs.iter().map(|buf| &**buf));
                return Err(Error::at("pwritev", file.path(), at, rest, error));
            }
        }
    }
}
