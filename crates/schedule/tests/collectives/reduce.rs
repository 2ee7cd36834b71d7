//! Reduce and allreduce.

use crate::harness::*;
use crate::simulator::{Memory, Rank, run};
use ferry_schedule::{Algorithm, Collective, Kind, Reduction, Root};
use proptest::prelude::*;

#[allow(clippy::too_many_arguments)]
pub fn reductions(
    n: u32,
    root: u32,
    a: Option<Algorithm>,
    kind: Kind,
    count: i64,
    commutes: bool,
    in_place: bool,
    seed: u64,
) {
    let of = Reduction {
        count,
        element: 4,
        commutes,
    };
    let what =
        format!("{kind:?} {a:?}, {n} ranks, root {root}, {count} elements, in place: {in_place}");
    let call = match kind {
        Kind::Reduce => Collective::Reduce {
            root: Root::Rank(root),
            of,
            in_place,
        },
        _ => Collective::Allreduce { of, in_place },
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let gets = kind == Kind::Allreduce || r == root;
            let input = contribution(r, count);
            let (send, recv) = match (gets, in_place) {
                (true, true) => (nothing(), Memory::new(input, 1)),
                (true, false) => (
                    Memory::new(input, 1).read_only(),
                    Memory::room(count as usize, 1),
                ),
                (false, _) => (Memory::new(input, 1).read_only(), nothing()),
            };
            Rank::new(make(view(r, n), &call, a), send, recv, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for (r, rank) in ranks.iter().enumerate() {
        if kind == Kind::Allreduce || r as u32 == root {
            assert_eq!(rank.recv.cells().len() as i64, count);
            check_sum(rank.recv.cells(), 0, 0..n, !commutes, &what);
        }
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        for kind in [Kind::Reduce, Kind::Allreduce] {
            let roots = if kind == Kind::Reduce {
                vec![0, n / 2, n - 1]
            } else {
                vec![0]
            };
            for root in roots {
                for (in_place, commutes) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    for a in algorithms(kind, n, commutes) {
                        for count in [0, 1, 5, 37] {
                            let seed = u64::from(n * 64 + root);
                            reductions(n, root, Some(a), kind, count, commutes, in_place, seed);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn trees_of_many_ranks_to_every_root() {
    for n in RANKS_OF_TREES {
        for root in 0..n {
            let seed = u64::from(n * 128 + root);
            let in_place = seed.is_multiple_of(3);
            for (a, commutes) in [
                (Algorithm::TwoTrees, true),
                (Algorithm::BinaryTree, true),
                (Algorithm::BinaryTree, false),
            ] {
                reductions(n, root, Some(a), Kind::Reduce, 7, commutes, in_place, seed);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn at_random(
        n in 1..=MAX_RANKS,
        root in 0..MAX_RANKS,
        count in 0i64..200,
        commutes: bool,
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        for kind in [Kind::Reduce, Kind::Allreduce] {
            reductions(n, root % n, None, kind, count, commutes, in_place, seed);
            reductions(n, root % n, Some(a), kind, count, commutes, in_place, seed);
        }
    }
}
