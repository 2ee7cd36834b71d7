//! A virtual Ethernet device on a card: its frames cross the modelled channel.
//!
//! A card's driver offers a [`FrameChannel`]. A [`Port`] joins it to a network interface of the
//! host, a TAP device. The ports of a job make one Ethernet segment.

mod address;
mod port;

pub use address::{ADDRESS_BYTES, Address};
pub use port::{Port, PortUse};

use crate::driver::{Interface, Malformed};
use crate::kernel::{Client, Rank};
use crate::time::Time;
use std::fs::File;
use std::io::{Read, Write};

/// Bytes of a frame before its payload: two addresses and a type.
pub const FRAME_HEAD_BYTES: usize = 14;
/// Longest frame, bytes: an IP packet of 65,535 bytes does not get longer.
pub const FRAME_MAX_BYTES: usize = 65_535 + FRAME_HEAD_BYTES;

/// Frames from card to card. It charges its work to the rank's clock.
pub trait FrameChannel: Send {
    /// Longest frame that crosses as one message of the card, bytes.
    fn frame_bytes(&self) -> usize;
    /// Sends a frame. Returns false if there is no room. In that case there will be an event for
    /// this rank when there is room.
    fn send(&mut self, c: &mut Client, to: Rank, frame: &[u8]) -> bool;
    /// Hands over the frames that have come.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    fn poll(&mut self, c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed>;
    /// How often a waiting rank polls. Zero: an interrupt wakes it.
    fn poll_period(&self) -> Time;
}

/// The device file of a TAP device, which does not block.
impl Interface for File {
    fn read(&mut self, frame: &mut [u8]) -> Option<usize> {
        // An error is that there is none, or that the interface is down.
        Read::read(self, frame).ok()
    }
    fn write(&mut self, frame: &[u8]) -> bool {
        Write::write(self, frame).is_ok_and(|n| n == frame.len())
    }
}
