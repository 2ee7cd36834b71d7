//! Every algorithm, on 1 to 33 ranks, against the definitions of MPI 5.0 chapter 6.

mod simulator;

use ferry_schedule::{
    Algorithm, Block, Collective, Cost, Kind, Piece, Place, Problem, Reduction, Root, Schedule,
    Team, Varying, exchange, plan,
};
use proptest::prelude::*;
use simulator::{Cell, Memory, Rank, run};

const MOST: u32 = 33;

fn place(rank: u32, size: u32) -> Place {
    Place {
        team: Team { rank, size },
        remote: None,
    }
}

fn small_segments() -> Cost {
    Cost {
        segment: 3,
        window: 3,
        ..Cost::default()
    }
}

fn make(p: Place, c: &Collective, a: Option<Algorithm>) -> Schedule {
    plan(p, c, &small_segments(), a)
}

/// The byte that rank `from` has for rank `to` at packed offset `i`.
fn byte(from: u32, to: u32, i: usize) -> Cell {
    Cell::Byte((u64::from(from) << 40) | (u64::from(to) << 20) | i as u64)
}
fn block(from: u32, to: u32, len: usize) -> Vec<Cell> {
    (0..len).map(|i| byte(from, to, i)).collect()
}
fn contribution(rank: u32, count: i64) -> Vec<Cell> {
    (0..count).map(|e| Cell::Sum(e, vec![rank])).collect()
}
fn nothing() -> Memory {
    Memory::room(0, 1)
}
fn check_sum(cells: &[Cell], first: i64, ranks: std::ops::Range<u32>, ordered: bool, what: &str) {
    for (i, c) in cells.iter().enumerate() {
        let Cell::Sum(e, who) = c else {
            panic!("{what}: element {i} is {c:?}")
        };
        let mut who = who.clone();
        if !ordered {
            who.sort_unstable();
        }
        assert_eq!(
            (*e, &who),
            (first + i as i64, &ranks.clone().collect()),
            "{what}"
        );
    }
}
/// Every algorithm for the kind that can serve the problem.
fn algorithms(kind: Kind, ranks: u32, commutes: bool) -> impl Iterator<Item = Algorithm> {
    kind.algorithms().iter().copied().filter(move |&a| {
        Problem {
            kind,
            ranks,
            bytes: 1,
            commutes,
        }
        .allows(a)
    })
}

#[test]
fn barrier_lets_nobody_go_before_all_have_come() {
    for n in 1..=MOST {
        for a in algorithms(Kind::Barrier, n, true) {
            let mut ranks: Vec<Rank> = (0..n)
                .map(|r| {
                    Rank::new(
                        make(place(r, n), &Collective::Barrier, Some(a)),
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
}

fn bcast(n: u32, root: u32, a: Option<Algorithm>, bytes: usize, seed: u64) {
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
            Rank::new(make(place(r, n), &call, a), nothing(), buffer, 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in &ranks {
        assert_eq!(r.recv.cells(), block(root, 0, bytes), "bcast {a:?}");
    }
}

#[allow(clippy::too_many_arguments)]
fn reductions(
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
            Rank::new(make(place(r, n), &call, a), send, recv, 1)
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

fn gather(n: u32, root: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
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
            Rank::new(
                make(place(r, n), &call(r), a),
                own,
                Memory::new(whole, 6),
                1,
            )
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let expected: Vec<Cell> = (0..n).flat_map(|r| block(r, root, 12)).collect();
    assert_eq!(ranks[root as usize].recv.cells(), expected);
}

fn scatter(n: u32, root: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
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
                make(place(r, n), &call, a),
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

fn allgather(n: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
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
            Rank::new(make(place(r, n), &call, a), own, Memory::new(whole, 6), 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    let expected: Vec<Cell> = (0..n).flat_map(|r| block(r, 0, 12)).collect();
    for r in &ranks {
        assert_eq!(r.recv.cells(), expected, "{a:?}");
    }
}

fn alltoall(n: u32, a: Option<Algorithm>, in_place: bool, seed: u64) {
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
            Rank::new(make(place(r, n), &call, a), send, recv, 1)
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

fn reduce_scatter(
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
            Rank::new(make(place(r, n), &call, a), send, recv, 1)
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

fn scans(
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
            Rank::new(make(place(r, n), &call, a), send, recv, 1)
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

/// v- and w-forms from one matrix of block sizes; elements of 2 bytes, gaps of one element between blocks.
fn varying(n: u32, sizes: &[Vec<i64>], w: bool, in_place: bool, a: Option<Algorithm>, seed: u64) {
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
            let mut rank = Rank::new(make(place(r, n), &call, a), send, recv, 1);
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

/// gatherv, scatterv and allgatherv with the same counts.
fn varying_rooted(
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
    for which in 0..3 {
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
                let here = in_place && (r == root || which == 2);
                let own = || Memory::new(block(r, 0, 2 * mine as usize), 2).read_only();
                let (call, send, recv) = match which {
                    0 => (
                        Collective::Gatherv {
                            root: Root::Rank(root),
                            send: mine,
                            recv: v,
                            in_place: here,
                        },
                        if here { nothing() } else { own() },
                        Memory::new(spread(&|q| (here && q == r).then_some((r, 0))), 2),
                    ),
                    1 => (
                        Collective::Scatterv {
                            root: Root::Rank(root),
                            send: v,
                            recv: mine,
                            in_place: here,
                        },
                        Memory::new(spread(&|q| (r == root).then_some((root, q))), 2).read_only(),
                        Memory::room(2 * mine as usize, 2),
                    ),
                    _ => (
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
                Rank::new(make(place(r, n), &call, a), send, recv, 1)
            })
            .collect();
        run(&mut ranks, n as usize, seed);
        for r in 0..n {
            let got = ranks[r as usize].recv.cells();
            match which {
                1 if in_place && r == root => {}
                1 => assert_eq!(got, block(root, r, 2 * counts[r as usize] as usize)),
                0 if r != root => {}
                _ => assert_eq!(got, spread(&|q| Some((q, 0)))),
            }
        }
    }
}

#[test]
fn rooted_forms() {
    for n in 1..=MOST {
        for root in [0, n / 2, n - 1] {
            let seed = u64::from(n * 64 + root);
            for a in algorithms(Kind::Bcast, n, true) {
                for bytes in [0, 1, 7, 40] {
                    bcast(n, root, Some(a), bytes, seed);
                }
            }
            for in_place in [false, true] {
                for a in algorithms(Kind::Gather, n, true) {
                    gather(n, root, Some(a), in_place, seed);
                    scatter(n, root, Some(a), in_place, seed);
                }
                for commutes in [true, false] {
                    for a in algorithms(Kind::Reduce, n, commutes) {
                        for count in [0, 1, 5, 37] {
                            reductions(
                                n,
                                root,
                                Some(a),
                                Kind::Reduce,
                                count,
                                commutes,
                                in_place,
                                seed,
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn forms_for_all() {
    for n in 1..=MOST {
        let seed = u64::from(n);
        for in_place in [false, true] {
            for a in algorithms(Kind::Allgather, n, true) {
                allgather(n, Some(a), in_place, seed);
            }
            for a in algorithms(Kind::Alltoall, n, true) {
                alltoall(n, Some(a), in_place, seed);
            }
            for commutes in [true, false] {
                for count in [0, 1, 5, 37] {
                    for a in algorithms(Kind::Allreduce, n, commutes) {
                        reductions(
                            n,
                            0,
                            Some(a),
                            Kind::Allreduce,
                            count,
                            commutes,
                            in_place,
                            seed,
                        );
                    }
                    for a in algorithms(Kind::Scan, n, commutes) {
                        scans(n, Some(a), count, commutes, in_place, true, seed);
                        scans(n, Some(a), count, commutes, in_place, false, seed);
                    }
                }
                for a in algorithms(Kind::ReduceScatter, n, commutes) {
                    for seed in 0..2 {
                        reduce_scatter(n, Some(a), &vec![2; n as usize], commutes, in_place, seed);
                    }
                    let counts: Vec<i64> = (0..i64::from(n)).map(|i| i * 7 % 4).collect();
                    reduce_scatter(n, Some(a), &counts, commutes, in_place, 3);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn varying_forms(
        n in 1u32..=17,
        sizes in prop::collection::vec(prop::collection::vec(0i64..4, 17), 17),
        root in 0u32..17,
        w: bool,
        in_place: bool,
        a in 0usize..Algorithm::ALL.len(),
        seed: u64,
    ) {
        let a = Some(Algorithm::ALL[a]);
        varying(n, &sizes, w, in_place, a, seed);
        varying_rooted(n, &sizes[0][..n as usize], root % n, in_place, a, seed);
        reduce_scatter(n, a, &sizes[1][..n as usize], seed & 2 == 0, in_place, seed);
    }

    #[test]
    fn the_models_own_choice(n in 1u32..=MOST, root in 0u32..MOST, size in 0usize..200, commutes: bool, in_place: bool, seed: u64) {
        let root = root % n;
        bcast(n, root, None, size, seed);
        reductions(n, root, None, Kind::Reduce, size as i64, commutes, in_place, seed);
        reductions(n, root, None, Kind::Allreduce, size as i64, commutes, in_place, seed);
        gather(n, root, None, in_place, seed);
        scatter(n, root, None, in_place, seed);
        allgather(n, None, in_place, seed);
        alltoall(n, None, in_place, seed);
        scans(n, None, size as i64, commutes, in_place, seed & 4 == 0, seed);
    }

    #[test]
    fn between_two_groups(n in 1u32..=9, m in 1u32..=9, root in 0u32..9, count in 0i64..5, commutes: bool, seed: u64) {
        intercomm(n, m, root % n, count, commutes, seed);
    }
}

/// All collectives between a group of `n` (which has the root, where there is one) and one of `m`.
fn intercomm(n: u32, m: u32, root: u32, count: i64, commutes: bool, seed: u64) {
    let total = (n + m) as usize;
    // (in the first group?, rank in the own group, own size, other size)
    let who = |g: usize| {
        let g = g as u32;
        if g < n {
            (true, g, n, m)
        } else {
            (false, g - n, m, n)
        }
    };
    let at = |g: usize| {
        let (_, rank, size, remote) = who(g);
        Place {
            team: Team { rank, size },
            remote: Some(remote),
        }
    };
    let root_of = |g: usize| match who(g) {
        (false, ..) => Root::Rank(root),
        (true, r, ..) if r == root => Root::This,
        _ => Root::Elsewhere,
    };
    let global = |first: bool, r: u32| if first { r } else { n + r };
    let go = |setup: &dyn Fn(usize) -> Rank| {
        let mut ranks: Vec<Rank> = (0..total).map(setup).collect();
        run(&mut ranks, n as usize, seed);
        ranks
    };
    let bytes = 2 * count as usize;
    go(&|g| {
        Rank::new(
            make(at(g), &Collective::Barrier, None),
            nothing(),
            nothing(),
            1,
        )
    });
    // Broadcast.
    let ranks = go(&|g| {
        let call = Collective::Bcast {
            root: root_of(g),
            bytes: bytes as i64,
        };
        let buffer = match root_of(g) {
            Root::This => Memory::new(block(root, 0, bytes), 1).read_only(),
            Root::Elsewhere => nothing(),
            Root::Rank(_) => Memory::room(bytes, 1),
        };
        Rank::new(make(at(g), &call, None), nothing(), buffer, 1)
    });
    assert!(
        ranks[n as usize..]
            .iter()
            .all(|r| r.recv.cells() == block(root, 0, bytes))
    );
    // Reductions: contributions are numbered across both groups.
    let of = Reduction {
        count,
        element: 4,
        commutes,
    };
    let ranks = go(&|g| {
        let call = Collective::Reduce {
            root: root_of(g),
            of,
            in_place: false,
        };
        let send = if who(g).0 {
            nothing()
        } else {
            Memory::new(contribution(g as u32, count), 1).read_only()
        };
        let recv = if root_of(g) == Root::This {
            Memory::room(count as usize, 1)
        } else {
            nothing()
        };
        Rank::new(make(at(g), &call, None), send, recv, 1)
    });
    check_sum(
        ranks[root as usize].recv.cells(),
        0,
        n..n + m,
        !commutes,
        "reduce between groups",
    );
    let ranks = go(&|g| {
        let send = Memory::new(contribution(g as u32, count), 1).read_only();
        let call = Collective::Allreduce {
            of,
            in_place: false,
        };
        Rank::new(
            make(at(g), &call, None),
            send,
            Memory::room(count as usize, 1),
            1,
        )
    });
    for (g, r) in ranks.iter().enumerate() {
        let others = if who(g).0 { n..n + m } else { 0..n };
        check_sum(
            r.recv.cells(),
            0,
            others,
            !commutes,
            "allreduce between groups",
        );
    }
    // Reduce-scatter: as many elements in all on both sides.
    let all = i64::from(n) * i64::from(m) * count;
    for v in [false, true] {
        let ranks = go(&|g| {
            let (_, rank, size, _) = who(g);
            let share = all / i64::from(size);
            let counts = vec![share; size as usize];
            let of = Reduction { count: all, ..of };
            let call = if v {
                Collective::ReduceScatter {
                    counts: &counts,
                    of,
                    in_place: false,
                }
            } else {
                Collective::ReduceScatterBlock {
                    of: Reduction { count: share, ..of },
                    in_place: false,
                }
            };
            let _ = rank;
            let send = Memory::new(contribution(g as u32, all), 1).read_only();
            Rank::new(
                make(at(g), &call, None),
                send,
                Memory::room(share as usize, 1),
                1,
            )
        });
        for (g, r) in ranks.iter().enumerate() {
            let (first, rank, size, _) = who(g);
            let others = if first { n..n + m } else { 0..n };
            let begin = all / i64::from(size) * i64::from(rank);
            check_sum(
                r.recv.cells(),
                begin,
                others,
                !commutes,
                "reduce_scatter between groups",
            );
        }
    }
    // Gather and scatter, uniform and v.
    let b = Block {
        send: count,
        recv: count,
        bytes: bytes as i64,
    };
    let (counts, displs) = (
        vec![count; m as usize],
        (0..i64::from(m)).map(|r| r * count).collect::<Vec<_>>(),
    );
    let v = Varying {
        counts: &counts,
        displs: &displs,
    };
    for varying in [false, true] {
        let ranks = go(&|g| {
            let call = if varying {
                Collective::Gatherv {
                    root: root_of(g),
                    send: count,
                    recv: v,
                    in_place: false,
                }
            } else {
                Collective::Gather {
                    root: root_of(g),
                    block: b,
                    in_place: false,
                }
            };
            let send = if who(g).0 {
                nothing()
            } else {
                Memory::new(block(g as u32, 0, bytes), 2).read_only()
            };
            let recv = if root_of(g) == Root::This {
                Memory::room(bytes * m as usize, 2)
            } else {
                nothing()
            };
            Rank::new(make(at(g), &call, None), send, recv, 1)
        });
        let expected: Vec<Cell> = (0..m).flat_map(|r| block(n + r, 0, bytes)).collect();
        assert_eq!(ranks[root as usize].recv.cells(), expected);
        let ranks = go(&|g| {
            let call = if varying {
                Collective::Scatterv {
                    root: root_of(g),
                    send: v,
                    recv: count,
                    in_place: false,
                }
            } else {
                Collective::Scatter {
                    root: root_of(g),
                    block: b,
                    in_place: false,
                }
            };
            let out: Vec<Cell> = (0..m).flat_map(|r| block(root, r, bytes)).collect();
            let send = if root_of(g) == Root::This {
                Memory::new(out, 2).read_only()
            } else {
                nothing()
            };
            let recv = if who(g).0 {
                nothing()
            } else {
                Memory::room(bytes, 2)
            };
            Rank::new(make(at(g), &call, None), send, recv, 1)
        });
        for r in 0..m {
            assert_eq!(ranks[(n + r) as usize].recv.cells(), block(root, r, bytes));
        }
    }
    // All to all forms; the second group's blocks are one element longer.
    let len = |first: bool| if first { count } else { count + 1 };
    for form in 0..5 {
        let ranks = go(&|g| {
            let (first, _, _, remote) = who(g);
            let (out, inn) = (len(first), len(!first));
            let list = |c: i64| vec![c; remote as usize];
            let starts = |c: i64| (0..i64::from(remote)).map(|r| r * c).collect::<Vec<_>>();
            let (oc, od, ic, id) = (list(out), starts(out), list(inn), starts(inn));
            let (ob, ib) = (list(2 * out), list(2 * inn));
            let b = Block {
                send: out,
                recv: inn,
                bytes: 2 * inn,
            };
            let (sv, rv) = (
                Varying {
                    counts: &oc,
                    displs: &od,
                },
                Varying {
                    counts: &ic,
                    displs: &id,
                },
            );
            let call = match form {
                0 => Collective::Allgather {
                    block: b,
                    in_place: false,
                },
                1 => Collective::Allgatherv {
                    send: out,
                    recv: rv,
                    size: 2,
                    in_place: false,
                },
                2 => Collective::Alltoall {
                    block: b,
                    in_place: false,
                },
                3 => Collective::Alltoallv {
                    send: sv,
                    recv: rv,
                    size: 2,
                    in_place: false,
                },
                _ => Collective::Alltoallw {
                    send: &ob,
                    recv: &ib,
                    in_place: false,
                },
            };
            let data = if form < 2 {
                block(g as u32, 0, 2 * out as usize)
            } else {
                (0..remote)
                    .flat_map(|q| block(g as u32, global(!first, q), 2 * out as usize))
                    .collect()
            };
            let room = Memory::room(2 * inn as usize * remote as usize, 2);
            let mut r = Rank::new(
                make(at(g), &call, None),
                Memory::new(data, 2).read_only(),
                room,
                1,
            );
            let blocks = |c: i64| {
                (0..remote as usize)
                    .map(|q| (q * 2 * c as usize, 2 * c as usize))
                    .collect()
            };
            (r.send_blocks, r.recv_blocks) = (blocks(out), blocks(inn));
            r
        });
        for (g, r) in ranks.iter().enumerate() {
            let (first, _, _, remote) = who(g);
            let expected: Vec<Cell> = (0..remote)
                .flat_map(|q| {
                    let to = if form < 2 { 0 } else { g as u32 };
                    block(global(!first, q), to, 2 * len(!first) as usize)
                })
                .collect();
            assert_eq!(r.recv.cells(), expected);
        }
    }
}

/// A periodic grid of one dimension: with one or two ranks both neighbours are the same rank, and yet what goes up arrives from below.
#[test]
fn neighbours() {
    for n in 1..=5u32 {
        let mut ranks: Vec<Rank> = (0..n)
            .map(|r| {
                let (down, up) = ((r + n - 1) % n, (r + 1) % n);
                let slot = |region: fn(i64, i64) -> Piece, i: i64| region(4 * i, 4);
                let receives = [(up, slot(Piece::recv, 1)), (down, slot(Piece::recv, 0))];
                let sends = [(down, slot(Piece::send, 0)), (up, slot(Piece::send, 1))];
                let data = [block(r, 0, 4), block(r, 1, 4)].concat();
                let s = exchange(&receives, &sends);
                Rank::new(s, Memory::new(data, 1).read_only(), Memory::room(8, 1), 1)
            })
            .collect();
        run(&mut ranks, n as usize, 5);
        for r in 0..n {
            let expected = [block((r + n - 1) % n, 1, 4), block((r + 1) % n, 0, 4)].concat();
            assert_eq!(ranks[r as usize].recv.cells(), expected, "{n} ranks");
        }
    }
}

#[test]
fn names_are_distinct_and_found() {
    for a in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(a.name()), Some(a));
    }
}

#[test]
fn crowded_nodes_get_few_messages_and_big_data_few_bytes() {
    let crowded = Cost::shared_memory(32, 2);
    let p = |kind, ranks, bytes| Problem {
        kind,
        ranks,
        bytes,
        commutes: true,
    };
    assert_eq!(
        p(Kind::Barrier, 32, 0).choose(&crowded, None),
        Algorithm::Binomial
    );
    assert_eq!(
        p(Kind::Allreduce, 32, 8).choose(&crowded, None),
        Algorithm::ReduceBcast
    );
    let roomy = Cost::shared_memory(8, 8);
    assert_eq!(
        p(Kind::Barrier, 8, 0).choose(&roomy, None),
        Algorithm::Dissemination
    );
    assert_eq!(
        p(Kind::Allreduce, 8, 8).choose(&roomy, None),
        Algorithm::Doubling
    );
    assert!(matches!(
        p(Kind::Allreduce, 8, 8 << 20).choose(&roomy, None),
        Algorithm::Halving | Algorithm::Ring
    ));
    assert_ne!(
        p(Kind::Bcast, 8, 64 << 20).choose(&roomy, None),
        Algorithm::Binomial
    );
    assert_eq!(
        p(Kind::Bcast, 8, 8).choose(&roomy, Some(Algorithm::Flat)),
        Algorithm::Flat
    );
    // One that cannot serve the call is not forced upon it.
    let ordered = Problem {
        commutes: false,
        ..p(Kind::Allreduce, 8, 8 << 20)
    };
    assert_ne!(
        ordered.choose(&roomy, Some(Algorithm::Ring)),
        Algorithm::Ring
    );
}
