//! What the device counts, for tools (MPI 5.0 §15.3.7).
//!
//! Only who has the device counts, so that counting is a plain addition and not an atomic one.
//! Anybody may read at any time, before the device is started and from any thread.

use crate::device::Device;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A number that who has the device changes and everybody reads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Zero.
    pub const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// How many.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// One more. The device is there to show that the caller has it.
    #[inline]
    pub fn increment(&self, _device: &Device) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.value().wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(crate) fn less(&self, n: u64) {
        self.0.store(self.value().wrapping_sub(n), Relaxed);
    }
}

/// Messages, and the bytes in them.
#[derive(Debug)]
pub struct Traffic {
    /// Messages of the floor above: however many pieces they go in.
    pub messages: Count,
    /// Their bytes, without heads.
    pub bytes: Count,
}

impl Traffic {
    const fn new() -> Traffic {
        Traffic {
            messages: Count::new(),
            bytes: Count::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        self.messages.add(1);
        self.bytes.add(bytes);
    }
}

/// By which wires messages can go.
pub use ferry_transport::TRANSPORT_NAMES;

/// All counts of this process.
#[derive(Debug)]
pub struct Counters {
    /// Messages sent (when they are started), by wire.
    pub sent: [Traffic; TRANSPORT_NAMES.len()],
    /// Messages that have arrived, or of which an announcement has, by wire.
    pub received: [Traffic; TRANSPORT_NAMES.len()],
    /// Messages sent that were announced first.
    pub sent_announced: Count,
    /// Messages received that were announced first.
    pub received_announced: Count,
    /// Messages whose bytes this process read from the sender's memory.
    pub single_copy: Traffic,
    /// Messages that came before their receive.
    pub unexpected: Count,
    /// Messages that wait for their receive now.
    pub unexpected_queue_len: Count,
    /// Bytes of those that wait here and not at their sender, now.
    pub unexpected_queue_bytes: Count,
    /// Nanoseconds spent in calls that wait, from the time on at which there was nothing to do.
    pub idle_ns: Count,
    /// How often a thread has gone to sleep in such a call.
    pub sleeps: Count,
    /// How often one has handed its core over instead.
    pub yields: Count,
    marks: Mutex<Vec<Arc<AtomicU64>>>,
    marked: AtomicU64,
}

/// What has been counted in this process.
pub static COUNTERS: Counters = Counters {
    sent: [const { Traffic::new() }; TRANSPORT_NAMES.len()],
    received: [const { Traffic::new() }; TRANSPORT_NAMES.len()],
    sent_announced: Count::new(),
    received_announced: Count::new(),
    single_copy: Traffic::new(),
    unexpected: Count::new(),
    unexpected_queue_len: Count::new(),
    unexpected_queue_bytes: Count::new(),
    idle_ns: Count::new(),
    sleeps: Count::new(),
    yields: Count::new(),
    marks: Mutex::new(Vec::new()),
    marked: AtomicU64::new(0),
};

impl Counters {
    /// A message has to wait for its receive; `held` of its bytes wait here.
    pub(crate) fn queue_unexpected(&self, held: u64) {
        self.unexpected.add(1);
        self.unexpected_queue_len.add(1);
        self.unexpected_queue_bytes.add(held);
        if self.marked.load(Relaxed) != 0 {
            self.raise();
        }
    }

    #[cold]
    fn raise(&self) {
        let now = self.unexpected_queue_len.value();
        for mark in self
            .marks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            mark.fetch_max(now, Relaxed);
        }
    }

    /// A message has found its receive.
    pub(crate) fn dequeue_unexpected(&self, held: u64) {
        self.unexpected_queue_len.less(1);
        self.unexpected_queue_bytes.less(held);
    }

    /// From now on `mark` keeps the largest value that [`Counters::unexpected_queue_len`] has had.
    pub fn track_peak(&self, mark: &Arc<AtomicU64>) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        mark.fetch_max(self.unexpected_queue_len.value(), Relaxed);
        marks.push(mark.clone());
        self.marked.store(marks.len() as u64, Relaxed);
    }

    /// No longer.
    pub fn untrack_peak(&self, mark: &Arc<AtomicU64>) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|m| !Arc::ptr_eq(m, mark));
        self.marked.store(marks.len() as u64, Relaxed);
    }
}
