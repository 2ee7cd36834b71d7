//! Neighbourhood collectives (MPI 5.0 §8.6).

use crate::topo::{Neighbours, Topology};
use crate::{Comm, Result, err};
use ferry_schedule::{NeighbourExchange, Piece, Schedule, exchange};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// This process's neighbours in the communicator's topology.
///
/// Errors: MPI_ERR_TOPOLOGY if it has none.
pub fn neighbours(comm: &Comm) -> Result<&Neighbours> {
    match comm.topology.get() {
        Some(topology) => {
            let cached = &comm.coll.neighbourhood.neighbours;
            Ok(cached.get_or_init(|| topology.neighbours(comm.rank())))
        }
        None => Err(err!(
            Topology,
            "the communicator has no topology, and so no neighbours"
        )),
    }
}

/// What a communicator keeps for neighbourhood collectives.
#[derive(Default)]
pub(super) struct NeighbourhoodState {
    neighbours: OnceLock<Neighbours>,
    /// The schedules of its last calls, newest last.
    schedules: Mutex<Vec<(NeighbourExchange, Arc<Schedule>)>>,
}

/// Maximum number of schedules that a communicator caches for neighbourhood collectives. A choice:
/// equal to that of other collectives.
const CACHED_SCHEDULES_MAX: usize = 8;
/// Maximum length of a cached schedule, in steps. A choice, as for other collectives.
const CACHED_STEPS_MAX: usize = 256;

/// This rank's schedule for a call on `comm`, which has a topology.
pub(super) fn schedule(comm: &Comm, exchange: &NeighbourExchange) -> Arc<Schedule> {
    let cache = || {
        let cache = &comm.coll.neighbourhood.schedules;
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    };
    if let Some((_, schedule)) = cache().iter().rev().find(|(key, _)| key == exchange) {
        return schedule.clone();
    }
    let (receive, send) = (
        |i: usize| exchange.receive_piece(i),
        |i: usize| exchange.send_piece(i),
    );
    let schedule = match neighbours(comm) {
        Ok(n) => exchange_with(comm, n, &receive, &send),
        Err(_) => Arc::default(),
    };
    if schedule.steps.len() <= CACHED_STEPS_MAX {
        let mut cache = cache();
        if cache.len() == CACHED_SCHEDULES_MAX {
            cache.remove(0);
        }
        cache.push((*exchange, schedule.clone()));
    }
    schedule
}

/// Has the communicator a grid?
#[inline]
pub(super) fn is_grid(comm: &Comm) -> bool {
    matches!(
        comm.topology.get().map(Arc::as_ref),
        Some(Topology::Cart(_))
    )
}

/// The schedule of an exchange with the neighbours: `receive(i)` is where what the i-th source
/// sends goes, `send(i)` what the i-th destination gets.
pub fn exchange_with(
    comm: &Comm,
    n: &Neighbours,
    receive: &dyn Fn(usize) -> Piece,
    send: &dyn Fn(usize) -> Piece,
) -> Arc<Schedule> {
    let mut receives: Vec<(u32, Piece)> = Vec::with_capacity(n.sources.len());
    let mut order: Vec<usize> = (0..n.sources.len()).collect();
    // Where both neighbours in a dimension of a grid are one process, what it sends down (first)
    // comes from above.
    if is_grid(comm) {
        order.chunks_exact_mut(2).for_each(<[usize]>::reverse);
    }
    for i in order {
        if let Some(source) = n.sources[i] {
            receives.push((source, receive(i)));
        }
    }
    let sends: Vec<(u32, Piece)> = (0..n.destinations.len())
        .filter_map(|i| Some((n.destinations[i]?, send(i))))
        .collect();
    Arc::new(exchange(&receives, &sends))
}
