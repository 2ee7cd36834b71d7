//! Memory on a modelled card in which a program has buffers.

use crate::ProcId;
use std::ops::Range;

/// Memory on a modelled card, and what the card does with it by itself. A run is an address in this
/// process, and bytes.
pub trait CardMemory {
    /// Where it lies in this process.
    fn range(&self) -> Range<usize>;
    /// Messages in it of up to this many bytes are eager.
    fn eager_max(&self) -> usize;
    /// Allocates `bytes` of it at a multiple of `alignment`, a power of two. `None`: none are left.
    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8>;
    /// Takes back what [`CardMemory::allocate`] gave. False: it gave no such thing.
    fn release(&mut self, address: usize) -> bool;
    /// Can a receiver's card read a message that lies in these runs?
    fn describes(&self, runs: &[(usize, usize)]) -> bool;
    /// The next message is the RTS for a message that lies in these runs.
    fn lies(&mut self, runs: &[(usize, usize)]);
    /// Begins to read the message of `bytes` bytes that `from` has announced as its request
    /// `request`: into these runs of the card's memory, or by
    /// [`Inbox::card_part`](crate::Inbox::card_part). Returns the read's number. `None`: the card
    /// cannot, and the message must be asked for.
    fn start_read(
        &mut self,
        from: ProcId,
        request: u32,
        bytes: u64,
        into: Option<&[(usize, usize)]>,
    ) -> Option<u32>;
    /// The number of a read from there that has ended since this was last asked.
    fn finished_read(&mut self, from: ProcId) -> Option<u32>;
    /// The processor reads these runs of the card's memory. Blocks for what the accesses cost.
    fn take_out(&mut self, runs: &[(usize, usize)]);
    /// The processor has written these runs of the card's memory. Blocks for what the accesses
    /// cost.
    fn put_in(&mut self, runs: &[(usize, usize)]);
}
