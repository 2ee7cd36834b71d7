//! Broadcast (MPI 5.0 §6.4).

use crate::algorithm::Algorithm;
use crate::step::{Builder, Piece, Team, parts, reversed};

/// By `algorithm`: Flat, ScatterRing, ScatterDoubling, Chain, BinaryTree, or else Binomial.
/// Segments of the pipelined ones have `segment` units.
pub(crate) fn run(
    b: &mut Builder,
    algorithm: Algorithm,
    t: Team,
    root: u32,
    data: Piece,
    segment: i64,
) {
    match algorithm {
        Algorithm::Flat => flat(b, t, root, data),
        Algorithm::ScatterRing => scatter_ring(b, t, root, data),
        Algorithm::ScatterDoubling => scatter_doubling(b, t, root, data),
        Algorithm::Chain => chain(b, t, root, data, segment),
        Algorithm::BinaryTree => binary_tree(b, t, root, data, segment),
        _ => binomial(b, t, root, data),
    }
}

/// The root sends to each.
fn flat(b: &mut Builder, t: Team, root: u32, data: Piece) {
    if t.rank != root {
        return b.recv(root, data);
    }
    for i in 1..t.size {
        b.send(t.after(i), data);
    }
}

/// Down a binomial tree: ⌈log₂ n⌉ rounds.
pub(crate) fn binomial(b: &mut Builder, t: Team, root: u32, data: Piece) {
    let me = t.relative(root);
    let mut mask = t.size.next_power_of_two();
    if me != 0 {
        mask = 1 << me.trailing_zeros();
        b.recv(t.absolute(me - mask, root), data);
        b.sync();
    }
    while mask > 1 {
        mask /= 2;
        if me + mask < t.size {
            b.send(t.absolute(me + mask, root), data);
        }
    }
}

/// The data cut in n parts and scattered down a binomial tree, then gathered by all round a ring:
/// each rank sends about twice the data, whatever n is (van de Geijn).
fn scatter_ring(b: &mut Builder, t: Team, root: u32, data: Piece) {
    scatter(b, t, Places::Following { root }, data);
    let me = t.relative(root);
    let n = t.size;
    let part = |i: u32| parts(data, n, i, i + 1);
    // A rank has what it forwarded in the scatter. So nothing is ever written at the root.
    let has = |who: u32, i: u32| i >= who && i - who < width(who, n);
    let next = (me + 1) % n;
    for s in 0..n - 1 {
        let (inn, out) = ((me + 2 * n - s - 1) % n, (me + n - s) % n);
        if !has(me, inn) {
            b.recv(t.before(1), part(inn));
        }
        if !has(next, out) {
            b.send(t.after(1), part(out));
        }
        b.sync();
    }
}

/// As [`scatter_ring`], with the gathering by recursive doubling: fewer rounds. For powers of two.
fn scatter_doubling(b: &mut Builder, t: Team, root: u32, data: Piece) {
    debug_assert!(t.size.is_power_of_two());
    let places = Places::Reversed { root };
    scatter(b, t, places, data);
    let me = places.of(t, t.rank);
    let mut have = 1;
    while have < t.size {
        let other = me ^ have;
        let (mine, theirs) = (me & !(have - 1), other & !(have - 1));
        let peer = places.rank(t, other);
        // A rank that forwarded the other's half in the scatter has it.
        if !me.is_multiple_of(2 * have) {
            b.recv(peer, parts(data, t.size, theirs, theirs + have));
        }
        if !other.is_multiple_of(2 * have) {
            b.send(peer, parts(data, t.size, mine, mine + have));
        }
        b.sync();
        have *= 2;
    }
}

/// How many parts the rank at distance `me` from the root holds after [`scatter`]: its own and its
/// subtree's.
fn width(me: u32, n: u32) -> u32 {
    if me == 0 {
        n
    } else {
        (1 << me.trailing_zeros()).min(n - me)
    }
}

/// In which order ranks have the parts of a scatter. The root's place is 0.
#[derive(Clone, Copy)]
enum Places {
    /// As they follow the root.
    Following { root: u32 },
    /// By the bits in which they differ from the root, in reverse ([`reversed`]). For powers of
    /// two.
    Reversed { root: u32 },
}

impl Places {
    fn of(self, t: Team, rank: u32) -> u32 {
        match self {
            Places::Following { root } => Team { rank, ..t }.relative(root),
            Places::Reversed { root } => reversed(rank ^ root, t.size),
        }
    }
    fn rank(self, t: Team, place: u32) -> u32 {
        match self {
            Places::Following { root } => t.absolute(place, root),
            Places::Reversed { root } => reversed(place, t.size) ^ root,
        }
    }
}

/// The rank at place i gets the i-th of n parts, down a binomial tree.
fn scatter(b: &mut Builder, t: Team, places: Places, data: Piece) {
    let me = places.of(t, t.rank);
    let mut mask = t.size.next_power_of_two();
    if me != 0 {
        mask = 1 << me.trailing_zeros();
        b.recv(
            places.rank(t, me - mask),
            parts(data, t.size, me, t.size.min(me + mask)),
        );
        b.sync();
    }
    while mask > 1 {
        mask /= 2;
        let child = me + mask;
        if child < t.size {
            b.send(
                places.rank(t, child),
                parts(data, t.size, child, t.size.min(child + mask)),
            );
        }
    }
    b.sync();
}

/// Segments of `segment` units flow along the ranks; each sends one on while the next comes in.
fn chain(b: &mut Builder, t: Team, root: u32, data: Piece, segment: i64) {
    let me = t.relative(root);
    let parent = (me > 0).then(|| t.before(1));
    let child = (me + 1 < t.size).then(|| t.after(1));
    pipeline(b, parent, child.as_slice(), data, segment);
}

/// Segments flow down a binary tree.
fn binary_tree(b: &mut Builder, t: Team, root: u32, data: Piece, segment: i64) {
    let me = t.relative(root);
    let parent = (me > 0).then(|| t.absolute((me - 1) / 2, root));
    let children: Vec<u32> = [2 * u64::from(me) + 1, 2 * u64::from(me) + 2]
        .into_iter()
        .filter(|&c| c < u64::from(t.size))
        .map(|c| t.absolute(c as u32, root))
        .collect();
    pipeline(b, parent, &children, data, segment);
}

fn pipeline(b: &mut Builder, parent: Option<u32>, children: &[u32], data: Piece, segment: i64) {
    let segment = segment.max(1);
    let segments = (data.count + segment - 1) / segment;
    let piece = |k: i64| data.part(k * segment, segment.min(data.count - k * segment));
    if let (Some(p), true) = (parent, segments > 0) {
        b.recv(p, piece(0));
    }
    for k in 0..segments {
        if let Some(p) = parent {
            let came = b.mark();
            if k + 1 < segments {
                b.recv(p, piece(k + 1));
            }
            b.sync_before(came);
        }
        for &c in children {
            b.send(c, piece(k));
        }
    }
}
