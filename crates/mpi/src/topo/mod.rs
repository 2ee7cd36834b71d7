//! Virtual topologies (MPI 5.0 chapter 8): the neighbours of each rank.

mod cart;
mod create;
mod dims;
mod graph;

pub use cart::Cart;
pub use create::Edge;
pub use dims::dims_create;
pub use graph::{DistGraph, Graph, Weighted};

/// A communicator's topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A grid.
    Cart(Cart),
    /// A graph that every process knows in full.
    Graph(Graph),
    /// A distributed graph: each process knows its own edges.
    DistGraph(DistGraph),
}

/// A process's neighbours in the order of neighbourhood collectives (MPI 5.0 §8.6). `None` is
/// MPI_PROC_NULL.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Ranks that it receives from.
    pub sources: Vec<Option<u32>>,
    /// Ranks that it sends to.
    pub destinations: Vec<Option<u32>>,
}

impl Topology {
    /// The neighbours of `rank`. For a distributed graph, `rank` must be the calling process.
    pub fn neighbours(&self, rank: u32) -> Neighbours {
        match self {
            Topology::Cart(cart) => {
                let (mut sources, mut destinations) = (Vec::new(), Vec::new());
                for dim in 0..cart.dims().len() {
                    // Down first, then up, in both lists.
                    let (down, up) = cart.shift(rank, dim, 1);
                    sources.extend([down, up]);
                    destinations.extend([down, up]);
                }
                Neighbours {
                    sources,
                    destinations,
                }
            }
            Topology::Graph(graph) => {
                let all: Vec<_> = graph.neighbours(rank).iter().map(|&r| Some(r)).collect();
                Neighbours {
                    sources: all.clone(),
                    destinations: all,
                }
            }
            Topology::DistGraph(graph) => Neighbours {
                sources: graph.sources.ranks.iter().map(|&r| Some(r)).collect(),
                destinations: graph.destinations.ranks.iter().map(|&r| Some(r)).collect(),
            },
        }
    }
}
