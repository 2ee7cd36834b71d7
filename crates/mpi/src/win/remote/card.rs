//! Put and get by this process's card, on a modelled machine whose cards reach the memory of other
//! nodes ([`Device::remote_memory`]). The target's processor has no part in it.
//!
//! An operation goes by the card if all of this holds:
//! - The card needs less time for it than for a message of that length (its [`Offer`]).
//! - The elements at the target are one run; or blocks at equal distances, and the card moves them
//!   by one command.
//! - The program's buffer lies in ordinary memory, or the operation fits a packet. A message takes
//!   longer ones from card to card.
//! - The target has given its lock, if there is one. An operation that fits a packet goes there
//!   together with the lock. A longer one waits until the lock is given.
//!
//! Packets do not overtake what the card has put before them, so an acknowledgement answers for
//! both. Where only the card has put something and can tell that it has arrived, no packet is
//! needed.
//!
//! [`Device::remote_memory`]: crate::device::Device::remote_memory
//! [`Offer`]: crate::device::Offer

use super::pending::{append, lock};
use super::synchronisation::{await_lock, inline_max};
use crate::buffer::run;
use crate::device::{self, Blocks, Device, RemoteError, SegmentKey};
use crate::pt2pt::Buffer;
use crate::win::target::Target;
use crate::win::transfer::Way;
use crate::win::{TargetBuffer, Win};
use crate::{Datatype, Result, err};
use std::sync::Arc;

/// Runs of a type that are listed at a time.
const RUNS_MAX: usize = 256;

/// Elements in the memory of a target, as the card names them.
struct CardElements {
    key: SegmentKey,
    /// Of the first byte.
    offset: u64,
    /// `None`: one run.
    blocks: Option<Blocks>,
}

/// The elements of an operation of `len` bytes that the card does. `max`: the longest that is worth
/// it. Waits for the target's lock if need be.
fn there(
    win: &Win,
    target: &Target,
    origin: &Buffer<'_>,
    target_buffer: &TargetBuffer<'_>,
    len: usize,
    max: usize,
) -> Result<Option<CardElements>> {
    let Some(key) = target.key.filter(|_| len <= max) else {
        return Ok(None);
    };
    let offset = target_buffer.disp.wrapping_mul(target.disp_unit);
    let (first, blocks) = match target_buffer.datatype.run(target_buffer.count) {
        Some((low, _)) => (low, None),
        None if win.card.strided => match blocks(target_buffer.count, target_buffer.datatype) {
            Some((low, blocks)) => (low, Some(blocks)),
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    let Ok(offset) = u64::try_from(offset.wrapping_add(first)) else {
        return Ok(None);
    };
    let there = CardElements {
        key,
        offset,
        blocks,
    };
    if len > inline_max(target)?
        && device::device()
            .card_range()
            .contains(&origin.address.addr())
    {
        return Ok(None);
    }
    Ok(await_lock(win, target, len)?.then_some(there))
}

/// Where elements begin, if they are blocks of equal length at equal distances; bytes.
fn blocks(count: i64, datatype: &Arc<Datatype>) -> Option<(i64, Blocks)> {
    let total = datatype.packed_size(count).ok()? as u64;
    // Only distances from it matter. Half of the addresses are below it.
    let base = std::ptr::without_provenance_mut::<u8>(1 << 62);
    let mut runs = Vec::with_capacity(RUNS_MAX);
    let (mut done, mut number) = (0, 0);
    let (mut first, mut block, mut stride) = (0, 0, 0);
    while done < total {
        runs.clear();
        let bytes = datatype.runs(base, count, done, &mut runs);
        for &(at, len) in &runs {
            let at = at.addr() as i64 - (1 << 62);
            match number {
                0 => (first, block) = (at, len),
                1 => stride = at - first,
                _ => {}
            }
            if len != block || at != first + number * stride {
                return None;
            }
            number += 1;
        }
        if bytes == 0 {
            return None;
        }
        done += bytes;
    }
    let blocks = Blocks {
        block,
        stride: u64::try_from(stride).ok()?,
        count: number as usize,
    };
    (number > 1 && stride >= block as i64).then_some((first, blocks))
}

#[cold]
fn failed(e: RemoteError, target: &Target, call: &str) -> crate::Error {
    let rank = target.rank;
    err!(
        Other,
        "{call} to rank {rank} of the window by its card has failed: {e}"
    )
}

/// Puts or gets `len` bytes. A get blocks until they are here. Returns whether the card does that.
///
/// # Safety
/// The origin is readable, or writable for a get.
pub(super) unsafe fn transfer(
    win: &Win,
    target: &Target,
    way: Way,
    origin: &Buffer<'_>,
    target_buffer: &TargetBuffer<'_>,
    len: usize,
) -> Result<bool> {
    let max = match way {
        Way::Put => win.card.put_max,
        Way::Get => win.card.get_max,
    };
    let Some(there) = there(win, target, origin, target_buffer, len, max)? else {
        return Ok(false);
    };
    let elements = (origin.address, origin.count, &**origin.datatype);
    let (peer, key, offset) = (target.process, there.key, there.offset);
    let (run, mut packed) = (run(elements.0, elements.1, elements.2), Vec::new());
    if run.is_none() && way == Way::Put {
        // SAFETY: the caller's promise.
        unsafe { append(&mut packed, origin, len) };
    }
    packed.resize(if run.is_none() { len } else { 0 }, 0);
    let d = &mut *device::device();
    if way == Way::Put {
        charge(d, elements, false);
    }
    let Some(memory) = d.remote_memory() else {
        return Ok(false);
    };
    let at = run.unwrap_or(packed.as_mut_ptr());
    let done = match (way, there.blocks) {
        (Way::Put, blocks) => {
            // SAFETY: the caller's promise, or the packed bytes.
            let bytes = unsafe { std::slice::from_raw_parts(at, len) };
            match blocks {
                Some(blocks) => memory.put_blocks(peer, key, offset, blocks, bytes),
                None => memory.put(peer, key, offset, bytes),
            }
        }
        (Way::Get, blocks) => {
            // SAFETY: the caller's promise, or the packed bytes.
            let into = unsafe { std::slice::from_raw_parts_mut(at, len) };
            match blocks {
                Some(blocks) => memory.get_blocks(peer, key, offset, blocks, into),
                None => memory.get(peer, key, offset, into),
            }
        }
    };
    done.map_err(|e| failed(e, target, way.call()))?;
    match way {
        Way::Put => lock(&target.pending).on_card_put(),
        Way::Get => {
            charge(d, elements, true);
            if run.is_none() {
                let (address, count, datatype) = elements;
                // SAFETY: the caller's promise.
                unsafe { datatype.unpack(address, count, 0, &packed) };
            }
        }
    }
    Ok(true)
}

/// Charges the processor's reads, or writes, of elements that lie in the memory of this process's
/// card. Blocks for their virtual time.
pub(super) fn charge(
    d: &mut Device,
    (address, count, datatype): (*mut u8, i64, &Datatype),
    writes: bool,
) {
    let range = d.card_range();
    if range.is_empty() {
        return;
    }
    let total = crate::buffer::message_len(count, datatype) as u64;
    let (mut done, mut runs) = (0, Vec::with_capacity(RUNS_MAX));
    while done < total {
        runs.clear();
        let bytes = datatype.runs(address, count, done, &mut runs);
        let runs: Vec<_> = runs.iter().map(|(at, len)| (at.addr(), *len)).collect();
        let on_card = |(at, len): &(usize, usize)| range.start <= *at && at + len <= range.end;
        if bytes == 0 || !runs.iter().all(on_card) {
            return;
        }
        d.charge_card_access(&runs, writes);
        done += bytes;
    }
}

/// Blocks until all that the card has put to the target is there, if the card can tell that.
/// Returns whether it can.
pub(super) fn flush(win: &Win, target: &Target) -> Result<bool> {
    if !win.card.flush {
        return Ok(false);
    }
    let d = &mut *device::device();
    let Some(memory) = d.remote_memory() else {
        return Ok(false);
    };
    let done = memory.flush(target.process);
    lock(&target.pending).on_card_flushed();
    done.map_err(|e| failed(e, target, "MPI_Win_flush"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_datatype::Basic;

    fn ints() -> &'static Arc<Datatype> {
        Datatype::basic(Basic::Int32)
    }

    #[test]
    fn a_column_is_blocks() {
        let column = Datatype::vector(5, 2, 10, ints()).unwrap();
        let found = blocks(1, &column);
        let expected = Blocks {
            block: 8,
            stride: 40,
            count: 5,
        };
        assert_eq!(found, Some((0, expected)));
        let long = Datatype::vector(1000, 1, 2, ints()).unwrap();
        let found = blocks(1, &long).map(|(first, b)| (first, b.count));
        assert_eq!(found, Some((0, 1000)));
    }

    #[test]
    fn unequal_or_falling_blocks_are_none() {
        let lists = [
            Datatype::vector(3, 1, -2, ints()),
            Datatype::indexed(&[1, 2], &[0, 4], ints()),
            Datatype::indexed(&[1, 1, 1], &[0, 4, 9], ints()),
        ];
        for t in lists {
            assert_eq!(blocks(1, &t.unwrap()), None);
        }
    }
}
