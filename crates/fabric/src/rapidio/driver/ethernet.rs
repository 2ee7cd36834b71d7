//! Frames over the control level: the paper's virtual Ethernet device, a second user of the
//! channel.
//!
//! A frame is a datum of the general queue, like MPI's small messages. One that fits a message of
//! the card with the control level's header is one message; a longer one is cut and reassembled.

use super::control::{ControlEvent, ControlLevel, DataType, HEADER_BYTES, User};
use super::levels;
use super::lower::LowerLevel;
use crate::driver::{Interface, Malformed};
use crate::ethernet::{FrameChannel, Port};
use crate::kernel::{Client, Rank};
use crate::platform::Platform;
use crate::rapidio::figures::Figures;
use crate::time::Time;

/// The channel of a node that has no other user.
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

    fn shared(&mut self) -> SharedChannel<'_> {
        SharedChannel {
            control: &mut self.control,
            user: self.user,
        }
    }
}

impl FrameChannel for Frames {
    fn frame_bytes(&self) -> usize {
        self.control.limits().message_max - HEADER_BYTES
    }

    fn send(&mut self, c: &mut Client, to: Rank, frame: &[u8]) -> bool {
        self.shared().send(c, to, frame)
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed> {
        c.sync();
        self.control.progress(c)?;
        self.shared().poll(c, up)
    }

    fn poll_period(&self) -> Time {
        Time::ZERO
    }
}

/// A network interface beside MPI: its port, and its number as a user.
pub struct SecondUser {
    user: User,
    port: Port,
    interface: Box<dyn Interface + Send>,
}

impl SecondUser {
    /// The user that carries frames. The job has `ports` of them.
    pub fn new(
        user: User,
        control: &mut ControlLevel<LowerLevel>,
        ports: u32,
        interface: Box<dyn Interface + Send>,
    ) -> SecondUser {
        SecondUser {
            user,
            port: Port::new(control.me(), ports),
            interface,
        }
    }

    /// Carries frames both ways. What has come was taken by [`ControlLevel::progress`].
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn run(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
    ) -> Result<(), Malformed> {
        let user = self.user;
        let mut channel = SharedChannel { control, user };
        self.port.run(c, &mut channel, self.interface.as_mut())
    }
}

/// The channel of a control level whose progress another user makes.
struct SharedChannel<'a> {
    control: &'a mut ControlLevel<LowerLevel>,
    user: User,
}

impl FrameChannel for SharedChannel<'_> {
    fn frame_bytes(&self) -> usize {
        self.control.limits().message_max - HEADER_BYTES
    }

    fn send(&mut self, c: &mut Client, to: Rank, frame: &[u8]) -> bool {
        let (user, small) = (self.user, DataType::Small);
        self.control.send_datum(c, user, to, small, &[frame])
    }

    fn poll(&mut self, _c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed> {
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
