//! Graphs (MPI 5.0 §8.5.3 and §8.5.4).

use crate::{Result, err};

/// A graph that every process knows in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// For each node, the number of edges of it and of the nodes before it.
    index: Vec<u32>,
    edges: Vec<u32>,
}

impl Graph {
    /// From the arrays of MPI_Graph_create.
    ///
    /// Errors: Arg if `index` falls or `edges` names no node.
    pub fn new(index: &[i32], edges: impl Fn(usize) -> i64) -> Result<Graph> {
        let mut before = 0;
        for (i, &at) in index.iter().enumerate() {
            if at < before {
                return Err(err!(
                    Arg,
                    "index[{i}] is {at}, less than the {before} before it"
                ));
            }
            before = at;
        }
        let edges = (0..before as usize)
            .map(|i| match edges(i) {
                e if (0..index.len() as i64).contains(&e) => Ok(e as u32),
                e => Err(err!(
                    Arg,
                    "edges[{i}] is {e}, but the graph has {} nodes",
                    index.len()
                )),
            })
            .collect::<Result<_>>()?;
        Ok(Graph {
            index: index.iter().map(|&i| i as u32).collect(),
            edges,
        })
    }

    /// The array `index`.
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// The array `edges`.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// The ranks that `rank`, which must be a node, has edges to.
    pub fn neighbours(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        let first = if rank == 0 {
            0
        } else {
            self.index[rank - 1] as usize
        };
        &self.edges[first..self.index[rank] as usize]
    }
}

/// The ranks at the other ends of a process's edges, and the edges' weights.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Weighted {
    /// The ranks.
    pub ranks: Vec<u32>,
    /// One weight for each rank. `None` for a graph without weights.
    pub weights: Option<Vec<i32>>,
}

/// A process's own edges in a distributed graph.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DistGraph {
    /// Incoming edges.
    pub sources: Weighted,
    /// Outgoing edges.
    pub destinations: Weighted,
}

impl DistGraph {
    /// Does the graph have weights?
    pub fn is_weighted(&self) -> bool {
        self.sources.weights.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_shape() {
        // 0: 1, 3; 1: 0; 2: 3; 3: 0, 2
        let edges = [1, 3, 0, 3, 0, 2];
        let graph = Graph::new(&[2, 3, 4, 6], |i| edges[i]).unwrap();
        let all: Vec<_> = (0..4).map(|r| graph.neighbours(r).to_vec()).collect();
        assert_eq!(all, [vec![1, 3], vec![0], vec![3], vec![0, 2]]);
        assert_eq!(
            Graph::new(&[1, 0], |_| 0).unwrap_err().kind(),
            crate::Kind::Arg
        );
        assert_eq!(
            Graph::new(&[-1, 0], |_| 0).unwrap_err().kind(),
            crate::Kind::Arg
        );
        assert_eq!(
            Graph::new(&[1, 1], |_| 2).unwrap_err().kind(),
            crate::Kind::Arg
        );
    }
}
