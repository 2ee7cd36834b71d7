//! Info hints of windows (MPI 5.0 §12.2.1).

use super::{Flavor, Win};
use crate::{Info, Result, err};
use std::sync::{Mutex, PoisonError};

/// Hints that the program can assert, true or false.
const NO_LOCKS: &str = "no_locks";
const SAME_SIZE: &str = "same_size";
const SAME_DISP_UNIT: &str = "same_disp_unit";
const ACCUMULATE_ORDERING: &str = "accumulate_ordering";
const ACCUMULATE_OPS: &str = "accumulate_ops";
const ACCUMULATE_GRANULARITY: &str = "mpi_accumulate_granularity";
/// Each rank's memory may lie by itself.
pub(super) const NONCONTIG: &str = "alloc_shared_noncontig";

/// The hints in force. Ferry keeps the strictest ordering and the finest granularity whatever they
/// say, for they cost it nothing. For the same reason a window with `no_locks` can be locked: there
/// are programs that set it and do (the Parallel Research Kernels), and MPICH lets them.
pub(super) struct Hints {
    values: Mutex<Vec<(&'static str, String)>>,
}

impl Hints {
    /// Those of `info`, and defaults.
    ///
    /// Errors: InfoValue if a value is not one that the standard knows.
    pub fn new(info: Option<&Info>, flavor: Flavor) -> Result<Hints> {
        let mut values: Vec<(&'static str, String)> = vec![
            (NO_LOCKS, "false".into()),
            (ACCUMULATE_ORDERING, "rar,raw,war,waw".into()),
            (ACCUMULATE_OPS, "same_op_no_op".into()),
            (ACCUMULATE_GRANULARITY, "0".into()),
            ("mpi_memory_alloc_kinds", "mpi,system".into()),
        ];
        if flavor != Flavor::Dynamic {
            values.push((SAME_SIZE, "false".into()));
            values.push((SAME_DISP_UNIT, "false".into()));
        }
        if flavor == Flavor::Shared {
            values.push((NONCONTIG, "false".into()));
        }
        let hints = Hints {
            values: Mutex::new(values),
        };
        hints.set(info)?;
        Ok(hints)
    }

    /// Takes those that Ferry knows.
    ///
    /// Errors: InfoValue; then none is taken.
    fn set(&self, info: Option<&Info>) -> Result<()> {
        let Some(info) = info else { return Ok(()) };
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = values.clone();
        for (key, value) in &mut new {
            let Some(given) = info.text(key) else {
                continue;
            };
            if *key == "mpi_memory_alloc_kinds" {
                continue;
            }
            *value = checked(key, given.trim())?;
        }
        *values = new;
        Ok(())
    }
}

/// The value of a hint, if it is one of those that the standard allows.
fn checked(key: &str, value: &str) -> Result<String> {
    let (good, allowed) = match key {
        ACCUMULATE_ORDERING => {
            let mut words = value.split(',').map(str::trim);
            let known = |word| matches!(word, "rar" | "raw" | "war" | "waw");
            let good = value == "none" || words.all(known);
            (good, "\"none\", or some of rar, raw, war and waw")
        }
        ACCUMULATE_OPS => (
            matches!(value, "same_op" | "same_op_no_op"),
            "\"same_op\" or \"same_op_no_op\"",
        ),
        ACCUMULATE_GRANULARITY => (
            value.parse::<u64>().is_ok(),
            "a number of bytes, not negative",
        ),
        _ => (matches!(value, "true" | "false"), "\"true\" or \"false\""),
    };
    if good {
        Ok(value.to_owned())
    } else {
        Err(err!(
            InfoValue,
            "the info key {key} is {value:?}, but has to be {allowed}"
        ))
    }
}

impl Win {
    /// The hints in force (MPI_Win_get_info).
    pub fn info(&self) -> Vec<(String, String)> {
        let values = self.hints.values.lock();
        let values = values.unwrap_or_else(PoisonError::into_inner);
        let owned = |(key, value): &(&'static str, String)| ((*key).to_owned(), value.clone());
        values.iter().map(owned).collect()
    }

    /// Sets hints (MPI_Win_set_info). Those that Ferry does not know are ignored.
    ///
    /// Errors: InfoValue; then none is set.
    pub fn set_info(&self, info: &Info) -> Result<()> {
        self.hints.set(Some(info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_have_the_values_of_the_standard() {
        for (key, good, bad) in [
            (NO_LOCKS, "true", "yes"),
            (ACCUMULATE_ORDERING, "rar,waw", "rar,wax"),
            (ACCUMULATE_ORDERING, "none", ""),
            (ACCUMULATE_OPS, "same_op", "any"),
            (ACCUMULATE_GRANULARITY, "8", "-1"),
        ] {
            assert_eq!(checked(key, good).unwrap(), good);
            let e = checked(key, bad).unwrap_err();
            assert!(e.text().contains(key), "{e}");
        }
    }

    #[test]
    fn a_bad_hint_changes_nothing() {
        let info = Info::of([(NO_LOCKS, "true"), (ACCUMULATE_OPS, "same_op")]);
        let hints = Hints::new(Some(&info), Flavor::Create).unwrap();
        let no_locks = || {
            let values = hints.values.lock().unwrap();
            values.contains(&(NO_LOCKS, "true".into()))
        };
        assert!(no_locks());
        let info = Info::of([(NO_LOCKS, "false"), (SAME_SIZE, "perhaps")]);
        assert!(hints.set(Some(&info)).is_err());
        assert!(no_locks());
        assert!(Hints::new(Some(&info), Flavor::Dynamic).is_ok());
    }
}
