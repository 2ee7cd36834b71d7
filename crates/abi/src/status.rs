//! MPI_Status.

use crate::{constants, raise};
use ferry_mpi::pt2pt::From;
use ferry_mpi::request::{Outcome, SuccessStatus};

/// A status as the ABI lays it out (MPI 5.0 chapter 21): eight ints.
/// The five ints of the library hold a byte count in two halves, and the cancelled flag.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// MPI_SOURCE.
    pub source: i32,
    /// MPI_TAG.
    pub tag: i32,
    /// MPI_ERROR.
    pub error: i32,
    pub(crate) count: [u32; 2],
    pub(crate) cancelled: i32,
    pub(crate) reserved: [i32; 2],
}

impl Status {
    /// The empty status (MPI 5.0 §3.7.3).
    pub const EMPTY: Status = Status {
        source: constants::MPI_ANY_SOURCE,
        tag: constants::MPI_ANY_TAG,
        error: constants::MPI_SUCCESS,
        count: [0; 2],
        cancelled: 0,
        reserved: [0; 2],
    };

    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count[0]) | u64::from(self.count[1]) << 32
    }

    /// Sets the bytes of the message.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.count = [bytes as u32, (bytes >> 32) as u32];
    }

    /// Was the operation cancelled?
    pub fn is_cancelled(&self) -> bool {
        self.cancelled != 0
    }

    /// Sets whether the operation was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.cancelled = i32::from(cancelled);
    }

    /// Stores an outcome without its error. A call that returns one status leaves MPI_ERROR
    /// unchanged (MPI 5.0 §3.2.5).
    #[inline]
    pub fn store(&mut self, outcome: &Outcome) {
        self.source = source_number(outcome.source);
        self.tag = outcome.tag.map_or(constants::MPI_ANY_TAG, |t| t as i32);
        self.set_bytes(outcome.bytes);
        self.set_cancelled(outcome.cancelled);
    }

    /// Stores how a send or a receive has ended. MPI_ERROR stays unchanged.
    #[inline(always)]
    pub fn store_success(&mut self, ended: SuccessStatus) {
        (self.source, self.tag, self.count) = match ended {
            SuccessStatus::Empty => (constants::MPI_ANY_SOURCE, constants::MPI_ANY_TAG, [0; 2]),
            SuccessStatus::Received { source, tag, bytes } => {
                let count = [bytes as u32, (bytes >> 32) as u32];
                (source as i32, tag as i32, count)
            }
        };
        self.cancelled = 0;
    }

    /// Stores an outcome with its error.
    pub fn store_with_error(&mut self, outcome: &Outcome) {
        self.store(outcome);
        self.error = outcome
            .error
            .as_ref()
            .map_or(constants::MPI_SUCCESS, raise::code_of);
    }
}

impl Status {
    /// The outcome that a program has stored in it (generalised requests).
    pub fn outcome(&self) -> Outcome {
        let source = match self.source {
            constants::MPI_ANY_SOURCE => From::Any,
            constants::MPI_PROC_NULL => From::ProcNull,
            rank => From::Rank(rank as u32),
        };
        let tag = (self.tag != constants::MPI_ANY_TAG).then_some(self.tag as u32);
        Outcome {
            source,
            tag,
            bytes: self.bytes(),
            cancelled: self.is_cancelled(),
            error: None,
        }
    }
}

/// The rank that stands for a source.
#[inline]
fn source_number(source: From) -> i32 {
    match source {
        From::Rank(rank) => rank as i32,
        From::Any => constants::MPI_ANY_SOURCE,
        From::ProcNull => constants::MPI_PROC_NULL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_eight_ints() {
        assert_eq!((size_of::<Status>(), align_of::<Status>()), (32, 4));
    }

    #[test]
    fn large_counts_survive() {
        let mut s = Status::EMPTY;
        for bytes in [0, 1, u64::from(u32::MAX), 1 << 40 | 7] {
            s.set_bytes(bytes);
            assert_eq!(s.bytes(), bytes);
        }
        s.set_cancelled(true);
        assert!(s.is_cancelled());
    }
}
