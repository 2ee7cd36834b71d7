//! The cost model that chooses how data in many runs are accessed: one call for each run, data
//! sieving, or collective transfer in two phases.
//!
//! - One by one: a call for each run, and the data.
//! - Sieving: calls for each window, all bytes of the span (twice for writing), a copy of the data.
//! - Two phases: an exchange of the data, then large calls.

use crate::store::FileSystem;

/// What a file system costs, nanoseconds. The figures need only the right order of size: they
/// decide at which ratio of data to holes one way overtakes the other.
///
/// The sources of [`TMPFS`] and [`LOCAL`] are calls of one and of two processes on pages in memory,
/// of 64 bytes to 4 MiB: Linux 6.18, ext4 with a journal, x86-64 at about 3 GHz. [`REMOTE`] is an
/// estimate: a lock there is two messages to a server, and its cache is checked anew.
#[derive(Debug)]
pub(crate) struct Cost {
    /// A call that reads, without the bytes.
    pub read_call_ns: f64,
    /// A call that writes, without the bytes.
    pub write_call_ns: f64,
    /// Taking a lock and giving it back.
    pub lock_ns: f64,
    /// A byte between the file's pages and memory.
    pub byte_ns: f64,
}

/// Pages of the file are memory, and nothing else.
const TMPFS: Cost = Cost {
    read_call_ns: 600.0,
    write_call_ns: 900.0,
    lock_ns: 600.0,
    byte_ns: 0.1,
};
/// Pages of the file are cached. A write enters the file system's journal.
const LOCAL: Cost = Cost {
    read_call_ns: 800.0,
    write_call_ns: 5_000.0,
    lock_ns: 600.0,
    byte_ns: 0.07,
};
/// A file on another host, or behind a server.
const REMOTE: Cost = Cost {
    read_call_ns: 5_000.0,
    write_call_ns: 10_000.0,
    lock_ns: 500_000.0,
    byte_ns: 0.5,
};
/// Copying a byte of the data between window and buffer.
const COPY_BYTE_NS: f64 = 0.1;
/// Copying a run, without its bytes.
const COPY_RUN_NS: f64 = 3.0;
/// Bringing a byte from one rank to another, on another node or on the same core.
const EXCHANGE_BYTE_NS: f64 = 0.3;
/// The same on another core of the node, beside the copy that [`COPY_BYTE_NS`] is: the data go
/// straight to where they belong.
const CORES_EXCHANGE_BYTE_NS: f64 = 0.05;
/// A message of an exchange, without its bytes.
const EXCHANGE_MESSAGE_NS: f64 = 2_000.0;

/// An access to many runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    /// Data bytes.
    pub len: f64,
    /// Runs that hold them.
    pub runs: f64,
    /// Bytes from the first to the last.
    pub span: f64,
}

impl Cost {
    /// The cost of a file system.
    pub fn of(file_system: FileSystem) -> &'static Cost {
        match file_system {
            FileSystem::Tmpfs => &TMPFS,
            FileSystem::Local => &LOCAL,
            _ => &REMOTE,
        }
    }

    /// Reading one by one, ns.
    pub fn read_runs(&self, access: Strided) -> f64 {
        access.runs * self.read_call_ns + access.len * self.byte_ns
    }

    /// Writing one by one, under so many locks, ns.
    pub fn write_runs(&self, access: Strided, locks: f64) -> f64 {
        access.runs * self.write_call_ns + locks * self.lock_ns + access.len * self.byte_ns
    }

    fn copy(access: Strided) -> f64 {
        access.len * COPY_BYTE_NS + access.runs * COPY_RUN_NS
    }

    /// Reading by data sieving in windows, ns.
    pub fn sieve_read(&self, access: Strided, windows: f64) -> f64 {
        windows * self.read_call_ns + access.span * self.byte_ns + Cost::copy(access)
    }

    /// Writing by data sieving in windows, each under a lock, ns.
    pub fn sieve_write(&self, access: Strided, windows: f64) -> f64 {
        let calls = self.read_call_ns + self.write_call_ns + self.lock_ns;
        windows * calls + 2.0 * access.span * self.byte_ns + Cost::copy(access)
    }

    /// A rank's part of a collective transfer in two phases, ns: it exchanges its data by
    /// `messages`, and somebody transfers them with others' in large calls. `own_cores`: all ranks
    /// are on one node, and each has a core.
    pub fn two_phase(&self, access: Strided, messages: f64, own_cores: bool) -> f64 {
        let byte_ns = match own_cores {
            true => CORES_EXCHANGE_BYTE_NS,
            false => EXCHANGE_BYTE_NS,
        };
        let exchange = access.len * byte_ns + messages * EXCHANGE_MESSAGE_NS;
        exchange + access.len * self.byte_ns + Cost::copy(access)
    }
}
