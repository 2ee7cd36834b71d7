//! The algorithm that a user asks for in place of the cost model's choice, for each kind of
//! collective (Open MPI: forced algorithms; MPICH: control variables of each collective).
//!
//! It is the environment variable `FERRY_COLL_<NAME>`, a control variable of that name, or the key
//! `ferry_coll_<name>` of a communicator's info.

use crate::{Result, err};
use ferry_schedule::{Algorithm, Kind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlgorithmSetting {
    /// A board if the call is one for it, otherwise the algorithm that costs least.
    Automatic,
    /// Messages, by the algorithm that costs least.
    Messages,
    /// This algorithm, if it can serve the call.
    Algorithm(Algorithm),
}

impl AlgorithmSetting {
    /// All values for this kind.
    pub fn all(kind: Kind) -> impl Iterator<Item = AlgorithmSetting> {
        let algorithms = kind
            .algorithms()
            .iter()
            .map(|&a| AlgorithmSetting::Algorithm(a));
        [AlgorithmSetting::Automatic, AlgorithmSetting::Messages]
            .into_iter()
            .chain(algorithms)
    }

    /// The value of that name, if this kind has it.
    pub fn from_name(kind: Kind, name: &str) -> Option<AlgorithmSetting> {
        AlgorithmSetting::all(kind).find(|w| w.name() == name)
    }

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            AlgorithmSetting::Automatic => "auto",
            AlgorithmSetting::Messages => "messages",
            AlgorithmSetting::Algorithm(a) => a.name(),
        }
    }

    /// The algorithm asked for.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            AlgorithmSetting::Algorithm(a) => Some(a),
            _ => None,
        }
    }

    /// Never 0.
    fn code(self) -> u8 {
        match self {
            AlgorithmSetting::Automatic => 1,
            AlgorithmSetting::Messages => 2,
            AlgorithmSetting::Algorithm(a) => 3 + a as u8,
        }
    }

    fn decode(code: u8) -> Option<AlgorithmSetting> {
        match code {
            0 => None,
            1 => Some(AlgorithmSetting::Automatic),
            2 => Some(AlgorithmSetting::Messages),
            n => Algorithm::ALL
                .get(usize::from(n) - 3)
                .map(|&a| AlgorithmSetting::Algorithm(a)),
        }
    }
}

/// What is asked for, for each kind of collective. Nothing at first.
#[derive(Default)]
pub struct AlgorithmSettings([AtomicU8; Kind::ALL.len()]);

impl AlgorithmSettings {
    const fn new() -> AlgorithmSettings {
        AlgorithmSettings([const { AtomicU8::new(0) }; Kind::ALL.len()])
    }

    /// What is asked for, if anything is.
    #[inline]
    pub fn get(&self, kind: Kind) -> Option<AlgorithmSetting> {
        AlgorithmSetting::decode(self.0[kind as usize].load(Relaxed))
    }

    /// Asks for it.
    pub fn set(&self, kind: Kind, setting: AlgorithmSetting) {
        self.0[kind as usize].store(setting.code(), Relaxed);
    }
}

static OF_PROCESS: AlgorithmSettings = AlgorithmSettings::new();

/// The name of the environment variable for this kind.
pub fn variable_name(kind: Kind) -> String {
    format!("FERRY_COLL_{}", kind.name().to_uppercase())
}

/// Checks the variables of all kinds.
///
/// Errors: a value that the kind does not have.
pub fn check_variables() -> Result<()> {
    for kind in Kind::ALL {
        let name = variable_name(kind);
        let value = std::env::var(&name).unwrap_or_default();
        let text = value.trim();
        if !text.is_empty() && AlgorithmSetting::from_name(kind, text).is_none() {
            let all: Vec<_> = AlgorithmSetting::all(kind).map(|s| s.name()).collect();
            let all = all.join(", ");
            return Err(err!(
                Other,
                "{name} is {text:?}; what can be chosen is {all}"
            ));
        }
    }
    Ok(())
}

/// What is asked for in this process. The variable is read once.
#[inline]
pub fn process_setting(kind: Kind) -> AlgorithmSetting {
    match OF_PROCESS.get(kind) {
        Some(setting) => setting,
        None => read_variable(kind),
    }
}

#[cold]
fn read_variable(kind: Kind) -> AlgorithmSetting {
    let asked = std::env::var(variable_name(kind)).ok();
    let setting = asked
        .and_then(|v| AlgorithmSetting::from_name(kind, v.trim()))
        .unwrap_or(AlgorithmSetting::Automatic);
    OF_PROCESS.set(kind, setting);
    setting
}

/// Asks for it in this process, on all communicators whose info asks for nothing. All ranks must
/// ask for the same.
pub fn set_process_setting(kind: Kind, setting: AlgorithmSetting) {
    OF_PROCESS.set(kind, setting);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_name_and_is_stored() {
        let settings = AlgorithmSettings::default();
        for kind in Kind::ALL {
            assert_eq!(settings.get(kind), None);
            for setting in AlgorithmSetting::all(kind) {
                assert_eq!(
                    AlgorithmSetting::from_name(kind, setting.name()),
                    Some(setting)
                );
                settings.set(kind, setting);
                assert_eq!(settings.get(kind), Some(setting));
            }
        }
        assert_eq!(AlgorithmSetting::from_name(Kind::Bcast, "bruck"), None);
    }
}
