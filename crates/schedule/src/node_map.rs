//! Which ranks of a communicator share a node (MPICH: node map, node roots).

/// How the ranks of a communicator are spread over nodes, as far as the choice of an algorithm
/// depends on it. All ranks must see the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeShape {
    /// Nodes.
    pub nodes: u32,
    /// Ranks on the node that has most.
    pub largest: u32,
    /// Ranks on the node that has fewest.
    pub smallest: u32,
    /// The ranks of each node follow each other.
    pub consecutive: bool,
}

/// Blocks that a leader of an all-to-all in two levels handles before another one pays, and nodes
/// with which it exchanges. Choices: a block costs a copy or two, a node a message.
const BLOCKS_PER_LEADER: u64 = 128;
const NODES_PER_LEADER: u32 = 2;

impl NodeShape {
    /// All nodes have as many ranks.
    pub(crate) fn is_equal(&self) -> bool {
        self.smallest == self.largest
    }

    /// How many ranks of each node exchange blocks with other nodes in an all-to-all in two levels.
    pub(crate) fn alltoall_leaders(&self) -> u32 {
        let largest = u64::from(self.largest);
        let blocks = largest * largest * u64::from(self.nodes);
        let wanted = blocks.div_ceil(BLOCKS_PER_LEADER);
        let wanted = wanted.max(u64::from(self.nodes / NODES_PER_LEADER));
        wanted.min(u64::from(self.nodes.min(self.smallest))) as u32
    }
}

/// The nodes of a communicator's ranks. There are at least two, and one has several ranks. Nodes
/// are numbered in the order of their lowest ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeMap {
    shape: NodeShape,
    /// The lowest rank of each node.
    first: Vec<u32>,
    /// The node of each rank. Empty if the ranks of each node follow each other.
    node_of: Vec<u32>,
    /// Ranks.
    size: u32,
    /// Cores of this rank's node.
    cores: u32,
}

impl NodeMap {
    /// The map of ranks of which rank i is on the node that the i-th number names. `cores` has this
    /// rank's node: only the ranks of one node must see the same. `None` if all are on one node, or
    /// if each is on one of its own: then there are no two levels.
    pub fn new(nodes: impl Iterator<Item = u32>, cores: u32) -> Option<NodeMap> {
        let mut number = std::collections::HashMap::new();
        let (mut first, mut ranks_on) = (Vec::new(), Vec::new());
        let mut node_of = Vec::with_capacity(nodes.size_hint().0);
        let mut consecutive = true;
        for (rank, node) in (0u32..).zip(nodes) {
            let next = first.len() as u32;
            let node = *number.entry(node).or_insert(next);
            if node == next {
                first.push(rank);
                ranks_on.push(0);
            } else if node + 1 != next {
                consecutive = false;
            }
            ranks_on[node as usize] += 1;
            node_of.push(node);
        }
        let largest = ranks_on.iter().copied().max().unwrap_or(0);
        if first.len() < 2 || largest < 2 {
            return None;
        }
        let size = node_of.len() as u32;
        if consecutive {
            node_of = Vec::new();
        }
        Some(NodeMap {
            shape: NodeShape {
                nodes: first.len() as u32,
                largest,
                smallest: ranks_on.iter().copied().min().unwrap_or(0),
                consecutive,
            },
            first,
            node_of,
            size,
            cores,
        })
    }

    /// What the choice of an algorithm depends on.
    pub fn shape(&self) -> NodeShape {
        self.shape
    }

    /// Cores of this rank's node.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Ranks of the communicator.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The node of a rank.
    pub(crate) fn node_of(&self, rank: u32) -> u32 {
        match self.shape.consecutive {
            true => self.first.partition_point(|&f| f <= rank) as u32 - 1,
            false => self.node_of[rank as usize],
        }
    }

    /// The lowest rank of each node.
    pub(crate) fn first_ranks(&self) -> &[u32] {
        &self.first
    }

    /// The ranks of a node, ascending.
    pub(crate) fn ranks_of(&self, node: u32) -> Vec<u32> {
        if self.shape.consecutive {
            let next = self.first.get(node as usize + 1).copied();
            return (self.first[node as usize]..next.unwrap_or(self.size)).collect();
        }
        let on_node = |rank: &u32| self.node_of[*rank as usize] == node;
        (self.first[node as usize]..self.size)
            .filter(on_node)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: &[u32]) -> Option<NodeMap> {
        NodeMap::new(nodes.iter().copied(), 4)
    }

    #[test]
    fn one_level_has_no_map() {
        for nodes in [&[][..], &[3], &[5, 5, 5], &[2, 1, 0]] {
            assert_eq!(map(nodes), None);
        }
    }

    #[test]
    fn ranks_in_blocks_need_no_table() {
        let map = map(&[7, 7, 7, 2, 4, 4]).unwrap();
        assert_eq!(map.first_ranks(), [0, 3, 4]);
        assert!(map.node_of.is_empty());
        assert!(map.shape.consecutive && !map.shape.is_equal());
        assert_eq!((map.shape.nodes, map.shape.largest), (3, 3));
        let nodes: Vec<u32> = (0..6).map(|r| map.node_of(r)).collect();
        assert_eq!(nodes, [0, 0, 0, 1, 2, 2]);
        assert_eq!(map.ranks_of(0), [0, 1, 2]);
        assert_eq!(map.ranks_of(2), [4, 5]);
    }

    #[test]
    fn ranks_in_turns_are_found() {
        let map = map(&[1, 0, 1, 0]).unwrap();
        assert!(!map.shape.consecutive && map.shape.is_equal());
        assert_eq!(map.first_ranks(), [0, 1]);
        assert_eq!((map.node_of(2), map.node_of(3)), (0, 1));
        assert_eq!(map.ranks_of(1), [1, 3]);
    }
}
