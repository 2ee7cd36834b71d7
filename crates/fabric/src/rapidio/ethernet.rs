//! Frames over the control level: the paper's virtual Ethernet device, a second user of the channel.
//!
//! A frame is a datum of the general queue, like MPI's small messages. One that fits a message of
//! the card with the control level's header is one message; a longer one is cut and reassembled.

use super::driver::control::{ControlEvent, ControlLevel, DataType, HEADER_BYTES, User};
use super::driver::levels;
use super::driver::lower::LowerLevel;
use super::figures::Figures;
use crate::driver::Malformed;
use crate::ethernet::FrameChannel;
use crate::kernel::{Client, Rank};
use crate::platform::Platform;
use crate::time::Time;

/// The channel of a node.
pub struct Frames {
    control: ControlLevel<LowerLevel>,
    user: User,
}

impl Frames {
    /// The channel of rank `me`.
    pub fn new(platform: &Platform, f: &Figures, me: Rank) -> Frames {
        let mut control = levels::control_level(platform, f, me);
        // The MX level's number, which frames do not have.
        control.register_user();
        Frames {
            user: control.register_user(),
            control,
        }
    }
}

impl FrameChannel for Frames {
    fn frame_bytes(&self) -> usize {
        self.control.limits().message_max - HEADER_BYTES
    }

    fn send(&mut self, c: &mut Client, to: Rank, frame: &[u8]) -> bool {
        let (user, small) = (self.user, DataType::Small);
        self.control.send_datum(c, user, to, small, &[frame])
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed> {
        c.sync();
        self.control.progress(c)?;
        while let Some(event) = self.control.event(self.user) {
            match event {
                ControlEvent::Datum { from, bytes, .. } => up(from, &bytes),
                ControlEvent::Doorbell { from, .. } => {
                    return Err(Malformed(from, "a doorbell that no Ethernet device has"));
                }
                // It opens no queues, and sends and reads no buffers.
                _ => {}
            }
        }
        Ok(())
    }

    fn poll_period(&self) -> Time {
        Time::ZERO
    }
}
