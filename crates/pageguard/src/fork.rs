//! Forks while pages are guarded.
//!
//! A fork blocks until the watching thread has read its event. The C library holds the locks of its
//! allocator all that time. A thread that allocates while it has the registry would wait for ever,
//! and so would the watching thread.
//!
//! So a fork begins with the registry locked and the watching thread asleep. If the thread is woken
//! before the fork is over, it only reads messages into memory that exists already. Who has the
//! registry next applies them before anything else. No pages are put back between reading and
//! applying.

use crate::registry::{Registry, registry};
use crate::system::{Message, Userfaultfd};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Most messages that are read while a fork is under way. More wait in the kernel.
const UNAPPLIED_MAX: usize = 128;

/// Messages that have been read and not been applied.
struct Unapplied {
    /// The userfaultfd that they come from.
    own: Option<Arc<Userfaultfd>>,
    count: usize,
    messages: [Message; UNAPPLIED_MAX],
}

/// Locked by the watching thread while it is awake, and by a thread that forks.
static AWAKE: Mutex<()> = Mutex::new(());
static UNAPPLIED: Mutex<Unapplied> = Mutex::new(Unapplied {
    own: None,
    count: 0,
    messages: [[0; 4]; UNAPPLIED_MAX],
});
/// There are messages in [`UNAPPLIED`], or there may be in a moment. Set before they are read. The
/// fork is over as soon as they are read, and who has the registry next must know of them before it
/// puts pages back.
static HAS_UNAPPLIED: AtomicBool = AtomicBool::new(false);

type Locks = (MutexGuard<'static, ()>, MutexGuard<'static, Registry>);

thread_local! {
    /// The locks that the forking thread holds.
    static LOCKS: Cell<Option<Locks>> = const { Cell::new(None) };
}

/// Prevents forks while the caller holds this lock, which is taken before the registry's. Blocks
/// while a fork is under way.
pub(crate) fn prevent() -> MutexGuard<'static, ()> {
    AWAKE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watching thread holds this lock while it is awake. Until it gets it, it reads the events for
/// which a forking thread waits. Allocates nothing.
pub(crate) fn stay_awake() -> MutexGuard<'static, ()> {
    loop {
        match AWAKE.try_lock() {
            Ok(awake) => return awake,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) => read(),
        }
        std::thread::yield_now();
    }
}

/// Sets this process's userfaultfd. `None`: it has none any more.
pub(crate) fn set_userfaultfd(own: Option<Arc<Userfaultfd>>) {
    let mut unapplied = UNAPPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    unapplied.own = own;
}

/// Reads messages without applying them.
fn read() {
    let mut unapplied = UNAPPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    let Unapplied {
        own,
        count,
        messages,
    } = &mut *unapplied;
    if let Some(own) = own {
        HAS_UNAPPLIED.store(true, Ordering::SeqCst);
        *count += own.read(&mut messages[*count..]);
        HAS_UNAPPLIED.store(*count > 0, Ordering::SeqCst);
    }
}

/// Applies the messages that were read during a fork.
pub(crate) fn apply_read(all: &mut Registry) {
    if !HAS_UNAPPLIED.load(Ordering::SeqCst) {
        return;
    }
    // Waits for a thread that reads, which takes one system call that does not sleep.
    let mut unapplied = UNAPPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(own) = all.spaces.first().map(|s| s.faults.clone()) else {
        return;
    };
    let Unapplied {
        count, messages, ..
    } = &mut *unapplied;
    for message in &messages[..std::mem::take(count)] {
        if let Some(event) = Userfaultfd::event(message) {
            all.apply(&own, event);
        }
    }
    HAS_UNAPPLIED.store(false, Ordering::SeqCst);
}

/// Before a fork. Blocks until the watching thread sleeps and nobody has the registry.
pub(crate) fn before() {
    let locks = (prevent(), registry());
    // A thread that forks after its thread-local values have gone does so at its own risk.
    let _ = LOCKS.try_with(|cell| cell.set(Some(locks)));
}

/// After a fork, in the process that forked.
pub(crate) fn after() {
    if let Ok(Some((awake, all))) = LOCKS.try_with(Cell::take) {
        drop(awake);
        if let Some(watch) = &all.watch {
            watch.rescan();
        }
    }
}

/// After a fork, in the child, which watches nothing.
pub(crate) fn after_in_child() {
    let locks = LOCKS.try_with(Cell::take);
    // Only the forking thread exists here. Locks of other threads are nobody's now.
    HAS_UNAPPLIED.store(false, Ordering::SeqCst);
    drop(locks);
}
