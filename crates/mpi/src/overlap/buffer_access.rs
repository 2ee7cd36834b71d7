//! Which of the program's memory a schedule reads and writes.

use crate::coll::executor::{Buffers, Memory, TmpBuffer};
use ferry_schedule::{Collective, Peer, Piece, Region, Schedule, Step};
use std::collections::HashSet;
use std::ops::Range;

/// A step's use of one of the program's buffers.
#[derive(Clone)]
pub(super) struct Access {
    /// Number of the step.
    pub step: usize,
    /// Addresses.
    pub bytes: Range<usize>,
    /// The step writes them.
    pub writes: bool,
}

/// What a schedule does with the program's buffers.
pub(super) struct BufferAccess {
    /// Uses of the send buffer, in the order of the steps.
    pub send: Vec<Access>,
    /// Uses of the receive buffer.
    pub recv: Vec<Access>,
    /// No message depends on another, and none uses the schedule's temporary buffer. They may go in
    /// any order, except those between the same two ranks.
    pub independent: bool,
}

impl BufferAccess {
    /// `None`: a piece is not one run of bytes.
    pub fn of(schedule: &Schedule, buffers: &Buffers<'_>) -> Option<BufferAccess> {
        let mut accesses = BufferAccess {
            send: Vec::new(),
            recv: Vec::new(),
            independent: true,
        };
        let (mut to, mut of) = (HashSet::new(), HashSet::new());
        for (number, step) in schedule.steps.iter().enumerate() {
            match *step {
                Step::Send { peer, from } => {
                    accesses.independent &=
                        (is_send(from) || from.count == 0) && to.insert(peer_number(peer));
                    accesses.add(number, buffers, from, false)?;
                }
                Step::Recv { peer, into } => {
                    accesses.independent &=
                        (is_recv(into) || into.count == 0) && of.insert(peer_number(peer));
                    accesses.add(number, buffers, into, true)?;
                }
                Step::Copy { from, into } => {
                    accesses.independent &= is_send(from) && is_recv(into);
                    let len = |p| buffers.locate(p, &mut TmpBuffer::new(0, None)).len();
                    let tmp = from.region == Region::Tmp || into.region == Region::Tmp;
                    if !tmp && len(from) != len(into) {
                        // The blocking form raises the error.
                        return None;
                    }
                    accesses.add(number, buffers, from, false)?;
                    accesses.add(number, buffers, into, true)?;
                }
                Step::Reduce { from, into } => {
                    accesses.independent = false;
                    accesses.add(number, buffers, from, false)?;
                    accesses.add(number, buffers, into, true)?;
                }
                Step::Await { .. } => {}
            }
        }
        if accesses.recv.iter().all(|t| !t.writes) {
            // A broadcast's root: the only buffer is the one that is sent.
            accesses.send.append(&mut accesses.recv);
        }
        Some(accesses)
    }

    fn add(
        &mut self,
        step: usize,
        buffers: &Buffers<'_>,
        piece: Piece,
        writes: bool,
    ) -> Option<()> {
        if piece.count == 0 || piece.region == Region::Tmp {
            return Some(());
        }
        let Memory::Run { address, len } = buffers.locate(piece, &mut TmpBuffer::new(0, None))
        else {
            return None;
        };
        if len > 0 {
            let start = address as usize;
            let touch = Access {
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

/// The addresses from the first to the last of all ranges.
pub(super) fn span<'a>(all: impl Iterator<Item = &'a Range<usize>>) -> Range<usize> {
    let join = |a: Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    let mut all = all;
    match all.next() {
        Some(first) => all.fold(first.clone(), join),
        None => 0..0,
    }
}

/// The ranges in order; those that touch or overlap are merged.
pub(super) fn merged(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
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
pub(super) fn peer_number(peer: Peer) -> u32 {
    match peer {
        Peer::Local(r) => r,
        Peer::Remote(r) => r | 1 << 31,
    }
}

/// About the packed bytes that a call moves in or out of this rank. `None`: the call is never
/// overlapped, as it has no data or is in place.
pub(super) fn moved_bytes(collective: &Collective<'_>, size: u32) -> Option<i64> {
    let n = i64::from(size);
    let sum = |counts: &[i64]| counts.iter().fold(0i64, |s, &c| s.saturating_add(c));
    match *collective {
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
        // The counts are not looked at here. The buffers decide later.
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
