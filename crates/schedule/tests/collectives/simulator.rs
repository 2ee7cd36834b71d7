//! Runs all ranks' schedules in one process, in a random order, checking every step.
//!
//! Memory is made of cells that remember what they hold, so that a result can be compared with the
//! definition of the collective, whatever way it took. Sends wait for their receives (the strictest
//! of the standard's choices), a cell that a receive is to fill holds nothing until it is filled,
//! and a step that touches a cell under way is caught.

use ferry_schedule::{Peer, Piece, Region, Schedule, Step};
use std::collections::{HashMap, VecDeque};

/// What a cell holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Nothing that may be read.
    Nothing,
    /// A packed byte, named.
    Byte(u64),
    /// Element number `.0` of the contributions of the ranks `.1`, in that order.
    Sum(i64, Vec<u32>),
}

/// A user buffer or the executor's room.
pub struct Memory {
    cells: Vec<Cell>,
    reading: Vec<u32>,
    writing: Vec<bool>,
    /// Cells of one unit.
    unit: usize,
    read_only: bool,
}

impl Memory {
    pub fn new(cells: Vec<Cell>, unit: usize) -> Memory {
        let n = cells.len();
        Memory {
            cells,
            reading: vec![0; n],
            writing: vec![false; n],
            unit,
            read_only: false,
        }
    }
    pub fn room(cells: usize, unit: usize) -> Memory {
        Memory::new(vec![Cell::Nothing; cells], unit)
    }
    pub fn read_only(mut self) -> Memory {
        self.read_only = true;
        self
    }
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }
}

/// One rank: its program and its memory.
pub struct Rank {
    pub schedule: Schedule,
    pub send: Memory,
    pub recv: Memory,
    pub tmp: Memory,
    /// Ranges of cells of the blocks of w-forms.
    pub send_blocks: Vec<(usize, usize)>,
    pub recv_blocks: Vec<(usize, usize)>,
    at: usize,
    /// Per communication step under way: done?
    under_way: Vec<(usize, bool)>,
}

impl Rank {
    pub fn new(schedule: Schedule, send: Memory, recv: Memory, tmp_unit: usize) -> Rank {
        let tmp = Memory::room(schedule.tmp as usize * tmp_unit, tmp_unit);
        Rank {
            schedule,
            send,
            recv,
            tmp,
            send_blocks: vec![],
            recv_blocks: vec![],
            at: 0,
            under_way: vec![],
        }
    }

    fn locate(&mut self, p: Piece) -> (&mut Memory, std::ops::Range<usize>) {
        let scaled = |m: &Memory| {
            let from = usize::try_from(p.at).expect("pieces begin in their region") * m.unit;
            from..from + p.count as usize * m.unit
        };
        let (memory, range) = match p.region {
            Region::Send => {
                let r = scaled(&self.send);
                (&mut self.send, r)
            }
            Region::Recv => {
                let r = scaled(&self.recv);
                (&mut self.recv, r)
            }
            Region::Tmp => {
                let r = scaled(&self.tmp);
                (&mut self.tmp, r)
            }
            Region::Packed => (&mut self.recv, p.at as usize..(p.at + p.count) as usize),
            Region::SendBlock => {
                let (a, n) = self.send_blocks[p.at as usize];
                assert_eq!(n, p.count as usize);
                (&mut self.send, a..a + n)
            }
            Region::RecvBlock => {
                let (a, n) = self.recv_blocks[p.at as usize];
                assert_eq!(n, p.count as usize);
                (&mut self.recv, a..a + n)
            }
        };
        assert!(
            range.end <= memory.cells.len(),
            "{p:?} lies outside its region of {} cells",
            memory.cells.len()
        );
        (memory, range)
    }

    fn read(&mut self, p: Piece) -> Vec<Cell> {
        let (m, range) = self.locate(p);
        for i in range.clone() {
            assert!(!m.writing[i], "{p:?}: read while a receive is under way");
            assert_ne!(
                m.cells[i],
                Cell::Nothing,
                "{p:?}: read before it was written"
            );
        }
        m.cells[range].to_vec()
    }

    fn write(&mut self, p: Piece, data: Vec<Cell>) {
        let (m, range) = self.locate(p);
        assert_eq!(range.len(), data.len(), "{p:?}: sizes differ");
        assert!(
            !m.read_only || data.is_empty(),
            "{p:?}: the user's input is written to"
        );
        for (i, d) in range.zip(data) {
            assert!(
                !m.writing[i] && m.reading[i] == 0,
                "{p:?}: written while a message is under way"
            );
            m.cells[i] = d;
        }
    }
}

#[derive(Default)]
struct Channel {
    sends: VecDeque<(usize, Piece)>,
    recvs: VecDeque<(usize, Piece)>,
}

/// Runs all ranks to the end, and once more with the same inputs over the room that the first run
/// left behind, as a persistent collective does; `group` ranks belong to the first group. Panics on
/// any fault, deadlock included.
pub fn run(ranks: &mut [Rank], group: usize, seed: u64) {
    let inputs: Vec<_> = ranks
        .iter()
        .map(|r| (r.send.cells.clone(), r.recv.cells.clone()))
        .collect();
    once(ranks, group, seed);
    let mut first = Vec::with_capacity(ranks.len());
    for (r, (send, recv)) in ranks.iter_mut().zip(inputs) {
        r.send.cells = send;
        first.push(std::mem::replace(&mut r.recv.cells, recv));
        r.at = 0;
        r.under_way.clear();
    }
    once(ranks, group, !seed);
    for (r, first) in ranks.iter().zip(first) {
        assert_eq!(
            r.recv.cells, first,
            "a second run of the schedule gives something else"
        );
    }
}

fn once(ranks: &mut [Rank], group: usize, seed: u64) {
    let mut channels: HashMap<(usize, usize), Channel> = HashMap::new();
    let mut random = seed | 1;
    let mut running: Vec<usize> = (0..ranks.len()).collect();
    while !running.is_empty() {
        let mut moved = false;
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let start = (random >> 33) as usize % running.len();
        running.rotate_left(start);
        let burst = 1 + (random >> 60) as usize;
        for &r in &running.clone() {
            for _ in 0..burst {
                if !step(ranks, r, group, &mut channels) {
                    break;
                }
                moved = true;
            }
        }
        let before = running.len();
        running.retain(|&r| {
            ranks[r].at < ranks[r].schedule.steps.len() || ranks[r].under_way.iter().any(|c| !c.1)
        });
        assert!(
            moved || running.len() < before,
            "deadlock: ranks {running:?} wait"
        );
    }
    for (pair, c) in channels {
        assert!(
            c.sends.is_empty() && c.recvs.is_empty(),
            "unmatched messages between {pair:?}"
        );
    }
}

fn step(
    ranks: &mut [Rank],
    me: usize,
    group: usize,
    channels: &mut HashMap<(usize, usize), Channel>,
) -> bool {
    let at = ranks[me].at;
    let Some(&step) = ranks[me].schedule.steps.get(at) else {
        return false;
    };
    let peer_of = |p: Peer| match p {
        Peer::Local(r) => r as usize + if me < group { 0 } else { group },
        Peer::Remote(r) => r as usize + if me < group { group } else { 0 },
    };
    match step {
        Step::Send { peer, from } => {
            let to = peer_of(peer);
            ranks[me].read(from);
            let (m, range) = ranks[me].locate(from);
            range.for_each(|i| m.reading[i] += 1);
            ranks[me].under_way.push((at, false));
            channels
                .entry((me, to))
                .or_default()
                .sends
                .push_back((at, from));
            deliver(ranks, me, to, channels);
        }
        Step::Recv { peer, into } => {
            let from = peer_of(peer);
            let (_, range) = ranks[me].locate(into);
            let empty = vec![Cell::Nothing; range.len()];
            ranks[me].write(into, empty);
            let (m, range) = ranks[me].locate(into);
            range.for_each(|i| m.writing[i] = true);
            ranks[me].under_way.push((at, false));
            channels
                .entry((from, me))
                .or_default()
                .recvs
                .push_back((at, into));
            deliver(ranks, from, me, channels);
        }
        Step::Await { before } => {
            assert!(before as usize <= at, "awaits the future");
            if ranks[me]
                .under_way
                .iter()
                .any(|&(s, done)| s < before as usize && !done)
            {
                return false;
            }
        }
        Step::Reduce { from, into } => {
            let (left, right) = (ranks[me].read(from), ranks[me].read(into));
            assert_eq!(left.len(), right.len());
            let sum = left.into_iter().zip(right).map(|(l, r)| match (l, r) {
                (Cell::Sum(e, mut a), Cell::Sum(f, b)) => {
                    assert_eq!(e, f, "different elements reduced with one another");
                    a.extend(b);
                    Cell::Sum(e, a)
                }
                other => panic!("reduced: {other:?}"),
            });
            let sum = sum.collect();
            ranks[me].write(into, sum);
        }
        Step::Copy { from, into } => {
            let data = ranks[me].read(from);
            ranks[me].write(into, data);
        }
    }
    ranks[me].at += 1;
    true
}

fn deliver(
    ranks: &mut [Rank],
    from: usize,
    to: usize,
    channels: &mut HashMap<(usize, usize), Channel>,
) {
    let c = channels.get_mut(&(from, to)).unwrap();
    while let (Some(&(s, out)), Some(&(r, inn))) = (c.sends.front(), c.recvs.front()) {
        c.sends.pop_front();
        c.recvs.pop_front();
        let (m, range) = ranks[from].locate(out);
        range.clone().for_each(|i| m.reading[i] -= 1);
        let data = m.cells[range].to_vec();
        let (m, range) = ranks[to].locate(inn);
        assert_eq!(
            range.len(),
            data.len(),
            "rank {from} sends {out:?}, rank {to} receives {inn:?}"
        );
        range.for_each(|i| m.writing[i] = false);
        ranks[to].write(inn, data);
        ranks[from]
            .under_way
            .iter_mut()
            .find(|u| u.0 == s)
            .unwrap()
            .1 = true;
        ranks[to].under_way.iter_mut().find(|u| u.0 == r).unwrap().1 = true;
    }
}
