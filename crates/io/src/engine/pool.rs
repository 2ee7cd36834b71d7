//! A small pool of threads. A thread is started when there is work and none is idle.

use super::placement::{PlacedThread, giver};
use super::{Job, STACK_BYTES};
use rustix::thread::CpuSet;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The pool.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
    /// Cores for the threads if the program is bound to one.
    spare_cores: Option<CpuSet>,
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
    threads: Vec<PlacedThread>,
    /// Threads that wait for a job, by their places in `threads`.
    idle: Vec<usize>,
    ends: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Thread `me` of the pool: does jobs until the pool ends.
    fn work(&self, me: usize) {
        let mut state = self.state();
        loop {
            if let Some((job, giver)) = state.jobs.pop_front() {
                // It was busy when it was given, or another thread was to do it.
                if let Some(thread) = state.threads.get_mut(me) {
                    thread.leave(giver);
                }
                drop(state);
                job();
                state = self.state();
            } else if state.ends {
                return;
            } else {
                state.idle.push(me);
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle.retain(|thread| *thread != me);
            }
        }
    }
}

impl Pool {
    pub fn new(threads_max: usize, spare_cores: Option<CpuSet>) -> Pool {
        Pool {
            shared: Arc::default(),
            threads_max,
            spare_cores,
        }
    }

    /// Does a job on a thread; on the caller's if the system gives none.
    pub fn run(&self, job: Job) {
        let giver = giver();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        state.jobs.push_back((job, giver));
        for thread in &state.idle {
            state.threads[*thread].leave(giver);
        }
        let me = state.threads.len();
        if state.jobs.len() > state.idle.len() && me < self.threads_max {
            let shared = self.shared.clone();
            match ferry_job::start_thread("io", STACK_BYTES, move || shared.work(me)) {
                Ok(handle) => {
                    let mut thread = PlacedThread::new(handle, self.spare_cores);
                    thread.leave(giver);
                    state.threads.push(thread);
                }
                Err(_) if state.threads.is_empty() => {
                    let job = state.jobs.pop_back();
                    drop(guard);
                    if let Some((job, _)) = job {
                        job();
                    }
                    return;
                }
                Err(_) => {}
            }
        }
        drop(guard);
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
            thread.join();
        }
    }
}
