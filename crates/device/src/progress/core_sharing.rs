//! Who is on which core: a rank that waits does not poll on a core that another rank wants, and a
//! progress thread leaves those of the programs alone if it may use others.

use crate::device::Device;
use crate::progress::lock;
use ferry_transport::Transports;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::time::{Duration, Instant};

/// For how long an answer is taken to hold.
const HOLDS: Duration = Duration::from_millis(1);

/// A core that was handed over is expected back within so long.
const SOON: Duration = Duration::from_micros(100);
/// When it came back later, others do not leave first for so many times as long as that took.
const KEEPS: u32 = 100;

/// What a process last found about the core on which its program waits.
pub(crate) struct Place {
    core: u32,
    shared: bool,
    asked: Option<Instant>,
    /// It let others leave first when it last came last.
    gave: bool,
    /// What [`crate::progress::thread::handed`] was then.
    handed: u32,
    /// Until then large messages count as coming or going by connections.
    pub streams_until: Option<Instant>,
    /// It does not let others leave first until then.
    keeps_until: Option<Instant>,
}

impl Place {
    pub const UNKNOWN: Place = Place {
        core: 0,
        shared: false,
        asked: None,
        gave: false,
        handed: 0,
        streams_until: None,
        keeps_until: None,
    };

    /// The core.
    pub fn core(&self) -> u32 {
        self.core
    }
}

impl Device {
    /// May this thread poll where it is: is no other rank known to want its core?
    #[inline]
    pub(crate) fn polls_alone(&self) -> bool {
        !self.place.shared && !self.wait_policy.spin.is_zero()
    }

    /// Does another of the node's ranks wait on the core on which this thread runs, or did it last?
    /// Polling would then keep that one from what this one waits for. So it is where a program,
    /// or whoever started it, has put several ranks on one core.
    pub(crate) fn shares_core(&mut self, now: Instant) -> bool {
        let core = sched_getcpu() as u32;
        let place = &self.place;
        let known = place.core == core && place.asked.is_some_and(|at| now - at < HOLDS);
        if !known {
            let shared = self.wires.shares_core(core);
            let place = &mut self.place;
            (place.core, place.shared, place.asked) = (core, shared, Some(now));
        }
        self.place.shared
    }
}

/// For who came last to a barrier, and has the core on which others wait for it: every other time
/// these go first. Who comes last would otherwise be first to leave, too, wait for the others in
/// what follows, come last once more, and so for ever: one would do all the waiting. Only where
/// large messages were left to the progress thread meanwhile: between small ones the hand-over
/// costs more than it is worth.
pub fn yield_after_barrier() {
    if !crate::has_progress_thread() {
        return;
    }
    let handed = crate::progress::thread::handed();
    let gives = {
        let mut device = lock::device();
        let place = &mut device.place;
        let long = std::mem::replace(&mut place.handed, handed) != handed;
        place.gave = long && place.shared && !place.gave;
        place.gave
            && place
                .keeps_until
                .is_none_or(|until| Instant::now() >= until)
    };
    if !gives {
        return;
    }
    let since = Instant::now();
    rustix::thread::sched_yield();
    let took = since.elapsed();
    if took > SOON {
        // Somebody computes there.
        lock::device().place.keeps_until = Some(Instant::now() + took * KEEPS);
    }
}

/// Where the calling thread, the progress thread, may run.
pub(crate) struct Seat {
    /// What it was given. `None`: the system does not say.
    given: Option<CpuSet>,
    now: Option<CpuSet>,
    asked: Option<Instant>,
    /// It is on cores on which no rank of the node computes, as far as all of them have told.
    spare: bool,
}

impl Seat {
    /// Wherever it may run now.
    pub fn given() -> Seat {
        let given = sched_getaffinity(None).ok();
        Seat {
            given,
            now: given,
            asked: None,
            spare: false,
        }
    }

    /// Is it, for all that is known, on a core on which no program of the node's ranks computes?
    pub fn is_spare(&self) -> bool {
        self.spare
    }

    /// Moves to the cores on which no program waits, if there are any; the system would leave a
    /// thread that is woken where it slept, or beside who woke it, and it would take its time
    /// from a program though another core has nothing to do. `ranks`: how many the node has.
    pub fn choose(&mut self, wires: &Transports, ranks: u32) {
        let Some(given) = self.given else { return };
        let now = Instant::now();
        if self.asked.is_some_and(|at| now - at < HOLDS) {
            return;
        }
        self.asked = Some(now);
        let mut spare = given;
        let mut known = 0;
        wires.for_each_waiting_core(&mut |core| {
            known += 1;
            if (core as usize) < CpuSet::MAX_CPU {
                spare.unset(core as usize);
            }
        });
        let wanted = if spare.count() > 0 { spare } else { given };
        self.spare = spare.count() > 0 && known == ranks;
        if self.now != Some(wanted) && sched_setaffinity(None, &wanted).is_ok() {
            self.now = Some(wanted);
        }
    }
}
