//! Algorithm selection (Open MPI: coll/tuned): the schedule of a call by the cheapest algorithm or
//! by the one that the user asks for. Schedules are cached for later calls with the same
//! arguments.

mod setting;

pub use setting::{
    AlgorithmSetting, AlgorithmSettings, check_variables, process_setting, set_process_setting,
    variable_name,
};

use crate::Comm;
use ferry_schedule::{Algorithm, Collective, Cost, Kind, NodeMap, Schedule, Team, plan};
use std::sync::{Arc, OnceLock, PoisonError};

/// Schedules of a communicator's last calls, newest last. With each, the algorithm that the user
/// asked for then.
pub(super) type ScheduleCache = Vec<(Collective<'static>, Option<Algorithm>, Arc<Schedule>)>;

/// Maximum number of schedules that a communicator caches. A choice: programs have few different
/// calls in a loop.
const CACHED_SCHEDULES_MAX: usize = 8;
/// Maximum length of a cached schedule, in steps. A choice: making a longer one costs little beside
/// running it.
const CACHED_STEPS_MAX: usize = 256;

/// The cost model's figures. The same on all ranks of a job.
fn cost() -> &'static Cost {
    static COST: OnceLock<Cost> = OnceLock::new();
    COST.get_or_init(|| {
        let rank_info = crate::process::try_process().map(|p| &p.rank_info);
        rank_info.map_or(Cost::shared_memory(1, 1), |w| {
            cost_for(w.size, w.local_ranks.len() as u32, w.cores)
        })
    })
}

/// The figures for a communicator. Jobs have different ones, so ranks of several jobs use those of
/// a network.
fn cost_of(comm: &Comm) -> &'static Cost {
    static NETWORK: OnceLock<Cost> = OnceLock::new();
    match comm.spans_jobs() {
        true => NETWORK.get_or_init(Cost::network),
        false => cost(),
    }
}

/// The figures for a job of `size` ranks. `local` of them are on this host, which has `cores` cores
/// for them.
///
/// In a job of several hosts, all hosts must get the same figures. Ranks that chose different
/// algorithms would wait for each other for ever.
fn cost_for(size: u32, local: u32, cores: u32) -> Cost {
    if local < size {
        Cost::network()
    } else {
        Cost::shared_memory(local, cores)
    }
}

/// The number of each process's node in this job. `None`: all are on one, or each is on its own.
fn node_numbers() -> Option<&'static [u32]> {
    static NUMBERS: OnceLock<Option<Vec<u32>>> = OnceLock::new();
    let find = || {
        let rank_info = &crate::process::try_process()?.rank_info;
        let nodes = rank_info.nodes.len();
        let two_levels = nodes > 1 && nodes < rank_info.size as usize;
        two_levels.then(|| rank_info.nodes.numbers(rank_info.size))
    };
    NUMBERS.get_or_init(find).as_deref()
}

/// The nodes of a communicator's ranks, if they make two levels. Nothing is known of other jobs'.
fn nodes_of(comm: &Comm) -> Option<&NodeMap> {
    let find = || {
        if comm.is_inter() || comm.spans_jobs() {
            return None;
        }
        let numbers = node_numbers()?;
        let cores = crate::process::try_process()?.rank_info.cores;
        let of_ranks = comm.group.iter().map(|p| numbers.get(p as usize).copied());
        let of_ranks: Vec<u32> = of_ranks.collect::<Option<_>>()?;
        NodeMap::new(of_ranks.into_iter(), cores)
    };
    comm.coll.nodes.get_or_init(find).as_ref()
}

/// The algorithm setting of this communicator. Where it has none, that of this process.
pub(super) fn setting_for(comm: &Comm, kind: Kind) -> AlgorithmSetting {
    let own = comm.coll.settings.get(kind);
    // Jobs may have different settings.
    own.unwrap_or_else(|| match comm.spans_jobs() {
        true => AlgorithmSetting::Automatic,
        false => process_setting(kind),
    })
}

/// Returns whether collectives of this kind may use a board. They may unless the user asks for an
/// algorithm, or for messages.
pub(super) fn board_allowed(comm: &Comm, kind: Kind) -> bool {
    setting_for(comm, kind) == AlgorithmSetting::Automatic
}

/// A schedule without steps, for what uses none.
pub(super) fn no_schedule() -> Arc<Schedule> {
    static NONE: OnceLock<Arc<Schedule>> = OnceLock::new();
    NONE.get_or_init(Arc::default).clone()
}

/// This rank's schedule for a call on `comm`.
pub(super) fn schedule(comm: &Comm, collective: &Collective<'_>) -> Arc<Schedule> {
    let forced = setting_for(comm, collective.kind()).algorithm();
    let cache = || {
        let cache = &comm.coll.schedule_cache;
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    };
    let key = collective.owned();
    if let Some(key) = &key {
        let is_like = |s: &&(_, _, _)| s.0 == *key && s.1 == forced;
        if let Some((.., schedule)) = cache().iter().rev().find(is_like) {
            return schedule.clone();
        }
    }
    let view = ferry_schedule::CommView {
        team: Team {
            rank: comm.rank(),
            size: comm.size(),
        },
        remote: comm.remote.as_ref().map(|g| g.size()),
        nodes: nodes_of(comm),
    };
    let schedule = Arc::new(plan(view, collective, cost_of(comm), forced));
    if let Some(key) = key
        && schedule.steps.len() <= CACHED_STEPS_MAX
    {
        let mut cache = cache();
        if cache.len() == CACHED_SCHEDULES_MAX {
            cache.remove(0);
        }
        cache.push((key, forced, schedule.clone()));
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_on_hosts_that_differ_use_the_same_figures() {
        assert_eq!(cost_for(6, 1, 8), cost_for(6, 3, 2));
        assert_eq!(cost_for(6, 2, 1), cost_for(6, 2, 64));
        assert_eq!(cost_for(6, 6, 2), Cost::shared_memory(6, 2));
    }
}
