//! Gather and scatter.

use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Algorithm, Block, Collective, Kind, Root, Varying};
use proptest::prelude::*;

pub fn gather(n: u32, root: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
    // A block: 3 send elements of 4 bytes, 2 receive elements of 6.
    let call = |r: u32| {
        let b = if r == root {
            Block {
                send: 3,
                recv: 2,
                bytes: 12,
            }
        } else {
            Block {
                send: 3,
                recv: 99,
                bytes: 12,
            }
        };
        Collective::Gather {
            root: Root::Rank(root),
            block: b,
            in_place: in_place && r == root,
        }
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let mut whole = vec![Cell::Nothing; if r == root { 12 * n as usize } else { 0 }];
            if in_place && r == root {
                whole[12 * root as usize..][..12].clone_from_slice(&block(root, root, 12));
            }
            let own = if in_place && r == root {
                nothing()
            } else {
                Memory::new(block(r, root, 12), 4).read_only()
            };
            Rank::new(make(view(r, n), &call(r), a), own, Memory::new(whole, 6), 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let expected: Vec<Cell> = (0..n).flat_map(|r| block(r, root, 12)).collect();
    assert_eq!(ranks[root as usize].recv.cells(), expected);
}

pub fn scatter(n: u32, root: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let b = Block {
                send: if r == root { 3 } else { 99 },
                recv: 2,
                bytes: 12,
            };
            let here = in_place && r == root;
            let call = Collective::Scatter {
                root: Root::Rank(root),
                block: b,
                in_place: here,
            };
            let whole: Vec<Cell> = if r == root {
                (0..n).flat_map(|q| block(root, q, 12)).collect()
            } else {
                vec![]
            };
            let own = if here { nothing() } else { Memory::room(12, 6) };
            Rank::new(
                make(view(r, n), &call, a),
                Memory::new(whole, 4).read_only(),
                own,
                1,
            )
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        if !(in_place && r == root) {
            assert_eq!(ranks[r as usize].recv.cells(), block(root, r, 12));
        }
    }
}

/// A v-form with one list of counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Form {
    Gatherv,
    Scatterv,
    Allgatherv,
}

/// Gatherv, scatterv or allgatherv with blocks in the order of ranks and a gap before each.
pub fn varying(
    form: Form,
    n: u32,
    counts: &[i64],
    root: u32,
    in_place: bool,
    a: Option<Algorithm>,
    seed: u64,
) {
    let displs: Vec<i64> = counts
        .iter()
        .scan(1, |at, c| {
            let here = *at;
            *at += c + 1;
            Some(here)
        })
        .collect();
    let v = Varying {
        counts,
        displs: &displs,
    };
    let room = 2 * (counts.iter().sum::<i64>() + counts.len() as i64 + 1) as usize;
    let spread = |from_rank: &dyn Fn(u32) -> Option<(u32, u32)>| {
        let mut data = vec![Cell::Nothing; room];
        for q in 0..n {
            if let Some((x, y)) = from_rank(q) {
                let b = block(x, y, 2 * counts[q as usize] as usize);
                data[2 * displs[q as usize] as usize..][..b.len()].clone_from_slice(&b);
            }
        }
        data
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let mine = counts[r as usize];
            let here = in_place && (r == root || form == Form::Allgatherv);
            let own = || Memory::new(block(r, 0, 2 * mine as usize), 2).read_only();
            let (call, send, recv) = match form {
                Form::Gatherv => (
                    Collective::Gatherv {
                        root: Root::Rank(root),
                        send: mine,
                        recv: v,
                        in_place: here,
                    },
                    if here { nothing() } else { own() },
                    Memory::new(spread(&|q| (here && q == r).then_some((r, 0))), 2),
                ),
                Form::Scatterv => (
                    Collective::Scatterv {
                        root: Root::Rank(root),
                        send: v,
                        recv: mine,
                        in_place: here,
                    },
                    Memory::new(spread(&|q| (r == root).then_some((root, q))), 2).read_only(),
                    Memory::room(2 * mine as usize, 2),
                ),
                Form::Allgatherv => (
                    Collective::Allgatherv {
                        send: mine,
                        recv: v,
                        size: 2,
                        in_place: here,
                    },
                    if here { nothing() } else { own() },
                    Memory::new(spread(&|q| (here && q == r).then_some((r, 0))), 2),
                ),
            };
            Rank::new(make(view(r, n), &call, a), send, recv, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        let got = ranks[r as usize].recv.cells();
        match form {
            Form::Scatterv if in_place && r == root => {}
            Form::Scatterv => assert_eq!(got, block(root, r, 2 * counts[r as usize] as usize)),
            Form::Gatherv if r != root => {}
            _ => assert_eq!(got, spread(&|q| Some((q, 0)))),
        }
    }
}

#[test]
fn gather_and_scatter() {
    for n in 1..=MAX_RANKS {
        for root in [0, n / 2, n - 1] {
            let seed = u64::from(n * 64 + root);
            for in_place in [false, true] {
                for a in algorithms(Kind::Gather, n, true) {
                    gather(n, root, Some(a), in_place, seed);
                }
                for a in algorithms(Kind::Scatter, n, true) {
                    scatter(n, root, Some(a), in_place, seed);
                }
            }
        }
    }
}

#[test]
fn gatherv_and_scatterv() {
    for n in 1..=MAX_RANKS {
        let counts: Vec<i64> = (0..i64::from(n)).map(|i| i * 5 % 4).collect();
        for root in [0, n / 2, n - 1] {
            for in_place in [false, true] {
                for form in [Form::Gatherv, Form::Scatterv] {
                    varying(form, n, &counts, root, in_place, None, u64::from(n));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn gatherv_and_scatterv_at_random(
        n in 1..=MAX_RANKS,
        counts in prop::collection::vec(0i64..4, MAX_RANKS as usize),
        root in 0..MAX_RANKS,
        in_place: bool,
        a in any_algorithm(),
        seed: u64,
    ) {
        for form in [Form::Gatherv, Form::Scatterv] {
            varying(form, n, &counts[..n as usize], root % n, in_place, Some(a), seed);
        }
        gather(n, root % n, None, in_place, seed);
        scatter(n, root % n, None, in_place, seed);
    }
}
