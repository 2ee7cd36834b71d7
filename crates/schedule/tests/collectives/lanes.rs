//! Small data of many nodes, which go in lanes, with the figures of a network.

use crate::barrier::barriers;
use crate::bcast::bcast;
use crate::harness::*;
use crate::reduce::reductions;
use ferry_schedule::{Algorithm, Collective, Cost, Kind, Peer, Reduction, Root, Step};

const HIERARCHICAL: Option<Algorithm> = Some(Algorithm::Hierarchical);

/// Nodes of equal and of different sizes. Their numbers are a product, a square, a prime, even.
fn jobs() -> [Vec<u32>; 4] {
    [
        (0..130).map(|r| r / 5).collect(),
        (0..128).map(|r| r / 8).collect(),
        (0..136).map(|r| r / 8).collect(),
        (0..143).map(|r| (r + 1) / 8).collect(),
    ]
}

/// Does a rank that is no leader exchange messages with other nodes? The last rank is the root.
fn goes_in_lanes(node_of: &[u32], call: &Collective) -> bool {
    let n = node_of.len() as u32;
    let node = |rank: u32| node_of[rank as usize];
    let leaves = |rank: u32| {
        let schedule = make(view(rank, n), call, HIERARCHICAL);
        schedule.steps.iter().any(|step| match step {
            Step::Send { peer, .. } | Step::Recv { peer, .. } => {
                matches!(peer, Peer::Local(peer) if node(*peer) != node(rank))
            }
            _ => false,
        })
    };
    (1..n - 1).any(|rank| node_of[..rank as usize].contains(&node(rank)) && leaves(rank))
}

fn reduction(count: i64, commutes: bool) -> Reduction {
    Reduction {
        count,
        element: 8,
        commutes,
    }
}

#[test]
fn small_data_go_in_lanes_and_arrive() {
    for node_of in jobs() {
        let n = node_of.len() as u32;
        on_nodes(&node_of, || {
            with_cost(Cost::network(), || {
                let root = Root::Rank(n - 1);
                let (of, in_place) = (reduction(1, true), false);
                for call in [
                    Collective::Barrier,
                    Collective::Bcast { root, bytes: 8 },
                    Collective::Reduce { root, of, in_place },
                    Collective::Allreduce { of, in_place },
                ] {
                    assert!(goes_in_lanes(&node_of, &call), "{call:?} on {n} ranks");
                }
                // It runs the schedules once for each rank and each algorithm.
                if n == 128 {
                    barriers(n);
                }
                for (root, count) in [(0, 0), (n / 2, 1), (n - 1, 37)] {
                    bcast(n, root, HIERARCHICAL, count as usize, u64::from(n));
                    for kind in [Kind::Reduce, Kind::Allreduce] {
                        for in_place in [false, true] {
                            let seed = u64::from(n);
                            reductions(n, root, HIERARCHICAL, kind, count, true, in_place, seed);
                        }
                    }
                }
            });
        });
    }
}

#[test]
fn few_nodes_large_data_and_ordered_operands_do_not() {
    let many: Vec<u32> = (0..130).map(|r| r / 5).collect();
    let few: Vec<u32> = (0..130).map(|r| r / 13).collect();
    let allreduce = |count, commutes| Collective::Allreduce {
        of: reduction(count, commutes),
        in_place: false,
    };
    with_cost(Cost::network(), || {
        on_nodes(&many, || {
            assert!(goes_in_lanes(&many, &allreduce(1, true)));
            assert!(!goes_in_lanes(&many, &allreduce(1, false)));
            let root = Root::Rank(129);
            let bytes = 1 << 20;
            assert!(!goes_in_lanes(&many, &Collective::Bcast { root, bytes }));
        });
        on_nodes(&few, || assert!(!goes_in_lanes(&few, &allreduce(1, true))));
    });
}
