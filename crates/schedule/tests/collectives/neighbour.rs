//! Neighbourhoods.

use crate::harness::*;
use crate::simulator::{Cell, Memory, Rank, run};
use ferry_schedule::{Piece, exchange};
use proptest::prelude::*;

/// A periodic grid of one dimension: with one or two ranks both neighbours are the same rank, and
/// yet what goes up arrives from below.
#[test]
fn a_ring() {
    for n in 1..=MAX_RANKS {
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

/// Any graph: neighbours may appear more than once, a process may be its own, and sizes differ from
/// edge to edge. The edges between two processes match in the order of their lists.
fn graph(n: u32, edges: &[(u32, u32, usize)], seed: u64) {
    let of = |edges: Vec<(usize, u32, usize)>, region: fn(i64, i64) -> Piece| {
        let mut at = 0;
        edges
            .into_iter()
            .map(|(_, peer, len)| {
                let piece = region(at, len as i64);
                at += len as i64;
                (peer, piece)
            })
            .collect::<Vec<_>>()
    };
    let into = |r: u32| -> Vec<(usize, u32, usize)> {
        let all = edges.iter().enumerate();
        all.filter(|(_, e)| e.1 == r)
            .map(|(i, e)| (i, e.0, e.2))
            .collect()
    };
    let out = |r: u32| -> Vec<(usize, u32, usize)> {
        let all = edges.iter().enumerate();
        all.filter(|(_, e)| e.0 == r)
            .map(|(i, e)| (i, e.1, e.2))
            .collect()
    };
    let contents = |list: Vec<(usize, u32, usize)>| -> Vec<Cell> {
        list.into_iter()
            .flat_map(|(i, _, len)| block(i as u32, 0, len))
            .collect()
    };
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| {
            let (receives, sends) = (of(into(r), Piece::recv), of(out(r), Piece::send));
            let room: usize = into(r).iter().map(|e| e.2).sum();
            let data = Memory::new(contents(out(r)), 1).read_only();
            Rank::new(exchange(&receives, &sends), data, Memory::room(room, 1), 1)
        })
        .collect();
    run(&mut ranks, n as usize, seed);
    for r in 0..n {
        assert_eq!(
            ranks[r as usize].recv.cells(),
            contents(into(r)),
            "rank {r} of {n}"
        );
    }
}

#[test]
fn complete_graphs_with_loops() {
    for n in 1..=MAX_RANKS {
        let edges: Vec<_> = (0..n * n)
            .map(|e| (e / n, e % n, (e % 3) as usize))
            .collect();
        graph(n, &edges, u64::from(n));
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn any_graph(n in 1..=MAX_RANKS,
        edges in prop::collection::vec((0..MAX_RANKS, 0..MAX_RANKS, 0usize..5), 0..150),
        seed: u64) {
        let edges: Vec<_> = edges.into_iter().map(|(a, b, len)| (a % n, b % n, len)).collect();
        graph(n, &edges, seed);
    }
}
