//! The one device of this process, and its lock.
//!
//! Below MPI_THREAD_MULTIPLE at most one thread is in MPI at a time, by the standard's own rule
//! (MPI 5.0 §11.6), so no lock is taken. With it, or with a progress thread, one lock guards the
//! device; a waiting thread releases it.

use crate::base::counters::HasDevice;
use crate::progress::device::Device;
use crate::progress::outside_work;
use crate::progress::state::WaitPolicy;
use ferry_job::{Directory, RankInfo, RankStatus, Segment};
use ferry_transport::{Sleeper, Wakeup};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

struct DeviceCell(UnsafeCell<Option<Device>>);
// SAFETY: only reached through `device()`, which gives it to one thread at a time.
unsafe impl Sync for DeviceCell {}

static DEVICE: DeviceCell = DeviceCell(UnsafeCell::new(None));
/// Several threads may use the device: the lock is needed.
static CONCURRENT: AtomicBool = AtomicBool::new(false);
/// Several threads of the program may be in MPI at once (MPI_THREAD_MULTIPLE).
static MULTIPLE: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());
/// Threads of the program that wait for the lock.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// How often a thread yields its core before it sleeps for the lock. A choice.
const LOCK_YIELDS: u32 = 100;
/// How often a thread of the program tries the lock before it yields. A choice: about 2 µs.
const LOCK_SPINS: u32 = 100;
/// Threads of the program that sleep in MPI.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);
/// One of them watches the transports' sockets.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// The device is in use. Finds nested use in debug builds.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Exclusive use of the device until dropped.
pub struct DeviceGuard {
    device: &'static mut Device,
    lock: Option<MutexGuard<'static, ()>>,
    activity: u64,
    within_call: bool,
}

impl DeviceGuard {
    /// Releases the device within a call that is about to take it again, so that nothing need be
    /// handed to the progress thread.
    #[inline]
    pub fn drop_within_call(mut self) {
        self.within_call = true;
        self.release();
    }

    /// Ends the use of the device, as dropping it does. Shorter where this thread is alone.
    #[inline(always)]
    pub fn release(self) {
        if self.lock.is_some() || self.device.worker.transports.is_virtual() {
            return drop(self);
        }
        if cfg!(debug_assertions) {
            BUSY.store(false, Ordering::Relaxed);
        }
        std::mem::forget(self);
    }

    /// On a modelled machine: this thread leaves MPI, or waits within its call.
    #[cold]
    fn leave_call(&mut self) {
        let sleepers = SLEEPERS.load(Ordering::SeqCst) != 0;
        if sleepers && self.device.worker.engine.activity() != self.activity {
            self.activity = self.device.worker.engine.activity();
            self.device
                .worker
                .transports
                .wakeup()
                .signal(Sleeper::Program, false);
        }
        let left = self.device.finalized;
        if left {
            self.device.report_sent();
        }
        let transports = &mut self.device.worker.transports;
        match self.within_call && !left {
            true => transports.leave_within_call(sleepers),
            false => transports.leave_mpi(sleepers, left),
        }
    }

    /// Nothing that has happened so far concerns a sleeping thread.
    pub(crate) fn ignore_activity(&mut self) {
        self.activity = self.device.worker.engine.activity();
    }
}

impl Deref for DeviceGuard {
    type Target = Device;
    #[inline]
    fn deref(&self) -> &Device {
        self.device
    }
}

impl DerefMut for DeviceGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Device {
        self.device
    }
}

impl Drop for DeviceGuard {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            BUSY.store(false, Ordering::Relaxed);
        }
        if self.device.worker.transports.is_virtual() {
            self.leave_call();
        }
        if self.lock.is_none() {
            return;
        }
        if SLEEPERS.load(Ordering::SeqCst) != 0 {
            // The launcher may believe that the rank is asleep.
            self.device.publish_counts();
            if self.device.worker.engine.activity() != self.activity {
                // This thread may have received what another one waits for.
                self.device
                    .worker
                    .transports
                    .wakeup()
                    .signal(Sleeper::Program, is_watched());
            }
        }
        if !self.within_call && self.device.progress_thread.is_some() {
            self.device.program_leaves();
        }
    }
}

/// Takes the device's lock. Panics if the device has not been started. Not reentrant: never call
/// user code with it held.
#[inline]
pub fn device() -> DeviceGuard {
    if !is_alone() {
        return shared_device();
    }
    // SAFETY: by MPI's thread rule only this thread is in MPI, and guards are never nested.
    let mut guard = unsafe { guard(None) };
    if guard.worker.transports.is_virtual() {
        guard.ignore_activity();
        guard.worker.transports.enter_mpi();
    }
    guard
}

/// The device, which several threads use.
#[inline(never)]
fn shared_device() -> DeviceGuard {
    // SAFETY: the lock is held, and guards are never nested.
    let mut guard = unsafe { guard(Some(lock())) };
    guard.ignore_activity();
    if guard.progress_thread.is_some() {
        guard.program_enters();
    }
    if guard.worker.transports.is_virtual() {
        guard.worker.transports.enter_mpi();
    }
    guard
}

/// The device for the progress thread, which must not keep it for long. `polls`: it yields its core
/// for a while before it sleeps for the lock. The program mostly releases the lock within a
/// microsecond, and need not wake the thread then.
pub(crate) fn device_for_progress(polls: bool) -> DeviceGuard {
    let early = if polls {
        try_with_yields(LOCK_YIELDS)
    } else {
        None
    };
    let lock = early.unwrap_or_else(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner));
    // SAFETY: the lock is held; with a progress thread, every thread takes it.
    let mut guard = unsafe { guard(Some(lock)) };
    guard.ignore_activity();
    guard.within_call = true;
    guard.begin_thread_work();
    guard
}

#[inline]
fn lock() -> MutexGuard<'static, ()> {
    try_lock().unwrap_or_else(|| {
        WANTED.fetch_add(1, Ordering::Relaxed);
        let lock = try_for_a_while()
            .unwrap_or_else(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner));
        WANTED.fetch_sub(1, Ordering::Relaxed);
        lock
    })
}

/// The lock, if it becomes free soon. The progress thread releases it between any two pieces of
/// work, and waking this thread would take longer than most of these.
#[cold]
fn try_for_a_while() -> Option<MutexGuard<'static, ()>> {
    if is_multiple() {
        return None; // other threads of the program may have it for longer
    }
    // The progress thread usually has another core. A thread that got this core by a yield would
    // keep it for longer than the progress thread keeps the lock.
    let spun = (0..LOCK_SPINS).find_map(|_| {
        std::hint::spin_loop();
        try_lock()
    });
    spun.or_else(|| try_with_yields(LOCK_YIELDS))
}

/// The lock, if it becomes free while the core is yielded `yields` times.
fn try_with_yields(yields: u32) -> Option<MutexGuard<'static, ()>> {
    try_lock().or_else(|| {
        (0..yields).find_map(|_| {
            rustix::thread::sched_yield();
            try_lock()
        })
    })
}

/// The lock, if it is free.
fn try_lock() -> Option<MutexGuard<'static, ()>> {
    match LOCK.try_lock() {
        Ok(lock) => Some(lock),
        Err(TryLockError::Poisoned(lock)) => Some(lock.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Its activity is not noted.
///
/// # Safety
/// There is no other guard, and there will be none until this one is dropped.
#[inline]
unsafe fn guard(lock: Option<MutexGuard<'static, ()>>) -> DeviceGuard {
    if cfg!(debug_assertions) {
        assert!(
            !BUSY.swap(true, Ordering::Relaxed),
            "the device is used within its own use"
        );
    }
    // SAFETY: the caller's promise.
    let device = unsafe { (*DEVICE.0.get()).as_mut() }.expect("the device is started");
    DeviceGuard {
        device,
        lock,
        activity: 0,
        within_call: false,
    }
}

/// Is the calling thread the only one that may use the device? By MPI's thread rule it is, below
/// MPI_THREAD_MULTIPLE and without a progress thread.
#[inline]
pub fn is_alone() -> bool {
    !CONCURRENT.load(Ordering::Relaxed)
}

/// May several threads of the program be in MPI at once?
#[inline]
pub fn is_multiple() -> bool {
    MULTIPLE.load(Ordering::Relaxed)
}

/// Where this process's threads sleep, once the device is started.
pub(crate) fn wakeup() -> Option<&'static Wakeup> {
    WAKEUP.get().copied()
}

/// An operation that [`begin_outside_work`](outside_work::begin_outside_work) has announced has
/// ended, and what waits for it can see that. Wakes the threads that sleep in MPI. Any thread may
/// call it; needs no lock.
pub fn end_outside_work() {
    outside_work::end();
    if let Some(wakeup) = wakeup() {
        wakeup.signal(Sleeper::Program, is_watched());
        wakeup.signal(Sleeper::Progress, true);
    }
}

static WAKEUP: OnceLock<&'static Wakeup> = OnceLock::new();

/// Does a thread of the program wait for the lock?
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// This thread is about to sleep; returns how many sleep then. Called with the lock.
pub(crate) fn fall_asleep() -> u32 {
    SLEEPERS.fetch_add(1, Ordering::SeqCst) + 1
}

/// This thread is awake again; returns how many others still sleep. Called with the lock.
pub(crate) fn wake_up() -> u32 {
    SLEEPERS.fetch_sub(1, Ordering::SeqCst) - 1
}

/// What to call when two threads sleep in MPI, and only one may be there.
static ON_SEVERAL_THREADS: OnceLock<fn()> = OnceLock::new();

/// From now on `tell` is called when two threads of the program are found in MPI at once, below
/// MPI_THREAD_MULTIPLE. It must not use the device.
pub fn on_several_threads(tell: fn()) {
    let _ = ON_SEVERAL_THREADS.set(tell);
}

/// This thread sleeps in MPI while another does.
#[cold]
pub(crate) fn tell_of_several_threads() {
    if !is_multiple()
        && let Some(tell) = ON_SEVERAL_THREADS.get()
    {
        tell();
    }
}

/// Returns whether this thread, which is about to sleep, is to watch the transports' sockets. Only
/// one thread does. Called with the lock.
pub(crate) fn take_watch() -> bool {
    !WATCHED.swap(true, Ordering::SeqCst)
}

/// Does a thread of the program watch the sockets?
pub(crate) fn is_watched() -> bool {
    WATCHED.load(Ordering::SeqCst)
}

/// This thread does not watch the sockets any more. Called with the lock.
pub(crate) fn end_watch() {
    WATCHED.store(false, Ordering::SeqCst);
}

pub(crate) fn sleepers() -> u32 {
    SLEEPERS.load(Ordering::SeqCst)
}

/// Starts the device of this process in its node's `segment` (none in a job of one rank); its peers
/// on other nodes are found through `directory`. Under a foreign launcher blocks until all ranks
/// have come here, if there are other nodes. `concurrent`: will several threads call MPI at once
/// (MPI_THREAD_MULTIPLE)? `progress`: will there be a progress thread
/// ([`start_progress_thread`](crate::start_progress_thread))?
///
/// Errors: a transport cannot be set up.
pub fn start(
    rank_info: &RankInfo,
    segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    status: &'static RankStatus,
    concurrent: bool,
    progress: bool,
) -> Result<(), ferry_transport::TransportError> {
    let mut policy = WaitPolicy::new(rank_info.local_ranks.len() as u32, rank_info.cores);
    if segment.as_ref().is_some_and(|s| s.machine.is_some()) {
        policy = WaitPolicy::NONE;
    }
    status
        .concurrent
        .store(u32::from(concurrent), Ordering::Relaxed);
    let mut device = Device::new(rank_info, segment, directory, status, policy, concurrent)?;
    if progress {
        device.add_progress_thread(rank_info.local_ranks.len() as u32);
    }
    let wakeup = device.worker.transports.wakeup();
    let (word, epoll_fd) = wakeup.sleep_addresses();
    status
        .pid
        .store(std::process::id() as i32, Ordering::Relaxed);
    status.wakeup_word.store(word, Ordering::Relaxed);
    status
        .epoll_fd
        .store(epoll_fd.unwrap_or(-1), Ordering::Relaxed);
    let _ = WAKEUP.set(wakeup);
    MULTIPLE.store(concurrent, Ordering::SeqCst);
    CONCURRENT.store(concurrent || progress, Ordering::SeqCst);
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no thread uses the device before it is started.
    unsafe { *DEVICE.0.get() = Some(device) };
    Ok(())
}

/// Allows a progress thread from now on ([`start_progress_thread`](crate::start_progress_thread)).
/// `ranks` is the number of ranks on this node. To be called by a thread that is in MPI, without
/// the device. Returns false on a modelled machine, which can have no such thread.
pub fn enable_progress_thread(ranks: u32) -> bool {
    // By MPI's thread rule no other thread is in MPI now, or all of them take the lock already.
    let was = CONCURRENT.swap(true, Ordering::SeqCst);
    let mut device = device();
    if device.worker.transports.is_virtual() {
        CONCURRENT.store(was, Ordering::SeqCst);
        return false;
    }
    if device.progress_thread.is_none() {
        device.add_progress_thread(ranks);
    }
    true
}

impl HasDevice for DeviceGuard {}
