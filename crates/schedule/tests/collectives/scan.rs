//! Scan and exscan.

use crate::harness::*;
use crate::simulator::{Memory, Rank, run};
use ferry_schedule::{Algorithm, Collective, Kind, Reduction};
use proptest::prelude::*;

pub fn scans(
    n: u32,
    a: Option<Algorithm>,
    count: i64,
    commutes: bool,
    in_place: bool,
    inclusive: bool,
    seed: u64,
) {
    let of = Reduction {
        count,
        element: 4,
        commutes,
    };
    let call = if inclusive {
        Collective::Scan { of, in_place }
    } else {
        Collective::Exscan { of, in_place }
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let input = contribution(r, count);
            let (send, recv) = if in_place {
                (nothing(), Memory::new(input, 1))
            } else {
                (
                    Memory::new(input, 1).read_only(),
                    Memory::room(count as usize, 1),
                )
            };
            Rank::new(make(view(r, n), &call, a), send, recv, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        let to = if inclusive { r + 1 } else { r };
        if to > 0 {
            check_sum(
                ranks[r as usize].recv.cells(),
                0,
                0..to,
                !commutes,
                &format!("scan {a:?} {inclusive} {in_place}"),
            );
        }
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        for (in_place, commutes) in [(false, false), (false, true), (true, false), (true, true)] {
            for a in algorithms(Kind::Scan, n, commutes) {
                for count in [0, 1, 5, 37] {
                    for inclusive in [true, false] {
                        scans(
                            n,
                            Some(a),
                            count,
                            commutes,
                            in_place,
                            inclusive,
                            u64::from(n),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn trees_of_many_ranks() {
    for n in RANKS_OF_TREES {
        for (in_place, inclusive) in [(false, false), (false, true), (true, false), (true, true)] {
            for commutes in [true, false] {
                let a = Some(Algorithm::BinaryTree);
                scans(n, a, 11, commutes, in_place, inclusive, u64::from(n));
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn at_random(n in 1..=MAX_RANKS, count in 0i64..200, commutes: bool, in_place: bool,
        inclusive: bool, seed: u64) {
        scans(n, None, count, commutes, in_place, inclusive, seed);
    }
}
