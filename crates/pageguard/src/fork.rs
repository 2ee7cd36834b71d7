//! Forks while pages are guarded.
//!
//! A fork blocks until the watching thread has read its event. During that time the C library holds
//! the locks of its allocator. If a thread held the registry and allocated memory, it would wait
//! for the fork, the watching thread for the registry, and the fork for the watching thread.
//!
//! So the forking thread locks the registry first, and makes sure that the watching thread sleeps.
//! If the watching thread wakes before the fork has ended, it reads messages into memory that
//! exists already, and does nothing else. The next thread that locks the registry applies them
//! first. No pages are put back between reading and applying.

use crate::registry::{Registry, registry};
use crate::system::{Message, Userfaultfd};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Maximum number of messages that are read during a fork. More wait in the kernel. A choice.
const UNAPPLIED_MAX: usize = 128;

/// Messages that have been read and not applied.
struct Unapplied {
    /// This process's userfaultfd, from which they are read.
    userfaultfd: Option<Arc<Userfaultfd>>,
    count: usize,
    messages: [Message; UNAPPLIED_MAX],
}

/// Locked by a thread during its fork, and by the watching thread while it is awake.
static FORK_LOCK: Mutex<()> = Mutex::new(());
static UNAPPLIED: Mutex<Unapplied> = Mutex::new(Unapplied {
    userfaultfd: None,
    count: 0,
    messages: [[0; 4]; UNAPPLIED_MAX],
});
/// There may be messages in [`UNAPPLIED`]. Set before they are read: reading them ends the fork,
/// and the next thread that locks the registry must know of them before it puts pages back.
static HAS_UNAPPLIED: AtomicBool = AtomicBool::new(false);

type Locks = (MutexGuard<'static, ()>, MutexGuard<'static, Registry>);

thread_local! {
    /// The locks that the forking thread holds.
    static LOCKS: Cell<Option<Locks>> = const { Cell::new(None) };
}

/// Prevents forks while the caller holds this lock. It is taken before the registry's lock. Blocks
/// during a fork.
pub(crate) fn prevent() -> MutexGuard<'static, ()> {
    FORK_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`prevent`] for the watching thread. During a fork it reads the events that the forking thread
/// waits for, until the fork has ended. Allocates nothing.
pub(crate) fn prevent_in_watching_thread() -> MutexGuard<'static, ()> {
    loop {
        match FORK_LOCK.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) => read_unapplied(),
        }
        std::thread::yield_now();
    }
}

/// Sets this process's userfaultfd. `None` removes it.
pub(crate) fn set_userfaultfd(userfaultfd: Option<Arc<Userfaultfd>>) {
    let mut unapplied = UNAPPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    unapplied.userfaultfd = userfaultfd;
}

/// Reads messages without applying them: a fork has the registry's lock.
fn read_unapplied() {
    let mut unapplied = UNAPPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    let Unapplied {
        userfaultfd,
        count,
        messages,
    } = &mut *unapplied;
    if let Some(userfaultfd) = userfaultfd {
        HAS_UNAPPLIED.store(true, Ordering::SeqCst);
        *count += userfaultfd.read(&mut messages[*count..]);
        HAS_UNAPPLIED.store(*count > 0, Ordering::SeqCst);
    }
}

/// Applies the messages that were read during a fork.
pub(crate) fn apply_unapplied(all: &mut Registry) {
    if !HAS_UNAPPLIED.load(Ordering::SeqCst) {
        return;
    }
    // A thread that reads holds this lock for one system call, which does not sleep.
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

/// Called before a fork. Blocks until the watching thread sleeps and no thread has the registry.
pub(crate) fn before() {
    let locks = (prevent(), registry());
    // Fails in a thread that ends: its thread-local values do not exist any more. Then the fork is
    // not protected.
    let _ = LOCKS.try_with(|cell| cell.set(Some(locks)));
}

/// Called after a fork in the parent.
pub(crate) fn after() {
    if let Ok(Some((fork_lock, all))) = LOCKS.try_with(Cell::take) {
        drop(fork_lock);
        if let Some(watch) = &all.watch {
            watch.rescan();
        }
    }
}

/// Called after a fork in the child, which watches nothing.
pub(crate) fn after_in_child() {
    let locks = LOCKS.try_with(Cell::take);
    // Only the forking thread exists here.
    HAS_UNAPPLIED.store(false, Ordering::SeqCst);
    drop(locks);
}
