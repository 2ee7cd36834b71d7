//! List entries as driver and card exchange them: the commands and events of a rank's card.
//!
//! A PUT is one entry of the LME, the list of messages to emit. Here the entry's bytes travel with
//! it, behind a head of receiver, flags and physical address.

/// A command: remote write of the bytes that follow the head.
pub(super) const PUT: u32 = 1;
/// A command: the same within a node, through shared memory.
pub(super) const LOCAL: u32 = 2;
/// A command: opens a segment of the rank's own window, or closes it without [`OPEN`]. The head has
/// its physical address; its number of bytes follows.
pub(super) const SEGMENT: u32 = 3;
/// An event: bytes have been written into this rank's memory.
pub(super) const WRITTEN: u32 = 1;
/// An event: an entry of this rank's LME is done.
pub(super) const DONE: u32 = 2;

/// A flag: note the arrival in the receiver's LMR, so that the receiver looks.
pub(super) const NOTIFY: u8 = 1;
/// A flag: wake the sender when the entry is done.
pub(super) const WAKE: u8 = 2;

/// A flag of [`SEGMENT`].
pub(super) const OPEN: u8 = 1;

/// Physical address of a rank's window: pinned memory, which its card maps.
pub(super) const WINDOW_AT: u64 = 1 << 48;
/// Physical address of a place that takes no bytes. An entry for it notifies the receiver's driver
/// of the number that is added to it.
pub(super) const NOTICE_AT: u64 = 1 << 49;

/// Bytes of an entry's head.
pub(super) const HEAD_BYTES: usize = 16;

/// Encodes a head. `rank` is the receiver in a command, and the sender in an event.
pub(super) fn head(rank: u32, flags: u8, address: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&rank.to_le_bytes());
    head[4] = flags;
    head[8..].copy_from_slice(&address.to_le_bytes());
    head
}

/// Decodes an entry: rank, flags, physical address, bytes.
pub(super) fn parse(bytes: &[u8]) -> Option<(u32, u8, u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let rank = u32::from_le_bytes(head[..4].try_into().ok()?);
    let address = u64::from_le_bytes(head[8..].try_into().ok()?);
    Some((rank, head[4], address, rest))
}
