//! A small pool of threads. A thread is started when there is work and none is idle.

use super::placement::Placement;
use super::{Job, STACK_BYTES};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The pool.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
    placement: Placement,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a job, or the pool ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs, and the core of who has given each.
    jobs: VecDeque<(Job, usize)>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    ends: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of the pool: does jobs until the pool ends.
    fn work(&self, placement: Placement) {
        let mut thread = placement.thread();
        let mut state = self.state();
        loop {
            if let Some((job, giver)) = state.jobs.pop_front() {
                drop(state);
                thread.leave(giver);
                job();
                state = self.state();
            } else if state.ends {
                return;
            } else {
                state.idle += 1;
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Pool {
    pub fn new(threads_max: usize, placement: Placement) -> Pool {
        Pool {
            shared: Arc::default(),
            threads_max,
            placement,
        }
    }

    /// Does a job on a thread; on the caller's if the system gives none.
    pub fn run(&self, job: Job) {
        let placement = self.placement;
        let mut state = self.shared.state();
        state.jobs.push_back((job, placement.giver()));
        if state.jobs.len() > state.idle && state.threads.len() < self.threads_max {
            let shared = self.shared.clone();
            let work = move || shared.work(placement);
            match ferry_job::start_thread("io", STACK_BYTES, work) {
                Ok(thread) => state.threads.push(thread),
                Err(_) if state.threads.is_empty() => {
                    let job = state.jobs.pop_back();
                    drop(state);
                    if let Some((job, _)) = job {
                        job();
                    }
                    return;
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Ends the threads. Blocks until they have done all jobs.
    pub fn stop(self) {
        let mut state = self.shared.state();
        state.ends = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.changed.notify_all();
        for thread in threads {
            // A thread that has panicked has ended the process.
            let _ = thread.join();
        }
    }
}
