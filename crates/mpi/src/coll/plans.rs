//! Schedules for calls: by which algorithm, and kept for the next call like it.

use super::board::Place;
use crate::Comm;
use ferry_schedule::{Algorithm, Collective, Cost, Kind, Schedule, Team, plan};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a communicator keeps for its collectives.
#[derive(Default)]
pub struct Plans {
    /// Schedules that its last calls had, newest last.
    kept: Mutex<Vec<(Collective<'static>, Arc<Schedule>)>>,
    /// Its board in the node's memory.
    pub(super) place: Mutex<Place>,
}

/// Schedules kept for a communicator.
const KEPT: usize = 8;
/// Longer schedules are made anew for each call: making them costs little beside running them.
const STEPS_KEPT: usize = 256;

/// The cost figures and the algorithms that the user asks for; the same on all ranks of a job.
struct Choice {
    cost: Cost,
    forced: [Option<Algorithm>; Kind::ALL.len()],
    boards: [bool; Kind::ALL.len()],
}

/// Read once: FERRY_COLL_<NAME>=<algorithm> for each kind of collective.
fn choice() -> &'static Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    CHOICE.get_or_init(|| {
        let (ranks, cores) = match crate::process::started() {
            Some(p) => (p.welcome.local_ranks.len() as u32, p.welcome.cores),
            None => (1, 1),
        };
        let asked = Kind::ALL
            .map(|k| std::env::var(format!("FERRY_COLL_{}", k.name().to_uppercase())).ok());
        let forced = asked
            .each_ref()
            .map(|a| a.as_deref().and_then(Algorithm::from_name));
        let boards = asked.map(|a| a.is_none_or(|a| a == "board"));
        Choice {
            cost: Cost::shared_memory(ranks, cores),
            forced,
            boards,
        }
    })
}

/// May collectives of this kind go by a board? Not if the user asks for an algorithm, which may be "messages": any.
pub(super) fn may_use_board(kind: Kind) -> bool {
    choice().boards[kind as usize]
}

/// This rank's schedule for a call on `comm`.
pub(super) fn schedule(comm: &Comm, what: &Collective<'_>) -> Arc<Schedule> {
    let key = lasting(what);
    if let Some(key) = &key {
        let kept = comm
            .plans
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, s)) = kept.iter().rev().find(|(k, _)| k == key) {
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
    let Choice { cost, forced, .. } = choice();
    let schedule = Arc::new(plan(place, what, cost, forced[what.kind() as usize]));
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
        kept.push((key, schedule.clone()));
    }
    schedule
}

/// The call as a key, if its counts are few.
fn lasting(what: &Collective<'_>) -> Option<Collective<'static>> {
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
