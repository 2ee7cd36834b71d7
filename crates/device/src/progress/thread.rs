//! The progress thread: operations go on while the program computes (FERRY_PROGRESS=thread).
//!
//! One thread a process. It sleeps on the process's bell, and is in nobody's way:
//!
//! - While a thread of the program waits in MPI, that thread makes the progress, and whoever rings
//!   the bell wakes it alone.
//! - When the program leaves MPI with something under way on which others wait, it arms the bell
//!   for the progress thread: a store and a look at the wires, no system call. When it comes back,
//!   it disarms it.
//! - What only the program itself waits for, such as a receive of a small message, does not arm the
//!   bell at once: a program that starts many in a row, or calls MPI_Test in a loop, would be rung
//!   for at each message. The thread looks every millisecond whether the program has stayed away,
//!   and arms the bell then. The same becomes of whoever was rung for in vain a few times.
//!
//! - Where it has a core on which no program of the node computes, it looks at the bell for a short
//!   while before it sleeps: whoever rings then has nobody to wake. It hands that core over at each
//!   look, and sleeps once somebody else turns out to want it.
//! - Long copies and reductions of a collective are its own while the program only passes through
//!   MPI, if it has another core.
//!
//! It never calls the program's functions: user-defined operations wait for a thread of the
//! program.

use crate::base::key::ProcId;
use crate::device::Device;
use crate::progress::core_sharing::Seat;
use crate::progress::lock::{self, DeviceGuard};
use crate::progress::thread_flags::{Asking, Heard};
use crate::protocol::select::Copier;
use ferry_transport::{Sleeper, Wakeup};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread polls for more after it has done something, or could have, where it has a
/// core for that.
const POLLING: Duration = Duration::from_millis(1);
/// When a core that was handed over comes back only after so long, somebody else computes there.
const TAKEN: Duration = Duration::from_millis(1);
/// For how long the thread then does not poll: at least and at most. Doubled each time that the
/// core is taken again soon after.
const KEEPS_OFF: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];
/// Between two times that the thread is woken so that it polls: where it did, at least.
const WAKES_AGAIN: Duration = Duration::from_millis(10);
/// The same where it did not: other ranks may not have told yet where they compute. Doubled each
/// time, up to the most of [`KEEPS_OFF`].
const WAKES_SOON: Duration = Duration::from_millis(1);
/// Own work, and messages, over so many bytes are left to the thread while it polls: telling it
/// costs less than a microsecond.
const WORTH_TELLING: usize = 16 * 1024;
/// The same while it sleeps: waking it costs the program as much as copying some 100 KiB.
const WORTH_WAKING: usize = 256 * 1024;
/// Of [`Watch`], what who has not the device needs, too. There is one device.
static ASKING: Asking = Asking {
    waiting: AtomicU32::new(0),
    asked: AtomicBool::new(false),
};
/// See [`handed`].
static HANDED: AtomicU32 = AtomicU32::new(0);
/// How often it looks whether the program has stayed away.
const LOOK: Duration = Duration::from_millis(1);
/// The same when it has been rung for in vain; doubled each time until it is as long as [`LOOK`].
const LOOK_SOON: Duration = Duration::from_micros(50);
/// Woken so many times in a row with nothing to do, it has been rung for in vain.
const VAIN: u32 = 3;
/// So many looks with nothing under way, and it looks no more.
const IDLE: u32 = 10;
/// Bytes of the thread's stack: packing, reductions and the engine's own calls need a fraction of
/// it.
const STACK: usize = 256 * 1024;
/// The slice of a core that it asks for, in nanoseconds: the least that Linux gives.
const SLICE_NS: u64 = 100_000;
/// When it has moved something and the program wants the device, it lets the program pass for so
/// many turns.
const TURNS: u32 = 2000;

/// What the program's threads and the progress thread know of each other. Part of the device, so
/// under its lock.
pub(crate) struct Watch {
    /// The thread is there.
    runs: bool,
    /// It is to end.
    stops: bool,
    /// It has the device, or had it last.
    works: bool,
    /// The bell is armed for it.
    listens: bool,
    /// It sleeps until the bell rings, not only until its next look.
    sleeps: bool,
    /// It looks at short intervals by itself, having been rung for in vain: the bell is not armed
    /// for it.
    holds: bool,
    /// It watches the wires' descriptors.
    watches: bool,
    /// When it has done what there is to do it polls: ringing for it costs next to nothing.
    polls: bool,
    /// Own work has been left to it since it, or a thread that waits, last had the device.
    owed: bool,
    /// Messages that it is worth telling of have been started since the program last came back, or
    /// waited.
    hands: bool,
    /// When that was so the last time that the thread did not poll.
    handed: Option<Instant>,
    /// When it was last woken for that.
    roused: Option<Instant>,
    /// For how long it then is not.
    rests: Duration,
    /// It has done a part of some own work.
    worked: bool,
    /// Threads of the program that sleep in MPI until this one has got what they wait for.
    trusting: u32,
    /// It cannot go on for them: a function of the program's is to be called.
    stuck: bool,
    /// The core on which it last worked.
    core: Option<u32>,
    /// Times that the program has taken the device.
    entries: u64,
    /// Ranks on this node.
    ranks: u32,
}

impl Device {
    /// There will be a progress thread, on a node with so many ranks.
    pub(crate) fn expect_progress_thread(&mut self, ranks: u32) {
        self.progress_thread = Some(Box::new(Watch {
            runs: false,
            stops: false,
            works: false,
            listens: false,
            sleeps: false,
            holds: false,
            watches: false,
            polls: false,
            owed: false,
            hands: false,
            handed: None,
            roused: None,
            rests: WAKES_SOON,
            worked: false,
            trusting: 0,
            stuck: false,
            core: None,
            entries: 0,
            ranks,
        }));
    }

    /// Is the progress thread at work, rather than a thread of the program? It must not call
    /// functions of the program.
    #[inline]
    pub fn is_progress_thread(&self) -> bool {
        self.progress_thread.as_ref().is_some_and(|w| w.works)
    }

    /// Is copying a large message left to the progress thread? So it is while the program only
    /// passes through MPI.
    #[inline]
    pub(crate) fn leaves_copying(&self) -> bool {
        self.progress_thread
            .as_ref()
            .is_some_and(|w| w.runs && !w.works && !ASKING.waits())
    }

    /// Is own work over `bytes` bytes left to the progress thread? So it is while the program only
    /// passes through MPI, if that thread has another core and the work takes longer than
    /// telling it; which is done when the program leaves MPI. If it waits there instead, the
    /// work is its own again.
    pub fn offloads_work(&mut self, bytes: usize) -> bool {
        let Some(w) = &mut self.progress_thread else {
            return false;
        };
        let worth = if w.polls { WORTH_TELLING } else { WORTH_WAKING };
        let leaves = w.runs
            && !w.works
            && !ASKING.waits()
            && bytes >= worth
            && w.core
                .is_some_and(|c| c != rustix::thread::sched_getcpu() as u32);
        w.owed |= leaves;
        leaves
    }

    /// The same of a message over `bytes` bytes that is to be sent or received: what it costs the
    /// program is to copy it, or to tell the peer about it and the peer's answer; not as much
    /// as waking the thread, which therefore goes on polling as long as such messages
    /// follow one another.
    #[inline]
    pub fn offloads_message(&mut self, bytes: usize) -> bool {
        let Some(w) = &mut self.progress_thread else {
            return false;
        };
        if bytes <= WORTH_TELLING {
            return false;
        }
        w.hands |= !w.works && !ASKING.waits();
        self.wires.wakeup().is_polled() && self.offloads_work(bytes)
    }

    /// The program computes while messages over which the thread is worth telling are under way.
    /// Should that be woken, so that it polls when more of them follow?
    #[cold]
    fn rouses(&mut self) -> bool {
        let polled = self.wires.wakeup().is_polled();
        let door = self.wires.wakeup().has_descriptors();
        let Some(w) = &mut self.progress_thread else {
            return false;
        };
        w.hands = false;
        HANDED.store(handed().wrapping_add(1), Ordering::Relaxed);
        if polled {
            w.rests = WAKES_AGAIN;
        }
        if polled || door {
            return false;
        }
        let now = Instant::now();
        let follows = w.handed.replace(now).is_some_and(|at| now - at < POLLING);
        let rouses = follows
            && w.roused.is_none_or(|at| now - at > w.rests)
            && w.core
                .is_some_and(|c| c != rustix::thread::sched_getcpu() as u32);
        if rouses {
            let [_, most] = KEEPS_OFF;
            w.roused = Some(now);
            w.rests = (2 * w.rests).min(most);
        }
        rouses
    }

    /// The progress thread has done a part of some own work, and would go on with it.
    pub fn note_background_work(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            w.worked = true;
        }
    }

    /// Has it, since this was last asked?
    pub(crate) fn take_worked(&mut self) -> bool {
        self.progress_thread
            .as_mut()
            .is_some_and(|w| std::mem::take(&mut w.worked))
    }

    /// Should a large message from `from` be read by this side alone? The sender is likely to
    /// compute, and would have to be woken for each piece that both sides copy together; unless
    /// the progress threads of both poll.
    #[inline]
    pub(crate) fn copies_alone(&self, from: ProcId) -> bool {
        let thread = self.progress_thread.as_ref().filter(|w| w.works);
        thread.is_some_and(|w| !w.polls || !self.wires.progress_polls(from))
    }

    /// For whom what a copy takes says something.
    #[inline]
    pub(crate) fn copier(&self) -> Copier {
        match &self.progress_thread {
            Some(w) if w.works => Copier::Sharing,
            _ if self.wait_policy.crowded => Copier::Sharing,
            _ if self.engine.requests.large() > 0 => Copier::Sender,
            _ => Copier::Program,
        }
    }

    /// A thread of the program waits in MPI, and makes the progress meanwhile.
    #[inline]
    pub(crate) fn begin_wait(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            ASKING.begin_wait();
            (w.owed, w.hands) = (false, false);
        }
    }

    /// It has what it waited for.
    #[inline]
    pub(crate) fn end_wait(&mut self) {
        if self.progress_thread.is_some() {
            ASKING.end_wait();
        }
    }

    /// A thread of the program waits on `core`, which others want. May it sleep meanwhile, because
    /// what goes on in the background is the progress thread's, and that has another core? Then
    /// that one makes the progress, until [`Device::end_trust`].
    pub(crate) fn entrust(&mut self, core: u32) -> bool {
        let pressed = self.is_pressed();
        let Some(w) = &mut self.progress_thread else {
            return false;
        };
        let may = pressed && w.runs && ASKING.waits_alone() && w.core.is_some_and(|c| c != core);
        if may {
            ASKING.end_wait();
            w.trusting += 1;
            w.stuck = false;
        }
        may
    }

    /// Must a thread that has entrusted its wait take it back?
    pub(crate) fn is_stuck(&self) -> bool {
        self.progress_thread
            .as_ref()
            .is_none_or(|w| w.stuck || !w.runs)
    }

    /// The progress thread cannot go on without a function of the program's: whoever relies on it
    /// wakes.
    pub fn needs_program_thread(&mut self) {
        if let Some(w) = &mut self.progress_thread
            && w.trusting > 0
            && !w.stuck
        {
            w.stuck = true;
            self.notify_sleepers();
        }
    }

    /// A thread of the program waits by itself again.
    pub(crate) fn end_trust(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            ASKING.begin_wait();
            w.trusting -= 1;
        }
    }

    /// A thread of the program is in MPI again.
    #[inline]
    pub(crate) fn come_back(&mut self) {
        let Some(w) = &mut self.progress_thread else {
            return;
        };
        w.entries += 1;
        w.works = false;
        if w.listens {
            w.listens = false;
            self.wires.disarm();
        }
    }

    /// The progress thread uses the device, until a thread of the program comes back.
    pub(crate) fn begin_work(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            (w.works, w.owed) = (true, false);
        }
    }

    /// A thread of the program leaves MPI: what goes on without it is the progress thread's from
    /// now on.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        let Some(w) = &self.progress_thread else {
            return;
        };
        if !w.runs || ASKING.waits() {
            return;
        }
        let (owed, trusted, sleeps) = (w.owed, w.trusting > 0, w.sleeps);
        if w.hands && self.rouses() || owed {
            if !ASKING.is_asked() {
                self.ask_to_look();
            }
        } else if self.is_pressed() || trusted {
            self.leave_pressing();
        } else if sleeps && self.engine.requests.open() > 0 {
            self.ask_to_look();
        }
    }

    #[cold]
    fn leave_pressing(&mut self) {
        if self.engine.has_tasks() {
            return self.ask_to_look();
        }
        let w = self.progress_thread.as_ref();
        if let Some(w) = w.filter(|w| w.holds) {
            if w.trusting > 0 {
                self.ask_to_look();
            }
            return;
        }
        let watches = self.progress_thread.as_ref().is_some_and(|w| w.watches);
        if self.wires.wakeup().has_descriptors() && !watches {
            return self.ask_to_look();
        }
        self.listen();
        // Whatever came before the bell was armed has not rung it.
        if self.progress() {
            self.ask_to_look();
        }
    }

    /// Arms the bell for the progress thread. Whoever does looks once more whether something has
    /// come.
    fn listen(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            w.listens = true;
            self.wires.arm(Sleeper::Progress);
        }
    }

    #[cold]
    fn ask_to_look(&mut self) {
        if let Some(w) = &mut self.progress_thread {
            ASKING.set_asked(true);
            w.sleeps = false;
        }
        self.ring_progress();
    }

    /// Wakes the progress thread.
    fn ring_progress(&self) {
        let watches = self.progress_thread.as_ref().is_some_and(|w| w.watches);
        self.wires.wakeup().signal(Sleeper::Progress, watches);
    }

    /// The progress thread is about to sleep: does it watch the wires' descriptors? It does when it
    /// listens.
    fn goes_to_door(&mut self) -> bool {
        self.progress_thread.as_mut().is_some_and(|w| {
            w.watches = w.listens;
            w.watches
        })
    }
}

/// Has the progress thread look at what is under way, without the device's lock: whoever has that
/// may wait for the caller.
pub fn wake_progress_thread() {
    if let Some(bell) = lock::bell() {
        bell.signal(Sleeper::Progress, true);
        bell.signal(Sleeper::Program, lock::is_watched());
    }
}

/// How often the program has left MPI with messages under way that the thread is worth telling of;
/// wraps.
pub(crate) fn handed() -> u32 {
    HANDED.load(Ordering::Relaxed)
}

/// Is the progress thread there?
#[inline]
pub fn has_progress_thread() -> bool {
    RUNS.load(Ordering::Relaxed)
}

static RUNS: AtomicBool = AtomicBool::new(false);
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
        if w.runs {
            return Ok(());
        }
        (w.runs, w.stops) = (true, false);
        RUNS.store(true, Ordering::Relaxed);
    }
    match ferry_job::start_thread("progress", STACK, run) {
        Ok(handle) => {
            *thread = Some(handle);
            Ok(())
        }
        Err(e) => {
            if let Some(w) = &mut lock::device().progress_thread {
                w.runs = false;
                RUNS.store(false, Ordering::Relaxed);
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
            (w.runs, w.stops) = (false, true);
            RUNS.store(false, Ordering::Relaxed);
        }
        device.ring_progress();
    }
    // It does not panic: where it would, the whole process ends.
    let _ = handle.join();
}

/// It has little to do each time, but others wait for that. Without any rights the system can be
/// asked for short slices, which come soon: a thread that computes on the same core is then
/// interrupted at once and not after milliseconds (Linux 6.12, sched(7), sched_setattr(2)). What is
/// refused is done without.
fn be_quick() {
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

/// What the thread remembers from one turn to the next.
struct Memory {
    /// The program's entries when it last went to sleep.
    entries: u64,
    /// The bell has ended its last sleep.
    rung: bool,
    /// Times in a row that it was rung for with nothing to do.
    vain: u32,
    /// Looks in a row that found nothing under way.
    idle: u32,
    /// It looks at intervals.
    looks: bool,
    /// When it last went to sleep, something was under way on which others waited.
    pressed: bool,
    /// The next interval while it holds back.
    soon: Duration,
    /// What [`handed`] was when it last looked.
    handed: u32,
    /// Until when it polls rather than sleeps.
    polls_until: Option<Instant>,
    /// Until when it does not.
    keeps_off: Option<Instant>,
    /// For how long it last did not.
    kept_off: Duration,
}

fn run() {
    be_quick();
    let mut memory = Memory {
        entries: 0,
        rung: false,
        vain: 0,
        idle: 0,
        looks: false,
        pressed: false,
        soon: LOOK_SOON,
        handed: 0,
        polls_until: None,
        keeps_off: None,
        kept_off: Duration::ZERO,
    };
    let mut seat = Seat::given();
    let mut polled = Polled(None);
    while let Some((mut guard, seen, moved)) = work(polled.0.is_some()) {
        let ranks = guard.progress_thread.as_ref().map_or(0, |w| w.ranks);
        seat.choose(&guard.wires, ranks);
        let bell = guard.wires.wakeup();
        let polls_until = (seat.is_spare() && !bell.has_descriptors())
            .then(|| memory.polls(moved))
            .flatten();
        if let Some(w) = &mut guard.progress_thread {
            w.polls = polls_until.is_some();
        }
        let Some(until) = plan(&mut guard, &mut memory, moved) else {
            continue;
        };
        let watches =
            bell.has_descriptors() && matches!(until, Until::Rung) && guard.goes_to_door();
        drop(guard);
        if let Some(end) = polls_until {
            polled.begin(bell);
            if poll(bell, seen, end, &mut memory) {
                // Nobody had to wake it: if it was for nothing, that has cost nobody anything.
                memory.rung = false;
                continue;
            }
        }
        polled.end();
        match until {
            Until::Rung if watches => bell.wait_descriptors(),
            Until::Rung => bell.wait(Sleeper::Progress, seen, None),
            Until::Look(after) => bell.wait(Sleeper::Progress, seen, Some(after)),
        }
        memory.rung = watches || bell.signaled_since(seen);
    }
}

/// The bell that is said to be polled, if it is: as long as the thread polls it, and while it works
/// in between, because it looks at the bell again before it sleeps.
struct Polled<'a>(Option<&'a Wakeup>);

impl<'a> Polled<'a> {
    fn begin(&mut self, bell: &'a Wakeup) {
        if self.0.is_none() {
            bell.set_polled(true);
            self.0 = Some(bell);
        }
    }

    /// The thread is about to sleep.
    fn end(&mut self) {
        if let Some(bell) = self.0.take() {
            bell.set_polled(false);
        }
    }
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Memory {
    /// Until when to poll before sleeping, having done something or not: it goes on as long as
    /// there is more for it.
    fn polls(&mut self, moved: bool) -> Option<Instant> {
        let now = Instant::now();
        if self.keeps_off.is_some_and(|until| now < until) {
            return None;
        }
        let handed = handed();
        if moved || std::mem::replace(&mut self.handed, handed) != handed {
            self.polls_until = Some(now + POLLING);
        }
        self.polls_until.filter(|&until| now < until)
    }

    /// Somebody else computes on its core: it does not poll for a while.
    fn keep_off(&mut self, now: Instant) {
        let [least, most] = KEEPS_OFF;
        let again = self
            .keeps_off
            .is_some_and(|until| now - until < self.kept_off * 10);
        self.kept_off = if again {
            (self.kept_off * 2).min(most)
        } else {
            least
        };
        self.keeps_off = Some(now + self.kept_off);
    }
}

/// Looks at the bell until it has been rung for this thread, as far as one can tell, or until
/// `end`; without the device, so that nobody is held up. Returns whether it has.
fn poll(bell: &Wakeup, seen: u32, mut end: Instant, memory: &mut Memory) -> bool {
    let (mut seen, mut before) = (seen, Instant::now());
    loop {
        let now = bell.epoch();
        if bell.signaled_since(seen) {
            match ASKING.heard() {
                Heard::Now => return true,
                Heard::Later => {}
                Heard::Nothing => seen = now,
            }
        }
        rustix::thread::sched_yield();
        let now = Instant::now();
        if now - before >= TAKEN {
            memory.keep_off(now);
            return false;
        }
        if now >= end {
            let Some(later) = memory.polls(false) else {
                return false;
            };
            end = later;
        }
        before = now;
    }
}

/// Makes progress while there is something to do and no thread of the program to do it. `None`: the
/// thread is to end. Returns where the bell stood when there was nothing more to do, and whether it
/// did anything. `polls`: it has its core for itself, or shares it with others that poll.
fn work(polls: bool) -> Option<(DeviceGuard, u32, bool)> {
    let mut ever = false;
    loop {
        let mut guard = lock::device_for_progress(polls);
        // Before it looks: who has not the device may ring meanwhile.
        let seen = guard.wires.wakeup().epoch();
        let w = guard.progress_thread.as_mut()?;
        if w.stops {
            return None;
        }
        let watched = std::mem::take(&mut w.watches);
        w.core = Some(rustix::thread::sched_getcpu() as u32);
        if ASKING.waits() {
            if watched {
                // What came to the door is for a thread of the program.
                guard
                    .wires
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

/// A thread of the program that stands before the lock goes first.
fn give_way() {
    std::hint::spin_loop();
    let mut turns = 0;
    while lock::is_wanted() && turns < TURNS {
        turns += 1;
        if turns % 100 == 0 {
            rustix::thread::sched_yield();
        }
        std::hint::spin_loop();
    }
}

/// For how long to sleep.
enum Until {
    Rung,
    Look(Duration),
}

/// What to do with nothing to do. `None`: something came meanwhile.
fn plan(guard: &mut DeviceGuard, memory: &mut Memory, moved: bool) -> Option<Until> {
    let trusted = guard
        .progress_thread
        .as_ref()
        .is_some_and(|w| w.trusting > 0);
    let pressed = trusted || guard.is_pressed();
    let open = pressed || guard.engine.requests.open() > 0;
    let w = guard.progress_thread.as_mut()?;
    let away = w.entries == memory.entries;
    memory.entries = w.entries;
    let asked = ASKING.is_asked();
    ASKING.set_asked(false);
    memory.looks |= asked;
    match (moved, memory.rung && !asked) {
        (true, _) => memory.vain = 0,
        (false, rung) => memory.vain += u32::from(rung),
    }
    w.sleeps = true;
    if ASKING.waits() {
        w.holds = false;
        return Some(Until::Rung);
    }
    let was_pressed = std::mem::replace(&mut memory.pressed, pressed);
    if !open {
        memory.idle += 1;
        // What it was asked for has been done behind the program's back, which computes: there is
        // nothing to look for.
        memory.looks &= memory.idle < IDLE && !(was_pressed && away);
        w.holds = false;
        return Some(rest(w, memory));
    }
    memory.idle = 0;
    w.holds = !away && !trusted && !w.polls && memory.vain >= VAIN;
    if w.holds {
        w.sleeps = false;
        let soon = memory.soon;
        memory.soon = (soon * 2).min(LOOK);
        return Some(Until::Look(soon));
    }
    memory.soon = LOOK_SOON;
    if pressed || away {
        guard.listen();
        if guard.progress() {
            return None;
        }
        return Some(Until::Rung);
    }
    memory.looks = true;
    Some(rest(w, memory))
}

fn rest(w: &mut Watch, memory: &Memory) -> Until {
    if memory.looks {
        w.sleeps = false;
        Until::Look(LOOK)
    } else {
        Until::Rung
    }
}
