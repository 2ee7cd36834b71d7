//! Neighbourhood collectives (MPI 5.0 §8.6).

use crate::topo::{Neighbours, Topology};
use crate::{Comm, Result, err};
use ferry_schedule::{Piece, Schedule, exchange};
use std::sync::Arc;

/// This process's neighbours in the communicator's topology.
///
/// Errors: MPI_ERR_TOPOLOGY if it has none.
pub fn neighbours(comm: &Comm) -> Result<Neighbours> {
    match comm.topology.get() {
        Some(topology) => Ok(topology.neighbours(comm.rank())),
        None => Err(err!(
            Topology,
            "the communicator has no topology, and so no neighbours"
        )),
    }
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
    if matches!(
        comm.topology.get().map(Arc::as_ref),
        Some(Topology::Cart(_))
    ) {
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
