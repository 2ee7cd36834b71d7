//! Creation of communicators with a topology. Ranks are not reordered: `reorder` is a permission.

use super::{Cart, DistGraph, Graph, Topology, Weighted};
use crate::comm::agree::{Agreement, Reader, put_u64};
use crate::{Comm, Group, Result, err};
use std::sync::Arc;

/// An edge of a distributed graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Where it starts.
    pub source: u32,
    /// Where it ends.
    pub destination: u32,
    /// Its weight, if the graph has weights.
    pub weight: i32,
}

impl Comm {
    /// A communicator of the first ranks, with a grid (MPI_Cart_create). `None` for ranks beyond
    /// the grid. Collective; blocks until all members have called it.
    ///
    /// Errors: Rank if the grid has more nodes than the communicator has ranks; Other if a
    /// member is lost.
    pub fn cart_create(self: &Arc<Comm>, cart: Cart) -> Result<Option<Arc<Comm>>> {
        self.create_first(cart.size(), Topology::Cart(cart))
    }

    /// A communicator of the first ranks, with a graph (MPI_Graph_create). `None` for ranks beyond
    /// its nodes. Collective; blocks until all members have called it.
    ///
    /// Errors: Arg if it has more nodes than the communicator has ranks; Other if a member is lost.
    pub fn graph_create(self: &Arc<Comm>, graph: Graph) -> Result<Option<Arc<Comm>>> {
        let nodes = graph.index().len() as u32;
        if nodes > self.size() {
            return Err(err!(
                Arg,
                "nnodes is {nodes}, but the communicator has {} ranks",
                self.size()
            ));
        }
        self.create_first(nodes, Topology::Graph(graph))
    }

    fn create_first(self: &Arc<Comm>, count: u32, topology: Topology) -> Result<Option<Arc<Comm>>> {
        let group = self.group.include_ranges(&if count == 0 {
            vec![]
        } else {
            vec![[0, count as i32 - 1, 1]]
        })?;
        let new = self.create(&group)?;
        if let Some(new) = &new {
            let _ = new.topology.set(Arc::new(topology));
        }
        Ok(new)
    }

    /// The subgrid of this process's coordinates in the dimensions that are not kept
    /// (MPI_Cart_sub). Collective.
    ///
    /// Errors: Topology if the communicator has no grid.
    pub fn cart_sub(self: &Arc<Comm>, keep: &[bool]) -> Result<Arc<Comm>> {
        let Some(Topology::Cart(cart)) = self.topology.get().map(|t| &**t) else {
            return Err(err!(Topology, "the communicator has no Cartesian topology"));
        };
        let (sub, ranks) = cart.slice(self.rank(), keep);
        let ranks: Vec<i32> = ranks.into_iter().map(|r| r as i32).collect();
        let group = self.group.include(&ranks)?;
        let new = self
            .create(&group)?
            .ok_or_else(|| err!(Intern, "a process is in its own part of the grid"))?;
        let _ = new.topology.set(Arc::new(Topology::Cart(sub)));
        Ok(new)
    }

    /// A communicator of the same group, with a distributed graph. Each process passes its own
    /// edges (MPI_Dist_graph_create_adjacent). Collective; blocks until all members have called it.
    ///
    /// Errors: Other if a member is lost.
    pub fn dist_graph_create_adjacent(self: &Arc<Comm>, graph: DistGraph) -> Result<Arc<Comm>> {
        let new = self
            .create(&self.group)?
            .ok_or_else(|| err!(Intern, "a process is in its communicator"))?;
        let _ = new.topology.set(Arc::new(Topology::DistGraph(graph)));
        Ok(new)
    }

    /// As [`Comm::dist_graph_create_adjacent`], but any process may pass any edge
    /// (MPI_Dist_graph_create). A process's edges are ordered by the rank that passed them, then by
    /// that rank's order.
    ///
    /// Errors: as for [`Comm::dist_graph_create_adjacent`].
    pub fn dist_graph_create(
        self: &Arc<Comm>,
        given: &[Edge],
        weighted: bool,
    ) -> Result<Arc<Comm>> {
        let agreement = Agreement::of_all(self)?;
        let gathered = agreement.gather(0, given.iter().flat_map(bytes_of).collect())?;
        let parts = if agreement.rank() == 0 {
            sort_edges(&gathered, &self.group)?
        } else {
            Vec::new()
        };
        let mine = agreement.scatter(parts)?;
        self.dist_graph_create_adjacent(parse_edges(&mine, weighted)?)
    }
}

fn bytes_of(edge: &Edge) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&edge.source.to_le_bytes());
    bytes[4..8].copy_from_slice(&edge.destination.to_le_bytes());
    bytes[8..].copy_from_slice(&edge.weight.to_le_bytes());
    bytes
}

/// The message for each rank: the number of its incoming edges, these edges, and its outgoing
/// edges.
fn sort_edges(gathered: &[u8], group: &Group) -> Result<Vec<Vec<u8>>> {
    let mut incoming = vec![Vec::new(); group.size() as usize];
    let mut outgoing = vec![Vec::new(); group.size() as usize];
    let mut reader = Reader(gathered);
    while !reader.is_empty() {
        let (source, destination, weight) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if source >= group.size() || destination >= group.size() {
            return Err(err!(
                Intern,
                "a process sent an edge from {source} to {destination}, which are no ranks"
            ));
        }
        incoming[destination as usize].push((source, weight));
        outgoing[source as usize].push((destination, weight));
    }
    let part = |(incoming, outgoing): (Vec<(u32, u32)>, _)| {
        let mut bytes = Vec::with_capacity(8 + 16 * incoming.len());
        put_u64(&mut bytes, incoming.len() as u64);
        for (rank, weight) in incoming.into_iter().chain(outgoing) {
            bytes.extend(rank.to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
        bytes
    };
    Ok(incoming.into_iter().zip(outgoing).map(part).collect())
}

fn parse_edges(bytes: &[u8], weighted: bool) -> Result<DistGraph> {
    let mut reader = Reader(bytes);
    let count = reader.u64()? as usize;
    let (mut ranks, mut weights) = (Vec::new(), Vec::new());
    while !reader.is_empty() {
        ranks.push(reader.u32()?);
        weights.push(reader.u32()? as i32);
    }
    if count > ranks.len() {
        return Err(err!(
            Intern,
            "a message about a distributed graph is too short"
        ));
    }
    let part = |from: usize, to: usize| Weighted {
        ranks: ranks[from..to].to_vec(),
        weights: weighted.then(|| weights[from..to].to_vec()),
    };
    Ok(DistGraph {
        sources: part(0, count),
        destinations: part(count, ranks.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_edge_reaches_both_its_ends(list in proptest::collection::vec((0u32..6, 0u32..6,
            -5i32..6), 0..30), weighted: bool) {
            let edges: Vec<Edge> =
                list.into_iter().map(|(source, destination, weight)| Edge { source, destination,
                    weight }).collect();
            let gathered: Vec<u8> = edges.iter().flat_map(bytes_of).collect();
            let parts = sort_edges(&gathered, &Group::first(6, 0)).unwrap();
            for r in 0..6 {
                let graph = parse_edges(&parts[r as usize], weighted).unwrap();
                prop_assert_eq!(graph.is_weighted(), weighted);
                let ends = edges.iter().filter(|e| e.destination == r);
                let starts = edges.iter().filter(|e| e.source == r);
                prop_assert_eq!(&graph.sources.ranks, &ends.clone().map(|e| e.source)
                    .collect::<Vec<_>>());
                prop_assert_eq!(&graph.destinations.ranks, &starts.clone().map(|e|
                    e.destination).collect::<Vec<_>>());
                prop_assert_eq!(graph.sources.weights, weighted.then(|| ends.map(|e|
                    e.weight).collect::<Vec<_>>()));
                prop_assert_eq!(graph.destinations.weights, weighted.then(|| starts.map(|e|
                    e.weight).collect::<Vec<_>>()));
            }
        }
    }
}
