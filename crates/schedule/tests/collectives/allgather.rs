//! Allgather.

use crate::gather::{Form, varying};
use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Algorithm, Block, Collective, Kind};
use proptest::prelude::*;

pub fn allgather(n: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
    allgather_of(n, 12, a, in_place, seed);
}

/// Blocks of `bytes` bytes, a multiple of 12.
pub fn allgather_of(n: u32, bytes: usize, a: Option<Algorithm>, in_place: bool, seed: u64) {
    let call = Collective::Allgather {
        block: Block {
            send: bytes as i64 / 4,
            recv: bytes as i64 / 6,
            bytes: bytes as i64,
        },
        in_place,
    };
    let own_block = |r: u32| block(r, 0, bytes);
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let mut whole = vec![Cell::Nothing; bytes * n as usize];
            if in_place {
                whole[bytes * r as usize..][..bytes].clone_from_slice(&own_block(r));
            }
            let own = if in_place {
                nothing()
            } else {
                Memory::new(own_block(r), 4).read_only()
            };
            Rank::new(make(view(r, n), &call, a), own, Memory::new(whole, 6), 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let expected: Vec<Cell> = (0..n).flat_map(own_block).collect();
    for r in &ranks {
        assert_eq!(r.recv.cells(), expected, "{a:?}");
    }
}

/// From 64 KiB in all on, recursive doubling goes another way.
#[test]
fn large_doubling() {
    for n in [1u32, 2, 4, 8, 16] {
        let bytes = (65536 / n as usize).next_multiple_of(12);
        for in_place in [false, true] {
            allgather_of(n, bytes, Some(Algorithm::Doubling), in_place, u64::from(n));
        }
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        let counts: Vec<i64> = (0..i64::from(n)).map(|i| i * 5 % 4).collect();
        for in_place in [false, true] {
            for a in algorithms(Kind::Allgather, n, true) {
                allgather(n, Some(a), in_place, u64::from(n));
            }
            for a in algorithms(Kind::Allgatherv, n, true) {
                varying(
                    Form::Allgatherv,
                    n,
                    &counts,
                    0,
                    in_place,
                    Some(a),
                    u64::from(n),
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn at_random(
        n in 1..=MAX_RANKS,
        counts in prop::collection::vec(0i64..4, MAX_RANKS as usize),
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        allgather(n, None, in_place, seed);
        varying(Form::Allgatherv, n, &counts[..n as usize], 0, in_place, None, seed);
        varying(Form::Allgatherv, n, &counts[..n as usize], 0, in_place, Some(a), seed);
    }
}
