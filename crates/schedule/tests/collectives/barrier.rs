//! Barrier.

use crate::harness::*;
use crate::simulator::{Rank, run};
use ferry_schedule::{Collective, Kind, Schedule};

#[test]
fn barrier_lets_nobody_go_before_all_have_come() {
    for n in 1..=MAX_RANKS {
        barriers(n);
    }
}

#[test]
fn nor_on_several_nodes() {
    for n in [4, 7, 12] {
        let (blocks, turns) = ((0..n).map(|r| r / 3), (0..n).map(|r| r % 3));
        on_nodes(&blocks.collect::<Vec<_>>(), || barriers(n));
        on_nodes(&turns.collect::<Vec<_>>(), || barriers(n));
    }
}

/// Every algorithm on `n` ranks.
pub fn barriers(n: u32) {
    for a in algorithms(Kind::Barrier, n, true) {
        let mut ranks: Vec<Rank> = (0..n)
            .map(|r| {
                Rank::new(
                    make(view(r, n), &Collective::Barrier, Some(a)),
                    nothing(),
                    nothing(),
                    1,
                )
            })
            .collect();
        run(&mut ranks, n as usize, u64::from(n));
        // Who has heard of whom, by the closure of the messages in order of rounds.
        for r in 0..n {
            let mut without: Vec<Rank> = (0..n)
                .map(|q| {
                    let s = if q == r {
                        Schedule::default()
                    } else {
                        ranks[q as usize].schedule.clone()
                    };
                    Rank::new(s, nothing(), nothing(), 1)
                })
                .collect();
            if n > 1 {
                let stuck = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    run(&mut without, n as usize, 7);
                }));
                assert!(
                    stuck.is_err(),
                    "{a:?}: the others ended without rank {r} of {n}"
                );
            }
        }
    }
}
