//! Reduction to all (MPI 5.0 §6.9.6).

use crate::algorithm::Algorithm;
use crate::bcast;
use crate::reduce::{self, Halving, Operand};
use crate::step::{Builder, Piece, Team, parts, power_below};

/// By `algorithm`: Halving, Ring, ReduceBcast, or else Doubling.
pub(crate) fn run(b: &mut Builder, algorithm: Algorithm, t: Team, x: Operand, output: Piece) {
    match algorithm {
        Algorithm::Halving => halving(b, t, x, output),
        Algorithm::Ring => ring(b, t, x, output),
        Algorithm::ReduceBcast => reduce_bcast(b, t, x, output),
        _ => doubling(b, t, x, output),
    }
}

/// Recursive doubling: each rank exchanges its sum with the rank 2^k away, k = 0, 1, … Keeps the
/// order of operands.
fn doubling(b: &mut Builder, t: Team, x: Operand, output: Piece) {
    let power = power_below(t.size);
    let rest = t.size - power;
    let mut sum = Sum {
        at: x.input,
        home: output,
        room: None,
        commutes: x.commutes,
    };
    let rank = if t.rank < 2 * rest {
        if t.rank.is_multiple_of(2) {
            b.send(t.rank + 1, x.input);
            if x.input == output {
                b.sync();
            }
            return b.recv(t.rank + 1, output);
        }
        sum.take(b, t.rank - 1, true, false);
        t.rank / 2
    } else {
        t.rank - rest
    };
    let real = |r: u32| if r < rest { 2 * r + 1 } else { r + rest };
    let mut distance = 1;
    while distance < power {
        let other = rank ^ distance;
        sum.take(b, real(other), other < rank, true);
        distance *= 2;
    }
    b.copy(sum.at, output);
    if t.rank < 2 * rest {
        b.send(t.rank - 1, output);
    }
}

/// A sum that moves between two pieces, as operands come in on its left and on its right.
struct Sum {
    at: Piece,
    home: Piece,
    room: Option<Piece>,
    commutes: bool,
}

impl Sum {
    /// Reduces with what `peer` sends. `exchange`: also sends it the sum so far.
    fn take(&mut self, b: &mut Builder, peer: u32, peer_is_lower: bool, exchange: bool) {
        let theirs_left = peer_is_lower && !self.commutes;
        if self.at != self.home && theirs_left && Some(self.at) != self.room {
            b.copy(self.at, self.home);
            self.at = self.home;
        }
        let into = if self.at == self.home {
            *self.room.get_or_insert_with(|| b.scratch(self.home.count))
        } else {
            self.home
        };
        b.recv(peer, into);
        if exchange {
            b.send(peer, self.at);
        }
        b.sync();
        if theirs_left || (self.commutes && self.at == self.home) {
            b.reduce(into, self.at);
        } else {
            b.reduce(self.at, into);
            self.at = into;
        }
    }
}

/// Recursive halving, then the parts gathered by recursive doubling (Rabenseifner). For commutative
/// operations.
fn halving(b: &mut Builder, t: Team, x: Operand, output: Piece) {
    let Some(half) = Halving::run(b, t, x.input, output) else {
        b.sync();
        return b.recv(t.rank + 1, output);
    };
    let mut distance = 1;
    while distance < half.power {
        let other = half.rank ^ distance;
        let (mine, theirs) = (half.range(half.rank, distance), half.range(other, distance));
        b.recv(
            half.real(other),
            parts(output, half.power, theirs.0, theirs.1),
        );
        b.send(half.real(other), parts(output, half.power, mine.0, mine.1));
        b.sync();
        distance *= 2;
    }
    if t.rank < 2 * (t.size - half.power) {
        b.send(t.rank - 1, output);
    }
}

/// Parts go round a ring twice: first they are summed, then distributed. For commutative
/// operations.
fn ring(b: &mut Builder, t: Team, x: Operand, output: Piece) {
    let n = t.size;
    if n == 1 {
        return b.copy(x.input, output);
    }
    let part = |p: Piece, i: u32| parts(p, n, i % n, i % n + 1);
    let in_place = x.input == output;
    let room = if in_place {
        b.scratch(output.count.div_euclid(i64::from(n)) + 1)
    } else {
        Piece::EMPTY
    };
    for s in 0..n - 1 {
        let (out, inn) = (t.rank + n - s, t.rank + 2 * n - s - 1);
        let target = part(output, inn);
        let into = if in_place {
            room.part(0, target.count)
        } else {
            target
        };
        b.recv(t.before(1), into);
        b.send(t.after(1), part(if s == 0 { x.input } else { output }, out));
        b.sync();
        b.reduce(if in_place { into } else { part(x.input, inn) }, target);
    }
    for s in 0..n - 1 {
        b.recv(t.before(1), part(output, t.rank + n - s));
        b.send(t.after(1), part(output, t.rank + 1 + n - s));
        b.sync();
    }
}

/// Reduced to rank 0, then broadcast.
fn reduce_bcast(b: &mut Builder, t: Team, x: Operand, output: Piece) {
    reduce::binomial(b, t, 0, x, output);
    b.sync();
    bcast::binomial(b, t, 0, output);
}
