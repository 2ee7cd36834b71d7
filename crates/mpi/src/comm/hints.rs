//! A communicator's hints (MPI 5.0 §7.4.4): assertions of the program, and its choice of collective
//! algorithms.
//!
//! Each assertion is reported, with "false" until it is made. Other keys are reported if they are
//! set and known. Unknown keys are ignored, as the standard requires. A duplicate has its own
//! hints, since MPI_Comm_dup copies none from MPI 4.0 on.

use super::Comm;
use crate::coll::{AlgorithmSetting, Kind};
use crate::pt2pt::From as Source;
use crate::{Info, Result, err};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The assertions, in the order in which they are reported.
const ASSERTIONS: [(&str, u8); 5] = [
    ("mpi_assert_no_any_tag", NO_ANY_TAG),
    ("mpi_assert_no_any_source", NO_ANY_SOURCE),
    ("mpi_assert_exact_length", EXACT_LENGTH),
    ("mpi_assert_allow_overtaking", 8),
    ("mpi_assert_strict_persistent_collective_ordering", 16),
];
const NO_ANY_TAG: u8 = 1;
const NO_ANY_SOURCE: u8 = 2;
const EXACT_LENGTH: u8 = 4;

/// Prefix of keys that choose a collective algorithm.
const COLL: &str = "ferry_coll_";
/// Key that says whether blocking collectives overlap with what follows (docs/overlap.md).
const OVERLAP: &str = "ferry_overlap";

/// The assertions made, as bits.
#[derive(Default)]
pub(super) struct Assertions(AtomicU8);

impl Assertions {
    #[inline]
    fn has(&self, which: u8) -> bool {
        self.0.load(Relaxed) & which == which
    }
}

/// Hints as the program passed them.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Hints(pub Vec<(String, String)>);

impl Hints {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Checks the keys that Ferry knows.
    ///
    /// Errors: InfoValue for a key of Ferry's whose value is not an algorithm of that collective.
    pub fn check(&self) -> Result<()> {
        for (key, value) in &self.0 {
            if key == OVERLAP && !matches!(value.trim(), "on" | "off") {
                return Err(err!(
                    InfoValue,
                    "the info key {key} is {value:?}, but has to be \"on\" or \"off\""
                ));
            }
            let Some(kind) = collective(key) else {
                continue;
            };
            if AlgorithmSetting::from_name(kind, value.trim()).is_none() {
                let all: Vec<_> = AlgorithmSetting::all(kind)
                    .map(AlgorithmSetting::name)
                    .collect();
                return Err(err!(
                    InfoValue,
                    "the info key {key} is {value:?}, but has to be one of: {}",
                    all.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// The kind of collective that a key of Ferry's refers to.
fn collective(key: &str) -> Option<Kind> {
    let name = key.strip_prefix(COLL)?;
    Kind::ALL.into_iter().find(|k| k.name() == name)
}

impl From<&Info> for Hints {
    fn from(info: &Info) -> Hints {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pair = |key: Box<[u8]>| info.value(&key).map(|value| (text(&key), text(&value)));
        Hints(
            (0..info.len())
                .filter_map(|n| info.key(n).and_then(pair))
                .collect(),
        )
    }
}

impl Comm {
    /// The hints in force.
    pub fn hints(&self) -> Hints {
        let assertions = ASSERTIONS.iter().map(|&(key, bit)| {
            let value = self.assertions.has(bit).to_string();
            (key.to_owned(), value)
        });
        let wishes = Kind::ALL.into_iter().filter_map(|kind| {
            let wish = self.coll.settings.get(kind)?;
            Some((format!("{COLL}{}", kind.name()), wish.name().to_owned()))
        });
        let overlap = self.coll.overlap().map(|on| {
            let value = if on { "on" } else { "off" };
            (OVERLAP.to_owned(), value.to_owned())
        });
        Hints(assertions.chain(wishes).chain(overlap).collect())
    }

    /// Sets those of `hints` that Ferry knows and ignores the others. Hints that are not named
    /// stay.
    ///
    /// Errors: those of [`Hints::check`]; then none is set.
    pub fn set_hints(&self, hints: &Hints) -> Result<()> {
        hints.check()?;
        self.take_hints(hints);
        Ok(())
    }

    /// As [`Comm::set_hints`], for checked hints.
    pub(super) fn take_hints(&self, hints: &Hints) {
        let _one = self
            .hints_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &hints.0 {
            let value = value.trim();
            if let Some((_, bit)) = ASSERTIONS.iter().find(|(k, _)| k == key) {
                let old = self.assertions.0.load(Relaxed);
                match value {
                    "true" => self.assertions.0.store(old | bit, Relaxed),
                    "false" => self.assertions.0.store(old & !bit, Relaxed),
                    _ => {}
                }
            } else if key == OVERLAP {
                let number = if value == "on" { 1 } else { 2 };
                self.coll.overlap.store(number, Relaxed);
            } else if let Some(kind) = collective(key)
                && let Some(wish) = AlgorithmSetting::from_name(kind, value)
            {
                self.coll.settings.set(kind, wish);
            }
        }
    }

    /// The program has asserted that messages are exactly as long as their receive buffers.
    #[inline]
    pub(crate) fn has_exact_lengths(&self) -> bool {
        self.assertions.has(EXACT_LENGTH)
    }

    /// Checks a receive or probe against the assertions. Costs nearly nothing without wildcards.
    ///
    /// Errors: Rank or Tag for a wildcard that the program has asserted not to use.
    #[inline]
    pub fn check_assertions(&self, from: Source, tag: Option<u32>) -> Result<()> {
        if from == Source::Any || tag.is_none() {
            self.check_wildcards(from, tag)
        } else {
            Ok(())
        }
    }

    fn check_wildcards(&self, from: Source, tag: Option<u32>) -> Result<()> {
        if from == Source::Any && self.assertions.has(NO_ANY_SOURCE) {
            return Err(err!(
                Rank,
                "source is MPI_ANY_SOURCE, but the communicator's info says \
                 mpi_assert_no_any_source"
            ));
        }
        if tag.is_none() && from != Source::ProcNull && self.assertions.has(NO_ANY_TAG) {
            return Err(err!(
                Tag,
                "tag is MPI_ANY_TAG, but the communicator's info says mpi_assert_no_any_tag"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(list: &[(&str, &str)]) -> Hints {
        Hints(
            list.iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    #[test]
    fn known_hints_are_kept_and_replaced() {
        let comm = Comm::comm_self(0);
        comm.set_hints(&hints(&[
            ("mpi_assert_no_any_tag", "true"),
            ("colour", "red"),
            ("mpi_assert_exact_length", "maybe"),
        ]))
        .unwrap();
        assert_eq!(comm.hints().0.len(), 5);
        assert_eq!(comm.hints().get("mpi_assert_no_any_tag"), Some("true"));
        assert_eq!(comm.hints().get("mpi_assert_exact_length"), Some("false"));
        assert!(comm.check_assertions(Source::Any, Some(1)).is_ok());
        assert!(comm.check_assertions(Source::Rank(0), None).is_err());
        assert!(comm.check_assertions(Source::ProcNull, None).is_ok());
        comm.set_hints(&hints(&[("mpi_assert_no_any_tag", " false ")]))
            .unwrap();
        assert_eq!(comm.hints().get("mpi_assert_no_any_tag"), Some("false"));
    }

    #[test]
    fn algorithms_can_be_asked_for_and_have_to_exist() {
        let comm = Comm::comm_self(0);
        let set = |k, v| comm.set_hints(&hints(&[(k, v)]));
        set("ferry_coll_allreduce", "ring").unwrap();
        assert_eq!(comm.hints().get("ferry_coll_allreduce"), Some("ring"));
        let e = set("ferry_coll_allreduce", "rings").unwrap_err();
        assert_eq!(e.kind(), crate::Kind::InfoValue);
        assert!(e.text().contains("halving"), "{e}");
        assert!(set("ferry_coll_allreduce", "bruck").is_err());
        set("ferry_coll_nothing", "bruck").unwrap();
        assert_eq!(comm.hints().get("ferry_coll_allreduce"), Some("ring"));
        assert_eq!(comm.hints().get("ferry_coll_nothing"), None);
    }
}
