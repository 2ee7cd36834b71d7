//! The one device of this process, and its lock.
//!
//! Below MPI_THREAD_MULTIPLE at most one thread is in MPI at a time, by the standard's own rule (MPI 5.0 §11.6), so no lock is
//! taken. With it, one lock guards the device; whoever waits lets go of it.

use crate::core::Device;
use crate::waiting::Patience;
use ferry_job::{Directory, RankStatus, Segment, Welcome};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Place(UnsafeCell<Option<Device>>);
// SAFETY: only reached through `device()`, which gives it to one thread at a time.
unsafe impl Sync for Place {}

static DEVICE: Place = Place(UnsafeCell::new(None));
static CONCURRENT: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());
/// Threads of this process that sleep in MPI.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);
/// One of them watches the wires' descriptors.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Somebody has the device: finds nested use in debug builds.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Exclusive use of the device until dropped.
pub struct DeviceGuard {
    device: &'static mut Device,
    lock: Option<MutexGuard<'static, ()>>,
    activity: u64,
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
        if self.lock.is_some()
            && SLEEPERS.load(Ordering::SeqCst) != 0
            && self.device.engine.activity() != self.activity
        {
            // What another thread sleeps for may have come to this one.
            let watched = WATCHED.load(Ordering::SeqCst);
            self.device.wires.bell().ring(watched);
        }
    }
}

/// Takes the device's lock. Panics if the device has not been started. Not reentrant: never call user code with it held.
#[inline]
pub fn device() -> DeviceGuard {
    let lock = is_concurrent().then(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner));
    if cfg!(debug_assertions) {
        assert!(
            !BUSY.swap(true, Ordering::Relaxed),
            "the device is used within its own use"
        );
    }
    // SAFETY: either the lock is held, or by MPI's thread rule only this thread is in MPI, and guards are never nested.
    let device = unsafe { (*DEVICE.0.get()).as_mut() }.expect("the device is started");
    let activity = device.engine.activity();
    DeviceGuard {
        device,
        lock,
        activity,
    }
}

/// May several threads be in MPI at once?
#[inline]
pub(crate) fn is_concurrent() -> bool {
    CONCURRENT.load(Ordering::Relaxed)
}

/// This thread is about to sleep. Called with the lock.
pub(crate) fn fall_asleep() {
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
}

/// This thread is awake again; returns how many others still sleep. Called with the lock.
pub(crate) fn wake_up() -> u32 {
    SLEEPERS.fetch_sub(1, Ordering::SeqCst) - 1
}

/// This thread, about to sleep, is to watch the wires' descriptors unless another one does. Called with the lock.
pub(crate) fn take_watch() -> bool {
    !WATCHED.swap(true, Ordering::SeqCst)
}

/// It does not watch any more. Called with the lock.
pub(crate) fn end_watch() {
    WATCHED.store(false, Ordering::SeqCst);
}

pub(crate) fn sleepers() -> u32 {
    SLEEPERS.load(Ordering::SeqCst)
}

/// Starts the device of this process in its node's `segment` (none in a job of one rank); its peers on other nodes are found
/// through `directory`. Under a foreign launcher blocks until all ranks have come here, if there are other nodes.
/// `concurrent`: will several threads call MPI at once (MPI_THREAD_MULTIPLE)?
///
/// Errors: a transport cannot be set up.
pub fn start(
    welcome: &Welcome,
    segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    status: &'static RankStatus,
    concurrent: bool,
) -> Result<(), ferry_transport::TransportError> {
    let patience = Patience::new(welcome.local_ranks.len() as u32, welcome.cores);
    status
        .concurrent
        .store(u32::from(concurrent), Ordering::Relaxed);
    let device = Device::new(welcome, segment, directory, status, patience)?;
    CONCURRENT.store(concurrent, Ordering::SeqCst);
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: nobody uses the device before it is started.
    unsafe { *DEVICE.0.get() = Some(device) };
    Ok(())
}

/// Completes what others still need of this process: every send that is under way. Blocks until then.
pub fn finish() {
    crate::wait_until(&crate::WaitingFor::SEVERAL, |d| {
        !d.sends_pending() && d.settle()
    });
}
