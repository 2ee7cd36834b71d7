//! Environment variables that hold a number, a time or one of a few words: what they may be.
//!
//! A value that makes no sense is an error in MPI_Init, and mpiexec tells it before it starts
//! ranks. Who reads a setting may therefore take such a value for none.

use std::ffi::OsString;
use std::time::Duration;

/// FERRY_BACKTRACE: whether a rank that ends by a signal prints a backtrace.
pub const BACKTRACE: Setting = Setting::new("FERRY_BACKTRACE", Values::Words(&["0", "1"]));
/// FERRY_CONNECT_TIMEOUT: how long MPI_Comm_connect and MPI_Comm_accept wait.
pub const CONNECT_TIMEOUT: Setting =
    Setting::new("FERRY_CONNECT_TIMEOUT", Values::Seconds(0.0, 1e9));
/// FERRY_ENCRYPT: whether messages between hosts are encrypted.
pub const ENCRYPT: Setting = Setting::new("FERRY_ENCRYPT", Values::Words(&["0", "1"]));
/// FERRY_OVERLAP_MIN: bytes of the smallest collective that may overlap.
pub const OVERLAP_MIN: Setting = Setting::new(
    "FERRY_OVERLAP_MIN",
    Values::Whole("bytes", 1, i64::MAX as u64),
);
/// FERRY_OVERLAP_REPORT: whether ranks report their overlapped call sites.
pub const OVERLAP_REPORT: Setting =
    Setting::new("FERRY_OVERLAP_REPORT", Values::Words(&["0", "1"]));
/// FERRY_PROGRESS: whether there is a progress thread.
pub const PROGRESS: Setting = Setting::new("FERRY_PROGRESS", Values::Words(&["calls", "thread"]));
/// FERRY_SHM_READ_MIN: bytes from which on messages are read from the sender's memory.
pub const SHM_READ_MIN: Setting =
    Setting::new("FERRY_SHM_READ_MIN", Values::Whole("bytes", 0, u64::MAX));
/// FERRY_SHOW_HANDLE_LEAKS: whether MPI_Finalize tells what the program has not freed.
pub const SHOW_HANDLE_LEAKS: Setting =
    Setting::new("FERRY_SHOW_HANDLE_LEAKS", Values::Words(&["0", "1"]));
/// FERRY_TCP_TIMEOUT: how long a host may be silent.
pub const TCP_TIMEOUT: Setting = Setting::new("FERRY_TCP_TIMEOUT", Values::Seconds(1.0, 86_400.0));
/// FERRY_TCP_ZCOPY: whether large messages go by zero copy.
pub const TCP_ZCOPY: Setting = Setting::new("FERRY_TCP_ZCOPY", Values::Words(&["0", "1"]));
/// FERRY_TIME_SLICE: the time slice of a waiting thread, microseconds.
pub const TIME_SLICE: Setting = Setting::new(
    "FERRY_TIME_SLICE",
    Values::Whole("microseconds", 0, u64::MAX / 1000),
);
/// Lowest TIPC service type that is not the system's own (TIPC_RESERVED_TYPES, linux/tipc.h).
pub const TIPC_TYPE_MIN: u32 = 64;
/// FERRY_TIPC_TYPE: the TIPC service type of the ranks.
pub const TIPC_TYPE: Setting = Setting::new(
    "FERRY_TIPC_TYPE",
    Values::Whole("", TIPC_TYPE_MIN as u64, u32::MAX as u64),
);
/// FERRY_YIELDS: how often a waiting thread yields before it sleeps.
pub const YIELDS: Setting = Setting::new("FERRY_YIELDS", Values::Whole("", 0, u32::MAX as u64 - 1));

const ALL: [Setting; 13] = [
    BACKTRACE,
    CONNECT_TIMEOUT,
    ENCRYPT,
    OVERLAP_MIN,
    OVERLAP_REPORT,
    PROGRESS,
    SHM_READ_MIN,
    SHOW_HANDLE_LEAKS,
    TCP_TIMEOUT,
    TCP_ZCOPY,
    TIME_SLICE,
    TIPC_TYPE,
    YIELDS,
];

/// An environment variable and its values.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    name: &'static str,
    values: Values,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// A whole number of a unit, from the first number to the second.
    Whole(&'static str, u64, u64),
    /// Seconds, also parts of them, from the first number to the second.
    Seconds(f64, f64),
    /// One of these words.
    Words(&'static [&'static str]),
}

impl Setting {
    const fn new(name: &'static str, values: Values) -> Setting {
        Setting { name, values }
    }

    /// The number that the environment has, if it has one that is allowed.
    pub fn whole(&self) -> Option<u64> {
        self.values.whole(self.text()?.trim())
    }

    /// The time that the environment has, if it has one that is allowed.
    pub fn seconds(&self) -> Option<Duration> {
        self.values.seconds(self.text()?.trim())
    }

    /// Does the environment have this word?
    pub fn is(&self, word: &str) -> bool {
        self.text().is_some_and(|text| text.trim() == word)
    }

    fn text(&self) -> Option<String> {
        std::env::var(self.name).ok()
    }

    /// What is wrong with a value, in a line. A value of nothing but spaces counts as none.
    fn complaint(&self, value: &str) -> Option<String> {
        let (text, values) = (value.trim(), &self.values);
        let allowed = match values {
            Values::Whole(..) => values.whole(text).is_some(),
            Values::Seconds(..) => values.seconds(text).is_some(),
            Values::Words(words) => words.contains(&text),
        };
        (!allowed && !text.is_empty()).then(|| {
            let expected = values.expected();
            format!("{} is {value:?}; it should be {expected}", self.name)
        })
    }
}

impl Values {
    fn whole(&self, text: &str) -> Option<u64> {
        let Values::Whole(_, from, to) = self else {
            return None;
        };
        text.parse().ok().filter(|n| (from..=to).contains(&n))
    }

    fn seconds(&self, text: &str) -> Option<Duration> {
        let Values::Seconds(from, to) = self else {
            return None;
        };
        let seconds = text.parse().ok().filter(|s| (from..=to).contains(&s))?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    fn expected(&self) -> String {
        match self {
            Values::Whole(unit, from, to) => {
                let of_unit = match unit.is_empty() {
                    true => String::new(),
                    false => format!(" of {unit}"),
                };
                format!("a whole number{of_unit}, from {from} to {to}")
            }
            Values::Seconds(from, to) => format!("seconds, from {from} to {to}"),
            Values::Words(words) => words.join(" or "),
        }
    }
}

/// Checks all settings. `variable` looks a name up in the environment.
///
/// # Errors
/// One line: the first variable with a value that it cannot have, the value, and what is allowed.
pub fn check(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), String> {
    let wrong = ALL.iter().find_map(|setting| {
        let value = variable(setting.name)?;
        setting.complaint(&value.to_string_lossy())
    });
    wrong.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_allowed_or_told_with_what_is() {
        for (setting, value, told) in [
            (YIELDS, "abc", Some("a whole number, from 0 to 4294967294")),
            (YIELDS, "-1", Some("a whole number, from 0 to 4294967294")),
            (
                YIELDS,
                "4294967295",
                Some("a whole number, from 0 to 4294967294"),
            ),
            (YIELDS, " 12 ", None),
            (YIELDS, " ", None),
            (
                SHM_READ_MIN,
                "64K",
                Some("a whole number of bytes, from 0 to 18446744073709551615"),
            ),
            (
                TIPC_TYPE,
                "63",
                Some("a whole number, from 64 to 4294967295"),
            ),
            (TCP_TIMEOUT, "0.5", Some("seconds, from 1 to 86400")),
            (TCP_TIMEOUT, "NaN", Some("seconds, from 1 to 86400")),
            (TCP_TIMEOUT, "1.5", None),
            (CONNECT_TIMEOUT, "0", None),
            (PROGRESS, "threads", Some("calls or thread")),
            (ENCRYPT, "yes", Some("0 or 1")),
            (ENCRYPT, "1", None),
        ] {
            let line = told.map(|t| format!("{} is {value:?}; it should be {t}", setting.name));
            assert_eq!(setting.complaint(value), line);
        }
    }

    #[test]
    fn the_first_wrong_one_is_told() {
        let lookup = |name: &str| match name {
            "FERRY_YIELDS" => Some(OsString::from("many")),
            "FERRY_ENCRYPT" => Some("2".into()),
            _ => None,
        };
        let told = check(lookup).unwrap_err();
        assert_eq!(told, "FERRY_ENCRYPT is \"2\"; it should be 0 or 1");
        assert_eq!(check(|_| None), Ok(()));
    }

    #[test]
    fn values_are_read_as_they_are_checked() {
        assert_eq!(YIELDS.values.whole("7"), Some(7));
        assert_eq!(YIELDS.values.seconds("7"), None);
        assert_eq!(
            TCP_TIMEOUT.values.seconds("2.5"),
            Some(Duration::from_millis(2500))
        );
        assert_eq!(TCP_TIMEOUT.values.seconds("0"), None);
    }
}
