//! Which ranks are on which node.

use crate::rank_info::{Input, Malformed};
use std::sync::Arc;

/// Longest host name: RFC 1035 allows 253 bytes.
const HOST_NAME_MAX_BYTES: usize = 255;

/// Ranks at equal distances: `count` ranks from `first` on, `stride` apart. As a range triplet of
/// MPI_Group_range_incl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRange {
    /// The lowest rank.
    pub first: u32,
    /// Number of ranks, at least 1.
    pub count: u32,
    /// Distance between two ranks, at least 1.
    pub stride: u32,
}

impl RankRange {
    fn holds(&self, rank: u32) -> bool {
        rank >= self.first
            && (rank - self.first).is_multiple_of(self.stride)
            && (rank - self.first) / self.stride < self.count
    }
    fn ranks(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |n| self.first + n * self.stride)
    }
}

/// A node of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The host's name, as the launcher knows it.
    pub host: String,
    /// Its ranks, ascending.
    pub ranks: Vec<RankRange>,
}

/// All nodes of a job. Each rank is on exactly one. Clones share one list: of a job on 65,536 nodes
/// it takes some 7 MB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes(Arc<[Node]>);

impl Nodes {
    /// All of `size` ranks on one node.
    pub fn one(host: &str, size: u32) -> Nodes {
        Nodes::of(&[host.to_string()], &vec![0; size as usize])
    }

    /// From each node's host and each rank's node.
    pub fn of(hosts: &[String], node_of: &[u32]) -> Nodes {
        let mut nodes: Vec<Node> = hosts
            .iter()
            .map(|host| Node {
                host: clean(host),
                ranks: Vec::new(),
            })
            .collect();
        for (rank, &node) in (0u32..).zip(node_of) {
            let Some(Node { ranks, .. }) = nodes.get_mut(node as usize) else {
                continue;
            };
            match ranks.last_mut() {
                Some(run) if run.count == 1 => {
                    run.stride = rank - run.first;
                    run.count = 2;
                }
                Some(run) if rank == run.first + run.count * run.stride => run.count += 1,
                _ => {
                    if ranks.is_empty() {
                        // Most nodes have one run.
                        ranks.reserve_exact(1);
                    }
                    ranks.push(RankRange {
                        first: rank,
                        count: 1,
                        stride: 1,
                    });
                }
            }
        }
        Nodes(nodes.into())
    }

    /// The nodes, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there no node?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A node's ranks, ascending. Empty if there is no such node.
    pub fn ranks_of(&self, node: usize) -> Vec<u32> {
        let Some(node) = self.0.get(node) else {
            return Vec::new();
        };
        let mut ranks: Vec<u32> = node.ranks.iter().flat_map(|run| run.ranks()).collect();
        ranks.sort_unstable();
        ranks
    }

    /// The number of a rank's node.
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        self.0
            .iter()
            .position(|n| n.ranks.iter().any(|run| run.holds(rank)))
    }

    /// The number of each rank's node, for `size` ranks.
    pub fn numbers(&self, size: u32) -> Vec<u32> {
        let mut numbers = vec![0; size as usize];
        for (number, node) in (0u32..).zip(self.iter()) {
            for rank in node.ranks.iter().flat_map(|run| run.ranks()) {
                if let Some(its) = numbers.get_mut(rank as usize) {
                    *its = number;
                }
            }
        }
        numbers
    }

    /// The name of a rank's host, or "?".
    pub fn host_of(&self, rank: u32) -> &str {
        self.node_of(rank).map_or("?", |n| &self.0[n].host)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.0.len() as u32).to_le_bytes());
        for node in self.iter() {
            out.extend((node.host.len() as u32).to_le_bytes());
            out.extend(node.host.as_bytes());
            out.extend((node.ranks.len() as u32).to_le_bytes());
            for run in &node.ranks {
                for word in [run.first, run.count, run.stride] {
                    out.extend(word.to_le_bytes());
                }
            }
        }
    }

    /// Decodes the nodes of a job of `size` ranks. Each rank must be on exactly one.
    pub(crate) fn decode(input: &mut Input<'_>, size: u32) -> Result<Nodes, Malformed> {
        let field = |text: String| Malformed::Field(text);
        let count = input.u32("the number of nodes")?;
        if count == 0 || count > size {
            return Err(field(format!(
                "it says that {size} ranks are on {count} nodes"
            )));
        }
        let mut nodes = Vec::new();
        let mut seen = vec![false; size as usize];
        for number in 0..count {
            let len = input.u32("the length of a host's name")? as usize;
            if len > HOST_NAME_MAX_BYTES {
                return Err(field(format!("a host's name has {len} bytes")));
            }
            let host = input.bytes(len, "a host's name")?;
            let host = match std::str::from_utf8(host) {
                Ok(name) if clean(name) == name => name.to_string(),
                _ => return Err(field(format!("node {number} has a name that is none"))),
            };
            let runs = input.u32("the number of runs of ranks")?;
            let mut ranks = Vec::with_capacity(1);
            for _ in 0..runs {
                let first = input.u32("a run of ranks")?;
                let count = input.u32("a run of ranks")?;
                let stride = input.u32("a run of ranks")?;
                let last = u64::from(first)
                    + u64::from(count.saturating_sub(1)) * u64::from(stride.max(1));
                if count == 0 || stride == 0 || last >= u64::from(size) {
                    return Err(field(format!(
                        "node {number} ({host}) has {count} ranks from {first} on, {stride} apart, \
                         in a job of {size} ranks"
                    )));
                }
                let run = RankRange {
                    first,
                    count,
                    stride,
                };
                for rank in run.ranks() {
                    if std::mem::replace(&mut seen[rank as usize], true) {
                        return Err(field(format!("rank {rank} is on two nodes")));
                    }
                }
                ranks.push(run);
            }
            nodes.push(Node { host, ranks });
        }
        match seen.iter().position(|&s| !s) {
            Some(rank) => Err(field(format!("rank {rank} is on no node"))),
            None => Ok(Nodes(nodes.into())),
        }
    }
}

/// A host's name without control characters, cut to the longest length.
fn clean(host: &str) -> String {
    let mut name: String = host.chars().filter(|c| !c.is_control()).collect();
    while name.len() > HOST_NAME_MAX_BYTES {
        name.pop();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_and_rounds_are_short() {
        let hosts = ["a".to_string(), "b".to_string()];
        let blocks = Nodes::of(&hosts, &[0, 0, 0, 1, 1, 1]);
        assert_eq!(blocks.iter().map(|n| n.ranks.len()).max(), Some(1));
        let rounds = Nodes::of(&hosts, &[0, 1, 0, 1, 0, 1]);
        assert_eq!(rounds.iter().map(|n| n.ranks.len()).max(), Some(1));
        assert_eq!(rounds.ranks_of(1), [1, 3, 5]);
        assert_eq!((rounds.host_of(4), rounds.host_of(6)), ("a", "?"));
    }

    proptest! {
        #[test]
        fn come_back_as_they_went(node_of in prop::collection::vec(0u32..4, 1..64)) {
            let hosts: Vec<String> = (0..4.min(node_of.len())).map(|n| format!("h{n}")).collect();
            let node_of: Vec<u32> = node_of.iter().map(|n| n % hosts.len() as u32).collect();
            let nodes = Nodes::of(&hosts, &node_of);
            prop_assert_eq!(nodes.numbers(node_of.len() as u32), node_of.clone());
            for (rank, &node) in node_of.iter().enumerate() {
                prop_assert_eq!(nodes.node_of(rank as u32), Some(node as usize));
                prop_assert!(nodes.ranks_of(node as usize).contains(&(rank as u32)));
            }
            let mut bytes = Vec::new();
            nodes.encode(&mut bytes);
            let read = Nodes::decode(&mut Input::new(&bytes), node_of.len() as u32);
            prop_assert_eq!(read, Ok(nodes));
        }
        #[test]
        fn any_bytes_are_answered(
            bytes in prop::collection::vec(0u8..8, 0..200),
            size in 1u32..40,
        ) {
            if let Ok(nodes) = Nodes::decode(&mut Input::new(&bytes), size) {
                prop_assert!((0..size).all(|r| nodes.node_of(r).is_some()));
            }
        }
    }
}
