//! Reduce-scatter, block and v (MPI 5.0 §6.10).

use crate::algorithm::Algorithm;
use crate::gather;
use crate::reduce::{self, Halving, Operand};
use crate::step::{Builder, Piece, Team, cut, power_below};

/// Which elements of the result each rank gets.
#[derive(Clone, Copy)]
pub(crate) struct Shares<'a> {
    /// Element at which rank r's share begins; r up to and including the number of ranks.
    pub(crate) start: &'a dyn Fn(u32) -> i64,
    /// The shares are nearly equal, as by [`cut`]. False: perhaps not.
    pub(crate) is_equal: bool,
    /// Where this rank's share of the result goes.
    pub(crate) output: Piece,
    /// The input is in the receive buffer, at whose beginning the output goes.
    pub(crate) in_place: bool,
}

impl Shares<'_> {
    fn of(&self, p: Piece, from: u32, to: u32) -> Piece {
        let begin = (self.start)(from);
        p.part(begin, (self.start)(to) - begin)
    }
}

/// By `algorithm`: Halving, Pairwise, or else ReduceScatter.
pub(crate) fn run(b: &mut Builder, algorithm: Algorithm, t: Team, x: Operand, shares: Shares) {
    match algorithm {
        Algorithm::Halving => halving(b, t, x, shares),
        Algorithm::Pairwise => pairwise(b, t, x, shares),
        _ => reduce_scatter(b, t, x, shares),
    }
}

/// In each of n-1 rounds each rank sends another its share and adds what comes. For commutative
/// operations.
fn pairwise(b: &mut Builder, t: Team, x: Operand, shares: Shares) {
    let mine = shares.of(x.input, t.rank, t.rank + 1);
    let sum = if shares.in_place {
        b.scratch(mine.count)
    } else {
        shares.output
    };
    if t.size == 1 {
        return b.copy(mine, shares.output);
    }
    let mut room = None;
    for s in 1..t.size {
        let (to, from) = (t.after(s), t.before(s));
        let into = if s == 1 {
            sum
        } else {
            *room.get_or_insert_with(|| b.scratch(mine.count))
        };
        b.recv(from, into);
        b.send(to, shares.of(x.input, to, to + 1));
        b.sync();
        b.reduce(if s == 1 { mine } else { into }, sum);
    }
    b.copy(sum, shares.output);
}

/// Recursive halving over the shares. For commutative operations.
fn halving(b: &mut Builder, t: Team, x: Operand, shares: Shares) {
    if t.size.is_power_of_two() && shares.is_equal {
        debug_assert!((0..t.size).all(|r| (shares.start)(r) == cut(x.input.count, t.size, r)));
        return halving_equal(b, t, x, shares);
    }
    let power = power_below(t.size);
    let rest = t.size - power;
    // Participant i stands for ranks first(i)..first(i + 1).
    let first = |i: u32| if i < rest { 2 * i } else { i + rest };
    let real = |i: u32| if i < rest { 2 * i + 1 } else { i + rest };
    let mut sum = x.input;
    let home = b.scratch(x.input.count);
    let rank = if t.rank < 2 * rest {
        if t.rank.is_multiple_of(2) {
            b.send(t.rank + 1, x.input);
            b.sync();
            return b.recv(t.rank + 1, shares.output);
        }
        b.recv(t.rank - 1, home);
        b.sync();
        b.reduce(x.input, home);
        sum = home;
        t.rank / 2
    } else {
        t.rank - rest
    };
    let mut room = None;
    let mut distance = power / 2;
    while distance > 0 {
        let other = rank ^ distance;
        let range = |r: u32, p: Piece| {
            let from = r & !(distance - 1);
            shares.of(p, first(from), first(from + distance))
        };
        let into = if sum == home {
            let room: Piece = *room.get_or_insert_with(|| b.scratch(x.input.count));
            range(rank, room)
        } else {
            range(rank, home)
        };
        b.recv(real(other), into);
        b.send(real(other), range(other, sum));
        b.sync();
        if sum == home {
            b.reduce(into, range(rank, home));
        } else {
            b.reduce(range(rank, sum), into);
            sum = home;
        }
        distance /= 2;
    }
    if t.rank < 2 * rest {
        b.send(t.rank - 1, shares.of(sum, t.rank - 1, t.rank));
    }
    b.copy(shares.of(sum, t.rank, t.rank + 1), shares.output);
}

/// Recursive halving where shares are equal and ranks a power of two: neighbours exchange the large
/// halves ([`Halving`]), and at the end each rank gets its share from the one that has it.
fn halving_equal(b: &mut Builder, t: Team, x: Operand, shares: Shares) {
    let home = b.scratch(x.input.count);
    let Some(half) = Halving::run(b, t, x.input, home) else {
        return;
    };
    // Whose share this rank has. That rank has this one's.
    let other = half.rank;
    let theirs = shares.of(home, other, other + 1);
    if other == t.rank {
        return b.copy(theirs, shares.output);
    }
    b.recv(other, shares.output);
    b.send(other, theirs);
}

/// Reduced at rank 0, then scattered; keeps the order of operands.
fn reduce_scatter(b: &mut Builder, t: Team, x: Operand, shares: Shares) {
    let sum = if t.rank == 0 {
        b.scratch(x.input.count)
    } else {
        Piece::EMPTY
    };
    reduce::binomial(b, t, 0, x, sum);
    b.sync();
    gather::scatter_flat(b, t, 0, Some(shares.output), &|r| shares.of(sum, r, r + 1));
}
