//! A job whose ranks never come to Ferry because they use another MPI.
//!
//! mpiexec refuses a program that is linked with another MPI's library. It does not see the program
//! that a script starts, nor the module that Python loads. So it looks at what the first rank has
//! loaded, as long as no rank has called MPI_Init.

use ferry_job::RankState;

use super::{Backend, Job};
use crate::start::other_mpi::{self, ADVICE};

/// How often the first rank is looked at: about 5 s. A program that uses MPI has loaded it by then.
const LOOKS_MAX: u32 = 20;

/// What has been seen of another MPI.
pub(super) struct OtherMpiWatch {
    looks_left: u32,
    /// The library that the first rank has loaded.
    library: Option<String>,
}

impl OtherMpiWatch {
    pub(super) fn new() -> OtherMpiWatch {
        OtherMpiWatch {
            looks_left: LOOKS_MAX,
            library: None,
        }
    }
}

impl Job<'_> {
    /// Looks at what the first rank has loaded. To be called now and then.
    pub(super) fn look_for_other_mpi(&mut self) {
        let watch = &self.other_mpi;
        let done = watch.looks_left == 0 || watch.library.is_some();
        if done || self.ranks.len() < 2 || self.any_rank_has_initialised() {
            return;
        }
        self.other_mpi.looks_left -= 1;
        let first = &self.ranks[0];
        // A rank on another host has a number of that host.
        if matches!(self.backend, Backend::Local(_)) && first.pid != 0 && first.ended.is_none() {
            self.other_mpi.library = other_mpi::loaded_by(first.pid);
        }
    }

    /// After a job of several ranks that has succeeded: says if none called MPI_Init, because
    /// another MPI was used.
    pub(super) fn note_other_mpi(&mut self) {
        let ended_well = self.shutdown.is_none() && self.status == 0;
        if !ended_well || self.ranks.len() < 2 || self.any_rank_has_initialised() {
            return;
        }
        let known = match (&self.other_mpi.library, &self.backend) {
            (Some(library), _) => Some(format!("the first one used {library}")),
            (None, Backend::Local(local)) => local.starter.other_mpi().map(String::from),
            (None, Backend::Remote(_)) => None,
        };
        if let Some(known) = known {
            let ranks = self.ranks.len();
            self.streams.output.print_message(&format!(
                "none of the {ranks} ranks called MPI_Init of Ferry; {known}, another MPI's \
                 library, so each was a job of one rank: {ADVICE}"
            ));
        }
    }

    fn any_rank_has_initialised(&self) -> bool {
        (0..self.ranks.len()).any(|rank| self.state(rank) != RankState::Started)
    }
}
