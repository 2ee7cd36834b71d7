//! The directory of cards in a foreign launcher's store.

use std::os::fd::BorrowedFd;
use std::sync::{MutexGuard, PoisonError};

use super::{Kvs, SharedKvs, hex, launcher_error, unhex};
use crate::client::JobError;
use crate::directory::{CARD_MAX, Directory, check_put};

/// Cards as pieces that fit into values: `ferry-WIRE-RANK-PIECE`, the first with the number of pieces before it.
pub(super) struct KvsDirectory {
    kvs: SharedKvs,
    me: u32,
    size: u32,
}

impl KvsDirectory {
    pub(super) fn new(kvs: SharedKvs, me: u32, size: u32) -> KvsDirectory {
        KvsDirectory { kvs, me, size }
    }

    fn kvs(&self) -> MutexGuard<'_, Box<dyn Kvs>> {
        self.kvs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory for KvsDirectory {
    fn put(&mut self, wire: &str, card: &[u8]) -> Result<(), JobError> {
        check_put(wire, card)?;
        let me = self.me;
        let mut kvs = self.kvs();
        // Room for the number of pieces, and none for what a launcher may add.
        let piece = (kvs.value_max().saturating_sub(24) / 2).clamp(16, CARD_MAX);
        let pieces: Vec<&[u8]> = card.chunks(piece).collect();
        let first = pieces.first().copied().unwrap_or_default();
        let start = format!("{}-{}", pieces.len().max(1), hex(first));
        kvs.put(&format!("ferry-{wire}-{me}-0"), &start)?;
        for (number, piece) in pieces.iter().enumerate().skip(1) {
            kvs.put(&format!("ferry-{wire}-{me}-{number}"), &hex(piece))?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<(), JobError> {
        self.kvs().fence()
    }

    fn get(&mut self, wire: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError> {
        if rank >= self.size {
            return Ok(None);
        }
        let mut kvs = self.kvs();
        let Some(start) = kvs.get(rank, &format!("ferry-{wire}-{rank}-0"))? else {
            return Ok(None);
        };
        let garbled = || launcher_error(format!("rank {rank}'s card for {wire} is garbled"));
        let (pieces, first) = start.split_once('-').ok_or_else(garbled)?;
        let pieces: usize = pieces.parse().map_err(|_| garbled())?;
        let mut card = unhex(first).ok_or_else(garbled)?;
        for number in 1..pieces.min(CARD_MAX) {
            let piece = kvs
                .get(rank, &format!("ferry-{wire}-{rank}-{number}"))?
                .ok_or_else(garbled)?;
            card.extend(unhex(&piece).ok_or_else(garbled)?);
            if card.len() > CARD_MAX {
                return Err(garbled());
            }
        }
        Ok(Some(card))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
