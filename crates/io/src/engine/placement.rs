//! On which cores the pool's threads run: not on that of the thread whose work they do.
//!
//! The system wakes a thread where it slept, or beside who woke it, and leaves it there for some
//! milliseconds. It would take its time from the program though another core is idle.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where the pool's threads may run.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    /// Cores beside those that a thread inherits, for a program that is bound to one.
    spare: Option<CpuSet>,
}

/// A thread of the pool, and its cores.
pub(super) struct PlacedThread {
    inherited: Option<CpuSet>,
    current: Option<CpuSet>,
    spare: Option<CpuSet>,
}

impl Placement {
    pub fn new(spare: Option<CpuSet>) -> Placement {
        Placement { spare }
    }

    /// The core of the calling thread, which gives work.
    pub fn giver(self) -> usize {
        sched_getcpu()
    }

    /// For the calling thread, which does it.
    pub fn thread(self) -> PlacedThread {
        let inherited = sched_getaffinity(None).ok();
        PlacedThread {
            inherited,
            current: inherited,
            spare: self.spare,
        }
    }
}

impl PlacedThread {
    /// Moves to a core other than `giver`, if there is one.
    pub fn leave(&mut self, giver: usize) {
        let Some(inherited) = self.inherited else {
            return;
        };
        let without = |mut cores: CpuSet| {
            if giver < CpuSet::MAX_CPU {
                cores.unset(giver);
            }
            (cores.count() > 0).then_some(cores)
        };
        let cores = without(inherited)
            .or_else(|| self.spare.and_then(without))
            .unwrap_or(inherited);
        if self.current != Some(cores) && sched_setaffinity(None, &cores).is_ok() {
            self.current = Some(cores);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        set
    }

    #[test]
    fn a_thread_leaves_the_core_of_the_program() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| all.is_set(*c)).collect();
            let now = || sched_getaffinity(None).unwrap();
            let mut thread = Placement::new(None).thread();
            thread.leave(cores[0]);
            if cores.len() == 1 {
                assert!(now() == all, "there is no other core");
                return;
            }
            assert!(now() == set(&cores[1..]));
            assert_ne!(sched_getcpu(), cores[0]);
            // Bound to one core: it takes a spare one, and without any it stays.
            sched_setaffinity(None, &set(&cores[..1])).unwrap();
            Placement::new(None).thread().leave(cores[0]);
            assert!(now() == set(&cores[..1]));
            Placement::new(Some(all)).thread().leave(cores[0]);
            assert!(now() == set(&cores[1..]));
        })
        .join()
        .unwrap();
    }
}
