//! Schedules for calls: by which algorithm, and kept for the next call like it.

mod setting;

pub use setting::{Wish, Wishes, ask, of_process, setting};

use crate::Comm;
use ferry_schedule::{Algorithm, Collective, Cost, Kind, Schedule, Team, plan};
use std::sync::{Arc, OnceLock, PoisonError};

/// Schedules of a communicator's last calls, and what was asked for then; newest last.
pub(super) type KeptSchedules = Vec<(Collective<'static>, Option<Algorithm>, Arc<Schedule>)>;

/// Schedules kept for a communicator.
const KEPT: usize = 8;
/// Longer schedules are made anew for each call: making them costs little beside running them.
const STEPS_KEPT: usize = 256;

/// The cost figures; the same on all ranks of a job.
fn cost() -> &'static Cost {
    static COST: OnceLock<Cost> = OnceLock::new();
    COST.get_or_init(|| {
        let rank_info = crate::process::started().map(|p| &p.rank_info);
        rank_info.map_or(Cost::shared_memory(1, 1), |w| {
            figures(w.size, w.local_ranks.len() as u32, w.cores)
        })
    })
}

/// The figures for a job of `size` ranks, `here` of them on this host, which has `cores` for them.
/// What hosts do not have in common must not matter on several: ranks that choose different
/// algorithms wait for each other for ever.
fn figures(size: u32, here: u32, cores: u32) -> Cost {
    if here < size {
        Cost::network()
    } else {
        Cost::shared_memory(here, cores)
    }
}

/// What is asked for: on this communicator, or else in this process.
pub(super) fn asked(comm: &Comm, kind: Kind) -> Wish {
    let own = comm.plans.wishes.get(kind);
    own.unwrap_or_else(|| of_process(kind))
}

/// May collectives of this kind go by a board? Not if the user asks for an algorithm, which may be
/// "messages": any.
pub(super) fn may_use_board(comm: &Comm, kind: Kind) -> bool {
    asked(comm, kind) == Wish::Automatic
}

/// This rank's schedule for a call on `comm`.
pub(super) fn schedule(comm: &Comm, what: &Collective<'_>) -> Arc<Schedule> {
    let asked = asked(comm, what.kind()).algorithm();
    let key = what.owned();
    if let Some(key) = &key {
        let kept = comm
            .plans
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let like = |k: &&(_, _, _)| k.0 == *key && k.1 == asked;
        if let Some((.., s)) = kept.iter().rev().find(like) {
            return s.clone();
        }
    }
    let place = ferry_schedule::Place {
        team: Team {
            rank: comm.rank(),
            size: comm.size(),
        },
        remote: comm.remote.as_ref().map(|g| g.size()),
    };
    let schedule = Arc::new(plan(place, what, cost(), asked));
    if let Some(key) = key
        && schedule.steps.len() <= STEPS_KEPT
    {
        let mut kept = comm
            .plans
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((key, asked, schedule.clone()));
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_on_hosts_that_differ_use_the_same_figures() {
        assert_eq!(figures(6, 1, 8), figures(6, 3, 2));
        assert_eq!(figures(6, 2, 1), figures(6, 2, 64));
        assert_eq!(figures(6, 6, 2), Cost::shared_memory(6, 2));
    }
}
