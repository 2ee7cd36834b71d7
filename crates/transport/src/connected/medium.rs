//! What differs between the media over which connections can be made: finding, connecting and
//! accepting.

use crate::tipc::Port;
use crate::{ProcId, TransportError, ZeroCopy};
use rustix::io::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Where a process may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAddress {
    /// At a TCP port.
    Ip(SocketAddr),
    /// At a TIPC port.
    Tipc(Port),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Ip(at) => at.fmt(f),
            PeerAddress::Tipc(at) => at.fmt(f),
        }
    }
}

/// A place to try, and the medium by whose number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The medium's number in its wire.
    pub medium: usize,
    /// Where.
    pub at: PeerAddress,
}

/// What has been begun to reach a place.
#[derive(Debug)]
pub enum CallStart {
    /// A connection; the socket can be written to when that is done, one way or the other.
    Connecting(OwnedFd),
    /// The hello is on its way, and the connection with it.
    Greeting(OwnedFd),
    /// Nothing: the process is not there yet. [`Medium::events`] will say.
    Awaited,
}

/// What a medium has heard of a process that is being called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MediumEvent {
    /// It can be called now.
    Reachable(ProcId),
    /// It cannot, and why.
    Unreachable(ProcId, String),
}

/// What is under a connection once it stands.
pub trait SocketOps: Sync {
    /// Longest body of one stream frame, bytes.
    fn stream_max(&self) -> usize;
    /// Its sockets take pages by reference (splice(2)).
    fn zero_copy(&self) -> ZeroCopy {
        ZeroCopy::Never
    }
    /// A connection has just been made.
    fn opened(&self, _socket: &OwnedFd) {}
    /// Bytes handed to the system that are lost if this process ends now.
    fn unacknowledged(&self, _socket: &OwnedFd) -> usize {
        0
    }
    /// Has the system say that the connection can be read from only when this many bytes have come;
    /// 1: at once, as it is at first. It may do nothing.
    fn set_receive_low_water(&self, _socket: &OwnedFd, _bytes: usize) {}
    /// Returns whether there is certainly nothing to read just now. Asked without taking the
    /// connection from its system, which may be about to bring something.
    fn is_empty(&self, _socket: &OwnedFd) -> bool {
        false
    }
    /// Whether the peer's system owes an answer, and how long ago it was last heard. `None`: the
    /// system itself watches that.
    fn unanswered(&self, _socket: &OwnedFd) -> Option<(bool, Duration)> {
        None
    }
}

/// A way to make connections. Never blocks.
pub trait Medium: Send {
    /// Its name in FERRY_TRANSPORTS and on cards.
    fn name(&self) -> &'static str;
    /// What others need to know to reach this process.
    fn card(&self) -> Vec<u8>;
    /// Where unknown callers come in.
    fn listeners(&self) -> &[OwnedFd];
    /// The next connection that has come to a listener, if there is one.
    fn accept(&self, listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>>;
    /// Where the process of this card can be tried, best first.
    ///
    /// Errors: the card makes no sense.
    fn places(&self, card: &[u8], same_host: bool) -> Result<Vec<PeerAddress>, &'static str>;
    /// Begins to call a process. `hello`: what is said first; a medium that can sends it along.
    ///
    /// Errors: why it cannot be reached there.
    fn call(
        &mut self,
        process: ProcId,
        at: &PeerAddress,
        hello: &[u8],
    ) -> Result<CallStart, String>;
    /// How a begun connection ended; `None`: it has not yet.
    fn connected(&self, socket: &OwnedFd) -> Option<Result<(), Errno>>;
    /// The process is not being called any more.
    fn forget(&mut self, _process: ProcId) {}
    /// Who is at the other end of a connection, as long as there is one.
    fn who(&self, socket: &OwnedFd) -> Option<String>;
    /// The node at the other end of a connection, in the medium's own numbers; to be kept for
    /// [`Medium::cause_of_loss`].
    fn node(&self, _socket: &OwnedFd) -> u32 {
        0
    }
    /// What is known of this node now that a connection to it has broken.
    fn cause_of_loss(&self, _node: u32) -> Option<String> {
        None
    }
    /// From where this process calls, and what chooses that.
    fn local_address(&self) -> String;
    /// What its connections stand on.
    fn socket_ops(&self) -> &'static dyn SocketOps;
    /// Readable when there is news.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The news that have come.
    ///
    /// Errors: none will come any more.
    fn events(&mut self) -> Result<Vec<MediumEvent>, TransportError> {
        Ok(Vec::new())
    }
}
