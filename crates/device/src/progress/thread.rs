//! The progress thread: operations go on while the program computes (FERRY_PROGRESS=thread).
//!
//! One thread a process. It sleeps on the process's wakeup word, and does not disturb the program:
//!
//! - While a thread of the program waits in MPI, that thread makes the progress. Whoever signals
//!   the wakeup word wakes it alone.
//! - When the program leaves MPI with something under way on which other processes wait, it arms
//!   the wakeup word for the progress thread: a store and a look at the transports, no system call.
//!   When it enters MPI again, it disarms the word.
//! - What only the program itself waits for, such as a receive of a small message, does not arm the
//!   word at once. Otherwise a program that starts many receives, or calls MPI_Test in a loop,
//!   would have the thread woken for each message. The thread looks every millisecond whether the
//!   program has stayed away, and arms the word then. It does the same after it was woken in vain a
//!   few times.
//! - Where it has a core on which no program of the node computes, it polls the word for a short
//!   while before it sleeps, so that nobody has to wake it. It yields that core at each look, and
//!   sleeps once somebody else turns out to want it.
//! - Long copies and reductions of a collective are left to it while the program only passes
//!   through MPI, if it has another core.
//!
//! It never calls the program's functions: user-defined operations wait for a thread of the
//! program.

use crate::progress::lock::{self, DeviceGuard};
use crate::progress::thread_flags::Heard;
use crate::progress::thread_placement::ThreadPlacement;
use crate::progress::thread_state::{
    POLL_PAUSE, POLL_TIME, THREAD_FLAGS, ThreadState, message_offers,
};
use ferry_transport::{Sleeper, Wakeup};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When a yielded core comes back only after this time, somebody else computes on it.
const CORE_LOST: Duration = Duration::from_millis(1);
/// How often the thread looks whether the program has stayed away.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// The first interval after it was woken in vain. Doubled each time, up to [`LOOK_INTERVAL`].
const LOOK_INTERVAL_MIN: Duration = Duration::from_micros(50);
/// Wakeups in a row with nothing to do after which the thread was woken in vain.
const VAIN_WAKEUPS: u32 = 3;
/// Looks in a row with nothing under way after which it looks no more.
const IDLE_LOOKS: u32 = 10;
/// Stack of the thread, bytes. Packing, reductions and the engine's calls need a fraction of it.
const STACK_BYTES: usize = 256 * 1024;
/// The slice of a core that the thread asks for: the least that Linux gives (sched(7)).
const SLICE_NS: u64 = 100_000;
/// After the thread has moved something, it lets a thread of the program that wants the device go
/// first, for at most this many spins.
const GIVE_WAY_SPINS: u32 = 2000;

/// Has the progress thread look at what is under way. Called without the device's lock: whoever has
/// it may wait for the caller.
pub fn wake_progress_thread() {
    if let Some(wakeup) = lock::wakeup() {
        wakeup.signal(Sleeper::Progress, true);
        wakeup.signal(Sleeper::Program, lock::is_watched());
    }
}

/// Is the progress thread there?
#[inline]
pub fn has_progress_thread() -> bool {
    RUNNING.load(Ordering::Relaxed)
}

static RUNNING: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Starts the progress thread, if the device was started for one and it is not there.
///
/// Errors: the system gives no thread.
pub fn start_progress_thread() -> std::io::Result<()> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut device = lock::device();
        let Some(w) = &mut device.progress_thread else {
            return Ok(());
        };
        if w.running {
            return Ok(());
        }
        (w.running, w.stopping) = (true, false);
        RUNNING.store(true, Ordering::Relaxed);
    }
    match ferry_job::start_thread("progress", STACK_BYTES, run) {
        Ok(handle) => {
            *thread = Some(handle);
            Ok(())
        }
        Err(e) => {
            if let Some(w) = &mut lock::device().progress_thread {
                w.running = false;
                RUNNING.store(false, Ordering::Relaxed);
            }
            Err(e)
        }
    }
}

/// Ends the progress thread, if it is there; blocks until it has ended. To be called by a thread of
/// the program, with nothing under way.
pub fn stop_progress_thread() {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handle) = thread.take() else {
        return;
    };
    {
        let mut device = lock::device();
        if let Some(w) = &mut device.progress_thread {
            (w.running, w.stopping) = (false, true);
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

/// What the thread remembers between two rounds of its loop.
struct LoopState {
    /// [`ThreadState::program_entries`] when it last went to sleep.
    program_entries: u64,
    /// Its last sleep has ended with a signal.
    signaled: bool,
    /// Signals in a row with nothing to do.
    vain_signals: u32,
    /// Looks in a row that found nothing under way.
    idle_looks: u32,
    /// It looks at intervals.
    looks: bool,
    /// When it last went to sleep, something was under way on which others waited.
    was_urgent: bool,
    /// The next interval while it backs off.
    look_interval: Duration,
    /// [`message_offers`] when it last looked.
    message_offers: u32,
    /// It polls rather than sleeps until then.
    polls_until: Option<Instant>,
    /// It does not poll until then.
    no_poll_until: Option<Instant>,
    /// For how long it last did not poll.
    poll_pause: Duration,
}

fn run() {
    ask_for_short_slices();
    let mut state = LoopState {
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
        let ranks = guard.progress_thread.as_ref().map_or(0, |w| w.node_ranks);
        placement.choose(&guard.worker.transports, ranks);
        let wakeup = guard.worker.transports.wakeup();
        let polls_until = (placement.has_spare_core() && !wakeup.has_descriptors())
            .then(|| state.polls(moved))
            .flatten();
        if let Some(w) = &mut guard.progress_thread {
            w.polls = polls_until.is_some();
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
                // Nobody had to wake it, so a vain signal has cost nobody anything.
                state.signaled = false;
                continue;
            }
        }
        polled.end();
        match until {
            Sleep::UntilSignal if watches => wakeup.wait_descriptors(),
            Sleep::UntilSignal => wakeup.wait(Sleeper::Progress, seen, None),
            Sleep::For(after) => wakeup.wait(Sleeper::Progress, seen, Some(after)),
        }
        state.signaled = watches || wakeup.signaled_since(seen);
    }
}

/// The wakeup word, while it is marked as polled: as long as the thread polls it, and while the
/// thread works in between, because it looks at the word again before it sleeps.
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

impl LoopState {
    /// Until when the thread polls before it sleeps. `moved`: it has done something. It goes on as
    /// long as there is more to do.
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

    /// Somebody else computes on its core: the thread does not poll for a while.
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

/// Polls the wakeup word, without the device, until it is signalled for this thread or until `end`.
/// Returns whether it is signalled.
fn poll(wakeup: &Wakeup, seen: u32, mut end: Instant, state: &mut LoopState) -> bool {
    let (mut seen, mut before) = (seen, Instant::now());
    loop {
        let now = wakeup.epoch();
        if wakeup.signaled_since(seen) {
            match THREAD_FLAGS.heard() {
                Heard::Now => return true,
                Heard::Later => {}
                Heard::Nothing => seen = now,
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

/// Makes progress while there is something to do and no thread of the program does it. Returns the
/// wakeup word's value when there was nothing more to do, and whether anything was done. `None`:
/// the thread is to end. `polls`: it has its core for itself, or shares it with others that poll.
fn make_progress(polls: bool) -> Option<(DeviceGuard, u32, bool)> {
    let mut ever = false;
    loop {
        let mut guard = lock::device_for_progress(polls);
        // Read before looking: others may signal meanwhile without the device.
        let seen = guard.worker.transports.wakeup().epoch();
        let w = guard.progress_thread.as_mut()?;
        if w.stopping {
            return None;
        }
        let watched = std::mem::take(&mut w.watches_sockets);
        w.core = Some(rustix::thread::sched_getcpu() as u32);
        if THREAD_FLAGS.waits() {
            if watched {
                // What came to the sockets is for a thread of the program.
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

/// Lets a thread of the program that wants the lock go first.
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

/// How to sleep when there is nothing to do. `None`: something has come meanwhile.
fn plan(guard: &mut DeviceGuard, state: &mut LoopState, moved: bool) -> Option<Sleep> {
    let relied_on = guard
        .progress_thread
        .as_ref()
        .is_some_and(|w| w.relying_waiters > 0);
    let urgent = relied_on || guard.is_urgent();
    let pending = urgent || guard.worker.engine.requests.pending() > 0;
    let w = guard.progress_thread.as_mut()?;
    let away = w.program_entries == state.program_entries;
    state.program_entries = w.program_entries;
    let asked = THREAD_FLAGS.is_asked();
    THREAD_FLAGS.set_asked(false);
    state.looks |= asked;
    match (moved, state.signaled && !asked) {
        (true, _) => state.vain_signals = 0,
        (false, signaled) => state.vain_signals += u32::from(signaled),
    }
    w.asleep = true;
    if THREAD_FLAGS.waits() {
        w.backs_off = false;
        return Some(Sleep::UntilSignal);
    }
    let was_urgent = std::mem::replace(&mut state.was_urgent, urgent);
    if !pending {
        state.idle_looks += 1;
        // What it was asked for is done, and the program computes: there is nothing to look for.
        state.looks &= state.idle_looks < IDLE_LOOKS && !(was_urgent && away);
        w.backs_off = false;
        return Some(sleep_until_look(w, state));
    }
    state.idle_looks = 0;
    w.backs_off = !away && !relied_on && !w.polls && state.vain_signals >= VAIN_WAKEUPS;
    if w.backs_off {
        w.asleep = false;
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
    Some(sleep_until_look(w, state))
}

/// Sleeps until the next look, if there is to be one.
fn sleep_until_look(w: &mut ThreadState, state: &LoopState) -> Sleep {
    if state.looks {
        w.asleep = false;
        Sleep::For(LOOK_INTERVAL)
    } else {
        Sleep::UntilSignal
    }
}
