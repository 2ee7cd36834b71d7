//! Between the two groups of an intercommunicator.

use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Block, Collective, CommView, Reduction, Root, Team, Varying};
use proptest::prelude::*;

/// A group of `n`, which has the root where there is one, and a group of `m`.
struct Between {
    n: u32,
    m: u32,
    root: u32,
    count: i64,
    commutes: bool,
    seed: u64,
}

impl Between {
    /// Of process `g`: (in the first group?, rank in the own group, own size, other size).
    fn who(&self, g: usize) -> (bool, u32, u32, u32) {
        let g = g as u32;
        if g < self.n {
            (true, g, self.n, self.m)
        } else {
            (false, g - self.n, self.m, self.n)
        }
    }

    fn at(&self, g: usize) -> CommView<'static> {
        let (_, rank, size, remote) = self.who(g);
        CommView {
            team: Team { rank, size },
            remote: Some(remote),
            nodes: None,
        }
    }

    fn root_of(&self, g: usize) -> Root {
        match self.who(g) {
            (false, ..) => Root::Rank(self.root),
            (true, r, ..) if r == self.root => Root::This,
            _ => Root::Elsewhere,
        }
    }

    fn global(&self, first: bool, r: u32) -> u32 {
        if first { r } else { self.n + r }
    }

    fn go(&self, setup: &dyn Fn(usize) -> Rank) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = (0..(self.n + self.m) as usize).map(setup).collect();
        run(&mut ranks, self.n as usize, self.seed);
        ranks
    }

    /// Ends, and nobody waits for nobody.
    fn barrier(&self) {
        self.go(&|g| {
            Rank::new(
                make(self.at(g), &Collective::Barrier, None),
                nothing(),
                nothing(),
                1,
            )
        });
    }

    /// Broadcast.
    fn bcast(&self) {
        let &Between { n, root, count, .. } = self;
        let bytes = 2 * count as usize;
        let ranks = self.go(&|g| {
            let call = Collective::Bcast {
                root: self.root_of(g),
                bytes: bytes as i64,
            };
            let buffer = match self.root_of(g) {
                Root::This => Memory::new(block(root, 0, bytes), 1).read_only(),
                Root::Elsewhere => nothing(),
                Root::Rank(_) => Memory::room(bytes, 1),
            };
            Rank::new(make(self.at(g), &call, None), nothing(), buffer, 1)
        });
        assert!(
            ranks[n as usize..]
                .iter()
                .all(|r| r.recv.cells() == block(root, 0, bytes))
        );
    }

    /// Contributions are numbered across both groups.
    fn reductions(&self) {
        let &Between {
            n,
            m,
            root,
            count,
            commutes,
            ..
        } = self;
        let of = Reduction {
            count,
            element: 4,
            commutes,
        };
        let ranks = self.go(&|g| {
            let call = Collective::Reduce {
                root: self.root_of(g),
                of,
                in_place: false,
            };
            let send = if self.who(g).0 {
                nothing()
            } else {
                Memory::new(contribution(g as u32, count), 1).read_only()
            };
            let recv = if self.root_of(g) == Root::This {
                Memory::room(count as usize, 1)
            } else {
                nothing()
            };
            Rank::new(make(self.at(g), &call, None), send, recv, 1)
        });
        check_sum(
            ranks[root as usize].recv.cells(),
            0,
            n..n + m,
            !commutes,
            "reduce between groups",
        );
        let ranks = self.go(&|g| {
            let send = Memory::new(contribution(g as u32, count), 1).read_only();
            let call = Collective::Allreduce {
                of,
                in_place: false,
            };
            Rank::new(
                make(self.at(g), &call, None),
                send,
                Memory::room(count as usize, 1),
                1,
            )
        });
        for (g, r) in ranks.iter().enumerate() {
            let others = if self.who(g).0 { n..n + m } else { 0..n };
            check_sum(
                r.recv.cells(),
                0,
                others,
                !commutes,
                "allreduce between groups",
            );
        }
    }

    /// As many elements in all on both sides.
    fn reduce_scatter(&self) {
        let &Between {
            n,
            m,
            count,
            commutes,
            ..
        } = self;
        let of = Reduction {
            count,
            element: 4,
            commutes,
        };
        let all = i64::from(n) * i64::from(m) * count;
        for v in [false, true] {
            let ranks = self.go(&|g| {
                let (_, rank, size, _) = self.who(g);
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
                    make(self.at(g), &call, None),
                    send,
                    Memory::room(share as usize, 1),
                    1,
                )
            });
            for (g, r) in ranks.iter().enumerate() {
                let (first, rank, size, _) = self.who(g);
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
    }

    /// Uniform and v.
    fn gather_and_scatter(&self) {
        let &Between {
            n, m, root, count, ..
        } = self;
        let bytes = 2 * count as usize;
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
            let ranks = self.go(&|g| {
                let call = if varying {
                    Collective::Gatherv {
                        root: self.root_of(g),
                        send: count,
                        recv: v,
                        in_place: false,
                    }
                } else {
                    Collective::Gather {
                        root: self.root_of(g),
                        block: b,
                        in_place: false,
                    }
                };
                let send = if self.who(g).0 {
                    nothing()
                } else {
                    Memory::new(block(g as u32, 0, bytes), 2).read_only()
                };
                let recv = if self.root_of(g) == Root::This {
                    Memory::room(bytes * m as usize, 2)
                } else {
                    nothing()
                };
                Rank::new(make(self.at(g), &call, None), send, recv, 1)
            });
            let expected: Vec<Cell> = (0..m).flat_map(|r| block(n + r, 0, bytes)).collect();
            assert_eq!(ranks[root as usize].recv.cells(), expected);
            let ranks = self.go(&|g| {
                let call = if varying {
                    Collective::Scatterv {
                        root: self.root_of(g),
                        send: v,
                        recv: count,
                        in_place: false,
                    }
                } else {
                    Collective::Scatter {
                        root: self.root_of(g),
                        block: b,
                        in_place: false,
                    }
                };
                let out: Vec<Cell> = (0..m).flat_map(|r| block(root, r, bytes)).collect();
                let send = if self.root_of(g) == Root::This {
                    Memory::new(out, 2).read_only()
                } else {
                    nothing()
                };
                let recv = if self.who(g).0 {
                    nothing()
                } else {
                    Memory::room(bytes, 2)
                };
                Rank::new(make(self.at(g), &call, None), send, recv, 1)
            });
            for r in 0..m {
                assert_eq!(ranks[(n + r) as usize].recv.cells(), block(root, r, bytes));
            }
        }
    }

    /// All forms in which everybody gives and gets; the blocks of the second group are one element
    /// longer.
    fn alltoall(&self) {
        let count = self.count;
        let len = |first: bool| if first { count } else { count + 1 };
        for form in 0..5 {
            let ranks = self.go(&|g| {
                let (first, _, _, remote) = self.who(g);
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
                        .flat_map(|q| block(g as u32, self.global(!first, q), 2 * out as usize))
                        .collect()
                };
                let room = Memory::room(2 * inn as usize * remote as usize, 2);
                let mut r = Rank::new(
                    make(self.at(g), &call, None),
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
                let (first, _, _, remote) = self.who(g);
                let expected: Vec<Cell> = (0..remote)
                    .flat_map(|q| {
                        let to = if form < 2 { 0 } else { g as u32 };
                        block(self.global(!first, q), to, 2 * len(!first) as usize)
                    })
                    .collect();
                assert_eq!(r.recv.cells(), expected);
            }
        }
    }

    fn all(&self) {
        self.barrier();
        self.bcast();
        self.reductions();
        self.reduce_scatter();
        self.gather_and_scatter();
        self.alltoall();
    }
}

#[test]
fn groups_of_every_size() {
    for n in 1..=MAX_RANKS {
        for m in [1, 2, 5, MAX_RANKS + 1 - n] {
            for commutes in [false, true] {
                let (root, count, seed) = (n / 2, i64::from(n % 3), u64::from(n * 64 + m));
                Between {
                    n,
                    m,
                    root,
                    count,
                    commutes,
                    seed,
                }
                .all();
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn at_random(n in 1u32..=17, m in 1u32..=17, root in 0u32..17, count in 0i64..5, commutes: bool,
        seed: u64) {
        Between { n, m, root: root % n, count, commutes, seed }.all();
    }
}
