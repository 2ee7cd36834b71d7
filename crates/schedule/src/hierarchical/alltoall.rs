//! MPI_Alltoall in two levels (MPI 5.0 §6.8), for blocks so small that messages cost more than
//! bytes: two nodes exchange one message, and not one for each pair of their ranks.
//!
//! The nodes are cut into ranges. On each node each range has its leader, which does three steps:
//! it gathers the blocks of its node's ranks for that range, exchanges one message with each node
//! in the range, and scatters the received blocks to its node's ranks. Which rank leads differs
//! from node to node, so that the first messages of all nodes do not go to the same node.

use super::Levels;
use crate::step::{Builder, Piece, cut};
use std::ops::Range;

/// The blocks for, or from, a range of ranks.
pub(crate) type BlocksOf<'a> = &'a dyn Fn(Range<u32>) -> Piece;

/// What a leader has to exchange. Each of the three buffers has a block for each rank of its node
/// and each rank of its range.
struct Leader<'a> {
    levels: &'a Levels<'a>,
    /// The nodes of its range.
    nodes: Range<u32>,
    /// The ranks of its range.
    ranks: Range<u32>,
    /// Packed bytes of a block.
    bytes: i64,
    /// What each rank of this node has for the range.
    gathered: Piece,
    /// For each node of the range what each rank of this node has for it; later for each rank of
    /// this node what the range has for it.
    outgoing: Piece,
    /// What each rank of the range has for this node.
    incoming: Piece,
}

impl Levels<'_> {
    /// Into how many ranges the nodes are cut.
    fn ranges(&self) -> u32 {
        self.map.shape().alltoall_leaders()
    }

    /// The nodes of a range.
    fn nodes_of_range(&self, range: u32) -> Range<u32> {
        let start = |range| cut(i64::from(self.map.shape().nodes), self.ranges(), range) as u32;
        start(range)..start(range + 1)
    }

    /// The range that the rank at a place of a node leads. The places are below [`Levels::ranges`].
    fn range_led(&self, node: u32, place: u32) -> u32 {
        (place + node % self.ranges()) % self.ranges()
    }

    /// The place in its node of the rank that is the leader of a range.
    fn leader(&self, node: u32, range: u32) -> u32 {
        let ranges = self.ranges();
        (range + ranges - node % ranges) % ranges
    }

    /// The ranks of a range of nodes.
    fn ranks_of_nodes(&self, nodes: Range<u32>) -> Range<u32> {
        self.begin(nodes.start)..self.begin(nodes.end)
    }

    /// MPI_Alltoall of blocks of `bytes` packed bytes, for nodes whose ranks follow each other. The
    /// blocks that come (`inn`) may be the memory of those that go (`out`). `window`: nodes with
    /// which a leader exchanges at a time.
    pub(crate) fn alltoall(
        &self,
        b: &mut Builder,
        out: BlocksOf,
        inn: BlocksOf,
        bytes: i64,
        window: u32,
    ) {
        let me = self.node_team.rank;
        let leaders = self.ranges();
        let range = |place| self.range_led(self.node, place);
        let ranks = |place| self.ranks_of_nodes(self.nodes_of_range(range(place)));
        // In the order of places, so that each node's first message to leave goes to another node.
        let others = || (0..leaders).filter(|&place| place != me);
        let leads = (me < leaders).then(|| Leader::new(self, b, range(me), bytes));
        for place in others() {
            b.send(self.members[place as usize], out(ranks(place)));
        }
        if let Some(leader) = &leads {
            leader.gather(b, out(ranks(me)));
        }
        // Nothing comes to where something has yet to go.
        b.sync();
        if let Some(leader) = &leads {
            leader.exchange(b, window);
            leader.spread(b, inn(ranks(me)));
        }
        for place in others() {
            b.recv(self.members[place as usize], inn(ranks(place)));
        }
    }
}

impl<'a> Leader<'a> {
    fn new(levels: &'a Levels<'a>, b: &mut Builder, range: u32, bytes: i64) -> Leader<'a> {
        let nodes = levels.nodes_of_range(range);
        let ranks = levels.ranks_of_nodes(nodes.clone());
        let blocks = i64::from(levels.node_team.size) * i64::from(ranks.end - ranks.start);
        let mut room = || b.scratch(blocks * bytes);
        let (gathered, outgoing, incoming) = (room(), room(), room());
        Leader {
            levels,
            nodes,
            ranks,
            bytes,
            gathered,
            outgoing,
            incoming,
        }
    }

    /// Blocks `from..to` of a buffer.
    fn blocks(&self, buffer: Piece, from: i64, to: i64) -> Piece {
        buffer.part(from * self.bytes, (to - from) * self.bytes)
    }

    /// Ranks of this node.
    fn members(&self) -> i64 {
        i64::from(self.levels.node_team.size)
    }

    /// The place of a rank in the range.
    fn place(&self, rank: u32) -> i64 {
        i64::from(rank - self.ranks.start)
    }

    /// What member `member` of this node has for these ranks of the range.
    fn gathered_from(&self, member: u32, ranks: Range<u32>) -> Piece {
        let begin = i64::from(member) * self.place(self.ranks.end);
        let (from, to) = (self.place(ranks.start), self.place(ranks.end));
        self.blocks(self.gathered, begin + from, begin + to)
    }

    /// Gathers what the ranks of this node have for the range. `own`: what this one has.
    fn gather(&self, b: &mut Builder, own: Piece) {
        let team = self.levels.node_team;
        for member in (0..team.size).filter(|&m| m != team.rank) {
            let rank = self.levels.members[member as usize];
            b.recv(rank, self.gathered_from(member, self.ranks.clone()));
        }
        b.copy(own, self.gathered_from(team.rank, self.ranks.clone()));
    }

    /// Exchanges a message with each other node of the range: with the leader there that is
    /// responsible for this node.
    fn exchange(&self, b: &mut Builder, window: u32) {
        let levels = self.levels;
        let here = levels.node;
        let (theirs, others) = (0..levels.ranges())
            .map(|range| (range, levels.nodes_of_range(range)))
            .find(|(_, nodes)| nodes.contains(&here))
            .expect("the ranges have all nodes");
        // In round s the i-th node of one range and the j-th of the other exchange if i + j = s
        // modulo the larger range. Both are one if `here` is in this leader's range.
        let rounds = self.nodes.len().max(others.len()) as u32;
        let mut marks = Vec::new();
        for round in 0..rounds {
            let node = self.nodes.start + (round + rounds - (here - others.start)) % rounds;
            if node == here || !self.nodes.contains(&node) {
                continue;
            }
            if let Some(earlier) = marks.len().checked_sub(window as usize) {
                b.sync_before(marks[earlier]);
            }
            let ranks = levels.ranks_of_nodes(node..node + 1);
            let (from, to) = (self.place(ranks.start), self.place(ranks.end));
            let (from, to) = (from * self.members(), to * self.members());
            let (outgoing, incoming) = (
                self.blocks(self.outgoing, from, to),
                self.blocks(self.incoming, from, to),
            );
            let counterpart = ranks.start + levels.leader(node, theirs);
            b.recv(counterpart, incoming);
            let mut packed = 0;
            for member in 0..levels.node_team.size {
                let piece = self.gathered_from(member, ranks.clone());
                b.copy(piece, outgoing.part(packed, piece.count));
                packed += piece.count;
            }
            b.send(counterpart, outgoing);
            marks.push(b.mark());
        }
        b.sync();
    }

    /// Gives each rank of this node what the range has for it. `own`: where this one's goes.
    fn spread(&self, b: &mut Builder, own: Piece) {
        let levels = self.levels;
        let width = self.place(self.ranks.end);
        let here = levels.ranks_of_nodes(levels.node..levels.node + 1);
        for (member, &rank) in (0u32..).zip(&levels.members) {
            let begin = i64::from(member) * width;
            let packed = self.blocks(self.outgoing, begin, begin + width);
            for from in self.ranks.clone() {
                let block = match here.contains(&from) {
                    true => self.gathered_from(from - here.start, rank..rank + 1),
                    false => {
                        let at = self.place(from) * self.members() + i64::from(member);
                        self.blocks(self.incoming, at, at + 1)
                    }
                };
                let at = self.place(from);
                b.copy(block, self.blocks(packed, at, at + 1));
            }
            match member == levels.node_team.rank {
                true => b.copy(packed, own),
                false => b.send(rank, packed),
            }
        }
    }
}
