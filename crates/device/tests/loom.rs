//! How the progress thread, a thread of the program and a peer wake each other, under every order
//! of steps and every delay of stores that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p ferry-device --test loom`
//!
//! The bell's word and what a polling thread makes of a ring are the library's own code; who
//! sleeps, the device's lock and what is done under it are modelled here after `progress/thread.rs`
//! and the transport's `control.rs`. Whoever is not woken sleeps for ever, and a thread that polls
//! and does not hear polls for ever: loom finds both.
#![cfg(loom)]
#![allow(dead_code)]

/// In place of what the library's modules take from std.
mod atomic {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}
use atomic as memory;

#[path = "../src/progress/thread_flags.rs"]
mod thread_flags;
#[path = "../../transport/src/shm/wakeup_word.rs"]
mod word;

use atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use thread_flags::{Heard, ThreadFlags};

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

/// What is under the device's lock.
#[derive(Default)]
struct Device {
    /// Work that was left to the progress thread, and not told yet.
    owed: bool,
    /// Work that is to be done.
    work: u32,
    /// Work that was done.
    done: u32,
    /// The progress thread is to end.
    stops: bool,
}

struct Process {
    word: AtomicU32,
    sleeping: Futex,
    /// The control page's `asleep`: armed for the progress thread.
    armed: AtomicU32,
    /// Messages that peers have brought so far.
    came: AtomicU32,
    asking: ThreadFlags,
    device: Mutex<Device>,
}

/// How the progress thread waits for more.
#[derive(Clone, Copy)]
enum Waits {
    Sleeping,
    /// It looks this often before it sleeps.
    Looking(u32),
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
        came: AtomicU32::new(0),
        asking: ThreadFlags {
            waiting: AtomicU32::new(0),
            asked: AtomicBool::new(false),
        },
        device: Mutex::new(Device::default()),
    })
}

impl Process {
    /// A peer brings something (`Control::ring_if_asleep`).
    fn bring(&self) {
        self.came.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // An exchange is a full barrier on x86-64.
        if self.armed.load(Ordering::Relaxed) != 0
            && self.armed.swap(0, Ordering::SeqCst) != 0
            && word::signal(&self.word, true)
        {
            self.sleeping.wake();
        }
    }

    /// The program leaves MPI, `work` left to the progress thread (`Device::hand_over`).
    fn leave(&self, device: &mut Device, work: u32) {
        (device.work, device.owed) = (device.work + work, work > 0);
        self.tell(device, false);
    }

    /// It does, with nothing left to the thread, which it wakes for what is to come
    /// (`Device::rouses`).
    fn rouse(&self, device: &mut Device) {
        self.tell(device, true);
    }

    fn tell(&self, device: &mut Device, rouses: bool) {
        if (rouses || device.owed) && !self.asking.is_asked() {
            self.ask();
        }
    }

    /// `Device::ask_to_look`.
    fn ask(&self) {
        self.asking.set_asked(true);
        if word::signal(&self.word, true) {
            self.sleeping.wake();
        }
    }

    /// The program waits in MPI, where it does what there is to do, and leaves it again with `work`
    /// for the thread.
    fn wait_and_leave(&self, work: u32) {
        let mut device = self.device.lock().unwrap();
        self.asking.begin_wait();
        device.owed = false;
        drop(device); // It sleeps, or hands its core over.
        let mut device = self.device.lock().unwrap();
        device.done += std::mem::take(&mut device.work);
        self.asking.end_wait();
        self.leave(&mut device, work);
    }

    /// `stop_progress_thread`.
    fn stop(&self) {
        self.device.lock().unwrap().stops = true;
        if word::signal(&self.word, true) {
            self.sleeping.wake();
        }
    }

    /// The progress thread, until `ends` says that all is done.
    fn run(&self, waits: Waits, ends: impl Fn(&Device, u32) -> bool) {
        let mut polled = false;
        let mut taken = 0;
        loop {
            let mut device = self.device.lock().unwrap();
            let seen = word::epoch(&self.word);
            if device.stops {
                return;
            }
            let waiting = self.asking.waits();
            if !waiting {
                device.owed = false;
                let came = self.came.load(Ordering::SeqCst);
                let moved = device.work > 0 || came > taken;
                device.done += std::mem::take(&mut device.work);
                taken = came;
                if ends(&device, taken) {
                    return;
                }
                if moved {
                    continue;
                }
            }
            self.asking.set_asked(false);
            if !waiting {
                self.armed.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst); // A store with SeqCst is a full barrier on x86-64.
                if self.came.load(Ordering::SeqCst) > taken {
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

    /// `poll`: has it heard a ring?
    fn polls(&self, waits: Waits, seen: u32) -> bool {
        let mut looks = match waits {
            Waits::Sleeping => return false,
            Waits::Looking(times) => times,
            Waits::Polling => u32::MAX,
        };
        let mut seen = seen;
        while looks > 0 {
            looks -= 1;
            let now = word::epoch(&self.word);
            if word::signaled_since(&self.word, seen) {
                match self.asking.heard() {
                    Heard::Now => return true,
                    Heard::Later => {}
                    Heard::Nothing => seen = now,
                }
            }
            if looks > 0 {
                thread::yield_now();
            }
        }
        false
    }
}

/// Whatever the thread does between two pieces of work.
const WAYS: [Waits; 4] = [
    Waits::Sleeping,
    Waits::Looking(1),
    Waits::Looking(2),
    Waits::Polling,
];

/// A progress thread that waits in each of the [`WAYS`] beside `others`, until `ends` says that all
/// is done.
fn beside<const N: usize>(
    preemptions: usize,
    others: [fn(&Process); N],
    ends: fn(&Device, u32) -> bool,
) {
    for waits in WAYS {
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
    let peer = |process: &Process| (0..2).for_each(|_| process.bring());
    beside(3, [peer], |_, came| came == 2);
}

#[test]
fn deferred_work_is_done_after_one_wakeup() {
    let program = |process: &Process| {
        process.leave(&mut process.device.lock().unwrap(), 1);
        process.wait_and_leave(1);
        // Now it computes, and nobody but the thread does what was left to it.
    };
    beside(3, [program], |device, _| device.done == 2);
}

#[test]
fn work_after_a_vain_wakeup_is_done() {
    let program = |process: &Process| {
        process.rouse(&mut process.device.lock().unwrap());
        process.wait_and_leave(1);
        process.rouse(&mut process.device.lock().unwrap());
        process.leave(&mut process.device.lock().unwrap(), 1);
    };
    beside(3, [program], |device, _| device.done == 2);
}

#[test]
fn a_signal_during_entry_or_exit_is_not_lost() {
    let peer: fn(&Process) = |process| process.bring();
    let program: fn(&Process) = |process| process.wait_and_leave(1);
    beside(2, [peer, program], |device, came| {
        device.done == 1 && came == 1
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
