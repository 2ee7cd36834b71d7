//! The contract of a medium, such as TCP: finding, connecting and accepting, and the options of
//! an open socket.

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

/// An address to try, and its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The medium's number in its transport.
    pub medium: usize,
    /// The address.
    pub at: PeerAddress,
}

/// How a connect has begun.
#[derive(Debug)]
pub enum ConnectStart {
    /// A connect is under way. The socket can be written to when it has succeeded or failed.
    Connecting(OwnedFd),
    /// The handshake's first message is on its way and makes the connection.
    HelloSent(OwnedFd),
    /// The process is not there yet. [`Medium::events`] will report it.
    Deferred,
}

/// What a medium reports of a process that is being connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MediumEvent {
    /// It can be connected to now.
    Reachable(ProcId),
    /// It cannot be connected to, for this reason.
    Unreachable(ProcId, String),
}

/// A medium's operations on the socket of an open connection.
pub trait SocketOps: Sync {
    /// Longest body of one stream frame, bytes.
    fn stream_max(&self) -> usize;
    /// Whether its sockets take pages by reference (splice(2)).
    fn zero_copy(&self) -> ZeroCopy {
        ZeroCopy::Never
    }
    /// Sets options of a connection that has just been made.
    fn opened(&self, _socket: &OwnedFd) {}
    /// Bytes that the system would lose if this process ended now.
    fn unacknowledged(&self, _socket: &OwnedFd) -> usize {
        0
    }
    /// Sets the low-water mark: the system reports the socket as readable only when this many bytes
    /// have come. 1, the initial value: at the first byte. May do nothing.
    fn set_receive_low_water(&self, _socket: &OwnedFd, _bytes: usize) {}
    /// Returns whether there is certainly nothing to read now. Does not lock the socket, so that
    /// the system can go on bringing something.
    fn is_empty(&self, _socket: &OwnedFd) -> bool {
        false
    }
    /// Whether the peer's system owes an answer, and how long ago it was last heard. `None`: this
    /// system watches that itself.
    fn unanswered(&self, _socket: &OwnedFd) -> Option<(bool, Duration)> {
        None
    }
}

/// A way to make connections. Never blocks.
pub trait Medium: Send {
    /// Its name in FERRY_TRANSPORTS and on cards.
    fn name(&self) -> &'static str;
    /// Returns whether it reaches processes of other jobs.
    fn serves_other_jobs(&self) -> bool {
        false
    }
    /// Its part of this process's business card: what others need to reach this process.
    fn card(&self) -> Vec<u8>;
    /// The sockets on which other processes' connections arrive.
    fn listeners(&self) -> &[OwnedFd];
    /// Listens at the addresses by which other hosts reach this one, too. They are at the end of
    /// [`Medium::listeners`] then, and on its card.
    ///
    /// Errors: there is none, or the system refuses.
    fn listen_outside(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
    /// The next connection that has come to a listener, if there is one.
    fn accept(&self, listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>>;
    /// The addresses at which the process of this card can be tried, best first.
    ///
    /// Errors: the card makes no sense.
    fn addresses(&self, card: &[u8], same_host: bool) -> Result<Vec<PeerAddress>, &'static str>;
    /// Begins to connect to a process. `hello` is the handshake's first message. A medium that can
    /// sends it along.
    ///
    /// Errors: why the process cannot be reached there.
    fn connect(
        &mut self,
        process: ProcId,
        at: &PeerAddress,
        hello: &[u8],
    ) -> Result<ConnectStart, String>;
    /// How a connect has ended. `None`: it has not yet.
    fn connected(&self, socket: &OwnedFd) -> Option<Result<(), Errno>>;
    /// Stops watching for a process that is not being connected to any more.
    fn forget(&mut self, _process: ProcId) {}
    /// The address at the other end of a connection, as long as there is one.
    fn peer_address(&self, socket: &OwnedFd) -> Option<String>;
    /// The node at the other end of a connection, in the medium's own numbers. For
    /// [`Medium::cause_of_loss`].
    fn node(&self, _socket: &OwnedFd) -> u32 {
        0
    }
    /// Why a connection to this node may have broken, if the medium knows.
    fn cause_of_loss(&self, _node: u32) -> Option<String> {
        None
    }
    /// The addresses from which this process connects, and the setting that chooses them. For
    /// messages.
    fn local_address(&self) -> String;
    /// Its operations on open sockets.
    fn socket_ops(&self) -> &'static dyn SocketOps;
    /// A descriptor that is readable when there are events.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The events that have come.
    ///
    /// Errors: none will come any more.
    fn events(&mut self) -> Result<Vec<MediumEvent>, TransportError> {
        Ok(Vec::new())
    }
}
