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
    let mut marks: Vec<usize> = Vec::with_capacity(t.size as usize);
    let row = row_of(t.size);
    for s in 0..t.size {
        let (to, from) = match row {
            Some(row) => scattered(t, s, row),
            None => partners(t, s),
        };
        if to == t.rank {
            continue;
        }
        if let Some(earlier) = marks.len().checked_sub(window as usize) {
            b.sync_before(marks[earlier]);
        }
        b.recv(from, inn(from));
        b.send(to, out(to));
        marks.push(b.mark());
    }
    b.copy(out(t.rank), inn(t.rank));
}

/// Fewer ranks exchange in pairs. A choice: many are on many nodes.
const SCATTERED_MIN_RANKS: u32 = 64;

/// The rounds of [`pairwise`] without waits between them, in an order in which neighbours do not
/// send to neighbours.
///
/// Ranks are rows of about √n. In a round a rank sends to one so many rows ahead as the round
/// says and its own place in its row: so neighbours send to different rows. Otherwise all ranks of
/// a group of a dragonfly would use the one link to another group at a time.
fn scattered(t: Team, s: u32, row: u32) -> (u32, u32) {
    let rows = t.size / row;
    let (at, place) = (t.rank / row, t.rank % row);
    let (ahead, aside) = (s / row, s % row);
    let to_place = (place + aside) % row;
    let from_place = (place + row - aside) % row;
    let to = (at + ahead + place) % rows;
    let from = (at + 2 * rows - ahead - from_place % rows) % rows;
    (to * row + to_place, from * row + from_place)
}

/// The length of a row for [`scattered`]: the greatest divisor up to √n. `None`: neighbours send
/// to neighbours.
fn row_of(n: u32) -> Option<u32> {
    let row = (2..=n.isqrt()).rev().find(|&row| n.is_multiple_of(row));
    row.filter(|_| n >= SCATTERED_MIN_RANKS)
}

/// The destination and the source in round `s`.
fn partners(t: Team, s: u32) -> (u32, u32) {
    if t.size.is_power_of_two() {
        (t.rank ^ s, t.rank ^ s)
    } else {
        (t.after(s), t.before(s))
    }
}

/// Bruck's algorithm: a slot for the block of each distance, of which a rank sends on those whose
/// number has a digit d, in base `radix`, d places of that digit ahead: a message for each digit.
/// In base 2 these are ⌈log₂ n⌉ rounds with half of the blocks each. A larger base has fewer
/// rounds of more messages, which go at once, and moves a block less often.
///
/// `out`: the blocks for a range of ranks. `bytes`: packed bytes of a block. Blocks that lie side
/// by side are one copy. At most `window` messages are in flight.
pub(crate) fn bruck(
    b: &mut Builder,
    t: Team,
    out: &dyn Fn(Range<u32>) -> Piece,
    inn: BlockOf,
    bytes: i64,
    radix: u32,
    window: u32,
) {
    let n = t.size;
    let slots =
        |p: Piece, from: u32, count: u32| p.part(i64::from(from) * bytes, i64::from(count) * bytes);
    let rotated = b.scratch(i64::from(n) * bytes);
    let moved = i64::from(n - n.div_ceil(radix)) * bytes;
    let (outgoing, incoming) = (b.scratch(moved), b.scratch(moved));
    let higher = n - t.rank;
    b.copy(out(t.rank..n), slots(rotated, 0, higher));
    if t.rank > 0 {
        b.copy(out(0..t.rank), slots(rotated, higher, t.rank));
    }
    // Slots from here on are in `incoming`, those of the last digit.
    let mut last = n;
    let mut stride = 1;
    while stride < n {
        let above = u64::from(stride) * u64::from(radix);
        let is_last = above >= u64::from(n);
        let digits = 1..radix.min(n.div_ceil(stride));
        // The slots whose numbers have that digit: where each run begins, and its length.
        let runs = move |digit: u32| {
            let runs = (digit * stride..n).step_by(above as usize);
            runs.map(move |from| (from, stride.min(n - from)))
        };
        if is_last {
            // Each message is one run, which need not be copied.
            last = stride;
        }
        let mut marks = Vec::new();
        let mut k = 0;
        for digit in digits.clone() {
            let begin = k;
            for (from, count) in runs(digit) {
                if !is_last {
                    b.copy(slots(rotated, from, count), slots(outgoing, k, count));
                }
                k += count;
            }
            if let Some(earlier) = marks.len().checked_sub(window as usize) {
                b.sync_before(marks[earlier]);
            }
            let (from, to) = (t.before(digit * stride), t.after(digit * stride));
            b.recv(from, slots(incoming, begin, k - begin));
            b.send(
                to,
                match is_last {
                    true => slots(rotated, digit * stride, k - begin),
                    false => slots(outgoing, begin, k - begin),
                },
            );
            marks.push(b.mark());
        }
        b.sync();
        let mut k = 0;
        for (from, count) in digits.flat_map(runs) {
            if !is_last {
                b.copy(slots(incoming, k, count), slots(rotated, from, count));
            }
            k += count;
        }
        stride = above.min(u64::from(n)) as u32;
    }
    for i in 0..n {
        let block = match i < last {
            true => slots(rotated, i, 1),
            false => slots(incoming, i - last, 1),
        };
        b.copy(block, inn(t.before(i)));
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
