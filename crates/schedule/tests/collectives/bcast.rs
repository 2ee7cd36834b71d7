//! Broadcast.

use crate::harness::*;
use crate::simulator::{Memory, Rank, run};
use ferry_schedule::{Algorithm, Collective, Kind, Root};
use proptest::prelude::*;

pub fn bcast(n: u32, root: u32, a: Option<Algorithm>, bytes: usize, seed: u64) {
    let call = Collective::Bcast {
        root: Root::Rank(root),
        bytes: bytes as i64,
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let buffer = if r == root {
                Memory::new(block(root, 0, bytes), 1).read_only()
            } else {
                Memory::room(bytes, 1)
            };
            Rank::new(make(view(r, n), &call, a), nothing(), buffer, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in &ranks {
        assert_eq!(r.recv.cells(), block(root, 0, bytes), "bcast {a:?}");
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        for root in [0, n / 2, n - 1] {
            for a in algorithms(Kind::Bcast, n, true) {
                for bytes in [0, 1, 7, 40] {
                    bcast(n, root, Some(a), bytes, u64::from(n * 64 + root));
                }
            }
        }
    }
}

#[test]
fn two_trees_of_many_ranks_from_every_root() {
    for n in RANKS_OF_TREES {
        for root in 0..n {
            bcast(
                n,
                root,
                Some(Algorithm::TwoTrees),
                23,
                u64::from(n * 128 + root),
            );
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn at_random(n in 1..=MAX_RANKS, root in 0..MAX_RANKS, bytes in 0usize..200,
        a in any_algorithm(), seed: u64) {
        bcast(n, root % n, None, bytes, seed);
        bcast(n, root % n, Some(a), bytes, seed);
    }
}
