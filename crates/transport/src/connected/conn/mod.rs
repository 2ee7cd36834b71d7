//! One open connection: frames out, frames in.

mod batch;
pub(crate) mod frame;
mod receive;
mod sealed;
mod send;
pub(super) mod zero_copy;

pub use receive::SCRATCH_BYTES;
pub use sealed::Seal;

use super::medium::SocketOps;
use crate::poll_throttle::PollThrottle;
use crate::{ProcId, ZeroCopy};
use frame::Reader;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes that a connection which is read directly is said to wait for: more than any message that
/// is sent at once.
const BUSY_LOW_WATER_BYTES: usize = 128 * 1024;
/// Polls in which a connection that is read directly may be said to be empty before it is read all
/// the same: only then it tells that it has broken.
const EMPTY_CHECKS_MAX: u32 = 64;

/// Why a connection is over.
#[derive(Debug)]
pub enum Broken {
    /// The other side has closed it.
    Closed,
    /// The system says so.
    System(Errno),
    /// What came makes no sense.
    Malformed(&'static str),
}

/// Over what a connection goes.
#[derive(Clone, Copy)]
pub struct Path {
    /// The number of its medium.
    pub medium: usize,
    /// The node at its other end, as the medium calls it.
    pub node: u32,
    /// What it stands on.
    pub ops: &'static dyn SocketOps,
}

/// An open connection.
pub struct Conn {
    /// The process at its other end.
    pub peer: ProcId,
    /// Over what it goes.
    pub path: Path,
    stream_max: usize,
    socket: OwnedFd,
    /// Bytes to hand to the system at once, at most.
    write_max: usize,
    reader: Reader,
    /// Bytes that wait for room in the socket, from `sent` on.
    queue: Vec<u8>,
    sent: usize,
    /// Bytes of the begun stream frame that the caller has yet to give.
    stream_left: usize,
    seal: Option<Box<Seal>>,
    /// The other side has said farewell, and nothing since.
    pub leaving: bool,
    /// This side has, and nothing since.
    pub farewell_said: bool,
    /// Somebody was answered Full, or bytes wait: it is on the list of those that want to write.
    pub wants_room: bool,
    /// What the system's poll set has been asked to say of it.
    pub interest: super::poll::PollInterest,
    /// Reads that found something since this process last slept.
    pub reads_since_sleep: u32,
    /// It is on the list of those that a stream comes by.
    pub streams: bool,
    /// Bytes that must have come before the system says that it can be read from.
    receive_low_water: usize,
    /// It is read directly, and never slept for ([`Conn::watch`]).
    watched: bool,
    /// The last read brought nothing, and so often it was not even tried since.
    idle: bool,
    said_empty: u32,
    silence: Option<Silence>,
    /// The last that came was a stream.
    pub bulk: bool,
    /// The last read brought more than one packet, and that was not just one message.
    pub large: bool,
    /// Bytes went to its system by reference.
    lent: bool,
    /// Whether what comes meets its receives.
    throttle: PollThrottle,
}

/// Data is under way, and nothing has been heard.
struct Silence {
    since: Instant,
}

impl Conn {
    pub fn new(peer: ProcId, path: Path, socket: OwnedFd, seal: Option<Box<Seal>>) -> Conn {
        path.ops.opened(&socket);
        Conn {
            peer,
            path,
            stream_max: path.ops.stream_max().min(frame::STREAM_MAX),
            socket,
            write_max: usize::MAX,
            reader: Reader::new(),
            queue: Vec::new(),
            sent: 0,
            stream_left: 0,
            seal,
            leaving: false,
            farewell_said: false,
            wants_room: false,
            interest: super::poll::PollInterest::Nothing,
            reads_since_sleep: 0,
            streams: false,
            receive_low_water: 1,
            watched: false,
            idle: false,
            said_empty: 0,
            silence: None,
            bulk: false,
            large: false,
            lent: false,
            throttle: PollThrottle::default(),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether anything waits for room.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.sent < self.queue.len()
    }

    /// Returns whether bytes can go to its system by reference.
    pub fn zero_copy(&self) -> ZeroCopy {
        match self.seal {
            None => self.path.ops.zero_copy(),
            Some(_) => ZeroCopy::Never,
        }
    }

    /// Returns whether a part of a stream has come. Nothing else can come before its end.
    #[inline]
    pub fn is_streamed_to(&self) -> bool {
        self.reader.coming() > 0
    }

    /// The system is to say that there is something only when `most` bytes of the stream that is
    /// coming in are there, or the rest of it. Returns whether it says so later than at the
    /// first byte.
    pub fn set_receive_low_water(&mut self, most: usize) -> bool {
        // A record is no piece of the stream: what is in it is not known before it is whole.
        let coming = if self.seal.is_some() {
            0
        } else {
            self.reader.coming()
        };
        let bytes = coming.min(most).max(1);
        if self.receive_low_water != bytes {
            self.receive_low_water = bytes;
            self.path.ops.set_receive_low_water(&self.socket, bytes);
        }
        bytes > 1
    }

    /// Says whether this process reads the connection directly, and nobody sleeps for it.
    ///
    /// The system acknowledges what came in more than one packet when it is read, before the read
    /// returns. Where more is waited for than is there it does so when the packets come: on the
    /// sender's core, if that is this machine's, and in no case between a message and its answer.
    pub fn watch(&mut self, directly: bool) {
        if self.watched != directly {
            self.watched = directly;
            self.receive_low_water = if directly { BUSY_LOW_WATER_BYTES } else { 1 };
            self.path
                .ops
                .set_receive_low_water(&self.socket, self.receive_low_water);
        }
    }

    /// Returns whether there is certainly nothing to read. Asked only of a connection that is read
    /// directly, and after a read in vain.
    ///
    /// A read locks the connection even if there is nothing, and what arrives meanwhile, with all
    /// that has to be done for it, is left to this core and to the end of that call. Of a long
    /// message that is what is wanted ([`Connected::asks_first`](super::Connected)).
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        if !self.idle || !self.watched || self.bulk {
            return false;
        }
        self.said_empty += 1;
        if self.said_empty < EMPTY_CHECKS_MAX && self.path.ops.is_empty(&self.socket) {
            return true;
        }
        self.said_empty = 0;
        false
    }

    /// Bytes that the peer's system has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.path.ops.unacknowledged(&self.socket)
    }

    /// Has nothing been heard for `limit` although something should have been? To be asked from
    /// time to time.
    ///
    /// A peer that computes does not read, its window closes, and that is no fault: its system
    /// still answers. What counts is that sent segments, or questions whether the window is
    /// open again, stay unanswered.
    pub fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        let Some((waiting, heard)) = self.path.ops.unanswered(&self.socket) else {
            return false;
        };
        if !waiting {
            self.silence = None;
            return false;
        }
        match &self.silence {
            Some(s) if now.duration_since(s.since) > heard => {
                // Something was heard meanwhile.
                self.silence = Some(Silence { since: now });
                false
            }
            Some(s) => now.duration_since(s.since) >= limit,
            None => {
                self.silence = Some(Silence { since: now });
                false
            }
        }
    }
}

/// Bytes that go into one packet of any network.
const PACKET_BYTES: usize = 1200;
