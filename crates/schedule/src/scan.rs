//! Inclusive and exclusive scans (MPI 5.0 §6.11).

use crate::algorithm::Algorithm;
use crate::reduce::Operand;
use crate::step::{Builder, Piece, Team};
use crate::tree::{self, Flow, Node, Rooms, Task};

/// By `algorithm`: Chain, BinaryTree, or else Doubling. `inclusive`: does a rank's result take in
/// its own contribution? If not, rank 0's output stays as it is. Segments of the pipelined one have
/// `segment` units.
pub(crate) fn run(
    b: &mut Builder,
    algorithm: Algorithm,
    t: Team,
    x: Operand,
    output: Piece,
    inclusive: bool,
    segment: i64,
) {
    match algorithm {
        Algorithm::Chain => chain(b, t, x, output, inclusive),
        Algorithm::BinaryTree => Tree::new(b, t, x.input, output, inclusive, segment).run(b),
        _ => doubling(b, t, x, output, inclusive),
    }
}

/// Recursive doubling; keeps the order of operands.
fn doubling(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
    if t.size == 1 {
        if inclusive {
            b.copy(x.input, output);
        }
        return;
    }
    let n = x.input.count;
    // `sum`: the reduction over this rank's aligned block of `distance` ranks. `output`: the same
    // over the block's ranks up to this one, or below it if exclusive.
    let (mut sum, mut recv_buf) = (b.scratch(n), b.scratch(n));
    b.copy(x.input, sum);
    if inclusive {
        b.copy(x.input, output);
    }
    let mut has_output = inclusive;
    let mut distance = 1;
    while distance < t.size {
        let other = t.rank ^ distance;
        if other < t.size {
            b.recv(other, recv_buf);
            b.send(other, sum);
            b.sync();
            if other < t.rank {
                if has_output {
                    b.reduce(recv_buf, output);
                } else {
                    b.copy(recv_buf, output);
                    has_output = true;
                }
                b.reduce(recv_buf, sum);
            } else if x.commutes {
                b.reduce(recv_buf, sum);
            } else {
                b.reduce(sum, recv_buf);
                std::mem::swap(&mut sum, &mut recv_buf);
            }
        }
        distance *= 2;
    }
}

/// From rank to rank; keeps the order of operands. n-1 messages in all.
fn chain(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
    let last = t.rank + 1 == t.size;
    if t.rank == 0 {
        if !last {
            b.send(1, x.input);
        }
        if inclusive {
            b.copy(x.input, output);
        }
        return;
    }
    // The message is the reduction over all lower ranks.
    if inclusive {
        let recv_buf = b.scratch(output.count);
        b.recv(t.rank - 1, recv_buf);
        b.copy(x.input, output);
        b.sync();
        b.reduce(recv_buf, output);
        if !last {
            b.send(t.rank + 1, output);
        }
    } else if last {
        b.recv(t.rank - 1, output);
    } else {
        let recv_buf = b.scratch(output.count);
        b.copy(x.input, recv_buf);
        b.recv(t.rank - 1, output);
        b.sync();
        b.reduce(output, recv_buf);
        b.send(t.rank + 1, recv_buf);
    }
}

/// How segments flow through the tree. A choice: 1 to 6 steps are within five percent, by
/// simulation.
const FLOW: Flow = Flow { level_steps: 1 };

/// A scan up and down a binary tree in the order of ranks, in segments. Up go the sums of subtrees,
/// down what comes before them: a rank sends its left subtree what comes before its own, and its
/// right one its own result. Keeps the order of operands.
struct Tree {
    t: Team,
    node: Node,
    input: Piece,
    output: Piece,
    inclusive: bool,
    segment: i64,
    /// The sum of the left subtree and this rank: the output, or memory of its own if that does not
    /// take in this rank.
    sum: Piece,
    /// Somebody wants `sum`.
    has_sum: bool,
    from_left: Option<Rooms>,
    /// Also for what goes up, if that is not the right subtree's sum with the rest.
    from_right: Option<Rooms>,
    from_above: Option<Rooms>,
}

/// The two ways through the tree.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Tree {
    fn new(
        b: &mut Builder,
        t: Team,
        input: Piece,
        output: Piece,
        inclusive: bool,
        segment: i64,
    ) -> Tree {
        let node = Node::new(t.rank + 1, t.size);
        let has_sum = inclusive || node.has_higher() || node.right().is_some();
        let mut sum = output;
        if !inclusive {
            sum = input;
            // A leaf's sum is its input, unless messages come to where that is.
            if has_sum && (node.left().is_some() || input == output) {
                sum = b.scratch(input.count);
            }
            if input == output {
                b.copy(input, sum);
            }
        }
        // What is sent up may still be read when what comes before the subtree is added.
        let is_leaf = node.left().is_none();
        let sum_changes = inclusive && node.has_lower() && !(is_leaf && input != output);
        let mut rooms = |wanted: bool| wanted.then(|| FLOW.rooms(b, output, segment));
        Tree {
            t,
            node,
            input,
            output,
            inclusive,
            segment,
            sum,
            has_sum,
            from_left: rooms(inclusive && node.left().is_some()),
            from_right: rooms(node.has_higher() && (node.right().is_some() || sum_changes)),
            // Without a left subtree and a sum nothing more is done with it.
            from_above: rooms(node.has_lower() && (inclusive || node.left().is_some())),
        }
    }

    fn run(self, b: &mut Builder) {
        let (depth, levels) = (self.node.depth(), tree::levels(self.t.size));
        let mut tasks = Vec::new();
        for k in 0..tree::segments(self.output, self.segment) {
            tasks.push(Task {
                time: (levels - depth) * FLOW.level_steps + k,
                what: (Way::Up, k),
                receives: [
                    self.node.left().map(|left| (left - 1, self.left_sum(k))),
                    self.from_right.as_ref().and_then(|rooms| {
                        let into = rooms.of(k, self.part(self.output, k));
                        self.node.right().map(|right| (right - 1, into))
                    }),
                ],
            });
            tasks.push(Task {
                time: (levels + depth) * FLOW.level_steps + k,
                what: (Way::Down, k),
                receives: [
                    self.parent()
                        .filter(|_| self.node.has_lower())
                        .map(|p| (p, self.before(k))),
                    None,
                ],
            });
        }
        FLOW.run(b, tasks, |b, &(way, k)| match way {
            Way::Up => self.up(b, k),
            Way::Down => self.down(b, k),
        });
    }

    fn parent(&self) -> Option<u32> {
        self.node.parent().map(|label| label - 1)
    }

    /// Segment `k` of a piece as large as the output.
    fn part(&self, whole: Piece, k: i64) -> Piece {
        tree::segment_of(whole, self.segment, k)
    }

    /// Where the sum of the left subtree comes.
    fn left_sum(&self, k: i64) -> Piece {
        let output = self.part(self.output, k);
        self.from_left
            .as_ref()
            .map_or(output, |rooms| rooms.of(k, output))
    }

    /// Where what is before the subtree comes.
    fn before(&self, k: i64) -> Piece {
        let output = self.part(self.output, k);
        self.from_above
            .as_ref()
            .map_or(output, |rooms| rooms.of(k, output))
    }

    /// What a leaf has, where nobody changes it.
    fn leaf(&self, k: i64) -> Piece {
        let whole = if self.inclusive { self.input } else { self.sum };
        self.part(whole, k)
    }

    /// Adds up the subtree, and sends the sum up if somebody has a higher rank.
    fn up(&self, b: &mut Builder, k: i64) {
        let sum = self.part(self.sum, k);
        if self.has_sum {
            if self.inclusive || self.input != self.output {
                b.copy(self.part(self.input, k), sum);
            }
            if self.node.left().is_some() {
                b.reduce(self.left_sum(k), sum);
            }
        }
        let Some(parent) = self.parent().filter(|_| self.node.has_higher()) else {
            return;
        };
        match &self.from_right {
            Some(rooms) => {
                let total = rooms.of(k, sum);
                match self.node.right().is_some() {
                    true => b.reduce(sum, total),
                    false => b.copy(sum, total),
                }
                b.send(parent, total);
            }
            // A leaf's sum is its input.
            None if self.node.left().is_none() => b.send(parent, self.leaf(k)),
            None => b.send(parent, sum),
        }
    }

    /// Adds what comes before the subtree, and sends each of its halves what comes before it.
    fn down(&self, b: &mut Builder, k: i64) {
        let (sum, output) = (self.part(self.sum, k), self.part(self.output, k));
        if self.node.has_lower() {
            let before = self.before(k);
            if let Some(left) = self.node.left() {
                b.send(left - 1, before);
            }
            if before != output {
                b.reduce(before, output);
            }
            if !self.inclusive && self.node.right().is_some() {
                b.reduce(before, sum);
            }
        }
        if let Some(right) = self.node.right() {
            b.send(right - 1, sum);
        }
    }
}
