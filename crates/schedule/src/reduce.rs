//! Algorithms of MPI_Reduce (MPI 5.0 §6.9.1).

use crate::algorithm::Algorithm;
use crate::bcast::{TWO_TREES, TwoTrees};
use crate::step::{Builder, Piece, Team, parts, power_below, reversed};
use crate::tree::{self, Flow, Node, Task};

/// Contributions that the root of a flat reduction receives at a time. An estimate.
const WINDOW: usize = 4;

/// A reduction's input, and whether its order matters.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    /// This rank's contribution.
    pub(crate) input: Piece,
    /// The operation is commutative.
    pub(crate) commutes: bool,
}

/// By `algorithm`: Flat, Halving, BinaryTree, TwoTrees, or else Binomial. `output` is significant
/// only at the root. Segments of the pipelined ones have `segment` units.
pub(crate) fn run(
    b: &mut Builder,
    algorithm: Algorithm,
    t: Team,
    root: u32,
    x: Operand,
    output: Piece,
    segment: i64,
) {
    match algorithm {
        Algorithm::Flat => flat(b, t, root, x, output),
        Algorithm::Halving => halving(b, t, root, x, output),
        Algorithm::BinaryTree => binary_tree(b, t, root, x, output, segment),
        Algorithm::TwoTrees => two_trees(b, t, root, x, output, segment),
        _ => binomial(b, t, root, x, output),
    }
}

/// The root receives and reduces all contributions. It goes from the highest rank down, so that the
/// operands keep their order. `output` is significant only at the root.
fn flat(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece) {
    if t.rank != root {
        return b.send(root, x.input);
    }
    if t.size == 1 {
        return b.copy(x.input, output);
    }
    let mut own = x.input;
    if own == output {
        own = b.scratch(output.count);
        b.copy(output, own);
    }
    let others: Vec<u32> = (0..t.size).rev().filter(|&r| r != root).collect();
    let slots: Vec<Piece> = (0..WINDOW.min(others.len()))
        .map(|_| b.scratch(output.count))
        .collect();
    // The sum begins with the highest rank's contribution.
    let mut begun = false;
    if root == t.size - 1 {
        b.copy(own, output);
        begun = true;
    }
    let slot = |i: usize, begun: bool| {
        if i == 0 && !begun {
            output
        } else {
            slots[i % slots.len()]
        }
    };
    let from_start = begun;
    let mut received = Vec::with_capacity(others.len());
    let mut posted = 0;
    for (i, &r) in others.iter().enumerate() {
        while posted < others.len() && posted < i + slots.len() {
            b.recv(others[posted], slot(posted, from_start));
            received.push(b.mark());
            posted += 1;
        }
        b.sync_before(received[i]);
        if begun {
            b.reduce(slot(i, from_start), output);
        }
        begun = true;
        if r == root + 1 {
            b.reduce(own, output);
        }
    }
}

/// Reduction along a binomial tree. For operations that do not commute the tree's root is rank 0,
/// which sends the result to the call's root.
pub(crate) fn binomial(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece) {
    if x.commutes {
        binomial_unordered(b, t, root, x.input, output);
    } else {
        binomial_ordered(b, t, root, x.input, output);
    }
}

fn binomial_unordered(b: &mut Builder, t: Team, root: u32, input: Piece, output: Piece) {
    let me = t.relative(root);
    let mut home = None;
    let mut room = None;
    let mut mask = 1;
    while mask < t.size && me & mask == 0 {
        if me + mask < t.size {
            let child = t.absolute(me + mask, root);
            let target = match home {
                Some(h) => h,
                None if me == 0 => output,
                None => b.scratch(input.count),
            };
            if home.is_none() && target != input {
                b.recv(child, target);
                b.sync();
                b.reduce(input, target);
            } else {
                let room = *room.get_or_insert_with(|| b.scratch(input.count));
                b.recv(child, room);
                b.sync();
                b.reduce(room, target);
            }
            home = Some(target);
        }
        mask *= 2;
    }
    if me != 0 {
        b.send(t.absolute(me - mask, root), home.unwrap_or(input));
    } else if home.is_none() {
        b.copy(input, output);
    }
}

fn binomial_ordered(b: &mut Builder, t: Team, root: u32, input: Piece, output: Piece) {
    let me = t.rank;
    let mut sum = input;
    let mut buffers: [Option<Piece>; 2] = [None, None];
    let mut mask = 1;
    while mask < t.size && me & mask == 0 {
        if me + mask < t.size {
            // The sum so far is that of lower ranks, so it is the left operand. The result
            // replaces the received operand.
            let k = usize::from(buffers[0] == Some(sum));
            let room = *buffers[k].get_or_insert_with(|| b.scratch(input.count));
            b.recv(me + mask, room);
            b.sync();
            b.reduce(sum, room);
            sum = room;
        }
        mask *= 2;
    }
    if me != 0 {
        b.send(me - mask, sum);
        if me == root {
            b.sync();
            b.recv(0, output);
        }
    } else if root == 0 {
        b.copy(sum, output);
    } else {
        b.send(root, sum);
    }
}

/// Recursive halving, then a gather to the root (Rabenseifner). After the halving each rank has one
/// part of the result. For commutative operations.
fn halving(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece) {
    let home = if t.rank == root {
        output
    } else {
        b.scratch(x.input.count)
    };
    let Some(mut half) = Halving::run(b, t, x.input, home) else {
        // This rank sent its contribution to its neighbour, and takes no part in the halving.
        if t.rank == root {
            b.sync();
            b.recv(root + 1, output);
        }
        return;
    };
    // If the root is not among the 2^k ranks of the halving, its neighbour collects the result.
    let excess = t.size - half.power;
    let collector = half.number(if root < 2 * excess {
        root / 2
    } else {
        root - excess
    });
    let sits_out = root < 2 * excess && root.is_multiple_of(2);
    // The steps of the halving in reverse order. This rank's part doubles until it is sent.
    let mut distance = 1;
    while distance < half.power {
        let other = half.rank ^ distance;
        let peer = half.real(other);
        let (mine, theirs) = (half.range(half.rank, distance), half.range(other, distance));
        // The half that has the collector receives.
        if (half.rank ^ collector) & distance != 0 {
            b.send(peer, parts(half.home, half.power, mine.0, mine.1));
            half.sent = true;
            break;
        }
        b.recv(peer, parts(half.home, half.power, theirs.0, theirs.1));
        b.sync();
        distance *= 2;
    }
    if sits_out && !half.sent {
        b.send(root, half.home);
    }
}

/// Segments flow up two binary trees in turns, as those of a broadcast flow down. For commutative
/// operations.
fn two_trees(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece, segment: i64) {
    if t.size == 1 {
        return b.copy(x.input, output);
    }
    let places = TwoTrees { t, root }.places();
    let is_root = t.rank == root;
    let is_direct = is_root && x.input != output;
    let parts_of = |whole: Piece, k: i64| tree::segment_of(whole, segment, k);
    let rooms = [(); 2].map(|()| TWO_TREES.rooms(b, x.input, segment));
    let into = |side: usize, k: i64| match is_direct {
        true => parts_of(output, k),
        // Only the root has children in both trees, and of those one each.
        false if is_root => rooms[0].of(k, parts_of(x.input, k)),
        false => rooms[side].of(k / 2, parts_of(x.input, k)),
    };
    let levels = tree::levels(t.size);
    let mut tasks = Vec::new();
    for k in 0..tree::segments(x.input, segment) {
        let place = &places[(k % 2) as usize];
        let from = |side: usize| place.children[side].map(|child| (child, into(side, k)));
        tasks.push(Task {
            time: (levels - place.depth) * TWO_TREES.level_steps + k,
            what: k,
            receives: [from(0), from(1)],
        });
    }
    TWO_TREES.run(b, tasks, |b, &k| {
        let place = &places[(k % 2) as usize];
        let mut sum = parts_of(x.input, k);
        let Some(parent) = place.parent else {
            return match is_direct {
                true => b.reduce(sum, into(0, k)),
                false => b.reduce(into(0, k), sum),
            };
        };
        for side in (0..2).filter(|&side| place.children[side].is_some()) {
            b.reduce(sum, into(side, k));
            sum = into(side, k);
        }
        b.send(parent, sum);
    });
}

/// How segments flow through one tree.
const BINARY_TREE: Flow = Flow { level_steps: 1 };

/// Segments flow up a binary tree in the order of ranks, whose root sends the result to the call's
/// root. Keeps the order of operands.
fn binary_tree(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece, segment: i64) {
    let node = Node::new(t.rank + 1, t.size);
    let of = |label: u32| label - 1;
    let (left, right) = (node.left().map(of), node.right().map(of));
    let top = power_below(t.size) - 1;
    let mut input = x.input;
    if t.rank == root && root != top && input == output {
        // The result comes to where the contribution is.
        input = b.scratch(output.count);
        b.copy(output, input);
    }
    let [lefts, sums] = [(); 2].map(|()| BINARY_TREE.rooms(b, input, segment));
    let part = |whole: Piece, k: i64| tree::segment_of(whole, segment, k);
    let levels = tree::levels(t.size);
    let mut tasks = Vec::new();
    for k in 0..tree::segments(input, segment) {
        let like = part(input, k);
        tasks.push(Task {
            time: (levels - node.depth()) * BINARY_TREE.level_steps + k,
            what: Some(k),
            receives: [
                left.map(|from| (from, lefts.of(k, like))),
                right.map(|from| (from, sums.of(k, like))),
            ],
        });
        if t.rank == root && root != top {
            tasks.push(Task {
                time: (levels + 1) * BINARY_TREE.level_steps + k,
                what: None,
                receives: [Some((top, part(output, k))), None],
            });
        }
    }
    let above = node.parent().map(of);
    let above = above.or_else(|| (root != top).then_some(root));
    BINARY_TREE.run(b, tasks, |b, &what| {
        let Some(k) = what else { return };
        let mut sum = part(input, k);
        if left.is_some() {
            let into = sums.of(k, sum);
            match right.is_some() {
                true => b.reduce(sum, into),
                false => b.copy(sum, into),
            }
            b.reduce(lefts.of(k, sum), into);
            sum = into;
        }
        match above {
            Some(rank) => b.send(rank, sum),
            None => b.copy(sum, part(output, k)),
        }
    });
}

/// A recursive halving. The largest power of two of ranks takes part.
///
/// Participants are numbered so that neighbours of the team exchange the large halves and ranks far
/// from each other the small ones: ranks of one node come first, and their links carry less.
pub(crate) struct Halving {
    /// This rank's number among the participants ([`Halving::number`]).
    pub(crate) rank: u32,
    /// Number of participants, a power of two.
    pub(crate) power: u32,
    /// The buffer of the sum. Part `rank` of `power` is complete on this rank.
    pub(crate) home: Piece,
    /// Number of ranks beyond the power of two. As many neighbours take part for them.
    excess: u32,
    /// This rank has sent its part on.
    sent: bool,
}

impl Halving {
    /// Adds the steps of the halving. At its end part `rank` of `power` of the result is in `home`.
    /// `None`: this rank sends its contribution to its neighbour, and takes no part.
    pub(crate) fn run(b: &mut Builder, t: Team, input: Piece, home: Piece) -> Option<Halving> {
        let power = power_below(t.size);
        let excess = t.size - power;
        let mut sum = input;
        let rank = if t.rank < 2 * excess {
            if t.rank.is_multiple_of(2) {
                b.send(t.rank + 1, input);
                return None;
            }
            if input == home {
                let room = b.scratch(input.count);
                b.recv(t.rank - 1, room);
                b.sync();
                b.reduce(room, home);
            } else {
                b.recv(t.rank - 1, home);
                b.sync();
                b.reduce(input, home);
            }
            sum = home;
            t.rank / 2
        } else {
            t.rank - excess
        };
        let rank = reversed(rank, power);
        let half = Halving {
            rank,
            power,
            home,
            excess,
            sent: false,
        };
        let mut room = None;
        let mut distance = power / 2;
        while distance > 0 {
            let other = rank ^ distance;
            let (mine, theirs) = (half.range(rank, distance), half.range(other, distance));
            let keep = |p: Piece| parts(p, power, mine.0, mine.1);
            let into = if sum == home {
                let room: Piece = *room.get_or_insert_with(|| b.scratch(input.count));
                keep(room)
            } else {
                keep(home)
            };
            b.recv(half.real(other), into);
            b.send(half.real(other), parts(sum, power, theirs.0, theirs.1));
            b.sync();
            if sum == home {
                b.reduce(into, keep(home));
            } else {
                b.reduce(keep(sum), into);
                sum = home;
            }
            distance /= 2;
        }
        if sum != home {
            b.copy(sum, home);
        }
        Some(half)
    }

    /// The range of parts that `rank` has at a step in which each rank has `distance` parts.
    pub(crate) fn range(&self, rank: u32, distance: u32) -> (u32, u32) {
        let from = rank & !(distance - 1);
        (from, from + distance)
    }

    /// The number of the participant at place `place` in the team's order, and the other way round.
    pub(crate) fn number(&self, place: u32) -> u32 {
        reversed(place, self.power)
    }

    /// The team's rank of participant `number`.
    pub(crate) fn real(&self, number: u32) -> u32 {
        let rank = self.number(number);
        if rank < self.excess {
            2 * rank + 1
        } else {
            rank + self.excess
        }
    }
}
