//! How many collectives there have been, by the way they took.

use crate::device::{Count, Device};
use ferry_schedule::Algorithm;

/// Collectives that this process has started to carry out.
pub struct Tally {
    by_algorithm: [Count; Algorithm::ALL.len()],
    /// By a board in the node's memory.
    pub board: Count,
    /// Neighbourhood collectives, those between two groups, and others for which there is one way
    /// only.
    pub other: Count,
}

/// Those of this process.
pub static TALLY: Tally = Tally {
    by_algorithm: [const { Count::new() }; Algorithm::ALL.len()],
    board: Count::new(),
    other: Count::new(),
};

impl Tally {
    /// Those by this algorithm; `None`: the others.
    #[inline]
    pub fn of(&self, algorithm: Option<Algorithm>) -> &Count {
        match algorithm {
            Some(a) => &self.by_algorithm[a as usize],
            None => &self.other,
        }
    }

    #[inline]
    pub(crate) fn count(&self, algorithm: Option<Algorithm>, d: &Device) {
        self.of(algorithm).increment(d);
    }
}
