//! Forks, and the thread that has to hear of them.
//!
//! A fork stands still until the watching thread has read its event, and the system's library holds
//! the locks of its allocator all that time. A thread that waited for memory while it has the
//! registry, or the watching thread itself, would wait for ever. So a fork begins with the registry
//! locked and the watching thread asleep, and if that is woken before the fork is over it only
//! reads events into a space that is there. Whoever next has the registry notes them before
//! anything else: between reading and noting nobody puts pages back.

use crate::registry::{Registry, registry};
use crate::system::{Faults, Message};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Events that can be read while a fork is under way; more wait in the kernel.
const MOST: usize = 128;

struct Unread {
    /// Whose events.
    own: Option<Arc<Faults>>,
    count: usize,
    messages: [Message; MOST],
}

/// Held by the watching thread while it is awake, and by whoever forks.
static AWAKE: Mutex<()> = Mutex::new(());
static UNREAD: Mutex<Unread> = Mutex::new(Unread {
    own: None,
    count: 0,
    messages: [[0; 4]; MOST],
});
/// Is there anything in [`UNREAD`], or may there be in a moment? Set before events are read: as
/// soon as that is done the fork is over, and whoever has the registry next must know of it before
/// it puts pages back.
static ANY: AtomicBool = AtomicBool::new(false);

type Held = (MutexGuard<'static, ()>, MutexGuard<'static, Registry>);

thread_local! {
    /// What the forking thread holds.
    static HELD: Cell<Option<Held>> = const { Cell::new(None) };
}

/// No fork begins while the caller has this, which comes before the registry. Blocks while one is
/// under way.
pub(crate) fn none() -> MutexGuard<'static, ()> {
    AWAKE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watching thread is awake while it has this. Until it may be, it reads the events for which
/// whoever forks waits. Allocates nothing.
pub(crate) fn wake_up() -> MutexGuard<'static, ()> {
    loop {
        match AWAKE.try_lock() {
            Ok(awake) => return awake,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) => read(),
        }
        std::thread::yield_now();
    }
}

/// From here on `own` is this process's descriptor; `None`: it has none any more.
pub(crate) fn watch(own: Option<Arc<Faults>>) {
    let mut unread = UNREAD.lock().unwrap_or_else(PoisonError::into_inner);
    unread.own = own;
}

fn read() {
    let mut unread = UNREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let Unread {
        own,
        count,
        messages,
    } = &mut *unread;
    if let Some(own) = own {
        ANY.store(true, Ordering::SeqCst);
        *count += own.read(&mut messages[*count..]);
        ANY.store(*count > 0, Ordering::SeqCst);
    }
}

/// Notes what was read during a fork, in what is locked again.
pub(crate) fn note(all: &mut Registry) {
    if !ANY.load(Ordering::SeqCst) {
        return;
    }
    // Waits for who is reading: that takes one system call, which does not sleep.
    let mut unread = UNREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(own) = all.spaces.first().map(|s| s.faults.clone()) else {
        return;
    };
    let Unread {
        count, messages, ..
    } = &mut *unread;
    for message in &messages[..std::mem::take(count)] {
        if let Some(event) = Faults::event(message) {
            all.note(&own, event);
        }
    }
    ANY.store(false, Ordering::SeqCst);
}

/// A fork is about to be. Blocks until the watching thread sleeps and nobody has the registry.
pub(crate) fn begins() {
    let held = (none(), registry());
    // A thread that forks after its thread-local values have gone does so at its own risk.
    let _ = HELD.try_with(|place| place.set(Some(held)));
}

/// The fork is over, in the process that forked.
pub(crate) fn over() {
    if let Ok(Some((awake, all))) = HELD.try_with(Cell::take) {
        drop(awake);
        if let Some(watch) = &all.watch {
            watch.nudge();
        }
    }
}

/// The fork is over, in the child, which watches nothing.
pub(crate) fn over_in_child() {
    let held = HELD.try_with(Cell::take);
    // Only the forking thread is here; what another may have held is nobody's now.
    ANY.store(false, Ordering::SeqCst);
    drop(held);
}
