//! One-sided access to memory of other ranks, by their cards and without their processors.
//!
//! A rank registers a range of memory that its card reaches, a *segment*, and tells others its
//! [`SegmentKey`]. They put bytes into it and get bytes from it. The owner's software has no part
//! in that. Its card checks that each access lies within a registered segment.
//!
//! # Order
//! What a rank puts to a peer arrives in order. A notification, and a message of the driver
//! (of the same driver), that follows a put does not overtake it.

use crate::kernel::{Client, Rank};
use std::ops::Range;

/// What a card offers. Sizes are bytes. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Largest put that is worth it: a longer one takes longer than a message would. Longer puts
    /// work. `usize::MAX`: every put is worth it.
    pub put_max: usize,
    /// Largest get that is worth it, as [`Offer::put_max`]. 0: the card has no get.
    pub get_max: usize,
    /// [`RemoteMemory::flush`] works. Otherwise the card cannot tell, and a rank that must know
    /// sends the peer a message and waits for its answer.
    pub flush: bool,
    /// [`RemoteMemory::notify`] works.
    pub notify: bool,
    /// Several blocks of a put or get are moved by one command.
    pub strided: bool,
}

/// Names a segment to other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey {
    /// Its address, as the owner's card knows it.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl SegmentKey {
    /// Encodes the key, to be sent to other ranks.
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Decodes a key. It may name nothing: the owner's card finds that out.
    pub fn decode(bytes: [u8; 16]) -> SegmentKey {
        let [at, bytes] = [0, 8].map(|i| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[i..i + 8]);
            u64::from_le_bytes(word)
        });
        SegmentKey { at, bytes }
    }

    /// Card address of `bytes` bytes at this offset.
    ///
    /// # Errors
    /// They are not within the segment.
    pub fn address(self, offset: u64, bytes: usize) -> Result<u64, RemoteError> {
        let end = offset.checked_add(bytes as u64);
        match end.is_some_and(|end| end <= self.bytes) {
            true => Ok(self.at + offset),
            false => Err(RemoteError::OutOfSegment {
                offset,
                bytes,
                segment: self.bytes,
            }),
        }
    }
}

/// Blocks of a segment at equal distances. What is put or got lies contiguous on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Bytes of a block.
    pub block: usize,
    /// Bytes from one block's beginning to the next one's.
    pub stride: u64,
    /// How many.
    pub count: usize,
}

impl Blocks {
    /// Bytes from the first one's beginning to the last one's end. `None`: too many.
    pub fn span(&self) -> Option<usize> {
        let before = (self.count as u64).checked_sub(1);
        let begin = before.unwrap_or(0).checked_mul(self.stride)?;
        let last = if self.count == 0 { 0 } else { self.block };
        usize::try_from(begin).ok()?.checked_add(last)
    }
}

/// Why a put or get has not been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// It is not within the segment.
    #[error("{bytes} bytes at offset {offset} are not within a segment of {segment} bytes")]
    OutOfSegment {
        /// Where.
        offset: u64,
        /// Number of bytes.
        bytes: usize,
        /// Bytes of the segment.
        segment: u64,
    },
    /// The card does not offer it ([`Offer`]).
    #[error("the card does not offer it")]
    NotOffered,
    /// A peer has sent bytes that are not valid. They were found while the card's answer was waited
    /// for.
    #[error("rank {0} sent {1}")]
    Malformed(Rank, &'static str),
}

/// The service of a driver whose card reaches other ranks' memory.
///
/// Calls block for the card alone: for room in its lists, and for its answer to a get. They never
/// wait for a peer's software. `to` and `from` are other ranks: a rank copies within its own
/// segments by itself.
pub trait RemoteMemory {
    /// What the card offers.
    fn offer(&self) -> Offer;
    /// Addresses, in this process, of the memory in which segments can lie.
    fn range(&self, c: &Client) -> Range<usize>;
    /// Allocates `bytes` bytes there at a multiple of `alignment`, a power of two of at most 4096.
    /// `None`: there is no room. The memory is not cleared.
    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize>;
    /// Frees what [`RemoteMemory::allocate`] gave. Returns false if it gave no such thing.
    fn release(&mut self, c: &Client, address: usize) -> bool;
    /// Registers memory of this rank as a segment. `None`: the card does not reach it.
    fn register(&mut self, c: &mut Client, address: usize, bytes: usize) -> Option<SegmentKey>;
    /// Forgets a segment. Nobody accesses it any more.
    fn deregister(&mut self, c: &mut Client, key: SegmentKey);
    /// Puts bytes into a peer's segment. They are copied: the caller may change them at once.
    ///
    /// # Errors
    /// See [`RemoteError`]. Nothing is put then.
    fn put(
        &mut self,
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError>;
    /// Gets bytes of a peer's segment: what has been put there before, by this rank. Blocks until
    /// they are here.
    ///
    /// # Errors
    /// See [`RemoteError`].
    fn get(
        &mut self,
        c: &mut Client,
        from: Rank,
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
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        blocks: Blocks,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        check_blocks(key, offset, blocks, bytes.len())?;
        let all = bytes.chunks_exact(blocks.block.max(1));
        for (number, block) in (0..).zip(all) {
            self.put(c, to, key, offset + number * blocks.stride, block)?;
        }
        Ok(())
    }
    /// As [`RemoteMemory::get`], from blocks. Panics as [`RemoteMemory::put_blocks`].
    ///
    /// # Errors
    /// As [`RemoteMemory::get`].
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
        let all = into.chunks_exact_mut(blocks.block.max(1));
        for (number, block) in (0..).zip(all) {
            self.get(c, from, key, offset + number * blocks.stride, block)?;
        }
        Ok(())
    }
    /// Blocks until everything that was put to the peer is in its memory.
    ///
    /// # Errors
    /// [`RemoteError::NotOffered`], or the card does not answer.
    fn flush(&mut self, c: &mut Client, peer: Rank) -> Result<(), RemoteError>;
    /// Notifies a peer. It gets the number by [`RemoteMemory::notification`], and its wait ends.
    ///
    /// # Errors
    /// [`RemoteError::NotOffered`].
    fn notify(&mut self, c: &mut Client, peer: Rank, number: u8) -> Result<(), RemoteError>;
    /// The oldest notification that the last poll of the driver has found and nobody has taken:
    /// the peer, and its number.
    fn notification(&mut self) -> Option<(Rank, u8)>;
}

/// Checks that all blocks are within the segment. Panics if they have not `bytes` bytes.
pub(crate) fn check_blocks(
    key: SegmentKey,
    offset: u64,
    blocks: Blocks,
    bytes: usize,
) -> Result<(), RemoteError> {
    assert_eq!(blocks.block * blocks.count, bytes);
    let span = blocks.span().unwrap_or(usize::MAX);
    key.address(offset, span).map(|_| ())
}
