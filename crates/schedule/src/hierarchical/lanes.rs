//! Small data in two levels without leaders that do all the sending: each rank of a node sends to
//! another node at the same time (Träff 2020, k-lane model). A few of such rounds reach all nodes,
//! where leaders alone need one for each doubling. Between the rounds ranks tell their node.

use super::{Data, Levels, place};
use crate::algorithm::{Algorithm, Kind};
use crate::reduce::Operand;
use crate::step::{Builder, Peer, Piece, Team};
use crate::{allreduce, barrier, bcast};

/// A tree of nodes, each with up to `width` below it. Nodes count from the root's.
struct NodeTree {
    nodes: u32,
    root: u32,
    width: u32,
}

impl NodeTree {
    /// A node's number, counted from the root's.
    fn number(&self, node: u32) -> u32 {
        (node + self.nodes - self.root) % self.nodes
    }

    /// The node above, and which of the nodes below that this one is.
    fn parent(&self, node: u32) -> Option<(u32, u32)> {
        let before = self.number(node).checked_sub(1)?;
        let above = (before / self.width + self.root) % self.nodes;
        Some((above, before % self.width))
    }

    /// The nodes below that the rank at `place` of `members` sends to or receives from.
    fn children(&self, node: u32, place: u32, members: u32) -> impl Iterator<Item = u32> {
        let first = u64::from(self.number(node)) * u64::from(self.width) + 1;
        let last = (first + u64::from(self.width)).min(u64::from(self.nodes));
        let (nodes, root) = (self.nodes, self.root);
        (first + u64::from(place)..last)
            .step_by(members as usize)
            .map(move |number| (number as u32 + root) % nodes)
    }
}

impl Levels<'_> {
    /// The rank at a place of a node. For nodes whose ranks follow each other.
    fn rank_at(&self, node: u32, place: u32) -> u32 {
        self.begin(node) + place
    }

    fn node_tree(&self, root: u32, width: u32) -> NodeTree {
        NodeTree {
            nodes: self.map.shape().nodes,
            root: self.map.node_of(root),
            width,
        }
    }

    /// The rank that exchanges messages with this node's leader, in the node above.
    fn above(&self, tree: &NodeTree) -> Option<u32> {
        let (above, child) = tree.parent(self.node)?;
        let members = self.begin(above + 1) - self.begin(above);
        Some(self.rank_at(above, child % members))
    }

    /// The leaders with which this rank exchanges messages, in nodes below.
    fn below(&self, tree: &NodeTree, leaders: &[u32]) -> Vec<u32> {
        let team = self.node_team;
        let children = tree.children(self.node, team.rank, team.size);
        children.map(|node| leaders[node as usize]).collect()
    }

    /// MPI_Bcast: a node's ranks send to up to `width` nodes.
    pub(super) fn bcast_in_lanes(
        &self,
        b: &mut Builder,
        root: u32,
        data: Piece,
        bytes: i64,
        width: u32,
    ) {
        let tree = self.node_tree(root, width);
        let leaders = self.leaders_with(root);
        let leader = leaders[self.node as usize];
        if let Some(above) = self.above(&tree).filter(|_| self.rank == leader) {
            b.recv(above, data);
        }
        self.bcast_intranode(b, place(&self.members, leader), data, bytes);
        if self.rank != root {
            b.sync();
        }
        for child in self.below(&tree, &leaders) {
            b.send(child, data);
        }
    }

    /// MPI_Reduce, likewise. For operations that commute.
    pub(super) fn reduce_in_lanes(&self, b: &mut Builder, root: u32, d: Data, width: u32) {
        let tree = self.node_tree(root, width);
        let leaders = self.leaders_with(root);
        let leader = leaders[self.node as usize];
        let mut received = Vec::new();
        for child in self.below(&tree, &leaders) {
            let room = b.scratch(d.x.input.count);
            b.recv(child, room);
            received.push((room, b.mark()));
        }
        let mut own = d.x.input;
        for (room, mark) in received {
            b.sync_before(mark);
            b.reduce(own, room);
            own = room;
        }
        let is_below = self.rank == leader && self.rank != root;
        let sum = match is_below {
            true => b.scratch(d.output.count),
            false => d.output,
        };
        let x = Operand { input: own, ..d.x };
        let of_node = Data {
            x,
            output: sum,
            ..d
        };
        self.reduce_intranode(b, place(&self.members, leader), of_node);
        if let Some(above) = self.above(&tree).filter(|_| is_below) {
            b.sync();
            b.send(above, sum);
        }
    }

    /// MPI_Allreduce in rounds of exchanges among so many nodes each, whose product is that of all
    /// nodes. For operations that commute.
    ///
    /// In all nodes of a round the i-th rank has the sum of the i-th of these nodes, and the ranks
    /// add up with one algorithm. So all get the same bits.
    pub(super) fn allreduce_in_lanes(&self, b: &mut Builder, d: Data, rounds: &[u32]) {
        let (team, output) = (self.node_team, d.output);
        self.add_up(b, d.x.input, output, team.size);
        let mut stride = 1;
        for &width in rounds {
            let index = self.node / stride % width;
            let first = self.node - index * stride;
            let adders = width.min(self.map.shape().smallest);
            b.sync();
            let mut sum = output;
            if team.rank < adders {
                let theirs = (team.rank..width).step_by(adders as usize);
                let theirs = theirs.map(|i| match i == index {
                    true => output,
                    false => {
                        let room = b.scratch(output.count);
                        let peer = self.rank_at(first + i * stride, index % adders);
                        b.recv(peer, room);
                        b.send(peer, output);
                        room
                    }
                });
                let theirs: Vec<Piece> = theirs.collect();
                b.sync();
                sum = theirs[0];
                for &next in &theirs[1..] {
                    b.reduce(sum, next);
                    sum = next;
                }
            }
            self.add_up(b, sum, output, adders);
            stride *= width;
        }
    }

    /// The sum of the first `adders` ranks of the node, on all of its ranks. The algorithm depends
    /// on nothing else, so that nodes with the same operands have the same sum.
    fn add_up(&self, b: &mut Builder, input: Piece, output: Piece, adders: u32) {
        let team = self.node_team;
        if team.rank < adders {
            b.among(&self.members, |b| {
                let team = Team {
                    size: adders,
                    ..team
                };
                let x = Operand {
                    input,
                    commutes: true,
                };
                allreduce::run(b, Algorithm::Doubling, team, x, output);
            });
        }
        // Each adder tells the others at its place, modulo their number.
        let told = self.members.iter().copied();
        let told = told.skip((team.rank % adders) as usize);
        let told: Vec<u32> = told.step_by(adders as usize).collect();
        if told.len() > 1 {
            let team = Team {
                rank: team.rank / adders,
                size: told.len() as u32,
            };
            b.sync();
            b.among(&told, |b| bcast::binomial(b, team, 0, output));
        }
    }

    /// MPI_Barrier in rounds in which a node signals to the next `width` - 1, 1, `width`, `width`²
    /// … nodes apart.
    pub(super) fn barrier_in_lanes(&self, b: &mut Builder, width: u32) {
        let (team, nodes) = (self.node_team, self.map.shape().nodes);
        let lanes = self.map.shape().smallest;
        let algorithm = self.choose_intranode(Kind::Barrier, 0, true);
        let within = |b: &mut Builder| {
            b.among(&self.members, |b| barrier::run(b, algorithm, team));
            b.sync();
        };
        within(b);
        let mut stride = 1;
        while stride < nodes {
            if team.rank < lanes {
                let mut number = team.rank + 1;
                while number < width && u64::from(number) * u64::from(stride) < u64::from(nodes) {
                    let distance = number * stride;
                    let ahead = (self.node + distance) % nodes;
                    let behind = (self.node + nodes - distance) % nodes;
                    b.expect(Peer::Local(self.rank_at(behind, team.rank)));
                    b.signal(Peer::Local(self.rank_at(ahead, team.rank)));
                    number += lanes;
                }
                b.sync();
            }
            within(b);
            stride = stride.saturating_mul(width);
        }
    }
}
