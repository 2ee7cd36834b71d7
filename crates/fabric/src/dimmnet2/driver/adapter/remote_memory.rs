//! Segments in the program's part of the SO-DIMM. A put is RVS, a get is RVL into the Prefetch
//! Window, both with a stride if there are blocks. A flush is an RVL of no bytes.
//!
//! The card has no notifications: a message that follows does not overtake what was put. It knows
//! no segments either, and checks accesses against the size of the SO-DIMM. So the rank that puts
//! and gets checks them against the key.

use super::DimmnetDriver;
use crate::dimmnet2::driver::Remote;
use crate::driver::CardMemory;
use crate::kernel::{Client, Rank};
use crate::remote_memory::{Blocks, Offer, RemoteError, RemoteMemory, SegmentKey, check_blocks};
use std::ops::Range;

impl DimmnetDriver {
    /// The SO-DIMM address of an access. `None`: no SO-DIMM has it.
    fn remote(&self, rank: Rank, at: u64, bytes: usize) -> Result<Remote, RemoteError> {
        let memory = self.program.as_ref().map(|(memory, _)| memory);
        let within = memory.is_some_and(|m| {
            let end = at.checked_add(bytes as u64);
            at >= m.from && end.is_some_and(|end| end <= m.from + m.bytes)
        });
        match u32::try_from(at) {
            Ok(memory) if within => Ok(Remote { rank, memory }),
            _ => Err(RemoteError::NotOffered),
        }
    }
}

impl RemoteMemory for DimmnetDriver {
    fn offer(&self) -> Offer {
        Offer {
            // The card does less for either than for a message, whatever its length.
            put_max: usize::MAX,
            get_max: usize::MAX,
            flush: true,
            notify: false,
            strided: true,
        }
    }

    fn range(&self, c: &Client) -> Range<usize> {
        let (from, end) = CardMemory::range(self, c);
        from..end
    }

    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        CardMemory::allocate(self, c, bytes, alignment)
    }

    fn release(&mut self, c: &Client, address: usize) -> bool {
        CardMemory::release(self, c, address)
    }

    fn register(&mut self, c: &mut Client, address: usize, bytes: usize) -> Option<SegmentKey> {
        let runs = self.runs(c, &[(address, bytes)])?;
        let &(at, bytes) = runs.first()?;
        Some(SegmentKey {
            at: at.into(),
            bytes: bytes.into(),
        })
    }

    fn deregister(&mut self, _c: &mut Client, _key: SegmentKey) {}

    fn put(
        &mut self,
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        let remote = self.remote(to, key.address(offset, bytes.len())?, bytes.len())?;
        self.unflushed.insert(to);
        self.with(c, |driver| driver.put(remote, bytes));
        Ok(())
    }

    fn get(
        &mut self,
        c: &mut Client,
        from: Rank,
        key: SegmentKey,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RemoteError> {
        let remote = self.remote(from, key.address(offset, into.len())?, into.len())?;
        self.with(c, |driver| driver.get(remote, into));
        Ok(())
    }

    fn put_blocks(
        &mut self,
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        check_blocks(key, offset, blocks, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let block = blocks.block as u32;
        let remote = self.remote(to, key.at + offset, blocks.span().unwrap_or(usize::MAX))?;
        self.unflushed.insert(to);
        let one_packet = block <= self.layout.image_data();
        self.with(c, |driver| match u32::try_from(blocks.stride) {
            Ok(stride) if one_packet => driver.put_blocks(remote, block, stride, bytes),
            _ => {
                for (number, part) in (0..).zip(bytes.chunks(blocks.block)) {
                    let memory = remote.memory + (number * blocks.stride) as u32;
                    driver.put(Remote { memory, ..remote }, part);
                }
            }
        });
        Ok(())
    }

    fn get_blocks(
        &mut self,
        c: &mut Client,
        from: Rank,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        into: &mut [u8],
    ) -> Result<(), RemoteError> {
        check_blocks(key, offset, blocks, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        let block = blocks.block as u32;
        let remote = self.remote(from, key.at + offset, blocks.span().unwrap_or(usize::MAX))?;
        let one_slot = block <= self.layout.slot;
        self.with(c, |driver| match u32::try_from(blocks.stride) {
            Ok(stride) if one_slot => driver.get_blocks(remote, block, stride, into),
            _ => {
                for (number, part) in (0..).zip(into.chunks_mut(blocks.block)) {
                    let memory = remote.memory + (number * blocks.stride) as u32;
                    driver.get(Remote { memory, ..remote }, part);
                }
            }
        });
        Ok(())
    }

    fn flush(&mut self, c: &mut Client, peer: Rank) -> Result<(), RemoteError> {
        if self.unflushed.remove(&peer) {
            self.with(c, |driver| driver.fence(peer));
        }
        Ok(())
    }

    fn notify(&mut self, _c: &mut Client, _peer: Rank, _number: u8) -> Result<(), RemoteError> {
        Err(RemoteError::NotOffered)
    }

    fn notification(&mut self) -> Option<(Rank, u8)> {
        None
    }
}
