//! What a user asks for where the cost model would choose: FERRY_COLL_<NAME>, a control variable of
//! that name, or the key ferry_coll_<name> of a communicator's info, for each kind of collective.

use ferry_schedule::{Algorithm, Kind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// By a board if the call is one for it, else by the algorithm that costs least.
    Automatic,
    /// By messages, by the algorithm that costs least.
    Messages,
    /// By this algorithm if it can serve the call.
    By(Algorithm),
}

impl Wish {
    /// All that can be asked for this kind.
    pub fn all(kind: Kind) -> impl Iterator<Item = Wish> {
        let algorithms = kind.algorithms().iter().map(|&a| Wish::By(a));
        [Wish::Automatic, Wish::Messages]
            .into_iter()
            .chain(algorithms)
    }

    /// The one of that name, if it can be asked for this kind.
    pub fn from_name(kind: Kind, name: &str) -> Option<Wish> {
        Wish::all(kind).find(|w| w.name() == name)
    }

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Wish::Automatic => "auto",
            Wish::Messages => "messages",
            Wish::By(a) => a.name(),
        }
    }

    /// The algorithm asked for.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            Wish::By(a) => Some(a),
            _ => None,
        }
    }

    /// Never 0.
    fn code(self) -> u8 {
        match self {
            Wish::Automatic => 1,
            Wish::Messages => 2,
            Wish::By(a) => 3 + a as u8,
        }
    }

    fn decode(code: u8) -> Option<Wish> {
        match code {
            0 => None,
            1 => Some(Wish::Automatic),
            2 => Some(Wish::Messages),
            n => Algorithm::ALL.get(usize::from(n) - 3).map(|&a| Wish::By(a)),
        }
    }
}

/// What is asked for, for each kind of collective. Empty at first.
#[derive(Default)]
pub struct Wishes([AtomicU8; Kind::ALL.len()]);

impl Wishes {
    const fn new() -> Wishes {
        Wishes([const { AtomicU8::new(0) }; Kind::ALL.len()])
    }

    /// What is asked for, if anything is.
    #[inline]
    pub fn get(&self, kind: Kind) -> Option<Wish> {
        Wish::decode(self.0[kind as usize].load(Relaxed))
    }

    /// Asks for it.
    pub fn set(&self, kind: Kind, wish: Wish) {
        self.0[kind as usize].store(wish.code(), Relaxed);
    }
}

static OF_PROCESS: Wishes = Wishes::new();

/// The name of the setting for this kind.
pub fn setting(kind: Kind) -> String {
    format!("FERRY_COLL_{}", kind.name().to_uppercase())
}

/// What is asked for in this process; the setting is looked at once. Values that mean nothing for
/// this kind are left out.
#[inline]
pub fn of_process(kind: Kind) -> Wish {
    match OF_PROCESS.get(kind) {
        Some(wish) => wish,
        None => look_up(kind),
    }
}

#[cold]
fn look_up(kind: Kind) -> Wish {
    let asked = std::env::var(setting(kind)).ok();
    let wish = asked
        .and_then(|v| Wish::from_name(kind, v.trim()))
        .unwrap_or(Wish::Automatic);
    OF_PROCESS.set(kind, wish);
    wish
}

/// Asks for it in this process, on all communicators whose info asks for nothing. All ranks have to
/// ask alike.
pub fn ask(kind: Kind, wish: Wish) {
    OF_PROCESS.set(kind, wish);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_has_a_name_and_is_kept() {
        let wishes = Wishes::default();
        for kind in Kind::ALL {
            assert_eq!(wishes.get(kind), None);
            for wish in Wish::all(kind) {
                assert_eq!(Wish::from_name(kind, wish.name()), Some(wish));
                wishes.set(kind, wish);
                assert_eq!(wishes.get(kind), Some(wish));
            }
        }
        assert_eq!(Wish::from_name(Kind::Bcast, "bruck"), None);
    }
}
