//! Remote memory as the driver has it, with this process's client.

use super::Model;
use crate::{Blocks, Offer, ProcId, RemoteError, RemoteMemory, SegmentKey};
use ferry_fabric::{Client, remote_memory::RemoteMemory as OfDriver};
use std::ops::Range;

impl Model {
    /// The driver's remote memory, and the client for it.
    fn remote(&mut self) -> Option<(&mut dyn OfDriver, &mut Client)> {
        Some((self.driver.remote_memory()?, &mut self.client))
    }

    /// Calls the driver's remote memory.
    fn with_remote<T>(
        &mut self,
        call: impl FnOnce(&mut dyn OfDriver, &mut Client) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let (remote, client) = self.remote().ok_or(RemoteError::NotOffered)?;
        call(remote, client)
    }
}

impl RemoteMemory for Model {
    fn offer(&mut self) -> Offer {
        self.remote().map_or(Offer::default(), |(r, _)| r.offer())
    }

    fn range(&mut self) -> Range<usize> {
        self.remote().map_or(0..0, |(r, c)| r.range(c))
    }

    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8> {
        let (remote, client) = self.remote()?;
        let address = remote.allocate(client, bytes, alignment)?;
        let (mapped, _) = client.mapped_memory();
        Some(mapped.with_addr(address))
    }

    fn release(&mut self, address: usize) -> bool {
        self.remote().is_some_and(|(r, c)| r.release(c, address))
    }

    fn register(&mut self, address: usize, bytes: usize) -> Option<SegmentKey> {
        let (remote, client) = self.remote()?;
        remote.register(client, address, bytes)
    }

    fn deregister(&mut self, key: SegmentKey) {
        if let Some((remote, client)) = self.remote() {
            remote.deregister(client, key);
        }
    }

    fn put(
        &mut self,
        to: ProcId,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.put(c, to, key, offset, bytes))
    }

    fn get(
        &mut self,
        from: ProcId,
        key: SegmentKey,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.get(c, from, key, offset, into))
    }

    fn put_blocks(
        &mut self,
        to: ProcId,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.put_blocks(c, to, key, offset, blocks, bytes))
    }

    fn get_blocks(
        &mut self,
        from: ProcId,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        into: &mut [u8],
    ) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.get_blocks(c, from, key, offset, blocks, into))
    }

    fn flush(&mut self, peer: ProcId) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.flush(c, peer))
    }

    fn notify(&mut self, peer: ProcId, number: u8) -> Result<(), RemoteError> {
        self.with_remote(|r, c| r.notify(c, peer, number))
    }

    fn notification(&mut self) -> Option<(ProcId, u8)> {
        self.remote()?.0.notification()
    }
}
