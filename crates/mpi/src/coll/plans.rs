//! Schedules for calls: by which algorithm, and kept for the next call like it.

use super::board::Place;
use super::wish::{self, Wish, Wishes};
use crate::Comm;
use ferry_schedule::{Collective, Cost, Kind, Schedule, Team, plan};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a communicator keeps for its collectives.
#[derive(Default)]
pub struct Plans {
    /// Schedules that its last calls had, and what was asked for then; newest last.
    kept: Mutex<Vec<(Collective<'static>, Wish, Arc<Schedule>)>>,
    /// Non-blocking collectives that have ended, to be started again.
    pub(crate) ended: super::run::KeptCollectives,
    /// Its board in the node's memory.
    pub(super) place: Mutex<Place>,
    /// What its info asks for.
    pub(crate) wishes: Wishes,
    /// Whether its info wants blocking collectives to overlap: 0 says nothing, 1 yes, 2 no.
    pub(crate) overlap: AtomicU8,
    /// Something goes on by itself while its ranks compute.
    pub(super) has_room: OnceLock<bool>,
}

impl Plans {
    /// Does its info want blocking collectives to overlap with what follows?
    pub(crate) fn overlap(&self) -> Option<bool> {
        match self.overlap.load(Ordering::Relaxed) {
            0 => None,
            n => Some(n == 1),
        }
    }
}

/// Schedules kept for a communicator.
const KEPT: usize = 8;
/// Longer schedules are made anew for each call: making them costs little beside running them.
const STEPS_KEPT: usize = 256;

/// The cost figures; the same on all ranks of a job.
fn cost() -> &'static Cost {
    static COST: OnceLock<Cost> = OnceLock::new();
    COST.get_or_init(|| {
        let welcome = crate::process::started().map(|p| &p.welcome);
        welcome.map_or(Cost::shared_memory(1, 1), |w| {
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
    own.unwrap_or_else(|| wish::of_process(kind))
}

/// May collectives of this kind go by a board? Not if the user asks for an algorithm, which may be
/// "messages": any.
pub(super) fn may_use_board(comm: &Comm, kind: Kind) -> bool {
    asked(comm, kind) == Wish::Automatic
}

/// This rank's schedule for a call on `comm`.
pub(super) fn schedule(comm: &Comm, what: &Collective<'_>) -> Arc<Schedule> {
    let wish = asked(comm, what.kind());
    let key = lasting(what);
    if let Some(key) = &key {
        let kept = comm
            .plans
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let like = |k: &&(Collective<'static>, Wish, _)| k.0 == *key && k.1 == wish;
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
    let schedule = Arc::new(plan(place, what, cost(), wish.algorithm()));
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
        kept.push((key, wish, schedule.clone()));
    }
    schedule
}

/// The call as a key, if its counts are few.
pub(super) fn lasting(what: &Collective<'_>) -> Option<Collective<'static>> {
    Some(match *what {
        Collective::Barrier => Collective::Barrier,
        Collective::Bcast { root, bytes } => Collective::Bcast { root, bytes },
        Collective::Reduce { root, of, in_place } => Collective::Reduce { root, of, in_place },
        Collective::Allreduce { of, in_place } => Collective::Allreduce { of, in_place },
        Collective::Gather {
            root,
            block,
            in_place,
        } => Collective::Gather {
            root,
            block,
            in_place,
        },
        Collective::Scatter {
            root,
            block,
            in_place,
        } => Collective::Scatter {
            root,
            block,
            in_place,
        },
        Collective::Allgather { block, in_place } => Collective::Allgather { block, in_place },
        Collective::Alltoall { block, in_place } => Collective::Alltoall { block, in_place },
        Collective::ReduceScatterBlock { of, in_place } => {
            Collective::ReduceScatterBlock { of, in_place }
        }
        Collective::Scan { of, in_place } => Collective::Scan { of, in_place },
        Collective::Exscan { of, in_place } => Collective::Exscan { of, in_place },
        _ => return None,
    })
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
