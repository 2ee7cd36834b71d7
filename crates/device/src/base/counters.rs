//! What the device counts, for tools (MPI 5.0 §15.3.7).
//!
//! Only the thread that has the device counts, so counting is a plain addition and not an atomic
//! one. Any thread may read at any time, even before the device is started.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Shows that the caller has the device: [`Device`](crate::Device) and its guard.
pub trait HasDevice {}

/// A counter. The thread that has the device changes it; any thread reads it.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Zero.
    pub const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds one. The caller has the device.
    #[inline]
    pub fn increment(&self, _device: &impl HasDevice) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.value().wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(crate) fn subtract(&self, n: u64) {
        self.0.store(self.value().wrapping_sub(n), Relaxed);
    }
}

/// Messages, and the bytes in them.
#[derive(Debug)]
pub struct Traffic {
    /// Messages of the layer above, however many parts they are sent in.
    pub messages: Count,
    /// Their bytes, without headers.
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

/// The names of the transports, in the order of [`Counters::sent`].
pub use ferry_transport::TRANSPORT_NAMES;

/// All counters of this process.
#[derive(Debug)]
pub struct Counters {
    /// Messages sent, by transport. Counted when the send starts.
    pub sent: [Traffic; TRANSPORT_NAMES.len()],
    /// Messages received, by transport. Counted when the message or its RTS arrives.
    pub received: [Traffic; TRANSPORT_NAMES.len()],
    /// Messages sent by rendezvous.
    pub sent_announced: Count,
    /// Messages received by rendezvous.
    pub received_announced: Count,
    /// Messages received by single copy.
    pub single_copy: Traffic,
    /// Messages that have arrived before their receive.
    pub unexpected: Count,
    /// Messages in the unexpected queues now.
    pub unexpected_queue_len: Count,
    /// Bytes of these messages that are buffered in this process now.
    pub unexpected_queue_bytes: Count,
    /// Nanoseconds that waiting calls have spent with nothing to do.
    pub idle_ns: Count,
    /// How often a waiting call has gone to sleep.
    pub sleeps: Count,
    /// How often a call has yielded its core.
    pub yields: Count,
    peaks: Mutex<Vec<Arc<AtomicU64>>>,
    tracked: AtomicU64,
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
    peaks: Mutex::new(Vec::new()),
    tracked: AtomicU64::new(0),
};

impl Counters {
    /// An unexpected message is queued; `buffered` of its bytes are in this process.
    pub(crate) fn queue_unexpected(&self, buffered: u64) {
        self.unexpected.add(1);
        self.unexpected_queue_len.add(1);
        self.unexpected_queue_bytes.add(buffered);
        if self.tracked.load(Relaxed) != 0 {
            self.update_peaks();
        }
    }

    #[cold]
    fn update_peaks(&self) {
        let now = self.unexpected_queue_len.value();
        for peak in self
            .peaks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            peak.fetch_max(now, Relaxed);
        }
    }

    /// An unexpected message has matched.
    pub(crate) fn dequeue_unexpected(&self, buffered: u64) {
        self.unexpected_queue_len.subtract(1);
        self.unexpected_queue_bytes.subtract(buffered);
    }

    /// From now on `peak` holds the largest value of [`Counters::unexpected_queue_len`].
    pub fn track_peak(&self, peak: &Arc<AtomicU64>) {
        let mut peaks = self.peaks.lock().unwrap_or_else(PoisonError::into_inner);
        peak.fetch_max(self.unexpected_queue_len.value(), Relaxed);
        peaks.push(peak.clone());
        self.tracked.store(peaks.len() as u64, Relaxed);
    }

    /// Ends [`Counters::track_peak`].
    pub fn untrack_peak(&self, peak: &Arc<AtomicU64>) {
        let mut peaks = self.peaks.lock().unwrap_or_else(PoisonError::into_inner);
        peaks.retain(|m| !Arc::ptr_eq(m, peak));
        self.tracked.store(peaks.len() as u64, Relaxed);
    }
}
