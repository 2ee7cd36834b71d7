//! Barrier (MPI 5.0 §6.3).

use crate::algorithm::Algorithm;
use crate::step::{Builder, Peer, Team};

/// By `algorithm`: Dissemination, or else up a binomial tree and down.
pub(crate) fn run(b: &mut Builder, algorithm: Algorithm, t: Team) {
    match algorithm {
        Algorithm::Dissemination => dissemination(b, t),
        _ => tree(b, t),
    }
}

/// Dissemination: in round k, signal the rank 2^k ahead and wait for the one 2^k behind. ⌈log₂ n⌉
/// rounds of n messages.
fn dissemination(b: &mut Builder, t: Team) {
    let mut distance = 1;
    while distance < t.size {
        b.expect(Peer::Local(t.before(distance)));
        b.signal(Peer::Local(t.after(distance)));
        b.sync();
        distance *= 2;
    }
}

/// Up a binomial tree and down again: 2(n-1) messages in all, in 2⌈log₂ n⌉ rounds.
fn tree(b: &mut Builder, t: Team) {
    gather_signal(b, t);
    spread_signal(b, t);
}

/// Rank 0 waits until all have come.
pub(crate) fn gather_signal(b: &mut Builder, t: Team) {
    let mut mask = 1;
    while mask < t.size && t.rank & mask == 0 {
        if t.rank + mask < t.size {
            b.expect(Peer::Local(t.rank + mask));
        }
        mask *= 2;
    }
    b.sync();
    if t.rank != 0 {
        b.signal(Peer::Local(t.rank - mask));
    }
}

/// All wait for rank 0's signal.
pub(crate) fn spread_signal(b: &mut Builder, t: Team) {
    let mut mask = t.size.next_power_of_two();
    if t.rank != 0 {
        mask = 1 << t.rank.trailing_zeros();
        b.expect(Peer::Local(t.rank - mask));
        b.sync();
    }
    while mask > 1 {
        mask /= 2;
        if t.rank + mask < t.size {
            b.signal(Peer::Local(t.rank + mask));
        }
    }
}
