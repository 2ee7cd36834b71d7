//! The sending side of a connection: whole messages, streams, and the queue of what has no room.

use super::frame::{self, HEAD_MAX_BYTES, HEADER_BYTES, Kind};
use super::{Broken, Conn, Direction, PACKET_BYTES};
use crate::Body;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Bytes that may wait for room in the socket. Above this, messages are answered Full. A choice:
/// four whole messages, so that a burst of short ones goes in one call later.
pub(super) const QUEUE_MAX_BYTES: usize = 256 * 1024;

/// Messages of up to this many bytes, frame header included, are copied into one run before they
/// are sent: the system takes two runs longer than the copy takes. Measured
/// (docs/measured/tcp.md); 16 KiB of user data, and 128 bytes for the headers in front of it.
const COPY_MAX_BYTES: usize = 16 * 1024 + 128;

/// Whether large bodies have gone to the system by reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    /// The system has copies only.
    Copied,
    /// The system may still read the program's own pages.
    Referenced,
}

/// What a connection keeps for sending.
pub(super) struct Sender {
    /// Bytes for which the socket had no room, from `queue_sent` on.
    pub queue: Vec<u8>,
    /// Bytes at the queue's front that the socket has taken.
    pub queue_sent: usize,
    /// Bytes of the begun stream frame that the caller has yet to give.
    pub stream_left: usize,
    /// Longest body of one stream frame, bytes.
    pub stream_max: usize,
    /// Most bytes that one system call may be given.
    pub write_max: usize,
    pub direction: Direction,
    pub pages: Pages,
}

impl Sender {
    pub fn new(stream_max: usize) -> Sender {
        Sender {
            queue: Vec::new(),
            queue_sent: 0,
            stream_left: 0,
            stream_max,
            write_max: usize::MAX,
            direction: Direction::Open,
            pages: Pages::Copied,
        }
    }

    #[inline]
    pub fn is_behind(&self) -> bool {
        self.queue_sent < self.queue.len()
    }

    /// Returns whether another frame may begin now.
    #[inline]
    fn has_room(&self) -> bool {
        self.stream_left == 0 && self.queue.len() - self.queue_sent < QUEUE_MAX_BYTES
    }

    /// Queues what the socket did not take of `start` and `bytes`: all but the first `sent` bytes.
    #[cold]
    pub fn queue_rest(&mut self, start: &[u8], bytes: &[u8], sent: usize) {
        self.compact();
        self.queue
            .extend_from_slice(&start[sent.min(start.len())..]);
        self.queue
            .extend_from_slice(&bytes[sent.saturating_sub(start.len())..]);
    }

    /// Makes room for `len` bytes at the end of the queue. Returns where they begin.
    pub fn reserve(&mut self, len: usize) -> usize {
        self.compact();
        let at = self.queue.len();
        self.queue.resize(at + len, 0);
        at
    }

    /// Drops bytes that were sent from the queue's front, once they are many.
    pub(super) fn compact(&mut self) {
        if self.queue_sent > 0
            && (self.queue_sent == self.queue.len() || self.queue_sent > QUEUE_MAX_BYTES / 2)
        {
            self.queue.drain(..self.queue_sent);
            self.queue_sent = 0;
        }
    }
}

/// Header and head of a stream whose body has `len` bytes, and how many bytes they are.
pub(super) fn stream_start(
    message: u8,
    head: &[u8],
    len: usize,
) -> ([u8; HEADER_BYTES + HEAD_MAX_BYTES], usize) {
    let mut start = [0; HEADER_BYTES + HEAD_MAX_BYTES];
    let n = HEADER_BYTES + head.len();
    let header = frame::header(Kind::Stream, message, head.len(), head.len() + len);
    start[..HEADER_BYTES].copy_from_slice(&header);
    start[HEADER_BYTES..n].copy_from_slice(head);
    (start, n)
}

/// Writes from the front of `first` and then `second`, at most `write_max` bytes. Returns how many
/// bytes the socket took.
///
/// TIPC cuts what it is given for the link that it used when the connection was made. If another
/// link with smaller packets has taken over, it refuses what is longer than one of those. From
/// then on the connection gives it no more than one packet at once.
#[inline]
pub(super) fn write(
    socket: &OwnedFd,
    write_max: &mut usize,
    first: &[u8],
    second: &[u8],
) -> Result<usize, Broken> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let sent = if first.len() + second.len() > *write_max {
            let one = if first.is_empty() { second } else { first };
            rustix::net::send(socket, &one[..one.len().min(*write_max)], flags)
        } else if second.is_empty() {
            rustix::net::send(socket, first, flags)
        } else if first.is_empty() {
            rustix::net::send(socket, second, flags)
        } else {
            let runs = [IoSlice::new(first), IoSlice::new(second)];
            sendmsg(socket, &runs, &mut SendAncillaryBuffer::default(), flags)
        };
        return match sent {
            Ok(n) => Ok(n),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(Errno::MSGSIZE) if *write_max > PACKET_BYTES => {
                *write_max = PACKET_BYTES;
                continue;
            }
            Err(e) => Err(Broken::System(e)),
        };
    }
}

impl Conn {
    /// Sends a whole message, or queues it. `scratch` is overwritten. False: no room.
    #[inline]
    pub fn send(
        &mut self,
        message: u8,
        head: &[u8],
        body: Body<'_>,
        scratch: &mut [u8],
    ) -> Result<bool, Broken> {
        self.take_coalesced();
        if !self.sender.has_room() {
            self.flush()?;
            if !self.sender.has_room() {
                return Ok(false);
            }
        }
        let len = head.len() + body.len();
        let header = frame::header(Kind::Whole, message, 0, len);
        match body {
            Body::Bytes(bytes) if !self.is_behind() && self.seal.is_none() => {
                if let Some(run) = scratch.get_mut(..HEADER_BYTES + len)
                    && run.len() <= COPY_MAX_BYTES
                {
                    let (first, rest) = run.split_at_mut(HEADER_BYTES + head.len());
                    first[..HEADER_BYTES].copy_from_slice(&header);
                    first[HEADER_BYTES..].copy_from_slice(head);
                    rest.copy_from_slice(bytes);
                    let sent = write(&self.socket, &mut self.sender.write_max, run, &[])?;
                    if sent < run.len() {
                        self.sender.queue_rest(run, &[], sent);
                    }
                    self.sender.direction = Direction::Open;
                    return Ok(true);
                }
                let mut start = [0; HEADER_BYTES + HEAD_MAX_BYTES];
                let n = HEADER_BYTES + head.len();
                start[..HEADER_BYTES].copy_from_slice(&header);
                start[HEADER_BYTES..n].copy_from_slice(head);
                let sent = write(&self.socket, &mut self.sender.write_max, &start[..n], bytes)?;
                if sent < n + bytes.len() {
                    self.sender.queue_rest(&start[..n], bytes, sent);
                }
            }
            body => {
                let at = self.sender.reserve(HEADER_BYTES + len);
                let out = &mut self.sender.queue[at..];
                out[..HEADER_BYTES].copy_from_slice(&header);
                let (first, rest) = out[HEADER_BYTES..HEADER_BYTES + len].split_at_mut(head.len());
                first.copy_from_slice(head);
                match body {
                    Body::Bytes(bytes) => rest.copy_from_slice(bytes),
                    Body::Fill(_, fill) => fill(rest),
                }
                self.seal_from(at)?;
                self.flush()?;
            }
        }
        self.sender.direction = Direction::Open;
        Ok(true)
    }

    /// Sends a frame that has neither head nor body.
    pub fn send_empty(&mut self, kind: Kind) -> Result<(), Broken> {
        self.take_coalesced();
        let header = frame::header(kind, 0, 0, 0);
        let at = self.sender.reserve(HEADER_BYTES);
        self.sender.queue[at..].copy_from_slice(&header);
        self.seal_from(at)?;
        self.flush()?;
        Ok(())
    }

    /// Sends a close notification, unless it was the last frame or a stream frame is not complete.
    /// A failure is found by the next read.
    pub fn finish(&mut self) {
        if self.sender.direction == Direction::Open
            && !self.in_stream()
            && self.send_empty(Kind::CloseNotify).is_ok()
        {
            self.sender.direction = Direction::Finished;
        }
    }

    /// Sends from the front of a stream's body, straight from the caller's memory. Returns how many
    /// bytes were taken.
    pub fn stream(&mut self, message: u8, head: &[u8], body: &[u8]) -> Result<usize, Broken> {
        if self.is_behind() {
            self.flush()?;
            if self.is_behind() {
                return Ok(0);
            }
        }
        if self.seal.is_some() {
            return self.sealed_stream(message, head, body);
        }
        let sender = &mut self.sender;
        if sender.stream_left > 0 {
            let part = &body[..sender.stream_left.min(body.len())];
            let sent = write(&self.socket, &mut sender.write_max, &[], part)?;
            sender.stream_left -= sent;
            return Ok(sent);
        }
        let part = &body[..body.len().min(sender.stream_max)];
        let (start, n) = stream_start(message, head, part.len());
        let sent = write(&self.socket, &mut sender.write_max, &start[..n], part)?;
        if sent == 0 {
            return Ok(0);
        }
        sender.direction = Direction::Open;
        if sent < n {
            sender.queue_rest(&start[..n], &[], sent);
        }
        let taken = sent.saturating_sub(n);
        sender.stream_left = part.len() - taken;
        Ok(taken)
    }

    /// Hands the socket what is queued. Returns whether it took any.
    pub fn flush(&mut self) -> Result<bool, Broken> {
        self.take_coalesced();
        let mut moved = false;
        let sender = &mut self.sender;
        while sender.is_behind() {
            let sent = write(
                &self.socket,
                &mut sender.write_max,
                &sender.queue[sender.queue_sent..],
                &[],
            )?;
            if sent == 0 {
                return Ok(moved);
            }
            moved = true;
            sender.queue_sent += sent;
        }
        sender.queue.clear();
        sender.queue_sent = 0;
        // Memory that a burst needed is given back.
        if sender.queue.capacity() > 2 * frame::WHOLE_MAX_BYTES {
            sender.queue = Vec::new();
        }
        Ok(moved)
    }

    /// Returns whether a stream frame has begun and is not complete. Then only its rest can be
    /// sent.
    pub fn in_stream(&self) -> bool {
        self.sender.stream_left > 0
    }
}
