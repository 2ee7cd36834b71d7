//! A port: a network interface of the host on one side, a card's channel on the other.

use super::{Address, FRAME_HEAD_BYTES, FRAME_MAX_BYTES, FrameChannel};
use crate::driver::{Interface, Malformed};
use crate::kernel::{Client, Rank};

/// Frames that a port takes from its interface before it looks at the channel again.
const BATCH_FRAMES: usize = 32;

/// What a port has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortUse {
    /// Frames that were sent, one for each destination.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that came.
    pub received: u64,
    /// Frames that came and that the host did not take.
    pub lost: u64,
}

/// A frame on its way out.
struct Outgoing {
    bytes: usize,
    /// The next rank that gets it.
    next: Rank,
    /// One more than the last rank that gets it.
    end: Rank,
}

/// The port of one rank.
pub struct Port {
    me: Rank,
    ports: u32,
    frame: Vec<u8>,
    /// What is in `frame`, if the channel has not taken all of it.
    outgoing: Option<Outgoing>,
    carried: PortUse,
}

impl Port {
    /// The port of rank `me` of `ports` ranks.
    pub fn new(me: Rank, ports: u32) -> Port {
        Port {
            me,
            ports,
            frame: vec![0; FRAME_MAX_BYTES],
            outgoing: None,
            carried: PortUse::default(),
        }
    }

    /// What the port has carried so far.
    pub fn carried(&self) -> PortUse {
        self.carried
    }

    /// Carries frames both ways until neither side has one, or the channel has no room. Call it
    /// again after the next event, or after the next frame of the host.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn run(
        &mut self,
        c: &mut Client,
        channel: &mut dyn FrameChannel,
        interface: &mut dyn Interface,
    ) -> Result<(), Malformed> {
        loop {
            let carried = &mut self.carried;
            channel.poll(c, &mut |_, frame| {
                carried.received += 1;
                carried.lost += u64::from(!interface.write(frame));
            })?;
            let mut frames = 0;
            while frames < BATCH_FRAMES && self.send_next(c, channel, interface) {
                frames += 1;
            }
            if frames < BATCH_FRAMES {
                return Ok(());
            }
        }
    }

    /// Sends what is left of a frame, or the host's next one. Returns false if there is none, or if
    /// the channel has no room.
    fn send_next(
        &mut self,
        c: &mut Client,
        channel: &mut dyn FrameChannel,
        interface: &mut dyn Interface,
    ) -> bool {
        let mut outgoing = match self.outgoing.take() {
            Some(outgoing) => outgoing,
            None => match interface.read(&mut self.frame) {
                Some(bytes) => self.route(bytes),
                None => return false,
            },
        };
        let frame = &self.frame[..outgoing.bytes];
        while outgoing.next < outgoing.end {
            if outgoing.next != self.me {
                if !channel.send(c, outgoing.next, frame) {
                    self.outgoing = Some(outgoing);
                    return false;
                }
                self.carried.sent += 1;
                self.carried.sent_bytes += frame.len() as u64;
            }
            outgoing.next += 1;
        }
        true
    }

    /// Who gets the frame that has just been read: the port with its destination's address, and
    /// every port if none has it.
    fn route(&self, bytes: usize) -> Outgoing {
        let frame = &self.frame[..bytes];
        let destination = match Address::destination(frame) {
            Some(address) if bytes >= FRAME_HEAD_BYTES => address,
            // Not a frame. It goes nowhere.
            _ => Address::of_port(self.me),
        };
        let (next, end) = match destination.port(self.ports) {
            Some(port) => (port, port + 1),
            None => (0, self.ports),
        };
        Outgoing { bytes, next, end }
    }
}

#[cfg(test)]
mod tests;
