//! Waiting for something to come, without burning a core.
//!
//! Where the node's ranks fit its cores a waiting thread first polls for a short while, because a
//! message between two cores costs a tenth of a sleep. Where they do not, the core is handed over
//! at once. Then the thread sleeps on the process's bell, which whoever brings something rings.

use crate::base::key::ContextId;
use crate::base::request::{Completion, ReqId};
use crate::counters::COUNTERS;
use crate::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use ferry_job::{RankStatus, Wait};
use ferry_transport::Sleeper;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The MPI function being executed: its index in the description of all functions, plus 1; 0 for
/// none. Written by the abi floor on entry, read here when a wait begins. With several threads in
/// MPI it names the last of them to enter.
pub static CURRENT_CALL: AtomicU32 = AtomicU32::new(0);

/// Something that can tell the launcher more about a wait: a communicator, a request.
pub trait Describe {
    /// Writes what it knows (name, size, rank, collective number, whom a request waits for) into
    /// the status page.
    fn describe(&self, device: &mut Device, status: &RankStatus);
}

/// What a blocking call waits for; shown to the user if the job hangs.
#[derive(Clone, Copy)]
pub struct WaitingFor<'a> {
    /// The communicator's context.
    pub context: ContextId,
    /// The peer's process number; -1 any, -2 several.
    pub peer: i32,
    /// The tag; -1 any.
    pub tag: i32,
    /// Who can tell more.
    pub details: Option<&'a dyn Describe>,
}

impl WaitingFor<'_> {
    /// Several operations, of any communicator.
    pub const SEVERAL: WaitingFor<'static> = WaitingFor {
        context: ContextId::WORLD,
        peer: -2,
        tag: -1,
        details: None,
    };
}

/// How waiting is done in this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitPolicy {
    /// Poll for so long before giving up the core.
    pub spin: Duration,
    /// Then hand the core over, as often as [`yields`] says, before sleeping.
    pub crowded: bool,
}

impl WaitPolicy {
    /// On a modelled machine time does not pass by itself.
    pub const NONE: WaitPolicy = WaitPolicy {
        spin: Duration::ZERO,
        crowded: false,
    };

    /// Where others want the core.
    const CROWDED: WaitPolicy = WaitPolicy {
        spin: Duration::ZERO,
        crowded: true,
    };

    /// For `ranks` ranks on a node of which the job may use `cores` cores.
    pub fn new(ranks: u32, cores: u32) -> WaitPolicy {
        if ranks <= cores {
            WaitPolicy {
                spin: Duration::from_micros(100),
                crowded: false,
            }
        } else {
            WaitPolicy::CROWDED
        }
    }
}

/// Where ranks outnumber cores: how often a waiting rank hands its core over before it sleeps. A
/// hand-over costs less than sleeping and being woken, and mostly the message is there when the
/// core comes back; with 4 ranks on 2 cores, ten halve what one costs. FERRY_YIELDS sets another
/// number.
const YIELDS: u32 = 10;

static YIELDS_SET: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

/// How often a waiting rank hands its core over before it sleeps, where ranks outnumber cores: what
/// FERRY_YIELDS or [`set_yields`] said, or 10.
#[inline]
pub fn yields() -> u32 {
    match YIELDS_SET.load(Ordering::Relaxed) {
        UNKNOWN => yields_asked(),
        n => n,
    }
}

#[cold]
fn yields_asked() -> u32 {
    let asked = std::env::var("FERRY_YIELDS").ok();
    set_yields(asked.and_then(|v| v.trim().parse().ok()).unwrap_or(YIELDS));
    YIELDS_SET.load(Ordering::Relaxed)
}

/// Says how often, from now on.
pub fn set_yields(times: u32) {
    YIELDS_SET.store(times.min(UNKNOWN - 1), Ordering::Relaxed);
}

/// While large messages come or go by a connection their next bytes are there within microseconds,
/// and who sleeps has the system tell it of each packet: then the core is handed over for so long
/// instead.
const HANDS_OVER: Duration = Duration::from_millis(1);
/// They come or go as long as bytes of one have within this time.
const STREAMS: Duration = Duration::from_millis(20);

impl Device {
    /// Is a waiting rank, where ranks outnumber cores, to hand its core over once more before it
    /// sleeps? It has done so `yields` times, and waited since then.
    fn hands_over(&mut self, yields: u32, since: &mut Option<Instant>) -> bool {
        if self.awaits_turn() || yields < self::yields() {
            return true;
        }
        let now = Instant::now();
        if std::mem::take(&mut self.engine.large_moved) {
            self.place.streams_until = Some(now + STREAMS);
        }
        let streams = self.place.streams_until.is_some_and(|until| now < until);
        streams && now - *since.get_or_insert(now) < HANDS_OVER
    }
}

/// Polls between two looks at the clock.
const POLLS: u32 = 64;

/// How what is waited for comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// By a wire, at whose end the progress thread can wait as well.
    ByWire,
    /// Through memory that the caller alone looks at.
    Beside,
}

/// Makes progress until `done` answers true. Called without the device's lock; `done` runs under
/// it, and must not block or call user code that calls MPI.
pub fn wait_until(what: &WaitingFor<'_>, done: impl FnMut(&mut Device) -> bool) {
    wait_for(what, Comes::ByWire, done);
}

/// The same for what comes by no wire: the progress thread can do nothing about it, and nothing is
/// left to it.
pub(crate) fn wait_beside_wires(what: &WaitingFor<'_>, done: impl FnMut(&mut Device) -> bool) {
    wait_for(what, Comes::Beside, done);
}

#[inline]
fn wait_for(what: &WaitingFor<'_>, comes: Comes, mut done: impl FnMut(&mut Device) -> bool) {
    let mut guard = lock::device();
    if done(&mut guard) {
        return;
    }
    guard.begin_wait();
    let multiple = lock::is_multiple();
    let mut patience = guard.wait_policy;
    let mut polls = 0;
    let mut yields = 0;
    let mut since: Option<Instant> = None;
    let mut idle = Idle(None);
    let mut told = Told::nothing();
    loop {
        let virtually = guard.is_virtual();
        if virtually {
            guard.wires.will_idle();
        }
        let moved = guard.progress();
        if done(&mut guard) {
            if virtually && guard.wires.poll_deferred() {
                guard.progress();
            }
            return idle.end(&mut guard);
        }
        if moved {
            (polls, yields, since) = (0, 0, None);
            told.forget();
            continue;
        }
        if !patience.spin.is_zero() {
            polls += 1;
            let spinning = polls % POLLS != 0 || {
                let now = Instant::now();
                let since = *since.get_or_insert_with(|| idle.began(now));
                if guard.shares_core(now) {
                    patience = WaitPolicy::CROWDED;
                    let core = guard.place.core();
                    if comes == Comes::ByWire && guard.entrust(core) {
                        idle.began(now);
                        let ended;
                        (guard, ended) = rest(guard, what, &mut done, &mut told);
                        if ended {
                            return idle.end(&mut guard);
                        }
                    }
                }
                now - since < patience.spin
            };
            if spinning {
                if multiple {
                    drop(guard);
                    std::hint::spin_loop();
                    guard = lock::device();
                } else {
                    std::hint::spin_loop();
                }
                continue;
            }
        }
        if patience.crowded && guard.hands_over(yields, &mut since) {
            yields += 1;
            idle.begin();
            COUNTERS.yields.add(1);
            drop(guard);
            rustix::thread::sched_yield();
            guard = lock::device();
            continue;
        }
        idle.begin();
        let ended;
        (guard, ended) = sleep(guard, what, &mut done, &mut told);
        if ended || done(&mut guard) {
            return idle.end(&mut guard);
        }
        (polls, yields, since) = (0, 0, None);
    }
}

/// Since when a call has had nothing to do but wait. Short waits are not timed: looking at the
/// clock would cost more than they do.
struct Idle(Option<Instant>);

impl Idle {
    /// It has nothing to do.
    #[inline]
    fn begin(&mut self) {
        self.0.get_or_insert_with(Instant::now);
    }

    /// The same, and that is so since now.
    fn began(&mut self, now: Instant) -> Instant {
        self.0.get_or_insert(now);
        now
    }

    /// The call returns.
    #[inline]
    fn end(&self, device: &mut DeviceGuard) {
        device.end_wait();
        // On a modelled machine the time that counts is another, and counted elsewhere.
        if let Some(since) = self.0
            && !device.is_virtual()
        {
            COUNTERS.idle_ns.add(since.elapsed().as_nanos() as u64);
        }
    }
}

/// Sleeps until the bell rings, unless something happened meanwhile. Returns whether what is waited
/// for is known to be there: `done` is not asked again once it has said yes.
fn sleep(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    told: &mut Told,
) -> (DeviceGuard, bool) {
    if guard.wires.is_virtual() {
        told.lie_down(&mut guard, what);
        guard = crate::progress::virtual_time::rest(guard);
        told.get_up(&mut guard);
        return (guard, false);
    }
    let bell = guard.wires.wakeup();
    let seen = bell.epoch();
    guard.wires.arm(Sleeper::Program);
    // Whatever came before the bell was armed has not rung it.
    let moved = guard.progress();
    let ended = done(&mut guard);
    if moved || ended {
        if lock::sleepers() == 0 {
            guard.wires.disarm();
        }
        return (guard, ended);
    }
    told.lie_down(&mut guard, what);
    if lock::fall_asleep() == 1 {
        guard.calm();
    }
    COUNTERS.sleeps.add(1);
    let watches = bell.has_descriptors() && lock::take_watch();
    drop(guard);
    if watches {
        bell.wait_descriptors();
    } else {
        bell.wait(Sleeper::Program, seen, None);
    }
    let mut guard = lock::device();
    told.get_up(&mut guard);
    if watches {
        lock::end_watch();
    }
    if lock::wake_up() == 0 {
        guard.wires.disarm();
    } else if watches {
        // What came may be for another thread, and another thread must watch.
        bell.signal(Sleeper::Program, false);
    }
    (guard, false)
}

/// Sleeps until what is waited for is there, which the progress thread sees to meanwhile on its own
/// core. Returns whether it is: that thread may not be able to go on without the program. `done` is
/// not asked again once it has said yes.
fn rest(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    told: &mut Told,
) -> (DeviceGuard, bool) {
    let bell = guard.wires.wakeup();
    let mut ended = false;
    told.forget();
    while !ended && !guard.is_stuck() {
        let seen = bell.epoch();
        told.lie_down(&mut guard, what);
        if lock::fall_asleep() == 1 {
            guard.calm();
        }
        COUNTERS.sleeps.add(1);
        // From here on the bell is the progress thread's.
        drop(guard);
        bell.wait(Sleeper::Program, seen, None);
        guard = lock::device();
        told.get_up(&mut guard);
        lock::wake_up();
        ended = done(&mut guard);
    }
    guard.end_trust();
    (guard, ended)
}

/// What the launcher has been told of one call's wait.
struct Told {
    /// The call's number, from before another thread wrote its own: see [`CURRENT_CALL`].
    call: u32,
    /// It has been told; it is told again, without more, after the thread was woken for nothing.
    once: bool,
    /// What, where several threads may be in MPI: they share one page.
    wait: Option<Wait>,
}

/// Threads that sleep, by the addresses of their [`Told`], where several may be in MPI; the last
/// one's wait is on the page.
#[derive(Default)]
pub(crate) struct Sleepers(Vec<(usize, Wait)>);

impl Told {
    /// Nothing so far. To be called when the wait begins.
    fn nothing() -> Told {
        Told {
            call: CURRENT_CALL.load(Ordering::Relaxed),
            once: false,
            wait: None,
        }
    }

    /// Something has moved: the wait counts from here.
    fn forget(&mut self) {
        (self.once, self.wait) = (false, None);
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The thread is about to sleep.
    fn lie_down(&mut self, device: &mut Device, what: &WaitingFor<'_>) {
        device.publish_counts();
        let status = device.status;
        let again = std::mem::replace(&mut self.once, true);
        if let Some(wait) = &self.wait {
            status.show(wait);
        } else if again {
            status.asleep.store(1, Ordering::Release);
        } else {
            tell(device, what, self.call);
        }
        if lock::is_multiple() {
            let wait = *self.wait.get_or_insert_with(|| status.shown());
            device.sleepers.0.push((self.key(), wait));
        }
    }

    /// The thread is awake again.
    fn get_up(&self, device: &mut Device) {
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

/// Tells the launcher what this rank waits for, in this call.
fn tell(device: &mut Device, what: &WaitingFor<'_>, call: u32) {
    let status = device.status;
    status.call.store(call, Ordering::Relaxed);
    status.context.store(what.context.0, Ordering::Relaxed);
    status.peer.store(what.peer, Ordering::Relaxed);
    status.tag.store(what.tag, Ordering::Relaxed);
    // What an earlier wait said about its communicator is not this one's.
    status.collective.store(0, Ordering::Relaxed);
    status.root.store(-1, Ordering::Relaxed);
    status.comm_size.store(0, Ordering::Relaxed);
    status.comm_name[0].store(0, Ordering::Relaxed);
    if let Some(details) = what.details {
        details.describe(device, status);
    }
    status.since.store(RankStatus::now(), Ordering::Relaxed);
    status.asleep.store(1, Ordering::Release);
}

/// Waits until `req` has completed and takes its completion.
#[inline]
pub fn wait(req: ReqId, what: &WaitingFor<'_>) -> Completion {
    let mut completion = None;
    wait_until(what, |d| {
        let complete = d.is_complete(req);
        if complete {
            completion = Some(d.take(req));
        }
        complete
    });
    completion.expect("wait_until returns when done")
}
