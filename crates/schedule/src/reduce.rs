//! Reduction to one rank (MPI 5.0 §6.9.1).

use crate::step::{Builder, Piece, Team, parts, power_below};

/// Contributions that the root of a flat reduction receives at a time. An estimate.
const WINDOW: usize = 4;

/// A reduction's input and what may be done with it.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    /// This rank's contribution.
    pub(crate) input: Piece,
    /// The operation is commutative.
    pub(crate) commutes: bool,
}

/// The root takes all contributions, from the highest rank down, and so keeps their order. `output`
/// counts at the root.
pub(crate) fn flat(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece) {
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
    // The highest rank's contribution is where the sum begins.
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
    let mut came = Vec::with_capacity(others.len());
    let mut posted = 0;
    for (i, &r) in others.iter().enumerate() {
        while posted < others.len() && posted < i + slots.len() {
            b.recv(others[posted], slot(posted, from_start));
            came.push(b.mark());
            posted += 1;
        }
        b.sync_before(came[i]);
        if begun {
            b.reduce(slot(i, from_start), output);
        }
        begun = true;
        if r == root + 1 {
            b.reduce(own, output);
        }
    }
}

/// Up a binomial tree. Where order matters the tree's root is rank 0, which sends the result to the
/// call's root.
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
    let mut spare: [Option<Piece>; 2] = [None, None];
    let mut mask = 1;
    while mask < t.size && me & mask == 0 {
        if me + mask < t.size {
            // The sum so far is of lower ranks than what comes: sum op incoming, in incoming's
            // place.
            let k = usize::from(spare[0] == Some(sum));
            let room = *spare[k].get_or_insert_with(|| b.scratch(input.count));
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

/// Recursive halving leaves each rank a part of the result; the parts are gathered at the root
/// (Rabenseifner). For commutative operations.
pub(crate) fn halving(b: &mut Builder, t: Team, root: u32, x: Operand, output: Piece) {
    let home = if t.rank == root {
        output
    } else {
        b.scratch(x.input.count)
    };
    let Some(mut half) = Halving::run(b, t, x.input, home) else {
        // A neighbour has this rank's part.
        if t.rank == root {
            b.sync();
            b.recv(root + 1, output);
        }
        return;
    };
    // The root's stand-in collects, if the root itself is not among the 2^k ranks of the halving.
    let rest = t.size - half.power;
    let stand_in = if root < 2 * rest {
        root / 2
    } else {
        root - rest
    };
    let sits_out = root < 2 * rest && root.is_multiple_of(2);
    // The tree of the halving, walked back: the part grows until it is sent on.
    let mut distance = 1;
    while distance < half.power {
        let other = half.rank ^ distance;
        let peer = half.real(other);
        let (mine, theirs) = (half.range(half.rank, distance), half.range(other, distance));
        // Of two halves, the one with the collector receives.
        if (half.rank ^ stand_in) & distance != 0 {
            b.send(peer, parts(half.home, half.power, mine.0, mine.1));
            half.gone = true;
            break;
        }
        b.recv(peer, parts(half.home, half.power, theirs.0, theirs.1));
        b.sync();
        distance *= 2;
    }
    if sits_out && !half.gone {
        b.send(root, half.home);
    }
}

/// The state of a recursive halving among the greatest power of two of ranks.
pub(crate) struct Halving {
    /// Rank among those that take part.
    pub(crate) rank: u32,
    /// How many take part.
    pub(crate) power: u32,
    /// Where the sum is. Part `rank` of `power` of it is complete: this rank's.
    pub(crate) home: Piece,
    rest: u32,
    gone: bool,
}

impl Halving {
    /// Runs the halving; `None` on a rank whose contribution went to its neighbour at the start and
    /// which takes no further part. On the others, part `rank` of `power` of the result stands
    /// in `home`.
    pub(crate) fn run(b: &mut Builder, t: Team, input: Piece, home: Piece) -> Option<Halving> {
        let power = power_below(t.size);
        let rest = t.size - power;
        let mut sum = input;
        let rank = if t.rank < 2 * rest {
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
            t.rank - rest
        };
        let half = Halving {
            rank,
            power,
            home,
            rest,
            gone: false,
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

    /// The parts that `rank` is to have when its part is `distance` wide.
    pub(crate) fn range(&self, rank: u32, distance: u32) -> (u32, u32) {
        let from = rank & !(distance - 1);
        (from, from + distance)
    }
    /// The rank in the team of the participant `rank`.
    pub(crate) fn real(&self, rank: u32) -> u32 {
        if rank < self.rest {
            2 * rank + 1
        } else {
            rank + self.rest
        }
    }
}
