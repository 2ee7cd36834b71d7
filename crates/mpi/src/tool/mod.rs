//! The tool information interface (MPI 5.0 chapter 15.3): what a tool can set, measure and hear of.
//!
//! Control variables are Ferry's settings, performance variables its counts. Each stands in one
//! [`Group`]; docs/tools.md lists all of them and is checked against this code. Handles and numbers
//! are the abi floor's.

mod control;
mod event;
mod group;
mod performance;

pub use control::{Control, Scope};
pub use event::{
    ERROR_RAISED, EVENTS, Event, Instance, Listener, Registration, Safety, emit, heard, now,
};
pub use group::Group;
pub use performance::{Class, Performance, PerformanceHandle, Session};

use crate::coll::{AlgorithmSetting, Kind};
use crate::device;
use crate::process::{self, ThreadLevel};
use std::sync::atomic::{AtomicU32, Ordering};

/// What can be wrong with a call of the tool interface, one for each MPI_T_ERR_ name that Ferry
/// needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Trouble {
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
pub type Result<T> = std::result::Result<T, Trouble>;

/// A variable's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// MPI_INT: one of an enumeration.
    Int(i32),
    /// MPI_UNSIGNED.
    Unsigned(u32),
    /// MPI_UNSIGNED_LONG_LONG.
    Large(u64),
    /// MPI_DOUBLE.
    Double(f64),
    /// MPI_CHAR: a text.
    Text(String),
}

/// Which of these types a variable has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Type {
    Int,
    Unsigned,
    Large,
    Double,
    Text,
}

/// Who is to see a variable (MPI 5.0 §15.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    /// Users, the basics.
    UserBasic,
    /// Users, in detail.
    UserDetail,
    /// Those who tune, the basics.
    TunerBasic,
    /// Those who tune, in detail.
    TunerDetail,
}

/// Calls of MPI_T_init_thread without their MPI_T_finalize.
static USERS: AtomicU32 = AtomicU32::new(0);

/// One more user of the interface (MPI_T_init_thread). Returns the level of thread support it gets:
/// what it asks for, unless the process has been started for less. Some variables are read under
/// the device's lock, which there is only with MPI_THREAD_MULTIPLE: a tool that asks for that
/// before MPI is initialised has the process started with the lock, whatever the program asks for.
pub fn init(required: ThreadLevel) -> ThreadLevel {
    USERS.fetch_add(1, Ordering::AcqRel);
    process::for_tool(required)
}

/// One user has done (MPI_T_finalize).
///
/// Errors: there is none.
pub fn finalize() -> Result<()> {
    USERS
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
        .map(drop)
        .map_err(|_| Trouble::NotInitialized)
}

/// Has the interface a user? All calls but [`init`] need one.
pub fn initialised() -> Result<()> {
    if USERS.load(Ordering::Acquire) > 0 {
        Ok(())
    } else {
        Err(Trouble::NotInitialized)
    }
}

/// The names of values that are ints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enumeration(Kind);

impl Enumeration {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Enumeration> {
        Kind::ALL.into_iter().map(Enumeration)
    }

    /// Its place among all.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// The one in that place.
    pub fn numbered(number: usize) -> Option<Enumeration> {
        Kind::ALL.get(number).map(|&k| Enumeration(k))
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("ferry_coll_{}", self.0.name())
    }

    /// How many names it has.
    pub fn len(self) -> usize {
        AlgorithmSetting::all(self.0).count()
    }

    /// It has no names.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The `at`-th name, which stands for the value `at`.
    pub fn item(self, at: usize) -> Option<&'static str> {
        AlgorithmSetting::all(self.0)
            .nth(at)
            .map(AlgorithmSetting::name)
    }

    fn wish(self, value: i32) -> Option<AlgorithmSetting> {
        AlgorithmSetting::all(self.0).nth(usize::try_from(value).ok()?)
    }

    fn value(self, wish: AlgorithmSetting) -> i32 {
        AlgorithmSetting::all(self.0)
            .position(|w| w == wish)
            .unwrap_or(0) as i32
    }
}

/// The place of the variable of that name.
fn index_of<T>(all: &[T], name: &str, of: impl Fn(&T) -> &str) -> Result<usize> {
    all.iter()
        .position(|v| of(v) == name)
        .ok_or(Trouble::InvalidName)
}

fn device_counts() -> &'static device::Counters {
    &device::COUNTERS
}
