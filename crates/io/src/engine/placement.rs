//! On which cores the pool's threads run: on another core than the thread whose work they do.
//!
//! The system wakes a thread on the core where it slept or beside the thread that wakes it, and
//! leaves it there for some milliseconds. A pool thread would then share the program's core
//! although another one is idle. So the thread that gives work chooses the pool thread's core
//! before it wakes it.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// The core of the calling thread, which gives work.
pub(super) fn giver() -> usize {
    // By libc: rustix reads the vDSO by itself, which valgrind hides from its programs.
    // SAFETY: the call has no conditions.
    unsafe { libc::sched_getcpu() as usize }
}

/// A thread of the pool, and its cores.
pub(super) struct PlacedThread {
    handle: JoinHandle<()>,
    /// The cores that it has inherited from the thread that started it.
    inherited: Option<CpuSet>,
    current: Option<CpuSet>,
    /// Further cores that it may use, if the program is bound to one.
    spare: Option<CpuSet>,
}

impl PlacedThread {
    /// A thread that the caller has started.
    pub fn new(handle: JoinHandle<()>, spare: Option<CpuSet>) -> PlacedThread {
        let inherited = sched_getaffinity(None).ok();
        PlacedThread {
            handle,
            inherited,
            current: inherited,
            spare,
        }
    }

    /// Moves it to a core other than `giver`, if there is one.
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
        if self.current != Some(cores) && self.set_cores(&cores) {
            self.current = Some(cores);
        }
    }

    /// Returns whether the system did it.
    fn set_cores(&self, cores: &CpuSet) -> bool {
        // SAFETY: a set of zeros is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for core in (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)) {
            // SAFETY: `core` is below the number of bits, which is the same in both sets.
            unsafe { libc::CPU_SET(core, &mut set) };
        }
        let thread = self.handle.as_pthread_t();
        // SAFETY: the thread is not joined as long as there is its handle, and the call only reads
        // the set.
        unsafe { libc::pthread_setaffinity_np(thread, size_of_val(&set), &raw const set) == 0 }
    }

    /// Blocks until it has ended.
    pub fn join(self) {
        // A thread that has panicked has ended the process.
        let _ = self.handle.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_setaffinity;
    use std::sync::mpsc;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        set
    }

    /// Starts a thread, places it, and returns its cores and the one that it is on.
    fn placed(spare: Option<CpuSet>, giver: usize) -> (CpuSet, usize) {
        let (go, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let handle = std::thread::spawn(move || {
            wait.recv().unwrap();
            let cores = sched_getaffinity(None).unwrap();
            tell.send((cores, super::giver())).unwrap();
        });
        let mut thread = PlacedThread::new(handle, spare);
        thread.leave(giver);
        go.send(()).unwrap();
        let found = told.recv().unwrap();
        thread.join();
        found
    }

    #[test]
    fn a_thread_leaves_the_core_of_the_program() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| all.is_set(*c)).collect();
            let (now, core) = placed(None, cores[0]);
            if cores.len() == 1 {
                assert!(now == all, "there is no other core");
                return;
            }
            assert!(now == set(&cores[1..]));
            assert_ne!(core, cores[0]);
            // Bound to one core: it takes a spare one, and without any it stays.
            sched_setaffinity(None, &set(&cores[..1])).unwrap();
            assert!(placed(None, cores[0]).0 == set(&cores[..1]));
            let (now, core) = placed(Some(all), cores[0]);
            assert!(now == set(&cores[1..]));
            assert_ne!(core, cores[0]);
        })
        .join()
        .unwrap();
    }
}
