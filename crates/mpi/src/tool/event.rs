//! Events (MPI 5.0 §15.3.8).
//!
//! The callback runs where the event occurs, in the same thread, and without a lock. It may call
//! any function. Events that occur within a callback are not reported but counted as dropped.

use super::{Category, Result, ToolError, index_of};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// An event type. All its elements are of type MPI_INT.
#[derive(Debug)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// Its description, with its elements.
    pub description: &'static str,
    /// Number of its elements.
    pub elements: usize,
    /// Its category.
    pub category: Category,
}

/// Index of the event that an error was raised.
pub const ERROR_RAISED: usize = 0;

/// All event types, by index. The order never changes.
pub const EVENTS: [Event; 1] = [Event {
    name: "error_raised",
    description: "an MPI call has found an error, whose handler is about to be called; elements: \
         the error code, its class",
    elements: 2,
    category: Category::Errors,
}];

/// Safety requirements of callbacks (MPI 5.0 §15.3.8), least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Safety {
    None,
    Restricted,
    ThreadSafe,
    SignalSafe,
}

impl Safety {
    /// All safety levels.
    pub const ALL: [Safety; 4] = [
        Safety::None,
        Safety::Restricted,
        Safety::ThreadSafe,
        Safety::SignalSafe,
    ];
}

/// An event instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The event type: an index of [`EVENTS`].
    pub event: usize,
    /// Time stamp in nanoseconds, as [`now`].
    pub time: i64,
    /// Its elements.
    pub elements: Vec<i32>,
}

/// A tool's callbacks, which the abi layer implements.
pub trait Listener: Send + Sync {
    /// Called for an event.
    fn on_event(&self, registration: &Arc<Registration>, instance: &Instance, safety: Safety);
    /// Called with the number of events that were not reported.
    fn on_dropped(&self, registration: &Arc<Registration>, count: u64);
}

/// A registration for one event type.
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
    /// The index of the event type of that name.
    pub fn index(name: &str) -> Result<usize> {
        index_of(&EVENTS, name, |e| e.name)
    }
}

impl Registration {
    /// Registers `listener` for an event type.
    pub fn new(event: usize, listener: Box<dyn Listener>) -> Result<Arc<Registration>> {
        if event >= EVENTS.len() {
            return Err(ToolError::InvalidIndex);
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

    /// The event type: an index of [`EVENTS`].
    pub fn event(&self) -> usize {
        self.event
    }

    /// Ends the registration.
    pub fn free(self: &Arc<Registration>) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|r| !Arc::ptr_eq(r, self));
        COUNT.store(all.len(), Ordering::Release);
    }
}

/// The clock of events: nanoseconds since the first call.
pub fn now() -> i64 {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as i64
}

/// Is any callback registered?
#[inline]
pub fn has_listeners() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Reports an event to all registered callbacks. No lock may be held.
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
        listener.on_event(&registration, &instance, Safety::None);
        match registration.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => listener.on_dropped(&registration, count),
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
        fn on_event(&self, _: &Arc<Registration>, instance: &Instance, safety: Safety) {
            let text = format!("{:?} {safety:?}", instance.elements);
            self.0.lock().unwrap().push(text);
            emit(0, &[9, 9]);
        }
        fn on_dropped(&self, _: &Arc<Registration>, count: u64) {
            self.0.lock().unwrap().push(format!("dropped {count}"));
        }
    }

    #[test]
    fn listeners_hear_until_they_end_and_are_told_what_they_missed() {
        let log = Log::default();
        let said = log.0.clone();
        assert!(Registration::new(EVENTS.len(), Box::new(Log::default())).is_err());
        let registration = Registration::new(0, Box::new(log)).unwrap();
        assert!(has_listeners());
        emit(0, &[1, 2]);
        registration.free();
        emit(0, &[3, 4]);
        assert_eq!(*said.lock().unwrap(), ["[1, 2] None", "dropped 1"]);
    }
}
