//! Gather to all, uniform and v (MPI 5.0 §6.7).

use crate::algorithm::Algorithm;
use crate::bcast;
use crate::gather;
use crate::step::{Builder, Piece, Team, reversed};

/// Bytes of all blocks together from which on recursive doubling takes a round more, to exchange
/// the large runs between neighbours. An estimate: that round costs a latency.
pub(crate) const REVERSED_MIN_BYTES: i64 = 64 << 10;

/// The blocks of an allgather.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    /// This rank's block; `None` if it is in place.
    pub(crate) own: Option<Piece>,
    /// Where rank r's block belongs in the receive buffer.
    pub(crate) block: &'a dyn Fn(u32) -> Piece,
    /// Packed bytes of rank r's block.
    pub(crate) bytes: &'a dyn Fn(u32) -> i64,
    /// The piece of the receive buffer that all blocks in rank order make; `None`: they make none.
    pub(crate) whole: Option<Piece>,
}

/// By `algorithm`: Doubling, Bruck, GatherBcast, or else Ring. `bytes`: packed bytes of a block,
/// where all have as many.
pub(crate) fn run(b: &mut Builder, algorithm: Algorithm, t: Team, x: Blocks, bytes: i64) {
    match algorithm {
        Algorithm::Doubling => doubling(b, t, x),
        Algorithm::Bruck => bruck(b, t, x),
        Algorithm::GatherBcast => gather_bcast(b, t, x, bytes),
        _ => ring(b, t, x),
    }
}

/// Blocks travel round a ring: n-1 rounds, each block sent n-1 times, none more than once by a
/// rank.
fn ring(b: &mut Builder, t: Team, x: Blocks) {
    let block = |i: u32| (x.block)(i % t.size);
    // This rank's block is sent from where it is, and copied to its place meanwhile.
    let mut own = x.own;
    for s in 0..t.size - 1 {
        b.recv(t.before(1), block(t.rank + 2 * t.size - s - 1));
        b.send(
            t.after(1),
            own.unwrap_or_else(|| block(t.rank + t.size - s)),
        );
        if let Some(own) = own.take() {
            b.copy(own, block(t.rank));
        }
        b.sync();
    }
    if let Some(own) = own {
        b.copy(own, block(t.rank));
    }
}

/// Recursive doubling: each rank exchanges all that it has with the rank 2^k away. For powers of
/// two and blocks that lie in one piece.
fn doubling(b: &mut Builder, t: Team, x: Blocks) {
    debug_assert!(t.size.is_power_of_two());
    let whole = x.whole.unwrap_or(Piece::EMPTY);
    let units = whole.count / i64::from(t.size);
    if (x.bytes)(0) * i64::from(t.size) >= REVERSED_MIN_BYTES {
        return doubling_reversed(b, t, x, whole, units);
    }
    // As in a ring.
    let mut own = x.own;
    let mut have = 1;
    while have < t.size {
        let other = t.rank ^ have;
        let run = |r: u32| whole.part(i64::from(r & !(have - 1)) * units, i64::from(have) * units);
        b.recv(other, run(other));
        b.send(other, own.unwrap_or_else(|| run(t.rank)));
        if let Some(own) = own.take() {
            b.copy(own, (x.block)(t.rank));
        }
        b.sync();
        have *= 2;
    }
    if let Some(own) = own {
        b.copy(own, (x.block)(t.rank));
    }
}

/// Recursive doubling that begins with the ranks furthest away and ends with the neighbours, who
/// exchange half of all. What a rank exchanges has to lie in one piece, so it begins with the block
/// of the rank whose number is its own with the bits in reverse.
fn doubling_reversed(b: &mut Builder, t: Team, x: Blocks, whole: Piece, units: i64) {
    let mut own = x.own;
    let place = reversed(t.rank, t.size);
    if place != t.rank {
        // The own block comes back in a later round.
        b.recv(place, (x.block)(place));
        b.send(place, own.take().unwrap_or_else(|| (x.block)(t.rank)));
        b.sync();
    }
    // Otherwise it is sent from where it is, as in a ring: lines that were just written come more
    // slowly to another core.
    let mut have = 1;
    while have < t.size {
        let other = place ^ have;
        let run = |r: u32| whole.part(i64::from(r & !(have - 1)) * units, i64::from(have) * units);
        b.recv(reversed(other, t.size), run(other));
        b.send(reversed(other, t.size), own.unwrap_or_else(|| run(place)));
        if let Some(own) = own.take() {
            b.copy(own, (x.block)(t.rank));
        }
        b.sync();
        have *= 2;
    }
    if let Some(own) = own {
        b.copy(own, (x.block)(t.rank));
    }
}

/// In round k, all that a rank has goes 2^k ranks down, in blocks packed in rotated order: ⌈log₂ n⌉
/// rounds for any n (Bruck).
fn bruck(b: &mut Builder, t: Team, x: Blocks) {
    let n = t.size;
    let block = |i: u32| (x.block)(i % n);
    // starts[i]: where the block of the rank i places after this one begins in the temporary
    // buffer.
    let mut starts = Vec::with_capacity(n as usize + 1);
    let mut total = 0;
    for i in 0..n {
        starts.push(total);
        total += (x.bytes)((t.rank + i) % n);
    }
    starts.push(total);
    let room = b.scratch(total);
    let run = |from: u32, to: u32| {
        room.part(
            starts[from as usize],
            starts[to as usize] - starts[from as usize],
        )
    };
    b.copy(x.own.unwrap_or_else(|| block(t.rank)), run(0, 1));
    let mut have = 1;
    while have < n {
        let more = have.min(n - have);
        b.recv(t.after(have), run(have, have + more));
        b.send(t.before(have), run(0, more));
        b.sync();
        have += more;
    }
    match x.whole {
        // Two runs: ranks from this one to the last, and from 0 to this one.
        Some(whole) if whole.count > 0 => {
            let units = whole.count / i64::from(n);
            let (head, mine) = (i64::from(t.rank) * units, i64::from(n - t.rank) * units);
            b.copy(run(0, n - t.rank), whole.part(head, mine));
            b.copy(run(n - t.rank, n), whole.part(0, head));
        }
        _ => {
            let first = if x.own.is_some() { 0 } else { 1 };
            for i in first..n {
                b.copy(run(i, i + 1), block(t.rank + i));
            }
        }
    }
}

/// Gathered to rank 0, then broadcast. For blocks that lie in one piece.
fn gather_bcast(b: &mut Builder, t: Team, x: Blocks, bytes: i64) {
    let whole = x.whole.unwrap_or(Piece::EMPTY);
    let own = x.own.or_else(|| (t.rank != 0).then(|| (x.block)(t.rank)));
    let uniform = gather::Uniform {
        bytes,
        first: whole.part(0, whole.count / i64::from(t.size)),
        own,
    };
    gather::gather_binomial(b, t, 0, uniform);
    b.sync();
    bcast::binomial(b, t, 0, whole);
}
