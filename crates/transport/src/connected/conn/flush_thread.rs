//! The flush thread: sends what connections have kept to coalesce, when the program stays outside
//! of MPI.
//!
//! It starts when the first message is kept. It looks at the connections that keep something every
//! [`FLUSH_DELAY`], and sleeps when none has kept anything for some time. So a run of messages
//! costs no system call to wake it, as long as runs come often.

use super::coalesce::{Coalesced, FLUSH_DELAY};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

/// Stack of the thread, bytes. A choice: it calls send(2) and little else.
const STACK_BYTES: usize = 64 * 1024;

/// The thread of a process, which runs once a connection is listed.
#[derive(Default)]
pub struct FlushThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The system gives no thread.
    refused: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections to look at.
    connections: Vec<Weak<Coalesced>>,
    /// The thread waits for a connection.
    sleeps: bool,
    /// The thread is to end.
    ends: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does until it is to end.
    fn run(&self) {
        // SAFETY: the call concerns this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
        let mut state = self.state();
        loop {
            while state.connections.is_empty() && !state.ends {
                state.sleeps = true;
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.sleeps = false;
            if !state.ends {
                let waited = self.changed.wait_timeout(state, FLUSH_DELAY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.ends {
                return;
            }
            let mut connections = std::mem::take(&mut state.connections);
            // The program lists connections while it holds the lock of what they keep.
            drop(state);
            connections.retain(|c| c.upgrade().is_some_and(|c| c.flush_old()));
            state = self.state();
            state.connections.append(&mut connections);
        }
    }
}

impl FlushThread {
    /// Has the thread look at what a connection keeps, until it has kept nothing for some time.
    /// False: there is no thread.
    pub fn list(&mut self, coalesced: &Arc<Coalesced>) -> bool {
        if self.thread.is_none() {
            if self.refused {
                return false;
            }
            let shared = self.shared.clone();
            let started = ferry_job::start_thread("flush", STACK_BYTES, move || shared.run());
            self.refused = started.is_err();
            self.thread = started.ok();
            if self.refused {
                return false;
            }
        }
        let mut state = self.shared.state();
        state.connections.push(Arc::downgrade(coalesced));
        if state.sleeps {
            state.sleeps = false;
            self.shared.changed.notify_one();
        }
        true
    }
}

impl Drop for FlushThread {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic ends the whole process, so the thread has not panicked.
            let _ = thread.join();
        }
    }
}
