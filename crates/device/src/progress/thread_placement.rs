//! On which cores the progress thread runs: on those where no program waits, if there are any.

use ferry_transport::Transports;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::{Duration, Instant};

/// How long the list of cores on which programs wait stays valid. A choice.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Where the calling thread, the progress thread, may run.
pub(crate) struct ThreadPlacement {
    /// The cores that it has inherited. `None`: the system does not say.
    inherited: Option<CpuSet>,
    current: Option<CpuSet>,
    checked_at: Option<Instant>,
    /// It is on cores on which no rank of the node computes, and all ranks have told theirs.
    spare: bool,
}

impl ThreadPlacement {
    /// Wherever it may run now.
    pub fn inherited() -> ThreadPlacement {
        let inherited = sched_getaffinity(None).ok();
        ThreadPlacement {
            inherited,
            current: inherited,
            checked_at: None,
            spare: false,
        }
    }

    /// Is it, for all that is known, on a core on which no program of the node's ranks computes?
    pub fn has_spare_core(&self) -> bool {
        self.spare
    }

    /// Moves to the cores on which no program waits, if there are any. The system would leave a
    /// woken thread where it slept or beside who woke it, and the thread would take its time from a
    /// program though another core is idle. `ranks`: the number of ranks on the node.
    pub fn choose(&mut self, transports: &Transports, ranks: u32) {
        let Some(inherited) = self.inherited else {
            return;
        };
        let now = Instant::now();
        if self.checked_at.is_some_and(|at| now - at < CHECK_INTERVAL) {
            return;
        }
        self.checked_at = Some(now);
        let mut spare = inherited;
        let mut known = 0;
        transports.for_each_waiting_core(&mut |core| {
            known += 1;
            if (core as usize) < CpuSet::MAX_CPU {
                spare.unset(core as usize);
            }
        });
        let chosen = if spare.count() > 0 { spare } else { inherited };
        self.spare = spare.count() > 0 && known == ranks;
        if self.current != Some(chosen) && sched_setaffinity(None, &chosen).is_ok() {
            self.current = Some(chosen);
        }
    }
}
