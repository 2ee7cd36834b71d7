//! Waiting without burning a core.
//!
//! A waiting thread makes progress itself. Where the ranks fit the cores of the node, it polls for
//! a tenth of a millisecond. Where they do not, it yields its core a few times. Then the thread
//! sleeps on the process's wakeup word. A peer that sends a message signals it.

use crate::base::counters::COUNTERS;
use crate::base::key::ContextId;
use crate::base::request::{Completion, ReqId};
use crate::progress::core_balance::yield_core;
use crate::progress::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use crate::progress::time_slice;
use ferry_job::{RankStatus, Wait};
use ferry_transport::{ProcId, Sleeper};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The MPI function that is being executed: its index in the description of all functions, plus 1;
/// 0 for none. The abi layer writes it on entry; a wait reads it when it begins. With several
/// threads in MPI it is the function of the last one to enter.
pub static CURRENT_CALL: AtomicU32 = AtomicU32::new(0);

/// Something that can describe a wait to the launcher: a communicator, a request.
pub trait Describe {
    /// Writes its description into the status page: name, size, rank, number of the collective,
    /// peer of a request.
    fn describe(&self, device: &mut Device, status: &RankStatus);

    /// Returns whether what is waited for cannot come, because a peer is in another call. Asked
    /// only where the wait is for shared memory, and only before a sleep.
    fn is_hopeless(&self, _device: &Device) -> bool {
        false
    }

    /// The process whose message is waited for, if it is one and known. Asked where ranks outnumber
    /// cores.
    fn awaited_peer(&self, _device: &mut Device) -> Option<ProcId> {
        None
    }
}

/// What a blocking call waits for. The hang report shows it.
#[derive(Clone, Copy)]
pub struct WaitingFor<'a> {
    /// The communicator's context.
    pub context: ContextId,
    /// The peer's process number; -1: any. Also [`ferry_job::PEER_SEVERAL`] and its kin.
    pub peer: i32,
    /// The tag; -1 any.
    pub tag: i32,
    /// The object that describes the wait.
    pub details: Option<&'a dyn Describe>,
}

impl WaitingFor<'_> {
    /// Several operations, of any communicator.
    pub const SEVERAL: WaitingFor<'static> = WaitingFor {
        context: ContextId::WORLD,
        peer: ferry_job::PEER_SEVERAL,
        tag: -1,
        details: None,
    };

    /// Called from the condition of [`wait_for_memory`]: returns whether the thread would sleep
    /// next, for what [cannot come](Describe::is_hopeless).
    pub(crate) fn is_hopeless(&self, device: &Device) -> bool {
        device.about_to_sleep && self.details.is_some_and(|it| it.is_hopeless(device))
    }
}

/// How often a waiting thread yields its core before it sleeps, where ranks outnumber cores. A
/// yield costs less than sleeping and being woken, and mostly the message is there when the core
/// comes back. With 4 ranks on 2 cores, ten yields halve the cost of a message. FERRY_YIELDS sets
/// another number.
const YIELDS_DEFAULT: u32 = 10;

static YIELDS_SET: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

/// How often a waiting thread yields its core before it sleeps, where ranks outnumber cores: the
/// value of FERRY_YIELDS or [`set_yields`], or 10.
#[inline]
pub fn yields() -> u32 {
    match YIELDS_SET.load(Ordering::Relaxed) {
        UNKNOWN => yields_from_environment(),
        n => n,
    }
}

#[cold]
fn yields_from_environment() -> u32 {
    let asked = std::env::var("FERRY_YIELDS").ok();
    set_yields(
        asked
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(YIELDS_DEFAULT),
    );
    YIELDS_SET.load(Ordering::Relaxed)
}

/// Sets how often a waiting thread yields, from now on.
pub fn set_yields(times: u32) {
    YIELDS_SET.store(times.min(UNKNOWN - 1), Ordering::Relaxed);
}

/// Polls, where ranks outnumber cores, for a message of a peer that runs on another core, before
/// the first yield. A choice: they take about as long as a yield and the return from it.
pub(crate) const SPINS_FOR_RUNNING_PEER: u32 = 24;

/// How long a waiting thread yields at least while its core is free. Then yields take no time: it
/// would sleep at once, and each message to it would wake a core. Measured
/// (docs/measured/messages.md).
const FREE_CORE_YIELD_TIME: Duration = Duration::from_micros(50);
/// A core on which yields take no longer on average is free. A choice between 0.3 µs, what a yield
/// to nobody takes, and 1.6 µs, one to a thread that yields as well (docs/measured/messages.md).
const FREE_CORE_YIELD_MAX: Duration = Duration::from_nanos(600);

/// How long a waiting thread yields, instead of sleeping, while large messages use a connection. A
/// choice: their next bytes arrive within microseconds, and a sleeper would be woken for each
/// packet.
const STREAM_YIELD_TIME: Duration = Duration::from_millis(1);
/// Large messages count as active for this time after their last bytes. A choice.
const STREAM_ACTIVE_TIME: Duration = Duration::from_millis(20);

impl Device {
    /// Called from the condition of [`wait_for_memory`]: if the thread sleeps next, it looks again
    /// after this time although nobody wakes it. Does nothing on a modelled machine.
    pub fn sleep_at_most(&mut self, time: Duration) {
        self.sleep_max = Some(time);
    }

    /// A thread of the program that makes progress now will sleep if there is none to make: the
    /// time to look for what has gone wrong.
    #[inline]
    pub fn is_about_to_sleep(&self) -> bool {
        self.about_to_sleep
    }

    /// Does the peer that is waited for run now, on another core?
    fn peer_runs(&mut self, what: &WaitingFor<'_>) -> bool {
        let peer = match ProcId::try_from(what.peer) {
            Ok(peer) => Some(peer),
            Err(_) => what.details.and_then(|it| it.awaited_peer(self)),
        };
        self.core_balance.awaited = peer;
        peer.is_some_and(|peer| self.worker.transports.runs_elsewhere(peer))
    }

    /// Does a waiting thread, where ranks outnumber cores, yield once more before it sleeps? It has
    /// yielded `yields` times, has had nothing to do since `first`, and waited since `since`.
    fn yields_again(&mut self, yields: u32, first: Instant, since: &mut Option<Instant>) -> bool {
        if self.worker.has_message_for_slot() {
            return true;
        }
        if self.core_contention.is_contended(first) {
            return false;
        }
        if yields < self::yields() {
            return true;
        }
        let now = Instant::now();
        let yielded = now - first;
        if yielded < FREE_CORE_YIELD_MAX * yields && yielded < FREE_CORE_YIELD_TIME {
            return true;
        }
        if self.worker.engine.streams.take_active() {
            self.core_sharing.streams_until = Some(now + STREAM_ACTIVE_TIME);
        }
        let streams = self
            .core_sharing
            .streams_until
            .is_some_and(|until| now < until);
        streams && now - *since.get_or_insert(now) < STREAM_YIELD_TIME
    }
}

/// Polls between two readings of the clock. A choice.
const POLLS_PER_CLOCK: u32 = 64;

/// The way in which the awaited message arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// By a transport: the progress thread can wait for it as well.
    ByTransport,
    /// Through shared memory that only the caller looks at.
    ByMemory,
}

/// Makes progress until `done` answers true. Called without the device's lock; `done` runs under
/// it, and must not block or call user code that calls MPI.
pub fn wait_until(what: &WaitingFor<'_>, done: impl FnMut(&mut Device) -> bool) {
    wait_for(what, Arrival::ByTransport, done);
}

/// As [`wait_until`], for what arrives by no transport but through shared memory. The progress
/// thread cannot wait for it. Who writes the memory wakes this process ([`Device::waker`]).
pub fn wait_for_memory(what: &WaitingFor<'_>, done: impl FnMut(&mut Device) -> bool) {
    wait_for(what, Arrival::ByMemory, done);
}

/// Makes progress until `done` answers true. First it spins, then it yields its core, then it
/// sleeps: [`WaitPolicy`](crate::progress::state::WaitPolicy) says how long each. Returns with the
/// device's lock.
#[inline]
fn wait_for(
    what: &WaitingFor<'_>,
    arrival: Arrival,
    mut done: impl FnMut(&mut Device) -> bool,
) -> DeviceGuard {
    let mut guard = lock::device();
    if done(&mut guard) {
        return guard;
    }
    guard.begin_wait();
    let multiple = lock::is_multiple();
    let mut policy = guard.wait_policy;
    // Since something moved last: polls, yields of the core, and when the clock was first read.
    let (mut polls, mut yields, mut since) = (0u32, 0, None::<Instant>);
    let mut idle = Idle::NONE;
    // Polls for a peer that runs, since something moved last.
    let mut spins = 0;
    let mut report = WaitReport::new();
    loop {
        let virtually = guard.is_virtual();
        if virtually {
            guard.worker.transports.will_idle();
        }
        let moved = guard.progress();
        if done(&mut guard) {
            if virtually && guard.worker.transports.poll_deferred() {
                guard.progress();
            }
            break;
        }
        if moved {
            (polls, yields, since, spins) = (0, 0, None, 0);
            report.restart();
            continue;
        }
        if !policy.spin.is_zero() {
            polls += 1;
            let spinning = !polls.is_multiple_of(POLLS_PER_CLOCK) || {
                let now = Instant::now();
                let began = *since.get_or_insert_with(|| idle.began(now));
                if guard.shares_core(now) {
                    policy = policy.oversubscribed();
                    if arrival == Arrival::ByTransport {
                        let ended;
                        (guard, ended) = rely_on_thread(guard, what, &mut done, &mut report);
                        if ended {
                            break;
                        }
                    }
                }
                now - began < policy.spin
            };
            if spinning {
                if guard.serve_updates() {
                    // Mostly the next one comes soon.
                    (polls, since) = (0, None);
                }
                guard = spin_once(guard, multiple);
                continue;
            }
        }
        if policy.oversubscribed && spins < SPINS_FOR_RUNNING_PEER {
            spins += 1;
            if guard.peer_runs(what) {
                guard = spin_once(guard, multiple);
                continue;
            }
            spins = SPINS_FOR_RUNNING_PEER;
        }
        guard.stop_serving();
        let idle_since = idle.begin();
        time_slice::ask_once();
        if policy.oversubscribed && guard.yields_again(yields, idle_since, &mut since) {
            yields += 1;
            idle.yields += u32::from(!idle.slept);
            guard = yield_once(guard);
            // Progress was made before the first yield. Who waits for memory mostly finds it
            // written when it has its core back.
            let by_memory = arrival == Arrival::ByMemory || guard.memory_waits > 0;
            if by_memory && done(&mut guard) {
                break;
            }
            continue;
        }
        idle.begin_sleep(&mut guard);
        let ended;
        (guard, ended) = sleep(guard, what, &mut done, &mut report);
        if ended || done(&mut guard) {
            break;
        }
        (polls, yields, since) = (0, 0, None);
    }
    idle.end(&mut guard);
    guard
}

/// Pauses for a few cycles. `multiple`: several threads may be in MPI, and get the device's lock
/// meanwhile.
#[inline(always)]
fn spin_once(mut guard: DeviceGuard, multiple: bool) -> DeviceGuard {
    if multiple {
        drop(guard);
        std::hint::spin_loop();
        guard = lock::device();
    } else {
        std::hint::spin_loop();
    }
    guard
}

/// Gives the core to another thread, and moves to another core if that one is better. Without the
/// device's lock meanwhile.
#[inline]
pub(crate) fn yield_once(mut guard: DeviceGuard) -> DeviceGuard {
    let move_to = guard.core_to_move_to();
    guard.worker.transports.set_off_core(true);
    drop(guard);
    yield_core(move_to);
    guard = lock::device();
    guard.worker.transports.set_off_core(false);
    guard
}

/// How long a call has had nothing to do. Short waits are not timed: reading the clock would cost
/// more than they do.
struct Idle {
    since: Option<Instant>,
    /// Yields before the first sleep.
    yields: u32,
    slept: bool,
}

impl Idle {
    const NONE: Idle = Idle {
        since: None,
        yields: 0,
        slept: false,
    };

    /// The call has nothing to do from now on, if it had before. Returns since when.
    #[inline]
    fn begin(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// As [`Idle::begin`], where the clock was just read. Returns that time.
    fn began(&mut self, now: Instant) -> Instant {
        self.since.get_or_insert(now);
        now
    }

    /// The call is about to sleep.
    fn begin_sleep(&mut self, device: &mut Device) {
        if !std::mem::replace(&mut self.slept, true) && self.yields > 0 {
            self.note_yields(device, Instant::now());
        }
    }

    /// Notes how long the yields took.
    #[inline]
    fn note_yields(&self, device: &mut Device, now: Instant) {
        let ranks = device.wait_policy.ranks_on_core;
        let time = self.since.map_or(Duration::ZERO, |since| now - since);
        device.core_contention.note(self.yields, time, ranks, now);
    }

    /// The call returns.
    #[inline]
    fn end(&self, device: &mut DeviceGuard) {
        device.stop_serving();
        device.end_wait();
        // Virtual time is counted elsewhere.
        if let Some(since) = self.since
            && !device.is_virtual()
        {
            let now = Instant::now();
            if self.yields > 0 && !self.slept {
                self.note_yields(device, now);
            }
            COUNTERS.idle_ns.add((now - since).as_nanos() as u64);
        }
    }
}

/// Sleeps until the wakeup word is signalled, unless there was a signal meanwhile. Returns whether
/// `done` has returned true. It is not called again then.
fn sleep(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    report: &mut WaitReport,
) -> (DeviceGuard, bool) {
    if guard.worker.transports.is_virtual() {
        report.begin_sleep(&mut guard, what);
        guard = crate::progress::virtual_time::sleep(guard);
        report.end_sleep(&mut guard);
        return (guard, false);
    }
    let wakeup = guard.worker.transports.wakeup();
    let seen = wakeup.epoch();
    guard.worker.withdraw_announcements();
    guard.worker.engine.path_selector.hold_no_more();
    guard.worker.transports.arm(Sleeper::Program);
    guard.about_to_sleep = true;
    // What came before the word was armed has not signalled it.
    let moved = guard.progress();
    let ended = done(&mut guard);
    guard.about_to_sleep = false;
    if moved || ended {
        if lock::sleepers() == 0 {
            guard.worker.transports.disarm();
        }
        return (guard, ended);
    }
    report.begin_sleep(&mut guard, what);
    if lock::fall_asleep() == 1 {
        guard.ignore_activity();
    }
    COUNTERS.sleeps.add(1);
    let watches = wakeup.has_descriptors() && lock::take_watch();
    let at_most = guard.sleep_max.take();
    guard.worker.transports.set_off_core(true);
    drop(guard);
    if watches {
        wakeup.wait_descriptors(at_most);
    } else {
        wakeup.wait(Sleeper::Program, seen, at_most);
    }
    let mut guard = lock::device();
    guard.worker.transports.set_off_core(false);
    report.end_sleep(&mut guard);
    if watches {
        lock::end_watch();
    }
    if lock::wake_up() == 0 {
        guard.worker.transports.disarm();
    } else if watches {
        // What came may be for another thread, and another thread must watch.
        wakeup.signal(Sleeper::Program, false);
    }
    (guard, false)
}

/// Sleeps while the progress thread makes progress, if that has a core of its own. Returns whether
/// `done` has returned true. It is not called again then. Otherwise the progress thread needs the
/// program, or there is none to rely on.
fn rely_on_thread(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    report: &mut WaitReport,
) -> (DeviceGuard, bool) {
    let core = guard.core_sharing.core;
    if !guard.rely_on_thread(core) {
        return (guard, false);
    }
    guard.stop_serving();
    let wakeup = guard.worker.transports.wakeup();
    let mut ended = false;
    report.restart();
    while !ended && !guard.must_make_progress() {
        let seen = wakeup.epoch();
        report.begin_sleep(&mut guard, what);
        if lock::fall_asleep() == 1 {
            guard.ignore_activity();
        }
        COUNTERS.sleeps.add(1);
        // From here on the wakeup word is the progress thread's.
        drop(guard);
        wakeup.wait(Sleeper::Program, seen, None);
        guard = lock::device();
        report.end_sleep(&mut guard);
        lock::wake_up();
        ended = done(&mut guard);
    }
    guard.end_reliance();
    (guard, ended)
}

/// The report of one call's wait to the launcher.
struct WaitReport {
    /// The call's number, from before another thread wrote its own: see [`CURRENT_CALL`].
    call: u32,
    /// The wait is reported. It is reported again, without details, after the thread was woken for
    /// nothing.
    reported: bool,
    /// The report, where several threads may be in MPI: they share one page.
    wait: Option<Wait>,
}

impl WaitReport {
    /// Before anything is reported. Called when the wait begins.
    fn new() -> WaitReport {
        WaitReport {
            call: CURRENT_CALL.load(Ordering::Relaxed),
            reported: false,
            wait: None,
        }
    }

    /// Something has moved: the wait begins anew.
    fn restart(&mut self) {
        (self.reported, self.wait) = (false, None);
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The thread is about to sleep.
    fn begin_sleep(&mut self, device: &mut Device, what: &WaitingFor<'_>) {
        device.publish_counts();
        let status = device.status;
        let again = std::mem::replace(&mut self.reported, true);
        if let Some(wait) = &self.wait {
            status.show(wait);
        } else if again {
            status.asleep.store(1, Ordering::Release);
        } else {
            report_wait(device, what, self.call);
        }
        if lock::is_multiple() {
            let wait = *self.wait.get_or_insert_with(|| status.shown());
            device.sleepers.0.push((self.key(), wait));
        }
    }

    /// The thread is awake again.
    fn end_sleep(&self, device: &mut Device) {
        if lock::is_multiple() {
            let key = self.key();
            device.sleepers.0.retain(|&(of, _)| of != key);
        }
        match device.sleepers.0.last() {
            Some((_, wait)) => device.status.show(wait),
            None => device.status.asleep.store(0, Ordering::Relaxed),
        }
    }
}

/// Tells the launcher what this rank waits for in this call.
fn report_wait(device: &mut Device, what: &WaitingFor<'_>, call: u32) {
    let status = device.status;
    status.call.store(call, Ordering::Relaxed);
    status.context.store(what.context.0, Ordering::Relaxed);
    status.peer.store(what.peer, Ordering::Relaxed);
    status.tag.store(what.tag, Ordering::Relaxed);
    // An earlier wait may have left other values.
    status.collective.store(0, Ordering::Relaxed);
    status.root.store(-1, Ordering::Relaxed);
    status.peer_job.store(0, Ordering::Relaxed);
    status.comm_size.store(0, Ordering::Relaxed);
    status.comm_name.clear();
    status.operation.clear();
    status.awaited_count.store(0, Ordering::Relaxed);
    if let Some(details) = what.details {
        details.describe(device, status);
    }
    status.since.store(RankStatus::now(), Ordering::Relaxed);
    status.asleep.store(1, Ordering::Release);
}

/// Waits until `req` has completed and takes its completion. Inlined, so that the completion is
/// read field by field where it lies: copying it as a whole would wait for the stores that have
/// just written its fields.
#[inline(always)]
pub fn wait(req: ReqId, what: &WaitingFor<'_>) -> Completion {
    let mut guard = wait_for_request(req, what);
    guard.worker.engine.requests.take(req)
}

/// Waits until `req` has completed.
#[inline(never)]
fn wait_for_request(req: ReqId, what: &WaitingFor<'_>) -> DeviceGuard {
    wait_for(what, Arrival::ByTransport, |d| {
        d.worker.engine.requests.is_complete(req)
    })
}
