//! Ethernet addresses of the ports of a job.

use crate::kernel::Rank;
use std::fmt;

/// Bytes of an Ethernet address.
pub const ADDRESS_BYTES: usize = 6;
/// First bytes of each port's address. The second lowest bit of the first byte says that the
/// address is administered locally (IEEE 802, clause 8.4).
const PREFIX: [u8; 4] = *b"\x02rio";

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address(pub [u8; ADDRESS_BYTES]);

impl Address {
    /// The address of a rank's port.
    pub fn of_port(rank: Rank) -> Address {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..4].copy_from_slice(&PREFIX);
        bytes[4..].copy_from_slice(&(rank as u16).to_be_bytes());
        Address(bytes)
    }

    /// The destination of a frame. `None`: the frame is too short to have one.
    pub fn destination(frame: &[u8]) -> Option<Address> {
        frame.first_chunk().copied().map(Address)
    }

    /// The one of `ports` ports that has this address. `None`: a group's address, or that of a
    /// device behind a port.
    pub fn port(self, ports: u32) -> Option<Rank> {
        let [a, b, c, d, high, low] = self.0;
        let rank = u32::from(u16::from_be_bytes([high, low]));
        ([a, b, c, d] == PREFIX && rank < ports).then_some(rank)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
