//! The cost model that chooses between data sieving and one call for each run.
//!
//! One by one: a call for each run, and the data. Sieving: calls for each window, all bytes of the
//! span (twice for writing), and a copy of the data.

use super::{Access, Choice};
use crate::View;
use crate::store::StoredFile;
use std::ops::Range;

/// What a file system costs, nanoseconds. The figures need only the right order: they decide at
/// which ratio of data to holes one way overtakes the other.
struct Cost {
    /// A call that transfers bytes, without them.
    call_ns: f64,
    /// Taking a lock and giving it back.
    lock_ns: f64,
    /// A byte between the file's pages and memory.
    byte_ns: f64,
}

/// A file whose pages are in this host's memory. A call is one of the system, a lock two.
const LOCAL: Cost = Cost {
    call_ns: 500.0,
    lock_ns: 1_500.0,
    byte_ns: 0.15,
};
/// A file on another host, or behind a server: pages are cached here, locks are messages.
const REMOTE: Cost = Cost {
    call_ns: 5_000.0,
    lock_ns: 500_000.0,
    byte_ns: 0.5,
};
/// Copying a byte of the data between window and buffer.
const COPY_BYTE_NS: f64 = 0.1;
/// Copying a run, without its bytes.
const COPY_RUN_NS: f64 = 3.0;

impl Cost {
    fn of(file: &dyn StoredFile) -> &'static Cost {
        match file.file_system().is_remote() {
            true => &REMOTE,
            false => &LOCAL,
        }
    }

    fn one_by_one(&self, runs: f64, len: f64) -> f64 {
        runs * self.call_ns + len * self.byte_ns
    }

    fn sieve_read(&self, span: f64, runs: f64, len: f64, windows: f64) -> f64 {
        let copy = len * COPY_BYTE_NS + runs * COPY_RUN_NS;
        windows * self.call_ns + span * self.byte_ns + copy
    }

    fn sieve_write(&self, span: f64, runs: f64, len: f64, windows: f64) -> f64 {
        let copy = len * COPY_BYTE_NS + runs * COPY_RUN_NS;
        windows * (2.0 * self.call_ns + self.lock_ns) + 2.0 * span * self.byte_ns + copy
    }
}

fn windows(span: &Range<u64>, buffer_bytes: usize) -> f64 {
    (span.end - span.start).div_ceil(buffer_bytes.max(1) as u64) as f64
}

/// Returns whether reading `len` bytes of a view that lie in `span` is cheaper by data sieving.
pub(super) fn sieve_read(
    file: &dyn StoredFile,
    view: &View,
    span: &Range<u64>,
    len: u64,
    access: &Access,
) -> bool {
    let runs = view.run_count(len) as f64;
    match access.sieve_reads {
        Choice::Never => false,
        Choice::Always => true,
        Choice::Automatic => {
            let (cost, bytes) = (Cost::of(file), (span.end - span.start) as f64);
            let windows = windows(span, access.read_buffer_bytes);
            let sieve = cost.sieve_read(bytes, runs, len as f64, windows);
            sieve < cost.one_by_one(runs, len as f64)
        }
    }
}

/// Returns whether writing `len` bytes of a view that lie in `span` is cheaper by data sieving. It
/// is impossible for a file that cannot be read.
pub(super) fn sieve_write(
    file: &dyn StoredFile,
    view: &View,
    span: &Range<u64>,
    len: u64,
    access: &Access,
) -> bool {
    let runs = view.run_count(len) as f64;
    match access.sieve_writes {
        _ if !file.can_read() => false,
        Choice::Never => false,
        Choice::Always => true,
        Choice::Automatic => {
            let (cost, bytes) = (Cost::of(file), (span.end - span.start) as f64);
            let windows = windows(span, access.write_buffer_bytes);
            let sieve = cost.sieve_write(bytes, runs, len as f64, windows);
            let locks = match access.lock_writes && !access.atomic {
                true => runs * cost.lock_ns,
                false => 0.0,
            };
            sieve < cost.one_by_one(runs, len as f64) + locks
        }
    }
}
