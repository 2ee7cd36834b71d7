//! Handing work to the progress thread and taking it back, when the program enters and leaves MPI.

use crate::progress::device::Device;
use crate::progress::thread_state::{
    MESSAGE_OFFERS, POLL_PAUSE, POLL_TIME, THREAD_FLAGS, ThreadState, message_offers,
};
use ferry_transport::Sleeper;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Minimum time between two wakeups of the thread for polling, if it did poll. A choice.
const WAKE_INTERVAL_POLLED: Duration = Duration::from_millis(10);
/// Minimum time between two such wakeups, if it did not poll: other ranks may not have published
/// yet where they compute. Doubled each time, up to the maximum of [`POLL_PAUSE`]. A choice.
const WAKE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Minimum of bytes for which work and messages are left to a thread that polls. A choice: the
/// handover costs less than a microsecond.
const OFFER_POLLING_MIN_BYTES: usize = 16 * 1024;
/// Minimum of bytes for which work and messages are left to a thread that sleeps. A choice: waking
/// it costs as much as copying some 100 KiB.
const OFFER_SLEEPING_MIN_BYTES: usize = 256 * 1024;

impl Device {
    /// There will be a progress thread, on a node with `node_ranks` ranks.
    pub(crate) fn add_progress_thread(&mut self, node_ranks: u32) {
        self.worker.threads.progress = true;
        self.worker.transports.set_coalescing(false);
        self.progress_thread = Some(Box::new(ThreadState {
            running: false,
            stopping: false,
            has_device: false,
            armed: false,
            asleep: false,
            backs_off: false,
            watches_sockets: false,
            polls: false,
            work_offered: false,
            messages_offered: false,
            last_offer: None,
            last_woken: None,
            wake_interval: WAKE_INTERVAL_MIN,
            background_advanced: false,
            relying_waiters: 0,
            needs_user_function: false,
            core: None,
            program_entries: 0,
            node_ranks,
        }));
    }

    /// Is the progress thread at work, rather than a thread of the program? It must not call
    /// functions of the program.
    #[inline]
    pub fn is_progress_thread(&self) -> bool {
        self.progress_thread
            .as_ref()
            .is_some_and(|thread| thread.has_device)
    }

    /// Is background work over `bytes` bytes left to the progress thread? It is if the program does
    /// not wait in MPI, the thread has another core, and the work takes longer than the handover.
    /// The thread is woken when the program leaves MPI. If the program waits in MPI instead, it
    /// does the work itself.
    pub fn offloads_work(&mut self, bytes: usize) -> bool {
        let Some(thread) = &mut self.progress_thread else {
            return false;
        };
        let worth = if thread.polls {
            OFFER_POLLING_MIN_BYTES
        } else {
            OFFER_SLEEPING_MIN_BYTES
        };
        let leaves = thread.running
            && !thread.has_device
            && !THREAD_FLAGS.waits()
            && bytes >= worth
            && thread
                .core
                .is_some_and(|c| c != ferry_job::clock::current_core());
        thread.work_offered |= leaves;
        leaves
    }

    /// As [`Device::offloads_work`], for a message of `bytes` bytes. A message costs the program
    /// the copy, or the handshake with the peer. Waking the thread costs more, so a message is left
    /// only to a thread that polls. The thread polls as long as such messages follow one another.
    #[inline]
    pub fn offloads_message(&mut self, bytes: usize) -> bool {
        let Some(thread) = &mut self.progress_thread else {
            return false;
        };
        if bytes <= OFFER_POLLING_MIN_BYTES {
            return false;
        }
        thread.messages_offered |= !thread.has_device && !THREAD_FLAGS.waits();
        self.worker.transports.wakeup().is_polled() && self.offloads_work(bytes)
    }

    /// The program leaves MPI with messages pending that are worth waking the thread. Is the thread
    /// woken, so that it polls when more of them follow?
    #[cold]
    fn should_wake(&mut self) -> bool {
        let polled = self.worker.transports.wakeup().is_polled();
        let has_sockets = self.worker.transports.wakeup().has_descriptors();
        let Some(thread) = &mut self.progress_thread else {
            return false;
        };
        thread.messages_offered = false;
        MESSAGE_OFFERS.store(message_offers().wrapping_add(1), Ordering::Relaxed);
        if polled {
            thread.wake_interval = WAKE_INTERVAL_POLLED;
        }
        if polled || has_sockets {
            return false;
        }
        let now = Instant::now();
        let follows = thread
            .last_offer
            .replace(now)
            .is_some_and(|at| now - at < POLL_TIME);
        let should_wake = follows
            && thread
                .last_woken
                .is_none_or(|at| now - at > thread.wake_interval)
            && thread
                .core
                .is_some_and(|c| c != ferry_job::clock::current_core());
        if should_wake {
            let [_, most] = POLL_PAUSE;
            thread.last_woken = Some(now);
            thread.wake_interval = (2 * thread.wake_interval).min(most);
        }
        should_wake
    }

    /// The progress thread has done a part of some background work, and has more of it to do.
    pub fn mark_background_advanced(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            thread.background_advanced = true;
        }
    }

    /// Has the progress thread done a part of some background work since the last call?
    pub(crate) fn take_background_advanced(&mut self) -> bool {
        self.progress_thread
            .as_mut()
            .is_some_and(|thread| std::mem::take(&mut thread.background_advanced))
    }

    /// A thread of the program waits in MPI, and makes the progress.
    #[inline]
    pub(crate) fn begin_wait(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            THREAD_FLAGS.begin_wait();
            (thread.work_offered, thread.messages_offered) = (false, false);
        }
    }

    /// A thread of the program does not wait any more.
    #[inline]
    pub(crate) fn end_wait(&mut self) {
        if self.progress_thread.is_some() {
            THREAD_FLAGS.end_wait();
        }
    }

    /// A thread of the program waits on `core`, which other ranks need. Returns whether it may
    /// sleep and rely on the progress thread, which has another core. Then the progress thread
    /// makes the progress until [`Device::end_reliance`].
    pub(crate) fn rely_on_thread(&mut self, core: u32) -> bool {
        let urgent = self.is_urgent();
        let Some(thread) = &mut self.progress_thread else {
            return false;
        };
        let may = urgent
            && thread.running
            && THREAD_FLAGS.waits_alone()
            && thread.core.is_some_and(|c| c != core);
        if may {
            THREAD_FLAGS.end_wait();
            thread.relying_waiters += 1;
            thread.needs_user_function = false;
        }
        may
    }

    /// Must a thread that relies on the progress thread make the progress itself?
    pub(crate) fn must_make_progress(&self) -> bool {
        self.progress_thread
            .as_ref()
            .is_none_or(|thread| thread.needs_user_function || !thread.running)
    }

    /// The progress thread cannot continue without calling a function of the program. The threads
    /// that rely on it wake.
    pub fn return_progress_to_program(&mut self) {
        if let Some(thread) = &mut self.progress_thread
            && thread.relying_waiters > 0
            && !thread.needs_user_function
        {
            thread.needs_user_function = true;
            self.notify_sleepers();
        }
    }

    /// A thread of the program that has relied on the progress thread makes the progress itself.
    pub(crate) fn end_reliance(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            THREAD_FLAGS.begin_wait();
            thread.relying_waiters -= 1;
        }
    }

    /// A thread of the program enters MPI.
    #[inline]
    pub(crate) fn program_enters(&mut self) {
        let Some(thread) = &mut self.progress_thread else {
            return;
        };
        thread.program_entries += 1;
        thread.has_device = false;
        if thread.armed {
            thread.armed = false;
            self.worker.transports.disarm();
        }
    }

    /// The progress thread has the device, until a thread of the program enters MPI.
    pub(crate) fn begin_thread_work(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            (thread.has_device, thread.work_offered) = (true, false);
        }
    }

    /// A thread of the program leaves MPI: from now on the progress thread makes the progress.
    #[inline]
    pub(crate) fn program_leaves(&mut self) {
        let Some(thread) = &self.progress_thread else {
            return;
        };
        if !thread.running || THREAD_FLAGS.waits() {
            return;
        }
        let (work, relied_on, asleep) = (
            thread.work_offered,
            thread.relying_waiters > 0,
            thread.asleep,
        );
        if thread.messages_offered && self.should_wake() || work {
            if !THREAD_FLAGS.is_progress_requested() {
                self.wake_thread();
            }
        } else if self.is_urgent() || relied_on {
            self.leave_urgent();
        } else if asleep && self.awaits_messages() {
            self.wake_thread();
        }
    }

    /// A thread of the program leaves MPI with an operation pending on which others wait.
    #[cold]
    fn leave_urgent(&mut self) {
        if self.worker.engine.single_copies.has_tasks() {
            return self.wake_thread();
        }
        let thread = self.progress_thread.as_ref();
        if let Some(thread) = thread.filter(|thread| thread.backs_off) {
            if thread.relying_waiters > 0 {
                self.wake_thread();
            }
            return;
        }
        let watches = self
            .progress_thread
            .as_ref()
            .is_some_and(|thread| thread.watches_sockets);
        if self.worker.transports.wakeup().has_descriptors() && !watches {
            return self.wake_thread();
        }
        self.arm_wakeup();
        // A message that arrived before the word was armed has not signalled it.
        if self.progress() {
            self.wake_thread();
        }
    }

    /// Arms the wakeup word for the progress thread. The caller makes progress once more, for
    /// messages that have arrived before.
    pub(crate) fn arm_wakeup(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            thread.armed = true;
            self.worker.withdraw_announcements();
            self.worker.engine.path_selector.hold_no_more();
            self.worker.transports.arm(Sleeper::Progress);
        }
    }

    /// Wakes the progress thread, so that it makes progress.
    #[cold]
    fn wake_thread(&mut self) {
        if let Some(thread) = &mut self.progress_thread {
            THREAD_FLAGS.set_progress_requested(true);
            thread.asleep = false;
        }
        self.signal_thread();
    }

    /// Wakes the progress thread.
    pub(crate) fn signal_thread(&self) {
        let watches = self
            .progress_thread
            .as_ref()
            .is_some_and(|thread| thread.watches_sockets);
        self.worker
            .transports
            .wakeup()
            .signal(Sleeper::Progress, watches);
    }

    /// The progress thread is about to sleep. Returns whether it watches the transports' sockets:
    /// it does if the wakeup word is armed for it.
    pub(crate) fn watch_sockets(&mut self) -> bool {
        self.progress_thread.as_mut().is_some_and(|thread| {
            thread.watches_sockets = thread.armed;
            thread.watches_sockets
        })
    }
}
