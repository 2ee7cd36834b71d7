//! What differs between the media over which connections can be made: finding, calling and
//! accepting.

use crate::tipc::Port;
use crate::{Lends, ProcId, TransportError};
use rustix::io::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Where a process may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// At a TCP port.
    Ip(SocketAddr),
    /// At a TIPC port.
    Tipc(Port),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Ip(at) => at.fmt(f),
            At::Tipc(at) => at.fmt(f),
        }
    }
}

/// A place to try, and the medium by whose number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The medium's number in its wire.
    pub medium: usize,
    /// Where.
    pub at: At,
}

/// What has been begun to reach a place.
#[derive(Debug)]
pub enum Begun {
    /// A connection; the socket can be written to when that is done, one way or the other.
    Connecting(OwnedFd),
    /// The hello is on its way, and the connection with it.
    Greeting(OwnedFd),
    /// Nothing: the process is not there yet. [`Medium::news`] will say.
    Awaited,
}

/// What a medium has heard of a process that is being called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// It can be called now.
    Here(ProcId),
    /// It cannot, and why.
    Gone(ProcId, String),
}

/// What is under a connection once it stands.
pub trait Line: Sync {
    /// Longest body of one stream frame, bytes.
    fn stream_max(&self) -> usize;
    /// Its sockets take pages by reference (splice(2)).
    fn lends(&self) -> Lends {
        Lends::Never
    }
    /// A connection has just been made.
    fn opened(&self, _socket: &OwnedFd) {}
    /// Bytes handed to the system that are lost if this process ends now.
    fn unacknowledged(&self, _socket: &OwnedFd) -> usize {
        0
    }
    /// Has the system say that the connection can be read from only when so many bytes have come;
    /// 1: at once, as it is at first. It may do nothing.
    fn gather(&self, _socket: &OwnedFd, _bytes: usize) {}
    /// Is there certainly nothing to read just now? Asked without taking the connection from its
    /// system, which may be about to bring something.
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
    /// Where strangers come in.
    fn listeners(&self) -> &[OwnedFd];
    /// The next connection that has come to a listener, if there is one.
    fn accept(&self, listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>>;
    /// Where the process of this card can be tried, best first.
    ///
    /// Errors: the card makes no sense.
    fn places(&self, card: &[u8], same_host: bool) -> Result<Vec<At>, &'static str>;
    /// Begins to call a process. `hello`: what is said first; a medium that can sends it along.
    ///
    /// Errors: why it cannot be reached there.
    fn call(&mut self, process: ProcId, at: &At, hello: &[u8]) -> Result<Begun, String>;
    /// How a begun connection ended; `None`: it has not yet.
    fn connected(&self, socket: &OwnedFd) -> Option<Result<(), Errno>>;
    /// The process is not being called any more.
    fn forget(&mut self, _process: ProcId) {}
    /// Who is at the other end of a connection, as long as there is one.
    fn who(&self, socket: &OwnedFd) -> Option<String>;
    /// The node at the other end of a connection, in the medium's own numbers; to be kept for
    /// [`Medium::afterwards`].
    fn node(&self, _socket: &OwnedFd) -> u32 {
        0
    }
    /// What is known of this node now that a connection to it has broken.
    fn afterwards(&self, _node: u32) -> Option<String> {
        None
    }
    /// From where this process calls, and what chooses that.
    fn whence(&self) -> String;
    /// What its connections stand on.
    fn line(&self) -> &'static dyn Line;
    /// Readable when there is news.
    fn news_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The news that have come.
    ///
    /// Errors: none will come any more.
    fn news(&mut self) -> Result<Vec<News>, TransportError> {
        Ok(Vec::new())
    }
}
