//! The state that the program's threads and the progress thread share.

use crate::progress::thread_flags::ThreadFlags;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the thread polls after progress or an offer of messages, if it has a core for that. Two
/// offers within this time count as a sequence. A choice.
pub(crate) const POLL_TIME: Duration = Duration::from_millis(1);
/// Minimum and maximum of the time for which the thread does not poll after it has lost its core.
/// Doubled each time that it loses the core again soon after. A choice.
pub(crate) const POLL_PAUSE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];
/// The part of [`ThreadState`] that is read without the device. There is one device.
pub(crate) static THREAD_FLAGS: ThreadFlags = ThreadFlags {
    waiting: AtomicU32::new(0),
    progress_requested: AtomicBool::new(false),
};

/// How often the program has left MPI with messages pending that are worth waking the thread.
/// Wraps.
pub(crate) static MESSAGE_OFFERS: AtomicU32 = AtomicU32::new(0);

/// How often the program has left MPI with messages pending that are worth waking the thread.
/// Wraps.
pub(crate) fn message_offers() -> u32 {
    MESSAGE_OFFERS.load(Ordering::Relaxed)
}

/// The state of the progress thread. Part of the device, so under its lock.
pub(crate) struct ThreadState {
    /// The thread runs.
    pub running: bool,
    /// It is to end.
    pub stopping: bool,
    /// It has the device, or had it last.
    pub has_device: bool,
    /// The wakeup word is armed for it.
    pub armed: bool,
    /// It sleeps until it is woken, not only until its next look.
    pub asleep: bool,
    /// It was woken in vain: it looks at short intervals, and the wakeup word is not armed for it.
    pub backs_off: bool,
    /// It watches the transports' sockets.
    pub watches_sockets: bool,
    /// It polls when it has nothing to do: waking it needs no system call.
    pub polls: bool,
    /// Background work was left to it since it, or a waiting thread, last had the device.
    pub work_offered: bool,
    /// Messages that are worth waking it were started since the program last entered MPI, or
    /// waited.
    pub messages_offered: bool,
    /// When messages were last offered while the thread did not poll.
    pub last_offer: Option<Instant>,
    /// When it was last woken for that.
    pub last_woken: Option<Instant>,
    /// Minimum time until it is woken for that again.
    pub wake_interval: Duration,
    /// It has done a part of some background work.
    pub background_advanced: bool,
    /// Threads of the program that sleep in MPI and rely on this thread's progress.
    pub relying_waiters: u32,
    /// It cannot go on for them: a function of the program is to be called.
    pub needs_user_function: bool,
    /// The core on which it last worked.
    pub core: Option<u32>,
    /// How often the program has taken the device.
    pub program_entries: u64,
    /// Ranks on this node.
    pub node_ranks: u32,
}

impl ThreadState {
    /// Is copying large messages left to the thread? It is while no thread of the program waits in
    /// MPI.
    #[inline]
    pub fn does_copies(&self) -> bool {
        self.running && !self.has_device && !THREAD_FLAGS.waits()
    }
}
