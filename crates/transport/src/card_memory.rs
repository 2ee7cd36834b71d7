//! The extension of a transport whose modelled card has memory for a program's buffers.

use crate::ProcId;
use std::ops::Range;

/// Memory on a modelled card, and what the card does with it by itself. A run is an address in this
/// process and a number of bytes.
pub trait CardMemory {
    /// Its addresses in this process.
    fn range(&self) -> Range<usize>;
    /// Largest eager message in it, bytes.
    fn eager_max(&self) -> usize;
    /// Allocates `bytes` of it at a multiple of `alignment`, a power of two. `None`: too little is
    /// left.
    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8>;
    /// Frees what [`CardMemory::allocate`] has returned. False: it has not returned this.
    fn release(&mut self, address: usize) -> bool;
    /// Returns whether a receiver's card can read a message in these runs.
    fn describes(&self, runs: &[(usize, usize)]) -> bool;
    /// The next message is the RTS of a message in these runs.
    fn announces_runs(&mut self, runs: &[(usize, usize)]);
    /// Begins to read the message of `bytes` bytes that `from` has announced as its request
    /// `request`. It goes into these runs of the card's memory, or to
    /// [`Inbox::card_part`](crate::Inbox::card_part). Returns the read's number. `None`: the card
    /// cannot read it, and the message needs a CTS.
    fn start_read(
        &mut self,
        from: ProcId,
        request: u32,
        bytes: u64,
        into: Option<&[(usize, usize)]>,
    ) -> Option<u32>;
    /// The number of a read from `from` that has ended and was not returned yet.
    fn finished_read(&mut self, from: ProcId) -> Option<u32>;
    /// Charges the processor's reads of these runs of the card's memory. Blocks for their virtual
    /// time.
    fn charge_reads(&mut self, runs: &[(usize, usize)]);
    /// Charges the processor's writes to these runs of the card's memory. Blocks for their virtual
    /// time.
    fn charge_writes(&mut self, runs: &[(usize, usize)]);
}
