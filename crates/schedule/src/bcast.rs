//! Broadcast (MPI 5.0 §6.4).

use crate::algorithm::Algorithm;
use crate::step::{Builder, Piece, Team, parts, power_below, reversed};
use crate::tree::{self, Flow, Node, Task};

/// By `algorithm`: Flat, ScatterRing, ScatterDoubling, Chain, BinaryTree, TwoTrees, or else
/// Binomial.
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
        Algorithm::TwoTrees => two_trees(b, t, root, data, segment),
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

/// How segments flow through two trees. By simulation: with fewer steps ranks wait for the one tree
/// while the other has work for them (1 MiB on 1,024 ranks in segments of 16 KiB: 261 us with 3,
/// 313 with 2, 584 with 1, 243 with 6).
pub(crate) const TWO_TREES: Flow = Flow { level_steps: 3 };

/// Segments flow down two binary trees in turns. Who is a leaf of one forwards the segments of the
/// other, so that each rank sends the data about once ([`tree`]).
fn two_trees(b: &mut Builder, t: Team, root: u32, data: Piece, segment: i64) {
    let trees = TwoTrees { t, root };
    let segments = tree::segments(data, segment);
    let piece = |k: i64| tree::segment_of(data, segment, k);
    let places = trees.places();
    let mut tasks = Vec::with_capacity(segments as usize);
    for k in 0..segments {
        let place = &places[(k % 2) as usize];
        tasks.push(Task {
            time: place.depth * TWO_TREES.level_steps + k,
            what: k,
            receives: [place.parent.map(|parent| (parent, piece(k))), None],
        });
    }
    TWO_TREES.run(b, tasks, |b, &k| {
        for child in places[(k % 2) as usize].children.into_iter().flatten() {
            b.send(child, piece(k));
        }
    });
}

/// Two trees of all ranks but the root, which is above both of them.
pub(crate) struct TwoTrees {
    pub(crate) t: Team,
    pub(crate) root: u32,
}

/// Where a rank is in a tree.
pub(crate) struct Place {
    pub(crate) parent: Option<u32>,
    pub(crate) children: [Option<u32>; 2],
    pub(crate) depth: i64,
}

impl TwoTrees {
    /// This rank's places in both trees.
    pub(crate) fn places(&self) -> [Place; 2] {
        [self.place(false), self.place(true)]
    }

    /// The labels of the second tree are those of the first shifted by one, or in reverse, so that
    /// odd ones become even.
    fn place(&self, second: bool) -> Place {
        let n = self.t.size;
        let size = n - 1;
        let me = self.t.relative(self.root);
        let label = |distance: u32| match (second, n.is_multiple_of(2)) {
            (false, _) => distance,
            (true, false) => n - distance,
            (true, true) => distance % size + 1,
        };
        let rank = |label: u32| {
            let distance = match (second, n.is_multiple_of(2)) {
                (false, _) => label,
                (true, false) => n - label,
                (true, true) => (label + size - 2) % size + 1,
            };
            self.t.absolute(distance, self.root)
        };
        if me == 0 {
            let top = (size > 0).then(|| power_below(size));
            return Place {
                parent: None,
                children: [top.map(rank), None],
                depth: 0,
            };
        }
        let node = Node::new(label(me), size);
        Place {
            parent: Some(node.parent().map_or(self.root, rank)),
            children: [node.left().map(rank), node.right().map(rank)],
            depth: node.depth() + 1,
        }
    }
}
