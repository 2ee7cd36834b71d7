//! How many collectives were executed, by algorithm (performance variables of MPI_T).

use crate::device::{Count, Device};
use ferry_schedule::Algorithm;

/// Collectives that this process has begun to execute.
pub struct Counters {
    by_algorithm: [Count; Algorithm::ALL.len()],
    /// Through a board in shared memory.
    pub board: Count,
    /// Those with one algorithm only: neighbourhood collectives, intercommunicators, and others.
    pub other: Count,
}

/// The counters of this process.
pub static COUNTERS: Counters = Counters {
    by_algorithm: [const { Count::new() }; Algorithm::ALL.len()],
    board: Count::new(),
    other: Count::new(),
};

impl Counters {
    /// The counter of this algorithm; `None`: `other`.
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
