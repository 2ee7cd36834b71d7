//! Performance variables: Ferry's counts (MPI 5.0 §15.3.7).
//!
//! The counts only grow, from the start of the process. A handle stores the counts of its last
//! start or reset. So any number of handles, sessions and tools can measure at once, and each event
//! increments one number.

use super::{Category, Result, ToolError, Type, Value, Verbosity, device_counts, index_of};
use crate::Comm;
use crate::coll::{Algorithm, COUNTERS};
use crate::device::{self, TRANSPORT_NAMES};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use variables::{OF_EACH_TRANSPORT, SINGLE};

mod variables;

/// The class of a variable (MPI 5.0 §15.3.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Class {
    Level,
    HighWatermark,
    Counter,
    Aggregate,
    Timer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Sent(usize),
    SentBytes(usize),
    Received(usize),
    ReceivedBytes(usize),
    Refused,
    SentEager,
    SentAnnounced,
    ReceivedEager,
    ReceivedAnnounced,
    Read,
    ReadBytes,
    Unexpected,
    QueueLength,
    QueueBytes,
    QueueMost,
    CommQueueLength,
    CommPosted,
    Idle,
    Sleeps,
    Yields,
    CommCollectives,
    Board,
    By(Option<Algorithm>),
}

/// A performance variable.
#[derive(Debug)]
pub struct Performance {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its verbosity level.
    pub verbosity: Verbosity,
    /// Its class.
    pub class: Class,
    /// Its category.
    pub category: Category,
    metric: Metric,
}

impl Performance {
    /// All performance variables, by index. The order never changes.
    pub fn all() -> &'static [Performance] {
        static ALL: OnceLock<Vec<Performance>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut all = Vec::new();
            for (transport, name) in TRANSPORT_NAMES.iter().enumerate() {
                let category = Category::of_transport(transport);
                for (metric, class, ending, description) in OF_EACH_TRANSPORT {
                    let name = format!("{name}_{ending}");
                    let metric = metric(transport);
                    all.push(Performance::new(
                        metric,
                        class,
                        category,
                        name,
                        description.into(),
                    ));
                }
            }
            for (metric, class, category, name, description) in SINGLE {
                all.push(Performance::new(
                    metric,
                    class,
                    category,
                    name.into(),
                    description.into(),
                ));
            }
            let algorithms = Algorithm::ALL.into_iter().map(|algorithm| {
                let name = algorithm.name();
                let description = format!("collectives by messages, algorithm {name}");
                (Some(algorithm), format!("coll_by_{name}"), description)
            });
            let other = "collectives by messages for which there is no choice of algorithms";
            let other = (None, "coll_by_other".into(), other.into());
            all.extend(
                algorithms
                    .chain([other])
                    .map(|(algorithm, name, description)| {
                        let metric = Metric::By(algorithm);
                        Performance::new(
                            metric,
                            Class::Counter,
                            Category::CollectiveCounts,
                            name,
                            description,
                        )
                    }),
            );
            all
        })
    }

    fn new(
        metric: Metric,
        class: Class,
        category: Category,
        name: String,
        description: String,
    ) -> Performance {
        Performance {
            name,
            description,
            verbosity: match category {
                Category::TransportSelf | Category::TransportShm | Category::TransportTcp => {
                    Verbosity::UserBasic
                }
                Category::Waiting | Category::Matching => Verbosity::UserDetail,
                _ => Verbosity::TunerDetail,
            },
            class,
            category,
            metric,
        }
    }

    /// The index of the variable of that class and name.
    pub fn index(class: Class, name: &str) -> Result<usize> {
        let at = index_of(Performance::all(), name, |p| &p.name)?;
        if Performance::all()[at].class == class {
            Ok(at)
        } else {
            Err(ToolError::InvalidName)
        }
    }

    /// The type of its value.
    pub fn value_type(&self) -> Type {
        match self.class {
            Class::Timer => Type::Double,
            _ => Type::Large,
        }
    }

    /// Is it bound to a communicator?
    pub fn is_of_comm(&self) -> bool {
        matches!(
            self.metric,
            Metric::CommQueueLength | Metric::CommPosted | Metric::CommCollectives
        )
    }

    /// Is it read-only: neither written nor reset?
    pub fn is_read_only(&self) -> bool {
        self.class == Class::Level
    }

    /// Is it continuous: neither started nor stopped?
    pub fn is_continuous(&self) -> bool {
        matches!(self.class, Class::Level | Class::HighWatermark)
    }

    /// Is it atomic: read and reset in one step?
    pub fn is_atomic(&self) -> bool {
        !self.is_read_only()
    }

    fn now(&self, comm: Option<&Comm>) -> u64 {
        let c = device_counts();
        let all = |of: &[device::Traffic]| of.iter().map(|t| t.messages.value()).sum::<u64>();
        let lengths = || comm.map_or((0, 0), |c| device::device().queue_lengths(c.context));
        match self.metric {
            Metric::Sent(transport) => c.sent[transport].messages.value(),
            Metric::SentBytes(transport) => c.sent[transport].bytes.value(),
            Metric::Received(transport) => c.received[transport].messages.value(),
            Metric::ReceivedBytes(transport) => c.received[transport].bytes.value(),
            Metric::Refused => device::REFUSED.load(Ordering::Relaxed),
            Metric::SentEager => all(&c.sent).saturating_sub(c.sent_announced.value()),
            Metric::SentAnnounced => c.sent_announced.value(),
            Metric::ReceivedEager => all(&c.received).saturating_sub(c.received_announced.value()),
            Metric::ReceivedAnnounced => c.received_announced.value(),
            Metric::Read => c.single_copy.messages.value(),
            Metric::ReadBytes => c.single_copy.bytes.value(),
            Metric::Unexpected => c.unexpected.value(),
            Metric::QueueLength | Metric::QueueMost => c.unexpected_queue_len.value(),
            Metric::QueueBytes => c.unexpected_queue_bytes.value(),
            Metric::CommQueueLength => lengths().1 as u64,
            Metric::CommPosted => lengths().0 as u64,
            Metric::Idle => c.idle_ns.value(),
            Metric::Sleeps => c.sleeps.value(),
            Metric::Yields => c.yields.value(),
            Metric::CommCollectives => comm.map_or(0, |c| c.collectives.load(Ordering::Relaxed)),
            Metric::Board => COUNTERS.board.value(),
            Metric::By(algorithm) => COUNTERS.of(algorithm).value(),
        }
    }

    fn value(&self, number: u64) -> Value {
        match self.value_type() {
            Type::Double => Value::Double(number as f64 * 1e-9),
            _ => Value::Large(number),
        }
    }
}

/// A session: the handles of one tool (MPI 5.0 §15.3.7.3).
#[derive(Default)]
pub struct Session {
    handles: Mutex<Vec<Arc<PerformanceHandle>>>,
}

/// A handle of a variable.
pub struct PerformanceHandle {
    variable: &'static Performance,
    comm: Option<Arc<Comm>>,
    state: Mutex<State>,
    /// The maximum so far, for high watermarks.
    most: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Its value at the last start or reset.
    base: u64,
    /// The count up to the last stop.
    sum: u64,
}

impl Drop for PerformanceHandle {
    fn drop(&mut self) {
        if let Some(mark) = &self.most {
            device_counts().untrack_peak(mark);
        }
    }
}

impl Session {
    fn handles(&self) -> MutexGuard<'_, Vec<Arc<PerformanceHandle>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a handle for a variable, and for `comm` if it is bound to a communicator. Not
    /// started.
    pub fn handle(
        &self,
        variable: &'static Performance,
        comm: Option<Arc<Comm>>,
    ) -> Arc<PerformanceHandle> {
        let most = (variable.class == Class::HighWatermark).then(|| {
            let mark = Arc::default();
            device_counts().track_peak(&mark);
            mark
        });
        let state = State {
            running: variable.is_continuous(),
            ..State::default()
        };
        let handle = Arc::new(PerformanceHandle {
            variable,
            comm,
            state: Mutex::new(state),
            most,
        });
        self.handles().push(handle.clone());
        handle
    }

    /// Does this handle belong to this session?
    pub fn has(&self, handle: &Arc<PerformanceHandle>) -> bool {
        self.handles().iter().any(|h| Arc::ptr_eq(h, handle))
    }

    /// Frees a handle.
    pub fn forget(&self, handle: &Arc<PerformanceHandle>) {
        self.handles().retain(|h| !Arc::ptr_eq(h, handle));
    }

    /// Starts all handles that are stopped and can be started.
    pub fn start_all(&self) {
        for handle in self.handles().iter() {
            let _ = handle.start();
        }
    }

    /// Stops all handles that are started and can be stopped.
    pub fn stop_all(&self) {
        for handle in self.handles().iter() {
            let _ = handle.stop();
        }
    }

    /// Resets all handles that can be reset.
    pub fn reset_all(&self) {
        for handle in self.handles().iter() {
            let _ = handle.reset();
        }
    }
}

impl PerformanceHandle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.variable.now(self.comm.as_deref())
    }

    fn check_start_stop(&self) -> Result<()> {
        if self.variable.is_continuous() {
            Err(ToolError::NoStartStop)
        } else {
            Ok(())
        }
    }

    fn check_write(&self) -> Result<()> {
        if self.variable.is_read_only() {
            Err(ToolError::NoWrite)
        } else {
            Ok(())
        }
    }

    /// Its variable.
    pub fn variable(&self) -> &'static Performance {
        self.variable
    }

    /// Starts it. Does nothing if it is started.
    ///
    /// Errors: NoStartStop if it is continuous.
    pub fn start(&self) -> Result<()> {
        self.check_start_stop()?;
        let mut state = self.state();
        if !state.running {
            state.running = true;
            state.base = self.now();
        }
        Ok(())
    }

    /// Stops it. It keeps its value.
    ///
    /// Errors: NoStartStop if it is continuous.
    pub fn stop(&self) -> Result<()> {
        self.check_start_stop()?;
        let mut state = self.state();
        state.sum = self.counted(&state, self.now());
        state.running = false;
        Ok(())
    }

    fn counted(&self, state: &State, now: u64) -> u64 {
        if state.running {
            state.sum.wrapping_add(now.wrapping_sub(state.base))
        } else {
            state.sum
        }
    }

    /// Its value.
    pub fn read(&self) -> Value {
        let state = self.state();
        let number = match (&self.most, self.variable.class) {
            (Some(mark), _) => mark.load(Ordering::Relaxed),
            (None, Class::Level) => self.now(),
            _ => self.counted(&state, self.now()),
        };
        self.variable.value(number)
    }

    /// Sets its value, from which it continues.
    ///
    /// Errors: NoWrite if it is read-only.
    pub fn write(&self, value: Value) -> Result<()> {
        self.check_write()?;
        let number = match value {
            Value::Large(n) => n,
            Value::Double(seconds) => (seconds * 1e9) as u64,
            _ => return Err(ToolError::Invalid),
        };
        self.put(number, self.now());
        Ok(())
    }

    fn put(&self, number: u64, now: u64) {
        let mut state = self.state();
        state.sum = number;
        state.base = now;
        if let Some(mark) = &self.most {
            mark.store(number, Ordering::Relaxed);
        }
    }

    /// Resets it to 0, or a watermark to the present value.
    ///
    /// Errors: NoWrite if it is read-only.
    pub fn reset(&self) -> Result<()> {
        self.check_write()?;
        let now = self.now();
        self.put(if self.most.is_some() { now } else { 0 }, now);
        Ok(())
    }

    /// Reads and resets it in one step, so that no event is lost or counted twice.
    ///
    /// Errors: NoWrite if it is read-only. NoAtomic if it is not atomic.
    pub fn read_reset(&self) -> Result<Value> {
        self.check_write()?;
        if !self.variable.is_atomic() {
            return Err(ToolError::NoAtomic);
        }
        let now = self.now();
        let number = match &self.most {
            Some(mark) => mark.swap(now, Ordering::Relaxed),
            None => {
                let mut state = self.state();
                let number = self.counted(&state, now);
                state.sum = 0;
                state.base = now;
                number
            }
        };
        Ok(self.variable.value(number))
    }
}

#[cfg(test)]
mod tests;
