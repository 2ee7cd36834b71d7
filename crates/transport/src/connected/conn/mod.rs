//! One open connection between two processes: frames out and frames in.
//!
//! ```text
//!             send, stream, send_batch, stream_zero_copy       Inbox
//!                               │                                ▲
//!   ┌───────────────────────────▼──────────────┐   ┌─────────────┴────────────┐
//!   │ Sender (send, coalesce, batch, zero_copy)│   │ Receiver (receive)       │
//!   │ queue of bytes that the socket refused   │   │ frame reader, read mode  │
//!   └───────────────────────────┬──────────────┘   └─────────────▲────────────┘
//!                               │  records, if encrypted (sealed) │
//!                               ▼             socket              │
//! ```

mod batch;
mod coalesce;
mod flush_thread;
pub(super) mod frame;
mod receive;
mod sealed;
mod send;
pub(super) mod zero_copy;

pub use flush_thread::FlushThread;
pub use receive::{ReadMode, SCRATCH_BYTES};
pub use sealed::Seal;

use super::medium::SocketOps;
use crate::{ProcId, ZeroCopy};
use coalesce::{Coalesced, Runs};
use receive::Receiver;
use rustix::io::Errno;
use send::Sender;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Payload bytes that fit one packet of any network. Ethernet's packets hold 1460 bytes of TCP;
/// TIPC's headers and tunnels take some of that, so this stays well below.
const PACKET_BYTES: usize = 1200;

/// Why a connection is over.
#[derive(Debug)]
pub enum Broken {
    /// The other side has closed it.
    Closed,
    /// The system reports an error.
    System(Errno),
    /// The peer has sent bytes that are no frame.
    Malformed(&'static str),
}

/// What a connection runs over.
#[derive(Clone, Copy)]
pub struct Path {
    /// The number of its medium.
    pub medium: usize,
    /// The node at its other end, in the medium's numbers.
    pub node: u32,
    /// The medium's operations on an open socket.
    pub ops: &'static dyn SocketOps,
}

/// What the process's poll set reports of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollInterest {
    /// Nothing: it is not in the set.
    Nothing,
    /// That it can be read from.
    In,
    /// That it can be read from or written to.
    InOut,
}

/// Whether one direction of a connection is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Frames may come.
    Open,
    /// The last frame was a close notification. Another frame opens the direction again.
    Finished,
}

/// An open connection.
pub struct Conn {
    /// The process at its other end.
    pub peer: ProcId,
    /// What it runs over.
    pub path: Path,
    socket: Arc<OwnedFd>,
    /// Keys of both directions, if the connection is encrypted.
    seal: Option<Box<Seal>>,
    sender: Sender,
    /// Short messages that wait for others. `None`: there were none yet.
    coalesced: Option<Arc<Coalesced>>,
    /// Something may be in `coalesced`.
    keeps: bool,
    /// Eager messages that were sent between polls.
    pub runs: Runs,
    receiver: Receiver,
    /// What the process's poll set reports of this connection.
    pub interest: PollInterest,
    /// Reads that found something since this process last slept.
    pub reads_since_sleep: u32,
    /// A send was answered Full. The caller waits for room.
    pub wants_room: bool,
    /// Listed in [`ConnTransport::streams`](super::ConnTransport).
    pub listed_as_stream: bool,
    /// Since when the peer's system owes an answer.
    silent_since: Option<Instant>,
}

impl Conn {
    pub fn new(peer: ProcId, path: Path, socket: OwnedFd, seal: Option<Box<Seal>>) -> Conn {
        path.ops.opened(&socket);
        Conn {
            peer,
            path,
            socket: Arc::new(socket),
            seal,
            sender: Sender::new(path.ops.stream_max().min(frame::STREAM_MAX_BYTES)),
            coalesced: None,
            keeps: false,
            runs: Runs::NONE,
            receiver: Receiver::new(),
            interest: PollInterest::Nothing,
            reads_since_sleep: 0,
            wants_room: false,
            listed_as_stream: false,
            silent_since: None,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether bytes wait in this process, for room in the socket or for others.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.keeps || self.sender.is_behind()
    }

    /// Returns whether large bodies can go to the system by reference.
    pub fn zero_copy(&self) -> ZeroCopy {
        match self.seal {
            None => self.path.ops.zero_copy(),
            Some(_) => ZeroCopy::Never,
        }
    }

    /// Bytes that the peer's system has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.path.ops.unacknowledged(&self.socket)
    }

    /// Returns whether nothing has been heard for `limit` although an answer is owed. To be asked
    /// from time to time.
    ///
    /// A peer that computes does not read, and its window closes. That is no fault: its system
    /// still answers. What counts is that sent segments, or window probes, stay unanswered.
    pub fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        let Some((owes_answer, last_heard)) = self.path.ops.unanswered(&self.socket) else {
            return false;
        };
        if !owes_answer {
            self.silent_since = None;
            return false;
        }
        match self.silent_since {
            Some(since) if now.duration_since(since) <= last_heard => {
                now.duration_since(since) >= limit
            }
            // Newly owed, or something was heard since.
            _ => {
                self.silent_since = Some(now);
                false
            }
        }
    }
}
