//! A communicator's hints (MPI 5.0 §7.4.4): only those are kept that mean something here.

use super::Comm;
use crate::Info;
use std::sync::PoisonError;

/// Keys that communicators keep, all with values "true" or "false".
const KNOWN: [&str; 5] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
];

/// Hints as the program gave them.
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
        self.hints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes those of `hints` that are known and sensible; the rest is ignored, as the standard wants it.
    pub fn set_hints(&self, hints: &Hints) {
        let mut kept = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &hints.0 {
            let value = value.trim();
            if !KNOWN.contains(&key.as_str()) || !matches!(value, "true" | "false") {
                continue;
            }
            kept.0.retain(|(k, _)| k != key);
            kept.0.push((key.clone(), value.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hints_are_kept_and_replaced() {
        let comm = Comm::itself(0);
        let hints = |list: &[(&str, &str)]| {
            Hints(
                list.iter()
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .collect(),
            )
        };
        comm.set_hints(&hints(&[
            ("mpi_assert_no_any_tag", "true"),
            ("colour", "red"),
            ("mpi_assert_exact_length", "maybe"),
        ]));
        assert_eq!(comm.hints(), hints(&[("mpi_assert_no_any_tag", "true")]));
        comm.set_hints(&hints(&[("mpi_assert_no_any_tag", " false ")]));
        assert_eq!(comm.hints().get("mpi_assert_no_any_tag"), Some("false"));
    }
}
