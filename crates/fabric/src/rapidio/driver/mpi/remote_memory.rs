//! The remote memory that MPI's driver hands on.

use super::RapidioDriver;
use crate::kernel::{Client, Rank};
use crate::mapped_window::MappedWindow;
use crate::rapidio::driver::remote::Remote;
use crate::remote_memory::{Offer, RemoteError, RemoteMemory, SegmentKey};
use std::ops::Range;

impl RemoteMemory for RapidioDriver {
    fn offer(&self) -> Offer {
        self.remote.offer()
    }

    fn range(&self, c: &Client) -> Range<usize> {
        MappedWindow::range(c)
    }

    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        self.remote.window.allocate(c, bytes, alignment)
    }

    fn release(&mut self, c: &Client, address: usize) -> bool {
        self.remote.window.release(c, address)
    }

    fn register(&mut self, c: &mut Client, address: usize, bytes: usize) -> Option<SegmentKey> {
        Remote::register(c, self.mx.control(), address, bytes)
    }

    fn deregister(&mut self, c: &mut Client, key: SegmentKey) {
        Remote::deregister(c, self.mx.control(), key);
    }

    fn put(
        &mut self,
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        self.remote.put(
            c,
            self.mx.control(),
            to,
            key.address(offset, bytes.len())?,
            bytes,
        );
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
        let at = key.address(offset, into.len())?;
        Ok(self.remote.get(c, self.mx.control(), from, at, into)?)
    }

    fn flush(&mut self, c: &mut Client, peer: Rank) -> Result<(), RemoteError> {
        Ok(self.remote.flush(c, self.mx.control(), peer)?)
    }

    fn notify(&mut self, c: &mut Client, peer: Rank, number: u8) -> Result<(), RemoteError> {
        self.remote.notify(c, self.mx.control(), peer, number);
        Ok(())
    }

    fn notification(&mut self) -> Option<(Rank, u8)> {
        self.remote.notification()
    }
}
