//! The progress thread: operations go on while the program computes (FERRY_PROGRESS=thread).
//!
//! There is one thread in each process. It sleeps on the process's wakeup word. These rules keep it
//! from disturbing the program:
//!
//! - While a thread of the program waits in MPI, that thread makes progress. A signal on the wakeup
//!   word wakes only that thread.
//! - When the program leaves MPI with an operation pending on which other processes wait, it arms
//!   the wakeup word for the progress thread. That is a store and a poll of the transports, without
//!   a system call. When the program enters MPI again, it disarms the word.
//! - An operation on which only the program itself waits, such as a receive of a small message,
//!   does not arm the word at once. Otherwise a program that starts many receives, or calls
//!   MPI_Test in a loop, would have the thread woken for each message. The thread checks every
//!   millisecond whether the program has stayed outside MPI, and arms the word then. It does the
//!   same after [`VAIN_WAKEUPS`] wakeups without work.
//! - If there is a core on which no program of the node computes, the thread polls the word there
//!   for a short time before it sleeps. A peer then needs no system call to wake it. It yields that
//!   core at each poll, and sleeps once another thread computes on it.
//! - A collective leaves its long copies and reductions to the thread if the thread has another
//!   core and the program does not wait in MPI.
//!
//! The thread never calls the program's functions: user-defined operations wait for a thread of the
//! program.

use crate::progress::lock::{self, DeviceGuard};
use crate::progress::thread_flags::Signal;
use crate::progress::thread_placement::ThreadPlacement;
use crate::progress::thread_state::{
    POLL_PAUSE, POLL_TIME, THREAD_FLAGS, ThreadState, message_offers,
};
use ferry_transport::{Sleeper, Wakeup};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// If a yielded core returns only after this time, another thread computes on it. A choice: far
/// more than a context switch takes.
const CORE_LOST: Duration = Duration::from_millis(1);
/// Interval at which the thread checks whether the program has stayed outside MPI. A choice: short
/// for a program that computes, and rare enough to cost it nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// The first interval after the thread was woken in vain. Doubled each time, up to
/// [`LOOK_INTERVAL`]. A choice.
const LOOK_INTERVAL_MIN: Duration = Duration::from_micros(50);
/// After this many wakeups in a row without work the thread backs off. A choice: one or two happen
/// by chance.
const VAIN_WAKEUPS: u32 = 3;
/// After this many checks in a row without a pending operation the thread stops checking. A choice.
const IDLE_LOOKS: u32 = 10;
/// Stack of the thread, bytes. A choice: packing, reductions and the engine need a fraction of it.
const STACK_BYTES: usize = 256 * 1024;
/// The time slice that the thread requests: the minimum of Linux (sched(7)).
const SLICE_NS: u64 = 100_000;
/// After the thread has made progress, it lets a thread of the program that waits for the device go
/// first. It spins at most this many times. A choice.
const GIVE_WAY_SPINS: u32 = 2000;

/// Wakes the progress thread, so that it makes progress. Called without the device's lock, because
/// its holder may wait for the caller.
pub fn wake_progress_thread() {
    if let Some(wakeup) = lock::wakeup() {
        wakeup.signal(Sleeper::Progress, true);
        wakeup.signal(Sleeper::Program, lock::is_watched());
    }
}

/// Does the progress thread run?
#[inline]
pub fn has_progress_thread() -> bool {
    RUNNING.load(Ordering::Relaxed)
}

static RUNNING: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Starts the progress thread, if the device was started for one and it does not run yet.
///
/// Errors: the system creates no thread.
pub fn start_progress_thread() -> std::io::Result<()> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut device = lock::device();
        let Some(thread_state) = &mut device.progress_thread else {
            return Ok(());
        };
        if thread_state.running {
            return Ok(());
        }
        (thread_state.running, thread_state.stopping) = (true, false);
        RUNNING.store(true, Ordering::Relaxed);
    }
    match ferry_job::start_thread("progress", STACK_BYTES, run) {
        Ok(handle) => {
            *thread = Some(handle);
            Ok(())
        }
        Err(e) => {
            if let Some(thread_state) = &mut lock::device().progress_thread {
                thread_state.running = false;
                RUNNING.store(false, Ordering::Relaxed);
            }
            Err(e)
        }
    }
}

/// Ends the progress thread, if it runs, and blocks until it has ended. To be called by a thread of
/// the program, with no operation pending.
pub fn stop_progress_thread() {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handle) = thread.take() else {
        return;
    };
    {
        let mut device = lock::device();
        if let Some(thread_state) = &mut device.progress_thread {
            (thread_state.running, thread_state.stopping) = (false, true);
            RUNNING.store(false, Ordering::Relaxed);
        }
        device.signal_thread();
    }
    // A panic ends the whole process, so the thread has not panicked.
    let _ = handle.join();
}

/// Asks the system for short slices. The thread has little to do each time, but others wait for it.
/// With short slices a thread that computes on the same core is interrupted at once and not after
/// milliseconds (Linux 6.12, sched(7), sched_setattr(2)). That needs no privilege. A refusal is
/// ignored.
fn ask_for_short_slices() {
    // SAFETY: both calls concern this thread only; the structure is as large as it says, and zeros
    // are valid for it.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1000);
        let mut how = std::mem::zeroed::<libc::sched_attr>();
        let size = size_of::<libc::sched_attr>() as u32;
        let asked = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut how, size, 0);
        if asked == 0 && how.sched_policy == libc::SCHED_OTHER as u32 {
            (how.size, how.sched_runtime) = (size, SLICE_NS);
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const how, 0);
        }
    }
}

/// What the thread keeps between two rounds of its loop, to decide how it sleeps.
struct SleepState {
    /// [`ThreadState::program_entries`] when it last went to sleep.
    program_entries: u64,
    /// Its last sleep has ended with a signal.
    signaled: bool,
    /// Signals in a row with nothing to do.
    vain_signals: u32,
    /// Checks in a row that found no pending operation.
    idle_looks: u32,
    /// It checks at intervals, instead of sleeping until a signal.
    looks: bool,
    /// When it last went to sleep, an operation was pending on which others waited.
    was_urgent: bool,
    /// The next interval while it backs off.
    look_interval: Duration,
    /// [`message_offers`] at its last check.
    message_offers: u32,
    /// It polls rather than sleeps until then.
    polls_until: Option<Instant>,
    /// It does not poll until then.
    no_poll_until: Option<Instant>,
    /// The last pause of polling.
    poll_pause: Duration,
}

fn run() {
    ask_for_short_slices();
    let mut state = SleepState {
        program_entries: 0,
        signaled: false,
        vain_signals: 0,
        idle_looks: 0,
        looks: false,
        was_urgent: false,
        look_interval: LOOK_INTERVAL_MIN,
        message_offers: 0,
        polls_until: None,
        no_poll_until: None,
        poll_pause: Duration::ZERO,
    };
    let mut placement = ThreadPlacement::inherited();
    let mut polled = PolledWakeup(None);
    while let Some((mut guard, seen, moved)) = make_progress(polled.0.is_some()) {
        let ranks = guard
            .progress_thread
            .as_ref()
            .map_or(0, |thread_state| thread_state.node_ranks);
        placement.choose(&guard.worker.transports, ranks);
        let wakeup = guard.worker.transports.wakeup();
        let polls_until = (placement.has_spare_core() && !wakeup.has_descriptors())
            .then(|| state.polls(moved))
            .flatten();
        if let Some(thread_state) = &mut guard.progress_thread {
            thread_state.polls = polls_until.is_some();
        }
        let Some(until) = plan(&mut guard, &mut state, moved) else {
            continue;
        };
        let watches = wakeup.has_descriptors()
            && matches!(until, Sleep::UntilSignal)
            && guard.watch_sockets();
        drop(guard);
        if let Some(end) = polls_until {
            polled.begin(wakeup);
            if poll(wakeup, seen, end, &mut state) {
                // The thread was awake, so a vain signal has cost nothing.
                state.signaled = false;
                continue;
            }
        }
        polled.end();
        match until {
            Sleep::UntilSignal if watches => wakeup.wait_descriptors(None),
            Sleep::UntilSignal => wakeup.wait(Sleeper::Progress, seen, None),
            Sleep::For(after) => wakeup.wait(Sleeper::Progress, seen, Some(after)),
        }
        state.signaled = watches || wakeup.signaled_since(seen);
    }
}

/// The wakeup word, while it is marked as polled. The mark stays while the thread works between two
/// polls, because it reads the word again before it sleeps.
struct PolledWakeup<'a>(Option<&'a Wakeup>);

impl<'a> PolledWakeup<'a> {
    fn begin(&mut self, wakeup: &'a Wakeup) {
        if self.0.is_none() {
            wakeup.set_polled(true);
            self.0 = Some(wakeup);
        }
    }

    /// The thread is about to sleep.
    fn end(&mut self) {
        if let Some(wakeup) = self.0.take() {
            wakeup.set_polled(false);
        }
    }
}

impl Drop for PolledWakeup<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl SleepState {
    /// Until when the thread polls before it sleeps. `moved`: it has made progress, so the time
    /// starts anew.
    fn polls(&mut self, moved: bool) -> Option<Instant> {
        let now = Instant::now();
        if self.no_poll_until.is_some_and(|until| now < until) {
            return None;
        }
        let offers = message_offers();
        if moved || std::mem::replace(&mut self.message_offers, offers) != offers {
            self.polls_until = Some(now + POLL_TIME);
        }
        self.polls_until.filter(|&until| now < until)
    }

    /// Another thread computes on its core: the thread does not poll for a while.
    fn pause_polling(&mut self, now: Instant) {
        let [least, most] = POLL_PAUSE;
        let again = self
            .no_poll_until
            .is_some_and(|until| now - until < self.poll_pause * 10);
        self.poll_pause = if again {
            (self.poll_pause * 2).min(most)
        } else {
            least
        };
        self.no_poll_until = Some(now + self.poll_pause);
    }
}

/// Polls the wakeup word, without the device, until a signal for this thread or until `end`.
/// Returns whether there was a signal.
fn poll(wakeup: &Wakeup, seen: u32, mut end: Instant, state: &mut SleepState) -> bool {
    let (mut seen, mut before) = (seen, Instant::now());
    loop {
        let now = wakeup.epoch();
        if wakeup.signaled_since(seen) {
            match THREAD_FLAGS.classify_signal() {
                Signal::Now => return true,
                Signal::Later => {}
                Signal::Nothing => seen = now,
            }
        }
        rustix::thread::sched_yield();
        let now = Instant::now();
        if now - before >= CORE_LOST {
            state.pause_polling(now);
            return false;
        }
        if now >= end {
            let Some(later) = state.polls(false) else {
                return false;
            };
            end = later;
        }
        before = now;
    }
}

/// Makes progress until there is none to make, or a thread of the program waits in MPI. Returns the
/// wakeup word's value at the end, and whether there was progress. `None`: the thread is to end.
/// `polls`: no other thread computes on its core.
fn make_progress(polls: bool) -> Option<(DeviceGuard, u32, bool)> {
    let mut ever = false;
    loop {
        let mut guard = lock::device_for_progress(polls);
        // Read before the progress: others may signal meanwhile, without the device.
        let seen = guard.worker.transports.wakeup().epoch();
        let thread_state = guard.progress_thread.as_mut()?;
        if thread_state.stopping {
            return None;
        }
        let watched = std::mem::take(&mut thread_state.watches_sockets);
        thread_state.core = Some(ferry_job::clock::current_core());
        if THREAD_FLAGS.waits() {
            if watched {
                // A thread of the program reads what has arrived on the sockets.
                guard
                    .worker
                    .transports
                    .wakeup()
                    .signal(Sleeper::Program, lock::is_watched());
            }
            return Some((guard, seen, ever));
        }
        if !guard.progress() {
            return Some((guard, seen, ever));
        }
        ever = true;
        drop(guard);
        give_way();
    }
}

/// Lets a thread of the program that waits for the lock go first.
fn give_way() {
    std::hint::spin_loop();
    let mut spins = 0;
    while lock::is_wanted() && spins < GIVE_WAY_SPINS {
        spins += 1;
        if spins % 100 == 0 {
            rustix::thread::sched_yield();
        }
        std::hint::spin_loop();
    }
}

/// For how long to sleep.
enum Sleep {
    /// Until it is signalled.
    UntilSignal,
    /// For this time at most.
    For(Duration),
}

/// How to sleep when there is no progress to make. `None`: there is progress to make again.
fn plan(guard: &mut DeviceGuard, state: &mut SleepState, moved: bool) -> Option<Sleep> {
    let relied_on = guard
        .progress_thread
        .as_ref()
        .is_some_and(|thread_state| thread_state.relying_waiters > 0);
    let urgent = relied_on || guard.is_urgent();
    let pending = urgent || guard.awaits_messages();
    let thread_state = guard.progress_thread.as_mut()?;
    let away = thread_state.program_entries == state.program_entries;
    state.program_entries = thread_state.program_entries;
    let requested = THREAD_FLAGS.is_progress_requested();
    THREAD_FLAGS.set_progress_requested(false);
    state.looks |= requested;
    match (moved, state.signaled && !requested) {
        (true, _) => state.vain_signals = 0,
        (false, signaled) => state.vain_signals += u32::from(signaled),
    }
    thread_state.asleep = true;
    if THREAD_FLAGS.waits() {
        thread_state.backs_off = false;
        return Some(Sleep::UntilSignal);
    }
    let was_urgent = std::mem::replace(&mut state.was_urgent, urgent);
    if !pending {
        state.idle_looks += 1;
        // The requested work is done, and the program computes: there is nothing to check for.
        state.looks &= state.idle_looks < IDLE_LOOKS && !(was_urgent && away);
        thread_state.backs_off = false;
        return Some(sleep_until_look(thread_state, state));
    }
    state.idle_looks = 0;
    thread_state.backs_off =
        !away && !relied_on && !thread_state.polls && state.vain_signals >= VAIN_WAKEUPS;
    if thread_state.backs_off {
        thread_state.asleep = false;
        let interval = state.look_interval;
        state.look_interval = (interval * 2).min(LOOK_INTERVAL);
        return Some(Sleep::For(interval));
    }
    state.look_interval = LOOK_INTERVAL_MIN;
    if urgent || away {
        guard.arm_wakeup();
        if guard.progress() {
            return None;
        }
        return Some(Sleep::UntilSignal);
    }
    state.looks = true;
    Some(sleep_until_look(thread_state, state))
}

/// Sleeps until the next check, if there is one.
fn sleep_until_look(thread_state: &mut ThreadState, state: &SleepState) -> Sleep {
    if state.looks {
        thread_state.asleep = false;
        Sleep::For(LOOK_INTERVAL)
    } else {
        Sleep::UntilSignal
    }
}
