//! The tool information interface (MPI 5.0 §15.3): control variables, performance variables and
//! events.
//!
//! Control variables are Ferry's settings. Performance variables are its counts. Each belongs to
//! one category, a [`Category`]. A test compares docs/tools.md with this code. Handles and numbers
//! are the abi layer's.

mod category;
mod control;
mod event;
mod performance;

pub use category::Category;
pub use control::{Control, Scope};
pub use event::{
    ERROR_RAISED, EVENTS, Event, Instance, Listener, Registration, Safety, emit, has_listeners, now,
};
pub use performance::{Class, Performance, PerformanceHandle, Session};

use crate::coll::{AlgorithmSetting, Kind};
use crate::device;
use crate::process::{self, ThreadLevel};
use std::sync::atomic::{AtomicU32, Ordering};

/// Errors of the tool interface, one for each MPI_T_ERR_ name that Ferry uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ToolError {
    NotInitialized,
    Invalid,
    InvalidIndex,
    InvalidSession,
    InvalidHandle,
    InvalidName,
    SetNever,
    NoWrite,
    NoStartStop,
    NoAtomic,
}

/// The result of a call of the tool interface.
pub type Result<T> = std::result::Result<T, ToolError>;

/// A variable's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// MPI_INT: a value of an enumeration.
    Int(i32),
    /// MPI_UNSIGNED.
    Unsigned(u32),
    /// MPI_UNSIGNED_LONG_LONG.
    Large(u64),
    /// MPI_DOUBLE.
    Double(f64),
    /// MPI_CHAR: a string.
    Text(String),
}

/// The type of a variable's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Type {
    Int,
    Unsigned,
    Large,
    Double,
    Text,
}

/// Verbosity levels (MPI 5.0 §15.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    /// For users, basic.
    UserBasic,
    /// For users, detailed.
    UserDetail,
    /// For tuners, basic.
    TunerBasic,
    /// For tuners, detailed.
    TunerDetail,
}

/// Calls of MPI_T_init_thread less calls of MPI_T_finalize.
static USERS: AtomicU32 = AtomicU32::new(0);

/// Initialises the interface (MPI_T_init_thread). Returns the level of thread support: the one
/// required, unless the process was started with a lower one. Some variables are read under the
/// device's lock, which exists only with MPI_THREAD_MULTIPLE. If a tool requires that level before
/// MPI is initialised, the process starts with the lock, whatever the program requires.
pub fn init(required: ThreadLevel) -> ThreadLevel {
    USERS.fetch_add(1, Ordering::AcqRel);
    process::provide_tool_level(required)
}

/// Finalises the interface (MPI_T_finalize).
///
/// Errors: it is not initialised.
pub fn finalize() -> Result<()> {
    USERS
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
        .map(drop)
        .map_err(|_| ToolError::NotInitialized)
}

/// Is the interface initialised? All calls but [`init`] require that.
pub fn initialised() -> Result<()> {
    if USERS.load(Ordering::Acquire) > 0 {
        Ok(())
    } else {
        Err(ToolError::NotInitialized)
    }
}

/// An enumeration: names of int values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enumeration(Kind);

impl Enumeration {
    /// All enumerations.
    pub fn all() -> impl Iterator<Item = Enumeration> {
        Kind::ALL.into_iter().map(Enumeration)
    }

    /// Its index.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// The enumeration with that index.
    pub fn numbered(number: usize) -> Option<Enumeration> {
        Kind::ALL.get(number).map(|&k| Enumeration(k))
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("ferry_coll_{}", self.0.name())
    }

    /// Number of its values.
    pub fn len(self) -> usize {
        AlgorithmSetting::all(self.0).count()
    }

    /// Has it no values?
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The name of the value `at`.
    pub fn item(self, at: usize) -> Option<&'static str> {
        AlgorithmSetting::all(self.0)
            .nth(at)
            .map(AlgorithmSetting::name)
    }

    /// The setting with this number among the values of this kind.
    fn setting(self, value: i32) -> Option<AlgorithmSetting> {
        AlgorithmSetting::all(self.0).nth(usize::try_from(value).ok()?)
    }

    /// The number of a setting among the values of this kind.
    fn value(self, setting: AlgorithmSetting) -> i32 {
        AlgorithmSetting::all(self.0)
            .position(|s| s == setting)
            .unwrap_or(0) as i32
    }
}

/// The index of the variable of that name.
fn index_of<T>(all: &[T], name: &str, of: impl Fn(&T) -> &str) -> Result<usize> {
    all.iter()
        .position(|v| of(v) == name)
        .ok_or(ToolError::InvalidName)
}

fn device_counts() -> &'static device::Counters {
    &device::COUNTERS
}
