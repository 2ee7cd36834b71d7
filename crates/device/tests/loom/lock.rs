//! Processes that take a lock and sleep while they wait: never two where one is alone, and nobody
//! sleeps for ever.

use super::lock::{NodeLock, Patience};
use super::wait_set::WaitSet;
use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// What a process asks for: exclusively or shared, and how patient it is.
#[derive(Clone, Copy)]
struct Request {
    exclusive: bool,
    patience: Patience,
}

const WRITES: Request = Request {
    exclusive: true,
    patience: Patience::New,
};
const READS: Request = Request {
    exclusive: false,
    patience: Patience::New,
};

impl Request {
    /// From its second try on it starves.
    const fn starving(self) -> Request {
        Request {
            patience: Patience::Starving,
            ..self
        }
    }
}

struct Process {
    /// The control page's `asleep`.
    asleep: AtomicU32,
    futex: Notify,
}

struct Window {
    lock: NodeLock,
    waiting: [AtomicU64; 1],
    processes: Vec<Process>,
    /// Written under the lock. Loom watches it.
    value: UnsafeCell<u32>,
}

impl Window {
    fn new(processes: usize) -> Arc<Window> {
        let process = || Process {
            asleep: AtomicU32::new(0),
            futex: Notify::new(),
        };
        Arc::new(Window {
            lock: NodeLock::new(),
            waiting: [AtomicU64::new(0)],
            processes: std::iter::repeat_with(process).take(processes).collect(),
            value: UnsafeCell::new(0),
        })
    }

    fn attempt(&self, me: usize, request: Request, patience: Patience) -> bool {
        match request.exclusive {
            true => self.lock.try_exclusive(me as u32, patience),
            false => self.lock.try_shared(me as u32, patience),
        }
    }

    /// Wakes the set (`Waker::wake` for each).
    fn wake_all(&self) {
        WaitSet::new(&self.waiting).drain(|i| {
            let Process { asleep, futex } = &self.processes[i];
            if asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::SeqCst) != 0 {
                futex.notify();
            }
        });
    }

    /// Takes the lock, asleep while it waits. `tries`: after this many it gives up. Returns
    /// whether it has the lock.
    fn take(&self, me: usize, request: Request, tries: u32) -> bool {
        if self.attempt(me, request, Patience::New) {
            return true;
        }
        let (set, process) = (WaitSet::new(&self.waiting), &self.processes[me]);
        set.add(me);
        self.lock.begin_wait();
        let mut taken = false;
        for tried in 1.. {
            process.asleep.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
            set.add(me);
            taken = self.attempt(me, request, request.patience);
            if taken || tried == tries {
                break;
            }
            process.futex.wait();
        }
        process.asleep.store(0, Ordering::Relaxed);
        set.remove(me);
        let wakes = self.lock.end_wait(me as u32);
        assert!(!(taken && wakes));
        if wakes {
            self.wake_all();
        }
        taken
    }

    fn use_and_release(&self, request: Request) {
        let wakes = if request.exclusive {
            // SAFETY: the lock is held; loom finds it if it is not enough.
            self.value.with_mut(|value| unsafe { *value += 1 });
            self.lock.release_exclusive()
        } else {
            // SAFETY: as above.
            self.value.with(|value| unsafe { *value });
            self.lock.release_shared()
        };
        if wakes {
            self.wake_all();
        }
    }
}

/// Checks with this many preemptions. LOOM_MAX_PREEMPTIONS does not raise it: with one more, three
/// processes take minutes.
fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 5_000;
    builder.check(body);
}

/// Each process makes its request once. `tries`: after this many, 0 gives up.
fn contend<const N: usize>(preemptions: usize, requests: [Request; N], tries: u32) {
    check(preemptions, move || {
        let window = Window::new(N);
        let others: Vec<_> = (1..N)
            .map(|me| {
                let window = window.clone();
                thread::spawn(move || {
                    assert!(window.take(me, requests[me], u32::MAX));
                    window.use_and_release(requests[me]);
                })
            })
            .collect();
        let taken = window.take(0, requests[0], tries);
        if taken {
            window.use_and_release(requests[0]);
        }
        others.into_iter().for_each(|o| o.join().unwrap());
        let writers = (0..N).filter(|&i| requests[i].exclusive && (i > 0 || taken));
        // SAFETY: the threads have ended.
        let value = window.value.with(|value| unsafe { *value });
        assert_eq!(value as usize, writers.count());
        assert_eq!(
            (window.lock.exclusive_holder(), window.lock.shared_holders()),
            (None, 0)
        );
        assert_eq!(window.lock.reserved_by(), None);
    });
}

#[test]
fn two_processes_of_every_kind_take_turns() {
    let kinds = [WRITES, READS, WRITES.starving(), READS.starving()];
    for first in kinds {
        for second in kinds {
            contend(4, [first, second], u32::MAX);
        }
    }
}

#[test]
fn three_processes_take_turns() {
    for requests in [
        [WRITES, WRITES, WRITES],
        [WRITES, WRITES.starving(), WRITES.starving()],
        [READS, WRITES.starving(), READS],
        [READS, WRITES.starving(), READS.starving()],
        [WRITES, READS.starving(), WRITES.starving()],
        [WRITES, READS, READS.starving()],
    ] {
        contend(2, requests, u32::MAX);
    }
}

#[test]
fn who_gives_up_leaves_nobody_asleep() {
    for request in [WRITES.starving(), READS.starving()] {
        contend(2, [request, WRITES, READS], 1);
        contend(2, [request, WRITES, WRITES.starving()], 1);
        contend(2, [request, READS, WRITES.starving()], 1);
    }
}
