//! What the tests of all collectives share: planning a rank's schedule, and contents that say where
//! they came from.

use crate::simulator::{Cell, Memory};
use ferry_schedule::{
    Algorithm, Collective, CommView, Cost, Kind, NodeMap, Problem, Schedule, Team, plan,
};
use proptest::prelude::*;
use std::cell::{Cell as StdCell, RefCell};

/// The largest group tried.
pub const MAX_RANKS: u32 = 33;

/// Larger groups for trees, whose shape changes at powers of two.
pub const RANKS_OF_TREES: [u32; 6] = [34, 47, 63, 64, 65, 70];

thread_local! {
    /// The nodes of the ranks in this thread's tests ([`on_nodes`]).
    static NODES: RefCell<Option<NodeMap>> = const { RefCell::new(None) };
    /// Figures of this thread's tests ([`with_cost`]); without them [`small_segments`].
    static COST: StdCell<Option<Cost>> = const { StdCell::new(None) };
}

/// Runs a test with these figures.
pub fn with_cost(cost: Cost, test: impl FnOnce()) {
    COST.set(Some(cost));
    test();
    COST.set(None);
}

/// Runs a test whose rank i is on the node that the i-th number names.
pub fn on_nodes(node_of: &[u32], test: impl FnOnce()) {
    NODES.set(NodeMap::new(node_of.iter().copied(), 4));
    test();
    NODES.set(None);
}

pub fn view(rank: u32, size: u32) -> CommView<'static> {
    CommView {
        team: Team { rank, size },
        remote: None,
        nodes: None,
    }
}

pub fn small_segments() -> Cost {
    Cost {
        segment_bytes: 3,
        window_peers: 3,
        ..Cost::default()
    }
}

pub fn make(p: CommView<'_>, c: &Collective, a: Option<Algorithm>) -> Schedule {
    NODES.with_borrow(|nodes| {
        let nodes = nodes.as_ref().filter(|_| p.remote.is_none());
        let cost = COST.get().unwrap_or_else(small_segments);
        plan(CommView { nodes, ..p }, c, &cost, a)
    })
}

/// The byte that rank `from` has for rank `to` at packed offset `i`.
pub fn byte(from: u32, to: u32, i: usize) -> Cell {
    Cell::Byte((u64::from(from) << 40) | (u64::from(to) << 20) | i as u64)
}
pub fn block(from: u32, to: u32, len: usize) -> Vec<Cell> {
    (0..len).map(|i| byte(from, to, i)).collect()
}
pub fn contribution(rank: u32, count: i64) -> Vec<Cell> {
    (0..count).map(|e| Cell::Sum(e, vec![rank])).collect()
}
pub fn nothing() -> Memory {
    Memory::room(0, 1)
}
pub fn check_sum(
    cells: &[Cell],
    first: i64,
    ranks: std::ops::Range<u32>,
    ordered: bool,
    what: &str,
) {
    for (i, c) in cells.iter().enumerate() {
        let Cell::Sum(e, who) = c else {
            panic!("{what}: element {i} is {c:?}")
        };
        let mut who = who.clone();
        if !ordered {
            who.sort_unstable();
        }
        assert_eq!(
            (*e, &who),
            (first + i as i64, &ranks.clone().collect()),
            "{what}"
        );
    }
}
/// Every algorithm for the kind that can serve the problem.
pub fn algorithms(kind: Kind, ranks: u32, commutes: bool) -> impl Iterator<Item = Algorithm> {
    kind.algorithms().iter().copied().filter(move |&a| {
        Problem {
            kind,
            ranks,
            bytes: 1,
            commutes,
            nodes: NODES.with_borrow(|nodes| nodes.as_ref().map(NodeMap::shape)),
        }
        .allows(a)
    })
}

/// Any algorithm, also one that the collective has not: then its own choice must serve.
pub fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(&Algorithm::ALL[..])
}

/// So many random cases.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
