//! Reduce-scatter.

use crate::harness::*;
use crate::simulator::{Memory, Rank, run};
use ferry_schedule::{Algorithm, Collective, Kind, Reduction};
use proptest::prelude::*;

pub fn reduce_scatter(
    n: u32,
    a: Option<Algorithm>,
    counts: &[i64],
    commutes: bool,
    in_place: bool,
    seed: u64,
) {
    let total: i64 = counts.iter().sum();
    let of = Reduction {
        count: total,
        element: 4,
        commutes,
    };
    let uniform = counts.iter().all(|&c| c == counts[0]) && seed.is_multiple_of(2);
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let call = if uniform {
                Collective::ReduceScatterBlock {
                    of: Reduction {
                        count: counts[0],
                        ..of
                    },
                    in_place,
                }
            } else {
                Collective::ReduceScatter {
                    counts,
                    of,
                    in_place,
                }
            };
            let input = contribution(r, total);
            let (send, recv) = if in_place {
                (nothing(), Memory::new(input, 1))
            } else {
                (
                    Memory::new(input, 1).read_only(),
                    Memory::room(counts[r as usize] as usize, 1),
                )
            };
            Rank::new(make(view(r, n), &call, a), send, recv, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let mut first = 0;
    for r in 0..n as usize {
        let mine = &ranks[r].recv.cells()[..counts[r] as usize];
        check_sum(
            mine,
            first,
            0..n,
            !commutes,
            &format!("{a:?} reduce_scatter {counts:?} in place: {in_place}"),
        );
        first += counts[r];
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        let uneven: Vec<i64> = (0..i64::from(n)).map(|i| i * 7 % 4).collect();
        for (in_place, commutes) in [(false, false), (false, true), (true, false), (true, true)] {
            for a in algorithms(Kind::ReduceScatter, n, commutes) {
                for seed in 0..2 {
                    reduce_scatter(n, Some(a), &vec![2; n as usize], commutes, in_place, seed);
                }
                reduce_scatter(n, Some(a), &uneven, commutes, in_place, 3);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn at_random(
        n in 1..=MAX_RANKS,
        counts in prop::collection::vec(0i64..4, MAX_RANKS as usize),
        commutes: bool,
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        reduce_scatter(n, None, &counts[..n as usize], commutes, in_place, seed);
        reduce_scatter(n, Some(a), &counts[..n as usize], commutes, in_place, seed);
    }
}
