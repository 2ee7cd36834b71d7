//! Allgather.

use crate::gather::{Form, varying};
use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Algorithm, Block, Collective, Kind};
use proptest::prelude::*;

pub fn allgather(n: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
    let call = Collective::Allgather {
        block: Block {
            send: 3,
            recv: 2,
            bytes: 12,
        },
        in_place,
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let mut whole = vec![Cell::Nothing; 12 * n as usize];
            if in_place {
                whole[12 * r as usize..][..12].clone_from_slice(&block(r, 0, 12));
            }
            let own = if in_place {
                nothing()
            } else {
                Memory::new(block(r, 0, 12), 4).read_only()
            };
            Rank::new(make(view(r, n), &call, a), own, Memory::new(whole, 6), 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let expected: Vec<Cell> = (0..n).flat_map(|r| block(r, 0, 12)).collect();
    for r in &ranks {
        assert_eq!(r.recv.cells(), expected, "{a:?}");
    }
}

#[test]
fn every_algorithm() {
    for n in 1..=MOST {
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
        n in 1..=MOST,
        counts in prop::collection::vec(0i64..4, MOST as usize),
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        allgather(n, None, in_place, seed);
        varying(Form::Allgatherv, n, &counts[..n as usize], 0, in_place, None, seed);
        varying(Form::Allgatherv, n, &counts[..n as usize], 0, in_place, Some(a), seed);
    }
}
