//! Waiting without burning a core: how a blocking call polls, yields and sleeps.
//!
//! A waiting thread makes progress itself. Where the ranks fit the cores of the node, it polls for
//! a tenth of a millisecond. Where they do not, it yields its core a few times. Then the thread
//! sleeps on the process's wakeup word. A peer that sends a message signals it.

mod idle;
mod report;
pub(crate) mod running_peer;
mod sleep;
mod waiting_for;

pub use report::CURRENT_CALL;
pub use waiting_for::{Describe, WaitingFor};

use crate::base::request::{Completion, ReqId};
use crate::progress::core_balance::yield_core;
use crate::progress::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use crate::progress::state::WaitPolicy;
use crate::progress::time_slice;
use idle::Idle;
use report::WaitReport;
use running_peer::PollsForPeer;
use sleep::{rely_on_thread, sleep};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
    let set = ferry_job::settings::YIELDS.whole();
    set_yields(set.map_or(YIELDS_DEFAULT, |times| times as u32));
    YIELDS_SET.load(Ordering::Relaxed)
}

/// Sets how often a waiting thread yields, from now on.
pub fn set_yields(times: u32) {
    YIELDS_SET.store(times.min(UNKNOWN - 1), Ordering::Relaxed);
}

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

/// Makes progress until `done` answers true. First the thread polls, then it yields its core, then
/// it sleeps: [`Pace`] decides. Returns with the device's lock.
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
    let mut pace = Pace::new(guard.wait_policy, arrival);
    let mut report = WaitReport::new();
    loop {
        let (moved, mut ended) = make_progress(&mut guard, &mut done);
        if ended {
            break;
        }
        if moved {
            pace.restart();
            report.restart();
            continue;
        }
        match pace.next_step(&mut guard, what) {
            Step::Poll => guard = spin_once(guard, multiple),
            Step::RelyOnThread => {
                (guard, ended) = rely_on_thread(guard, what, &mut done, &mut report);
            }
            Step::Yield => {
                guard = yield_once(guard);
                // Progress was made before the first yield. Who waits for memory mostly finds it
                // written when it has its core back.
                let by_memory = arrival == Arrival::ByMemory || guard.memory_waits > 0;
                ended = by_memory && done(&mut guard);
            }
            Step::Sleep => {
                (guard, ended) = sleep(guard, what, &mut done, &mut report);
                ended = ended || done(&mut guard);
            }
        }
        if ended {
            break;
        }
    }
    pace.idle.end(&mut guard);
    guard
}

/// Makes progress once. Returns whether something has moved, and whether `done` answers true.
#[inline(always)]
fn make_progress(device: &mut Device, done: &mut impl FnMut(&mut Device) -> bool) -> (bool, bool) {
    let virtually = device.is_virtual();
    if virtually {
        device.worker.transports.will_idle();
    }
    let moved = device.progress();
    let ended = done(device);
    if ended && virtually && device.worker.transports.poll_deferred() {
        device.progress();
    }
    (moved, ended)
}

/// What a thread does next if there is no progress to make.
enum Step {
    /// It keeps its core and polls again.
    Poll,
    /// Another rank waits on its core: it sleeps while the progress thread works, if there is one.
    RelyOnThread,
    /// It hands its core over.
    Yield,
    /// It sleeps until it is woken.
    Sleep,
}

/// The pace of one wait: what the thread has done since something moved last.
struct Pace {
    policy: WaitPolicy,
    arrival: Arrival,
    /// Polls, where it has a core.
    polls: u32,
    /// Where it has none: polls for a peer that has.
    polls_for_peer: PollsForPeer,
    /// Yields of its core.
    yields: u32,
    /// When the clock was first read.
    since: Option<Instant>,
    idle: Idle,
}

impl Pace {
    #[inline(always)]
    fn new(policy: WaitPolicy, arrival: Arrival) -> Pace {
        Pace {
            policy,
            arrival,
            polls: 0,
            polls_for_peer: PollsForPeer::NONE,
            yields: 0,
            since: None,
            idle: Idle::NONE,
        }
    }

    /// Something has moved.
    #[inline(always)]
    fn restart(&mut self) {
        self.polls_for_peer = PollsForPeer::NONE;
        self.restart_after_sleep();
    }

    #[inline(always)]
    fn restart_after_sleep(&mut self) {
        (self.polls, self.yields, self.since) = (0, 0, None);
    }

    /// Nothing has moved: decides what the thread does.
    #[inline(always)]
    fn next_step(&mut self, device: &mut Device, what: &WaitingFor<'_>) -> Step {
        if !self.policy.spin.is_zero() {
            if self.polls_again(device) {
                return Step::Poll;
            }
            if self.policy.oversubscribed && self.arrival == Arrival::ByTransport {
                return Step::RelyOnThread;
            }
        }
        let oversubscribed = self.policy.oversubscribed;
        let peer = |device: &mut Device| what.awaited_peer(device);
        if oversubscribed && self.polls_for_peer.again(device, peer) {
            return Step::Poll;
        }
        device.stop_serving();
        let idle_since = self.idle.begin();
        time_slice::ask_once();
        if oversubscribed && device.yields_again(self.yields, idle_since, &mut self.since) {
            self.yields += 1;
            self.idle.note_yield();
            return Step::Yield;
        }
        self.idle.begin_sleep(device);
        self.restart_after_sleep();
        Step::Sleep
    }

    /// Does the thread, which has a core, poll again? If so, it also does what peers have left.
    #[inline(always)]
    fn polls_again(&mut self, device: &mut Device) -> bool {
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS_PER_CLOCK) && !self.has_time(device) {
            return false;
        }
        if device.serve_updates() {
            // Mostly the next one comes soon.
            (self.polls, self.since) = (0, None);
        }
        true
    }

    /// Reads the clock: has the thread polled for less than the policy allows? It has no time at
    /// all if another rank waits on its core.
    #[inline]
    fn has_time(&mut self, device: &mut Device) -> bool {
        let now = Instant::now();
        let idle = &mut self.idle;
        let began = *self.since.get_or_insert_with(|| idle.began(now));
        if device.shares_core(now) {
            self.policy = self.policy.oversubscribed();
        }
        now - began < self.policy.spin
    }
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
