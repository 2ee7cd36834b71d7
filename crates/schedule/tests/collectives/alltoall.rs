//! All-to-all: uniform, v and w.

use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Algorithm, Block, Collective, Cost, Kind, Step, Varying};
use proptest::prelude::*;

pub fn alltoall(n: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
    let call = Collective::Alltoall {
        block: Block {
            send: 3,
            recv: 2,
            bytes: 12,
        },
        in_place,
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let out: Vec<Cell> = (0..n).flat_map(|q| block(r, q, 12)).collect();
            let (send, recv) = if in_place {
                (nothing(), Memory::new(out, 6))
            } else {
                (
                    Memory::new(out, 4).read_only(),
                    Memory::room(12 * n as usize, 6),
                )
            };
            Rank::new(make(view(r, n), &call, a), send, recv, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        let expected: Vec<Cell> = (0..n).flat_map(|q| block(q, r, 12)).collect();
        assert_eq!(
            ranks[r as usize].recv.cells(),
            expected,
            "{a:?}, in place: {in_place}"
        );
    }
}

/// v- and w-forms from one matrix of block sizes; elements of 2 bytes, gaps of one element between
/// blocks.
pub fn varying(
    n: u32,
    sizes: &[Vec<i64>],
    w: bool,
    in_place: bool,
    a: Option<Algorithm>,
    seed: u64,
) {
    let displs = |counts: &[i64]| -> Vec<i64> {
        counts
            .iter()
            .scan(0, |at, c| {
                let here = *at;
                *at += c + 1;
                Some(here)
            })
            .collect()
    };
    let size = |from: u32, to: u32| {
        if in_place {
            sizes[from.min(to) as usize][from.max(to) as usize]
        } else {
            sizes[from as usize][to as usize]
        }
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let out: Vec<i64> = (0..n).map(|q| size(r, q)).collect();
            let inn: Vec<i64> = (0..n).map(|q| size(q, r)).collect();
            let (od, id) = (displs(&out), displs(&inn));
            let bytes = |v: &[i64]| -> Vec<i64> { v.iter().map(|c| 2 * c).collect() };
            let (ob, ib) = (bytes(&out), bytes(&inn));
            let (sv, rv) = (
                Varying {
                    counts: &out,
                    displs: &od,
                },
                Varying {
                    counts: &inn,
                    displs: &id,
                },
            );
            let call = if w {
                Collective::Alltoallw {
                    send: &ob,
                    recv: &ib,
                    in_place,
                }
            } else {
                Collective::Alltoallv {
                    send: sv,
                    recv: rv,
                    size: 2,
                    in_place,
                }
            };
            let total = |c: &[i64]| 2 * (c.iter().sum::<i64>() + c.len() as i64) as usize;
            let mut data = vec![Cell::Nothing; total(&out)];
            for q in 0..n as usize {
                let b = block(r, q as u32, 2 * out[q] as usize);
                data[2 * od[q] as usize..][..b.len()].clone_from_slice(&b);
            }
            let (send, recv) = if in_place {
                (nothing(), Memory::new(data, 2))
            } else {
                (
                    Memory::new(data, 2).read_only(),
                    Memory::room(total(&inn), 2),
                )
            };
            let mut rank = Rank::new(make(view(r, n), &call, a), send, recv, 1);
            rank.send_blocks = od
                .iter()
                .zip(&out)
                .map(|(d, c)| (2 * *d as usize, 2 * *c as usize))
                .collect();
            rank.recv_blocks = id
                .iter()
                .zip(&inn)
                .map(|(d, c)| (2 * *d as usize, 2 * *c as usize))
                .collect();
            rank
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        let mut at = 0;
        for q in 0..n {
            let b = block(q, r, 2 * size(q, r) as usize);
            assert_eq!(ranks[r as usize].recv.cells()[at..at + b.len()], b);
            at += b.len() + 2;
        }
    }
}

/// The messages that rank 0 of `n` sends.
fn messages(n: u32, bytes: i64, a: Option<Algorithm>) -> usize {
    let block = Block {
        send: bytes,
        recv: bytes,
        bytes,
    };
    let in_place = false;
    let schedule = make(view(0, n), &Collective::Alltoall { block, in_place }, a);
    let sends = |step: &&Step| matches!(step, Step::Send { .. });
    schedule.steps.iter().filter(sends).count()
}

#[test]
fn many_ranks_count_in_larger_bases_and_send_to_far_ranks_first() {
    with_cost(Cost::network(), || {
        for n in [32, 33, 34, 47, 63, 64, 65, 67, 70, 96] {
            for algorithm in [Algorithm::Bruck, Algorithm::Spread] {
                for in_place in [false, true] {
                    alltoall(n, Some(algorithm), in_place, u64::from(n));
                }
            }
        }
        let bruck = |bytes| messages(1024, bytes, Some(Algorithm::Bruck));
        assert!(bruck(1) < bruck(256) && bruck(256) < bruck(4096));
        // Two digits of base 32.
        assert_eq!(bruck(1 << 20), 62);
    });
    // Few ranks, or ranks that share cores, use base 2.
    assert_eq!(messages(16, 4096, Some(Algorithm::Bruck)), 4);
    assert_eq!(messages(64, 4096, Some(Algorithm::Bruck)), 6);
}

#[test]
fn every_algorithm() {
    for n in 1..=MAX_RANKS {
        let sizes: Vec<Vec<i64>> = (0..i64::from(n))
            .map(|i| (0..i64::from(n)).map(|j| (i * 3 + j * 5) % 4).collect())
            .collect();
        for in_place in [false, true] {
            for a in algorithms(Kind::Alltoall, n, true) {
                alltoall(n, Some(a), in_place, u64::from(n));
                for w in [false, true] {
                    varying(n, &sizes, w, in_place, Some(a), u64::from(n));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn at_random(
        n in 1..=MAX_RANKS,
        sizes in prop::collection::vec(prop::collection::vec(0i64..4, MAX_RANKS as usize),
            MAX_RANKS as usize),
        w: bool,
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        alltoall(n, None, in_place, seed);
        varying(n, &sizes, w, in_place, None, seed);
        varying(n, &sizes, w, in_place, Some(a), seed);
    }
}
