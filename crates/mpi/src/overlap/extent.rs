//! Which memory a schedule touches.

use crate::coll::executor::{Memory, Places, Room};
use ferry_schedule::{Collective, Peer, Piece, Region, Schedule, Step};
use std::collections::HashSet;
use std::ops::Range;

/// A step's use of one of the program's buffers.
#[derive(Clone)]
pub(super) struct Touch {
    /// Number of the step.
    pub step: usize,
    /// Addresses.
    pub bytes: Range<usize>,
    /// The step writes them.
    pub writes: bool,
}

/// What a schedule does with the program's buffers.
pub(super) struct Extent {
    /// Uses of the send buffer, in the order of the steps.
    pub send: Vec<Touch>,
    /// Uses of the receive buffer.
    pub recv: Vec<Touch>,
    /// All messages are between the buffers themselves and independent of each other: they may go
    /// in any order, but for those between the same two ranks.
    pub apart: bool,
}

impl Extent {
    /// `None`: some piece does not lie in one run of bytes.
    pub fn of(schedule: &Schedule, places: &Places<'_>) -> Option<Extent> {
        let mut extent = Extent {
            send: Vec::new(),
            recv: Vec::new(),
            apart: true,
        };
        let (mut to, mut of) = (HashSet::new(), HashSet::new());
        for (step, what) in schedule.steps.iter().enumerate() {
            match *what {
                Step::Send { peer, from } => {
                    extent.apart &= (is_send(from) || from.count == 0) && to.insert(number(peer));
                    extent.add(step, places, from, false)?;
                }
                Step::Recv { peer, into } => {
                    extent.apart &= (is_recv(into) || into.count == 0) && of.insert(number(peer));
                    extent.add(step, places, into, true)?;
                }
                Step::Copy { from, into } => {
                    extent.apart &= is_send(from) && is_recv(into);
                    let len = |p| places.find(p, &mut Room::new(0, None)).len();
                    let tmp = from.region == Region::Tmp || into.region == Region::Tmp;
                    if !tmp && len(from) != len(into) {
                        // The blocking form says what is wrong.
                        return None;
                    }
                    extent.add(step, places, from, false)?;
                    extent.add(step, places, into, true)?;
                }
                Step::Reduce { from, into } => {
                    extent.apart = false;
                    extent.add(step, places, from, false)?;
                    extent.add(step, places, into, true)?;
                }
                Step::Await { .. } => {}
            }
        }
        if extent.recv.iter().all(|t| !t.writes) {
            // A broadcast's root: the only buffer is the one that is sent.
            extent.send.append(&mut extent.recv);
        }
        Some(extent)
    }

    fn add(&mut self, step: usize, places: &Places<'_>, piece: Piece, writes: bool) -> Option<()> {
        if piece.count == 0 || piece.region == Region::Tmp {
            return Some(());
        }
        let Memory::Run { address, len } = places.find(piece, &mut Room::new(0, None)) else {
            return None;
        };
        if len > 0 {
            let start = address as usize;
            let touch = Touch {
                step,
                bytes: start..start.checked_add(len)?,
                writes,
            };
            if is_send(piece) {
                self.send.push(touch);
            } else {
                self.recv.push(touch);
            }
        }
        Some(())
    }
}

fn is_send(p: Piece) -> bool {
    matches!(p.region, Region::Send | Region::SendBlock)
}

fn is_recv(p: Piece) -> bool {
    matches!(p.region, Region::Recv | Region::RecvBlock | Region::Packed)
}

/// All addresses from the first to the last; none of none.
pub(super) fn span<'a>(all: impl Iterator<Item = &'a Range<usize>>) -> Range<usize> {
    let join = |a: Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    let mut all = all;
    match all.next() {
        Some(first) => all.fold(first.clone(), join),
        None => 0..0,
    }
}

/// The ranges in order, those that meet or overlap joined.
pub(super) fn joined(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
    all.sort_by_key(|r| r.start);
    let mut out: Vec<Range<usize>> = Vec::new();
    for r in all {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    out
}

/// The other side of a message, as one number.
pub(super) fn number(peer: Peer) -> u32 {
    match peer {
        Peer::Local(r) => r,
        Peer::Remote(r) => r | 1 << 31,
    }
}

/// The packed bytes that a call moves in or out of this rank, about; `None`: never overlapped (no
/// data, or in place).
pub(super) fn volume(what: &Collective<'_>, size: u32) -> Option<i64> {
    let n = i64::from(size);
    let sum = |counts: &[i64]| counts.iter().fold(0i64, |s, &c| s.saturating_add(c));
    match *what {
        Collective::Bcast { bytes, .. } => Some(bytes),
        Collective::Reduce { of, in_place, .. } | Collective::Allreduce { of, in_place } => {
            (!in_place).then(|| of.count.saturating_mul(of.element))
        }
        Collective::ReduceScatterBlock { of, in_place } => {
            (!in_place).then(|| of.count.saturating_mul(of.element).saturating_mul(n))
        }
        Collective::ReduceScatter { of, in_place, .. } => {
            (!in_place).then(|| of.count.saturating_mul(of.element))
        }
        Collective::Gather {
            block, in_place, ..
        }
        | Collective::Scatter {
            block, in_place, ..
        } => (!in_place).then_some(block.bytes),
        Collective::Allgather { block, in_place } | Collective::Alltoall { block, in_place } => {
            (!in_place).then(|| block.bytes.saturating_mul(n))
        }
        // Elements of one byte at least; the buffers themselves decide.
        Collective::Gatherv { in_place, .. } | Collective::Scatterv { in_place, .. } => {
            (!in_place).then_some(i64::MAX)
        }
        Collective::Allgatherv {
            recv,
            size,
            in_place,
            ..
        }
        | Collective::Alltoallv {
            recv,
            size,
            in_place,
            ..
        } => (!in_place).then(|| sum(recv.counts).saturating_mul(size)),
        Collective::Alltoallw { recv, in_place, .. } => (!in_place).then(|| sum(recv)),
        Collective::Barrier | Collective::Scan { .. } | Collective::Exscan { .. } => None,
    }
}
