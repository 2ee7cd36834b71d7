//! Algorithms of MPI_Alltoall(v, w) (MPI 5.0 §6.8).

use crate::step::{Builder, Peer, Piece, Team};
use std::ops::Range;

/// The block for (or from) each rank.
pub(crate) type BlockOf<'a> = &'a dyn Fn(u32) -> Piece;

/// Pairwise exchange. In each of n-1 rounds a rank sends to one rank and receives from another. It
/// copies its own block during the first round.
pub(crate) fn pairwise(b: &mut Builder, t: Team, out: BlockOf, inn: BlockOf) {
    let mut own = Some(t.rank);
    for s in 1..t.size {
        let (to, from) = partners(t, s);
        b.recv(from, inn(from));
        b.send(to, out(to));
        if let Some(me) = own.take() {
            b.copy(out(me), inn(me));
        }
        b.sync();
    }
    if let Some(me) = own {
        b.copy(out(me), inn(me));
    }
}

/// The rounds of [`pairwise`] without waits between them. At most `window` rounds are in flight.
pub(crate) fn spread(b: &mut Builder, t: Team, out: BlockOf, inn: BlockOf, window: u32) {
    let mut marks = Vec::with_capacity(t.size as usize);
    for s in 1..t.size {
        if s > window {
            b.sync_before(marks[(s - window - 1) as usize]);
        }
        let (to, from) = partners(t, s);
        b.recv(from, inn(from));
        b.send(to, out(to));
        marks.push(b.mark());
    }
    b.copy(out(t.rank), inn(t.rank));
}

/// The destination and the source in round `s`.
fn partners(t: Team, s: u32) -> (u32, u32) {
    if t.size.is_power_of_two() {
        (t.rank ^ s, t.rank ^ s)
    } else {
        (t.after(s), t.before(s))
    }
}

/// Bruck's algorithm: ⌈log₂ n⌉ rounds. In each round a message has about half of the blocks, and
/// moves them a power of two of ranks closer to their receivers. `out`: the blocks for a range of
/// ranks. `bytes`: packed bytes of a block. Blocks that lie side by side are one copy.
pub(crate) fn bruck(
    b: &mut Builder,
    t: Team,
    out: &dyn Fn(Range<u32>) -> Piece,
    inn: BlockOf,
    bytes: i64,
) {
    let n = t.size;
    let rotated = b.scratch(i64::from(n) * bytes);
    let half = i64::from(n / 2 + 1) * bytes;
    let (outgoing, incoming) = (b.scratch(half), b.scratch(half));
    let slots =
        |p: Piece, from: u32, count: u32| p.part(i64::from(from) * bytes, i64::from(count) * bytes);
    let higher = n - t.rank;
    b.copy(out(t.rank..n), slots(rotated, 0, higher));
    if t.rank > 0 {
        b.copy(out(0..t.rank), slots(rotated, higher, t.rank));
    }
    let mut distance = 1;
    while distance < n {
        // The slots whose numbers have this bit: where each run begins, and its length.
        let run = move |from: u32| (from, distance.min(n - from));
        let moving = || (distance..n).step_by(2 * distance as usize).map(run);
        let mut k = 0;
        for (from, count) in moving() {
            b.copy(slots(rotated, from, count), slots(outgoing, k, count));
            k += count;
        }
        b.recv(t.before(distance), slots(incoming, 0, k));
        b.send(t.after(distance), slots(outgoing, 0, k));
        b.sync();
        let mut k = 0;
        for (from, count) in moving() {
            b.copy(slots(incoming, k, count), slots(rotated, from, count));
            k += count;
        }
        distance *= 2;
    }
    for i in 0..n {
        b.copy(slots(rotated, i, 1), inn(t.before(i)));
    }
}

/// Exchange in place, one partner at a time, through a temporary block. `bytes(r)`: packed bytes of
/// the block for rank r.
pub(crate) fn in_place(b: &mut Builder, t: Team, block: BlockOf, bytes: &dyn Fn(u32) -> i64) {
    let most = (0..t.size)
        .filter(|&r| r != t.rank)
        .map(bytes)
        .max()
        .unwrap_or(0);
    let room = b.scratch(most);
    for s in 0..t.size {
        // In each round all ranks form pairs: each is its partner's partner.
        let partner =
            ((u64::from(s) + u64::from(t.size) - u64::from(t.rank)) % u64::from(t.size)) as u32;
        if partner == t.rank {
            continue;
        }
        let out = room.part(0, bytes(partner));
        b.copy(block(partner), out);
        b.recv(partner, block(partner));
        b.send(partner, out);
        b.sync();
    }
}

/// Exchange between the groups of an intercommunicator, with at most `window` peers at a time.
pub(crate) fn remote(
    b: &mut Builder,
    t: Team,
    remote: u32,
    out: BlockOf,
    inn: BlockOf,
    window: u32,
) {
    let mut marks = Vec::with_capacity(remote as usize);
    // Both groups have as many rounds as the larger one has ranks, so that the pairs agree.
    let rounds = t.size.max(remote);
    for s in 0..rounds {
        if s >= window {
            b.sync_before(marks[(s - window) as usize]);
        }
        // In round s, local rank i and remote rank j exchange if i + j = s modulo the larger size.
        let peer = (s + rounds - t.rank) % rounds;
        if peer < remote {
            b.recv_from(Peer::Remote(peer), inn(peer));
            b.send_to(Peer::Remote(peer), out(peer));
        }
        marks.push(b.mark());
    }
}
