//! Events (MPI 5.0 §15.3.8): what a tool can be called for.
//!
//! A tool is called where the event happens, by the thread to which it happens, and while no lock
//! is held: its function may call whatever it likes. Events that happen within it are not reported
//! but counted as dropped.

use super::{Group, Result, Trouble, index_of};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A kind of event. Its elements are all of type MPI_INT.
#[derive(Debug)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// When it happens, and what its elements are.
    pub description: &'static str,
    /// How many elements it has.
    pub elements: usize,
    /// Where it stands.
    pub group: Group,
}

/// The place of the event that an error has been found.
pub const ERROR_RAISED: usize = 0;

/// All of them, in the order of their indices, which stays.
pub const EVENTS: [Event; 1] = [Event {
    name: "error_raised",
    description: "an MPI call has found an error, whose handler is about to be called; elements: \
         the error code, its class",
    elements: 2,
    group: Group::Errors,
}];

/// What a tool's function may call; what functions require of one another rises from first to last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Safety {
    None,
    Restricted,
    ThreadSafe,
    SignalSafe,
}

impl Safety {
    /// All of them.
    pub const ALL: [Safety; 4] = [
        Safety::None,
        Safety::Restricted,
        Safety::ThreadSafe,
        Safety::SignalSafe,
    ];
}

/// An event that has happened.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Which kind: a place in [`EVENTS`].
    pub event: usize,
    /// When: nanoseconds, as [`now`].
    pub time: i64,
    /// Its elements.
    pub elements: Vec<i32>,
}

/// A tool's functions, as the abi floor knows them.
pub trait Listener: Send + Sync {
    /// The event has happened.
    fn happened(&self, registration: &Arc<Registration>, instance: &Instance, safety: Safety);
    /// So many have not been reported.
    fn dropped(&self, registration: &Arc<Registration>, count: u64);
}

/// A tool's interest in one kind of event.
pub struct Registration {
    event: usize,
    listener: Box<dyn Listener>,
    dropped: AtomicU64,
}

static ALL: Mutex<Vec<Arc<Registration>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static REPORTING: Cell<bool> = const { Cell::new(false) };
}

impl Event {
    /// The index of the one of that name.
    pub fn index(name: &str) -> Result<usize> {
        index_of(&EVENTS, name, |e| e.name)
    }
}

impl Registration {
    /// From now on `listener` hears of events of this kind.
    pub fn new(event: usize, listener: Box<dyn Listener>) -> Result<Arc<Registration>> {
        if event >= EVENTS.len() {
            return Err(Trouble::InvalidIndex);
        }
        let registration = Arc::new(Registration {
            event,
            listener,
            dropped: AtomicU64::new(0),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(registration.clone());
        COUNT.store(all.len(), Ordering::Release);
        Ok(registration)
    }

    /// Which kind: a place in [`EVENTS`].
    pub fn event(&self) -> usize {
        self.event
    }

    /// From now on it does not.
    pub fn end(self: &Arc<Registration>) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|r| !Arc::ptr_eq(r, self));
        COUNT.store(all.len(), Ordering::Release);
    }
}

/// The time of events: nanoseconds since the first time that anybody asked.
pub fn now() -> i64 {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as i64
}

/// Does anybody want to hear of events?
#[inline]
pub fn heard() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// An event has happened: calls all who want to hear of it. No lock may be held.
#[cold]
pub fn emit(event: usize, elements: &[i32]) {
    let interested: Vec<_> = ALL
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .filter(|r| r.event == event)
        .cloned()
        .collect();
    if REPORTING.get() {
        for registration in interested {
            registration.dropped.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    let instance = Instance {
        event,
        time: now(),
        elements: elements.to_vec(),
    };
    REPORTING.set(true);
    for registration in interested {
        let listener = &registration.listener;
        listener.happened(&registration, &instance, Safety::None);
        match registration.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => listener.dropped(&registration, count),
        }
    }
    REPORTING.set(false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Listener for Log {
        fn happened(&self, _: &Arc<Registration>, instance: &Instance, safety: Safety) {
            let text = format!("{:?} {safety:?}", instance.elements);
            self.0.lock().unwrap().push(text);
            emit(0, &[9, 9]);
        }
        fn dropped(&self, _: &Arc<Registration>, count: u64) {
            self.0.lock().unwrap().push(format!("dropped {count}"));
        }
    }

    #[test]
    fn listeners_hear_until_they_end_and_are_told_what_they_missed() {
        let log = Log::default();
        let said = log.0.clone();
        assert!(Registration::new(EVENTS.len(), Box::new(Log::default())).is_err());
        let registration = Registration::new(0, Box::new(log)).unwrap();
        assert!(heard());
        emit(0, &[1, 2]);
        registration.end();
        emit(0, &[3, 4]);
        assert_eq!(*said.lock().unwrap(), ["[1, 2] None", "dropped 1"]);
    }
}
