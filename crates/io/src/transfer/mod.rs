//! Independent access: a process reads or writes the data of its view.
//!
//! Data in one run go by one call. Data in many runs go one by one, or by data sieving: a window of
//! the file is read as a whole, and the data are picked out; or they are put in, and the window is
//! written as a whole. A cost model chooses.
//!
//! Data sieving is Thakur, Gropp and Lusk, "Data sieving and collective I/O in ROMIO", 1999, §4.

mod file;
mod sieve;
mod vectored;

pub use file::{
    allocate, len, lock, lock_write, read_exact_or_end, refresh, set_len, sync, write_all,
};
pub use vectored::{read_vectored_or_end, write_all_vectored};

use crate::cost::{Cost, Strided};
use crate::error::Result;
use crate::store::{RangeLock, StoredFile};
use crate::view::View;
use std::ops::Range;

/// Bytes of the file that one lock of writes reaches over, at least. A lock on a server is two
/// messages, however small the windows are.
const LOCK_REACH_BYTES: u64 = 512 << 10;

/// How far a lock of writes reaches that go by windows of so many bytes.
fn lock_reach(window_bytes: u64) -> u64 {
    window_bytes.max(LOCK_REACH_BYTES)
}

/// Whether data sieving is used (hints `romio_ds_read`, `romio_ds_write`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Choice {
    /// Where it is cheaper.
    #[default]
    Automatic,
    /// Wherever it is possible.
    Always,
    /// Never.
    Never,
}

/// How a process accesses a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Data sieving for reading.
    pub sieve_reads: Choice,
    /// Data sieving for writing. It reads, changes and writes what lies between the data, under an
    /// exclusive lock.
    pub sieve_writes: Choice,
    /// Bytes of the window of a sieving read (hint `ind_rd_buffer_size`).
    pub read_buffer_bytes: usize,
    /// Bytes of the window of a sieving write (hint `ind_wr_buffer_size`).
    pub write_buffer_bytes: usize,
    /// Each access is one indivisible one (MPI_File_set_atomicity): it is done under one lock.
    pub atomic: bool,
    /// The caller holds a lock of all that is accessed: none is taken.
    pub locked: bool,
    /// Other processes may write by data sieving. Each write then takes a lock, too: a lock binds
    /// only those who take it, and a sieving write in between would bring old bytes back.
    pub lock_writes: bool,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            sieve_reads: Choice::Automatic,
            sieve_writes: Choice::Automatic,
            read_buffer_bytes: 512 << 10,
            write_buffer_bytes: 512 << 10,
            atomic: false,
            locked: false,
            lock_writes: false,
        }
    }
}

impl Access {
    /// The lock of the whole access, if it takes one.
    fn lock_all<'a>(
        &self,
        file: &'a dyn StoredFile,
        span: &Range<u64>,
        exclusive: bool,
    ) -> Result<Option<RangeLock<'a>>> {
        let takes_one = self.atomic && !self.locked;
        takes_one
            .then(|| lock(file, span.clone(), exclusive))
            .transpose()
    }

    /// Do writes take locks, one for the runs in a window?
    fn locks_each(&self) -> bool {
        self.lock_writes && !self.is_under_lock()
    }

    /// Is there a lock of the whole access?
    fn is_under_lock(&self) -> bool {
        self.atomic || self.locked
    }
}

/// Reads `buf.len()` data bytes of the view from `position` on. Returns how many lie before the end
/// of the file. Blocks until they are there, and for locks in atomic mode.
///
/// # Errors
/// What the system says. Part of `buf` may have been filled.
pub fn read(
    file: &dyn StoredFile,
    view: &View,
    position: u64,
    buf: &mut [u8],
    access: &Access,
) -> Result<usize> {
    let len = buf.len() as u64;
    if len == 0 || view.is_empty() {
        return Ok(0);
    }
    let span = view.span(position, len);
    let _lock = access.lock_all(file, &span, false)?;
    if span.end - span.start == len && view.is_rising() {
        return read_exact_or_end(file, buf, span.start);
    }
    if view.is_rising() && sieves_read(file, view, &span, len, access) {
        return sieve::read(file, view, position, buf, access.read_buffer_bytes);
    }
    let mut done = 0;
    for run in view.runs(position, len) {
        let part = &mut buf[done..done + run.len as usize];
        let n = read_exact_or_end(file, part, run.offset)?;
        done += n;
        if (n as u64) < run.len {
            break;
        }
    }
    Ok(done)
}

/// Writes `buf` to the data bytes of the view from `position` on. Returns how many were written:
/// all, or none for a view without data. Blocks until the system has them, and for locks.
///
/// # Errors
/// What the system says. What was written before stands.
pub fn write(
    file: &dyn StoredFile,
    view: &View,
    position: u64,
    buf: &[u8],
    access: &Access,
) -> Result<usize> {
    let len = buf.len() as u64;
    if len == 0 || view.is_empty() {
        return Ok(0);
    }
    let span = view.span(position, len);
    let _lock = access.lock_all(file, &span, true)?;
    let lock_each = access.locks_each();
    if span.end - span.start == len && view.is_rising() {
        let _lock = lock_if(lock_each, file, span.start, len)?;
        write_all(file, buf, span.start)?;
        return Ok(buf.len());
    }
    if view.is_rising() && sieves_write(file, view, &span, len, access) {
        let window = access.write_buffer_bytes;
        match sieve::write(file, view, position, buf, window, !access.is_under_lock()) {
            Err(error) if access.sieve_writes == Choice::Automatic && error.is_no_lock() => {}
            other => return other.map(|()| buf.len()),
        }
    }
    // A lock covers several runs if it is long enough.
    let reach = match view.is_rising() {
        true => lock_reach(access.write_buffer_bytes as u64),
        false => 0,
    };
    let (mut done, mut lock, mut locked_to) = (0, None, 0);
    for run in view.runs(position, len) {
        let part = &buf[done..done + run.len as usize];
        let end = run.offset + run.len;
        if lock_each && (lock.is_none() || reach == 0 || end > locked_to) {
            drop(lock.take());
            locked_to = end.max(span.end.min(run.offset.saturating_add(reach)));
            lock = lock_write(file, run.offset..locked_to)?;
        }
        write_all(file, part, run.offset)?;
        done += part.len();
    }
    Ok(done)
}

/// Returns whether [`write()`] of `len` data bytes from `position` on would sieve.
pub fn write_sieves(
    file: &dyn StoredFile,
    view: &View,
    position: u64,
    len: u64,
    access: &Access,
) -> bool {
    if len == 0 || view.is_empty() || !view.is_rising() {
        return false;
    }
    let span = view.span(position, len);
    span.end - span.start != len && sieves_write(file, view, &span, len, access)
}

/// Locks a write if others may sieve.
fn lock_if(
    wanted: bool,
    file: &dyn StoredFile,
    offset: u64,
    len: u64,
) -> Result<Option<RangeLock<'_>>> {
    match wanted {
        true => lock_write(file, offset..offset.saturating_add(len)),
        false => Ok(None),
    }
}

/// What the cost model asks of an access, and the windows of data sieving.
fn strided(view: &View, span: &Range<u64>, len: u64, buffer_bytes: usize) -> (Strided, f64) {
    let bytes = span.end - span.start;
    let access = Strided {
        len: len as f64,
        runs: view.run_count(len) as f64,
        span: bytes as f64,
    };
    (access, bytes.div_ceil(buffer_bytes.max(1) as u64) as f64)
}

/// Returns whether data in `span` are read by data sieving.
fn sieves_read(
    file: &dyn StoredFile,
    view: &View,
    span: &Range<u64>,
    len: u64,
    access: &Access,
) -> bool {
    match access.sieve_reads {
        Choice::Never => false,
        Choice::Always => true,
        Choice::Automatic => {
            let cost = Cost::of(file.file_system());
            let (data, windows) = strided(view, span, len, access.read_buffer_bytes);
            cost.sieve_read(data, windows) < cost.read_runs(data)
        }
    }
}

/// Returns whether data in `span` are written by data sieving. A file that cannot be read has none.
fn sieves_write(
    file: &dyn StoredFile,
    view: &View,
    span: &Range<u64>,
    len: u64,
    access: &Access,
) -> bool {
    match access.sieve_writes {
        _ if !file.can_read() => false,
        Choice::Never => false,
        Choice::Always => true,
        Choice::Automatic => {
            let cost = Cost::of(file.file_system());
            let (data, windows) = strided(view, span, len, access.write_buffer_bytes);
            let locks = match access.locks_each() {
                true => windows.min(data.runs),
                false => 0.0,
            };
            cost.sieve_write(data, windows) < cost.write_runs(data, locks)
        }
    }
}
