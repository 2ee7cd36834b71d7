//! Collectives in two levels, on nodes of all shapes.

use crate::allgather::allgather_of;
use crate::alltoall::alltoall;
use crate::bcast::bcast;
use crate::harness::*;
use crate::reduce::reductions;
use crate::reduce_scatter::reduce_scatter;
use crate::scan::scans;
use ferry_schedule::{Algorithm, Collective, Kind, Peer, Reduction, Step};
use proptest::prelude::*;

const HIERARCHICAL: Option<Algorithm> = Some(Algorithm::Hierarchical);

/// Every collective that has the algorithm, from `root`. Where it cannot serve, for its order, what
/// the model chooses runs.
fn all(node_of: &[u32], root: u32, count: i64, commutes: bool, in_place: bool, seed: u64) {
    let n = node_of.len() as u32;
    on_nodes(node_of, || {
        bcast(n, root, HIERARCHICAL, count as usize, seed);
        allgather_of(
            n,
            12 * (1 + count as usize % 3),
            HIERARCHICAL,
            in_place,
            seed,
        );
        alltoall(n, HIERARCHICAL, in_place, seed);
        for kind in [Kind::Reduce, Kind::Allreduce] {
            reductions(n, root, HIERARCHICAL, kind, count, commutes, in_place, seed);
        }
        let uneven: Vec<i64> = (0..i64::from(n)).map(|i| (i * 7 + count) % 4).collect();
        for counts in [vec![count; n as usize], uneven] {
            reduce_scatter(n, HIERARCHICAL, &counts, commutes, in_place, seed);
        }
        for inclusive in [true, false] {
            scans(n, HIERARCHICAL, count, commutes, in_place, inclusive, seed);
        }
    });
}

#[test]
fn nodes_of_equal_size_in_blocks_and_in_turns() {
    // All small sizes, and the ones around those at which the number of nodes changes.
    for n in (2..=9).chain([16, 17, MAX_RANKS]) {
        for per_node in [2, 3, 8] {
            let blocks: Vec<u32> = (0..n).map(|r| r / per_node).collect();
            let turns: Vec<u32> = (0..n).map(|r| r % n.div_ceil(per_node)).collect();
            for node_of in [blocks, turns] {
                for (in_place, commutes) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    for (root, count) in [(0, 0), (n / 2, 1), (n - 1, 37)] {
                        all(&node_of, root, count, commutes, in_place, u64::from(n));
                    }
                }
            }
        }
    }
}

/// Does rank 1, which is no leader, send to another node than its first, of `per_node` ranks?
fn goes_in_stripes(n: u32, per_node: u32, call: &Collective) -> bool {
    let schedule = make(view(1, n), call, HIERARCHICAL);
    let to_others =
        |step: &Step| matches!(step, Step::Send { peer: Peer::Local(to), .. } if *to >= per_node);
    schedule.steps.iter().any(to_others)
}

#[test]
fn large_reductions_go_in_stripes_if_order_and_nodes_allow_it() {
    for (n, per_node) in [(6, 2), (9, 3), (16, 8)] {
        let node_of: Vec<u32> = (0..n).map(|r| r / per_node).collect();
        let counts: Vec<i64> = (0..i64::from(n)).map(|i| 400 * (i % 3) + 199).collect();
        on_nodes(&node_of, || {
            for commutes in [true, false] {
                let of = Reduction {
                    count: counts.iter().sum(),
                    element: 4,
                    commutes,
                };
                for in_place in [true, false] {
                    let allreduce = Collective::Allreduce { of, in_place };
                    let reduce_scatter_of = Collective::ReduceScatter {
                        counts: &counts,
                        of,
                        in_place,
                    };
                    for call in [&allreduce, &reduce_scatter_of] {
                        assert_eq!(goes_in_stripes(n, per_node, call), commutes, "{call:?}");
                    }
                    let (kind, seed) = (Kind::Allreduce, u64::from(n));
                    reductions(n, 0, HIERARCHICAL, kind, of.count, commutes, in_place, seed);
                    reduce_scatter(n, HIERARCHICAL, &counts, commutes, in_place, seed);
                }
            }
        });
        // Nodes of two sizes: rank 0 is one more on the first.
        let uneven: Vec<u32> = (0..n).map(|r| r.saturating_sub(1) / per_node).collect();
        let call = Collective::Allreduce {
            of: Reduction {
                count: 1 << 20,
                element: 4,
                commutes: true,
            },
            in_place: false,
        };
        on_nodes(&uneven, || {
            assert!(!goes_in_stripes(n, per_node + 1, &call))
        });
    }
}

#[test]
fn it_is_used_where_it_can_serve() {
    let kinds = [
        Kind::Barrier,
        Kind::Bcast,
        Kind::Reduce,
        Kind::Allreduce,
        Kind::Allgather,
        Kind::Alltoall,
        Kind::ReduceScatter,
        Kind::Scan,
    ];
    let has = |commutes| {
        move |&kind: &Kind| algorithms(kind, 6, commutes).any(|a| a == Algorithm::Hierarchical)
    };
    on_nodes(&[0, 0, 1, 1, 2, 2], || {
        assert!(kinds.iter().all(has(false)) && kinds.iter().all(has(true)));
    });
    on_nodes(&[0, 1, 2, 0, 1, 2], || {
        let commuting: Vec<_> = kinds.into_iter().filter(has(true)).collect();
        assert_eq!(commuting, kinds[..4]);
        assert!(!kinds.iter().any(has(false)));
    });
    // One level: a node, or a node for each.
    for node_of in [[0; 6], [0, 1, 2, 3, 4, 5]] {
        on_nodes(&node_of, || assert!(!kinds.iter().any(has(true))));
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn at_random(
        node_of in prop::collection::vec(0u32..5, 1..MAX_RANKS as usize),
        sorted: bool,
        root in 0..MAX_RANKS,
        count in 0i64..200,
        commutes: bool,
        in_place: bool,
        seed: u64,
    ) {
        let mut node_of = node_of;
        if sorted {
            node_of.sort_unstable();
        }
        let n = node_of.len() as u32;
        all(&node_of, root % n, count, commutes, in_place, seed);
    }
}
