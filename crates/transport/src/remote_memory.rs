//! The extension of a transport whose card reaches other processes' memory.

use crate::ProcId;
pub use ferry_fabric::remote_memory::{Blocks, Offer, RemoteError, SegmentKey};
use std::ops::Range;

/// Memory of other processes, by the cards and without their processors
/// ([`ferry_fabric::remote_memory`], which says in which order things arrive).
///
/// Calls block for this process's card alone, never for a peer's software. Peers are other
/// processes: a process copies within its own segments by itself. While it waits for its card, what
/// else comes is kept: progress finds it.
pub trait RemoteMemory {
    /// What the card offers.
    fn offer(&mut self) -> Offer;
    /// Addresses in this process of the memory in which segments can lie.
    fn range(&mut self) -> Range<usize>;
    /// Allocates `bytes` of it at a multiple of `alignment`, a power of two of at most 4096.
    /// `None`: too little is left. The memory is not cleared.
    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8>;
    /// Frees what [`RemoteMemory::allocate`] has returned. False: it has not returned this.
    fn release(&mut self, address: usize) -> bool;
    /// Registers memory of this process as a segment. Others access it by the key. `None`: the card
    /// does not reach this memory.
    fn register(&mut self, address: usize, bytes: usize) -> Option<SegmentKey>;
    /// Forgets a segment. Nobody accesses it any more.
    fn deregister(&mut self, key: SegmentKey);
    /// Puts bytes into a peer's segment. The caller may change them at once.
    ///
    /// # Errors
    /// See [`RemoteError`]. Nothing is put then.
    fn put(
        &mut self,
        to: ProcId,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError>;
    /// Gets bytes of a peer's segment. Blocks until they are here.
    ///
    /// # Errors
    /// See [`RemoteError`].
    fn get(
        &mut self,
        from: ProcId,
        key: SegmentKey,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RemoteError>;
    /// As [`RemoteMemory::put`], into blocks, the first of which begins at the offset. Panics if
    /// there are not as many bytes as the blocks have.
    ///
    /// # Errors
    /// As [`RemoteMemory::put`].
    fn put_blocks(
        &mut self,
        to: ProcId,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        bytes: &[u8],
    ) -> Result<(), RemoteError>;
    /// As [`RemoteMemory::get`], from blocks. Panics as [`RemoteMemory::put_blocks`].
    ///
    /// # Errors
    /// As [`RemoteMemory::get`].
    fn get_blocks(
        &mut self,
        from: ProcId,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        into: &mut [u8],
    ) -> Result<(), RemoteError>;
    /// Blocks until everything that was put to the peer is in its memory.
    ///
    /// # Errors
    /// [`RemoteError::NotOffered`].
    fn flush(&mut self, peer: ProcId) -> Result<(), RemoteError>;
    /// Notifies a peer, behind what was put there.
    ///
    /// # Errors
    /// [`RemoteError::NotOffered`].
    fn notify(&mut self, peer: ProcId, number: u8) -> Result<(), RemoteError>;
    /// The oldest notification that progress has found and nobody has taken: the peer, and its
    /// number.
    fn notification(&mut self) -> Option<(ProcId, u8)>;
}
