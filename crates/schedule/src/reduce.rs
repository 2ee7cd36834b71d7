//! Algorithms of MPI_Reduce (MPI 5.0 §6.9.1).

use crate::algorithm::Algorithm;
use crate::step::{Builder, Piece, Team, parts, power_below, reversed};

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

/// By `algorithm`: Flat, Halving, or else Binomial. `output` is significant only at the root.
pub(crate) fn run(
    b: &mut Builder,
    algorithm: Algorithm,
    t: Team,
    root: u32,
    x: Operand,
    output: Piece,
) {
    match algorithm {
        Algorithm::Flat => flat(b, t, root, x, output),
        Algorithm::Halving => halving(b, t, root, x, output),
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
