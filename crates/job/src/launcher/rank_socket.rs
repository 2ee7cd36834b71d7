//! The launcher's end of a rank's socket.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

use crate::messages::PACKET_MAX_BYTES;
use crate::{ToLauncher, ToRank};

/// The launcher's end of a rank's socket.
#[derive(Debug)]
pub struct RankSocket {
    socket: OwnedFd,
    /// Messages for which the socket has had no room.
    pending: VecDeque<Vec<u8>>,
    /// Descriptors that came with messages.
    descriptors: VecDeque<OwnedFd>,
}

/// What [`RankSocket::receive`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(ToLauncher),
    /// Nothing now.
    Empty,
    /// The rank's end is closed. Nothing more will come.
    Closed,
}

impl RankSocket {
    pub(super) fn new(socket: OwnedFd) -> RankSocket {
        RankSocket {
            socket,
            pending: VecDeque::new(),
            descriptors: VecDeque::new(),
        }
    }

    /// Receives the next message. Never blocks.
    pub fn receive(&mut self) -> Received {
        let mut bytes = vec![0; PACKET_MAX_BYTES];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let into = &mut [IoSliceMut::new(&mut bytes)];
            let got = recvmsg(&self.socket, into, &mut ancillary, flags).map(|got| got.bytes);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.descriptors.extend(fds);
                }
            }
            return match got {
                Ok(0) => Received::Closed,
                Ok(n) => match ToLauncher::decode(&bytes[..n]) {
                    Some(notice) => Received::Message(notice),
                    None => continue,
                },
                // The reset is reported once, before earlier packets: the rank ended without
                // reading a message.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(Errno::AGAIN) => Received::Empty,
                Err(_) => Received::Closed,
            };
        }
    }

    /// The descriptor that came with the last [`ToLauncher::Spawn`] or [`ToLauncher::Name`].
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Tells the rank that its abort has been received.
    pub fn confirm_abort(&mut self) {
        self.send(&ToRank::AbortTaken);
    }

    /// Sends a message, or keeps it until [`flush`](RankSocket::flush) finds room. Never blocks.
    pub fn send(&mut self, reply: &ToRank) {
        self.pending.push_back(reply.encode());
        self.flush();
    }

    /// Sends what is pending. `false` if some is left: call again when the socket is writable.
    pub fn flush(&mut self) -> bool {
        while let Some(packet) = self.pending.front() {
            match send(
                &self.socket,
                packet,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Err(Errno::AGAIN | Errno::NOBUFS) => return false,
                Err(Errno::INTR) => {}
                // A rank that is gone needs no message.
                Ok(_) | Err(_) => {
                    self.pending.pop_front();
                }
            }
        }
        true
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }
}
