//! Wakeups between the progress thread, a thread of the program and a peer, under every order of
//! steps and every delay of stores that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p ferry-device --test loom`
//!
//! The wakeup word, the thread's flags, and the locks between processes (`loom/lock.rs`) are the
//! library's own code. Sleeping, the device's lock
//! and the work under it are modelled here, after `progress/thread.rs` and the transport's
//! `control.rs`. A thread that misses its signal sleeps or polls for ever. Loom finds both.
#![cfg(loom)]
#![allow(dead_code)]

/// Replaces the types that the library's modules take from std.
mod atomic {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}
use atomic as memory;

#[path = "../src/node/lock/mod.rs"]
mod lock;
#[path = "loom/lock.rs"]
mod lock_model;
#[path = "../src/progress/thread_flags.rs"]
mod thread_flags;
#[path = "../src/node/wait_set.rs"]
mod wait_set;
#[path = "../../transport/src/shm/wakeup_word.rs"]
mod word;

use atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use thread_flags::{Signal, ThreadFlags};

fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 5_000;
    builder.check(body);
}

/// futex(2) on one word.
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    /// Sleeps until woken, unless `word` is not `still`.
    fn wait(&self, word: &AtomicU32, still: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::SeqCst) == still {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}

/// The state under the device's lock.
#[derive(Default)]
struct Device {
    /// Work was left to the progress thread, and the thread is not woken for it yet.
    work_offered: bool,
    /// Pending work.
    work: u32,
    /// Completed work.
    done: u32,
    /// The progress thread is to end.
    stops: bool,
}

struct Process {
    word: AtomicU32,
    sleeping: Futex,
    /// The control page's `asleep`: armed for the progress thread.
    armed: AtomicU32,
    /// Messages that peers have sent so far.
    arrived: AtomicU32,
    flags: ThreadFlags,
    device: Mutex<Device>,
}

/// How the progress thread waits for work.
#[derive(Clone, Copy)]
enum Waits {
    Sleeping,
    /// It polls this often before it sleeps.
    PollingBefore(u32),
    /// It polls for ever.
    Polling,
}

fn process() -> Arc<Process> {
    Arc::new(Process {
        word: AtomicU32::new(0),
        sleeping: Futex {
            queue: Mutex::new(()),
            woken: Condvar::new(),
        },
        armed: AtomicU32::new(0),
        arrived: AtomicU32::new(0),
        flags: ThreadFlags {
            waiting: AtomicU32::new(0),
            progress_requested: AtomicBool::new(false),
        },
        device: Mutex::new(Device::default()),
    })
}

impl Process {
    /// A peer sends a message (`Control::wake_if_asleep`).
    fn peer_sends(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // An exchange is a full barrier on x86-64.
        if self.armed.load(Ordering::Relaxed) != 0
            && self.armed.swap(0, Ordering::SeqCst) != 0
            && word::signal(&self.word, true)
        {
            self.sleeping.wake();
        }
    }

    /// The program leaves MPI, and `work` is left to the progress thread
    /// (`Device::program_leaves`).
    fn leave(&self, device: &mut Device, work: u32) {
        (device.work, device.work_offered) = (device.work + work, work > 0);
        self.wake_if_needed(device, false);
    }

    /// The program leaves MPI without work for the thread, and wakes it for later messages
    /// (`Device::should_wake`).
    fn leave_and_wake(&self, device: &mut Device) {
        self.wake_if_needed(device, true);
    }

    fn wake_if_needed(&self, device: &mut Device, always: bool) {
        if (always || device.work_offered) && !self.flags.is_progress_requested() {
            self.wake_thread();
        }
    }

    /// `Device::wake_thread`.
    fn wake_thread(&self) {
        self.flags.set_progress_requested(true);
        if word::signal(&self.word, true) {
            self.sleeping.wake();
        }
    }

    /// The program waits in MPI, does the pending work itself, and leaves MPI with new `work` for
    /// the thread.
    fn wait_and_leave(&self, work: u32) {
        let mut device = self.device.lock().unwrap();
        self.flags.begin_wait();
        device.work_offered = false;
        drop(device); // It sleeps, or yields its core.
        let mut device = self.device.lock().unwrap();
        device.done += std::mem::take(&mut device.work);
        self.flags.end_wait();
        self.leave(&mut device, work);
    }

    /// `stop_progress_thread`.
    fn stop(&self) {
        self.device.lock().unwrap().stops = true;
        if word::signal(&self.word, true) {
            self.sleeping.wake();
        }
    }

    /// The progress thread. It ends when `ends` returns true.
    fn run(&self, waits: Waits, ends: impl Fn(&Device, u32) -> bool) {
        let mut polled = false;
        let mut taken = 0;
        loop {
            let mut device = self.device.lock().unwrap();
            let seen = word::epoch(&self.word);
            if device.stops {
                return;
            }
            let waiting = self.flags.waits();
            if !waiting {
                device.work_offered = false;
                let arrived = self.arrived.load(Ordering::SeqCst);
                let moved = device.work > 0 || arrived > taken;
                device.done += std::mem::take(&mut device.work);
                taken = arrived;
                if ends(&device, taken) {
                    return;
                }
                if moved {
                    continue;
                }
            }
            self.flags.set_progress_requested(false);
            if !waiting {
                self.armed.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if self.arrived.load(Ordering::SeqCst) > taken {
                    continue;
                }
            }
            drop(device);
            if !matches!(waits, Waits::Sleeping) && !std::mem::replace(&mut polled, true) {
                word::set_polled(&self.word, true);
            }
            if self.polls(waits, seen) {
                continue;
            }
            if std::mem::take(&mut polled) {
                word::set_polled(&self.word, false);
            }
            self.sleeping.wait(&self.word, word::asleep_at(seen));
        }
    }

    /// `poll` of `progress/thread.rs`. Returns whether there was a signal.
    fn polls(&self, waits: Waits, seen: u32) -> bool {
        let mut polls_left = match waits {
            Waits::Sleeping => return false,
            Waits::PollingBefore(times) => times,
            Waits::Polling => u32::MAX,
        };
        let mut seen = seen;
        while polls_left > 0 {
            polls_left -= 1;
            let now = word::epoch(&self.word);
            if word::signaled_since(&self.word, seen) {
                match self.flags.classify_signal() {
                    Signal::Now => return true,
                    Signal::Later => {}
                    Signal::Nothing => seen = now,
                }
            }
            if polls_left > 0 {
                thread::yield_now();
            }
        }
        false
    }
}

/// How the thread waits between two pieces of work.
const WAITS: [Waits; 4] = [
    Waits::Sleeping,
    Waits::PollingBefore(1),
    Waits::PollingBefore(2),
    Waits::Polling,
];

/// Runs a progress thread with each of [`WAITS`] and the threads `others`, until `ends` returns
/// true.
fn beside<const N: usize>(
    preemptions: usize,
    others: [fn(&Process); N],
    ends: fn(&Device, u32) -> bool,
) {
    for waits in WAITS {
        check(preemptions, move || {
            let process = process();
            let others = others.map(|other| {
                let process = process.clone();
                thread::spawn(move || other(&process))
            });
            process.run(waits, ends);
            others.into_iter().for_each(|o| o.join().unwrap());
        });
    }
}

#[test]
fn a_signal_of_a_peer_reaches_a_sleeping_polling_or_working_thread() {
    let peer = |process: &Process| (0..2).for_each(|_| process.peer_sends());
    beside(3, [peer], |_, arrived| arrived == 2);
}

#[test]
fn deferred_work_is_done_after_one_wakeup() {
    let program = |process: &Process| {
        process.leave(&mut process.device.lock().unwrap(), 1);
        process.wait_and_leave(1);
        // Now the program computes, and only the thread can do the work.
    };
    beside(3, [program], |device, _| device.done == 2);
}

#[test]
fn work_after_a_vain_wakeup_is_done() {
    let program = |process: &Process| {
        process.leave_and_wake(&mut process.device.lock().unwrap());
        process.wait_and_leave(1);
        process.leave_and_wake(&mut process.device.lock().unwrap());
        process.leave(&mut process.device.lock().unwrap(), 1);
    };
    beside(3, [program], |device, _| device.done == 2);
}

#[test]
fn a_signal_during_entry_or_exit_is_not_lost() {
    let peer: fn(&Process) = |process| process.peer_sends();
    let program: fn(&Process) = |process| process.wait_and_leave(1);
    beside(2, [peer, program], |device, arrived| {
        device.done == 1 && arrived == 1
    });
}

#[test]
fn a_stop_request_reaches_the_thread() {
    let program = |process: &Process| {
        process.leave(&mut process.device.lock().unwrap(), 1);
        process.stop();
    };
    beside(3, [program], |_, _| false);
}
