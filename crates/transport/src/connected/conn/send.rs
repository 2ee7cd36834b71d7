//! Sending by a connection: whole messages, streams, and the queue of what has no room.

use super::frame::{self, Kind};
use super::{Broken, Conn, PACKET_BYTES};
use crate::Body;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Bytes that may wait for room in the socket; more messages are answered Full.
pub(super) const QUEUE_MAX_BYTES: usize = 256 * 1024;

/// Messages (frame header and all) up to this many bytes are copied into one run before they are
/// sent: the system takes that sooner than two.
const COPY_MAX_BYTES: usize = 16 * 1024 + 128;

/// Header and head of a stream whose body has `len` bytes, and how many bytes they are.
pub(super) fn stream_start(
    message: u8,
    head: &[u8],
    len: usize,
) -> ([u8; frame::HEADER + frame::HEAD_MAX], usize) {
    let mut start = [0; frame::HEADER + frame::HEAD_MAX];
    let n = frame::HEADER + head.len();
    let header = frame::header(Kind::Stream, message, head.len(), head.len() + len);
    start[..frame::HEADER].copy_from_slice(&header);
    start[frame::HEADER..n].copy_from_slice(head);
    (start, n)
}

/// Writes from the front of `first` and then `second`, not more than `most`; returns how many bytes
/// the socket took.
///
/// TIPC cuts what it is given for the link that it used when the connection was made. If another
/// link with smaller packets has taken over, it refuses what is longer than one of those: from then
/// on it gets no more than that at once.
#[inline]
pub(super) fn write(
    socket: &OwnedFd,
    most: &mut usize,
    first: &[u8],
    second: &[u8],
) -> Result<usize, Broken> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let sent = if first.len() + second.len() > *most {
            let one = if first.is_empty() { second } else { first };
            rustix::net::send(socket, &one[..one.len().min(*most)], flags)
        } else if second.is_empty() {
            rustix::net::send(socket, first, flags)
        } else if first.is_empty() {
            rustix::net::send(socket, second, flags)
        } else {
            let pieces = [IoSlice::new(first), IoSlice::new(second)];
            sendmsg(socket, &pieces, &mut SendAncillaryBuffer::default(), flags)
        };
        return match sent {
            Ok(n) => Ok(n),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(Errno::MSGSIZE) if *most > PACKET_BYTES => {
                *most = PACKET_BYTES;
                continue;
            }
            Err(e) => Err(Broken::System(e)),
        };
    }
}

impl Conn {
    /// May another frame begin now?
    #[inline]
    fn has_room(&self) -> bool {
        self.stream_left == 0 && self.queue.len() - self.sent < QUEUE_MAX_BYTES
    }

    /// Sends a whole message, or takes it to be sent. `scratch` is overwritten. False: no room.
    #[inline]
    pub fn send(
        &mut self,
        message: u8,
        head: &[u8],
        body: Body<'_>,
        scratch: &mut [u8],
    ) -> Result<bool, Broken> {
        if !self.has_room() {
            self.flush()?;
            if !self.has_room() {
                return Ok(false);
            }
        }
        let len = head.len() + body.len();
        let header = frame::header(Kind::Whole, message, 0, len);
        match body {
            Body::Bytes(bytes) if !self.is_behind() && self.seal.is_none() => {
                // One run for header and head, and a body that is not long: a further piece costs
                // the kernel more than these bytes cost to copy.
                if let Some(run) = scratch.get_mut(..frame::HEADER + len)
                    && run.len() <= COPY_MAX_BYTES
                {
                    let (first, rest) = run.split_at_mut(frame::HEADER + head.len());
                    first[..frame::HEADER].copy_from_slice(&header);
                    first[frame::HEADER..].copy_from_slice(head);
                    rest.copy_from_slice(bytes);
                    let gone = write(&self.socket, &mut self.write_max, run, &[])?;
                    if gone < run.len() {
                        self.keep(run, &[], gone);
                    }
                    self.farewell_said = false;
                    return Ok(true);
                }
                let mut start = [0; frame::HEADER + frame::HEAD_MAX];
                let n = frame::HEADER + head.len();
                start[..frame::HEADER].copy_from_slice(&header);
                start[frame::HEADER..n].copy_from_slice(head);
                let gone = write(&self.socket, &mut self.write_max, &start[..n], bytes)?;
                if gone < n + bytes.len() {
                    self.keep(&start[..n], bytes, gone);
                }
            }
            body => {
                let at = self.begin(frame::HEADER + len);
                let out = &mut self.queue[at..];
                out[..frame::HEADER].copy_from_slice(&header);
                let (first, rest) =
                    out[frame::HEADER..frame::HEADER + len].split_at_mut(head.len());
                first.copy_from_slice(head);
                match body {
                    Body::Bytes(bytes) => rest.copy_from_slice(bytes),
                    Body::Fill(_, fill) => fill(rest),
                }
                self.seal_from(at)?;
                self.flush()?;
            }
        }
        self.farewell_said = false;
        Ok(true)
    }

    /// Keeps what the socket did not take of `start` and `bytes`.
    #[cold]
    pub(super) fn keep(&mut self, start: &[u8], bytes: &[u8], gone: usize) {
        self.compact();
        self.queue
            .extend_from_slice(&start[gone.min(start.len())..]);
        self.queue
            .extend_from_slice(&bytes[gone.saturating_sub(start.len())..]);
    }

    /// Room at the end of the queue for `len` bytes; returns where they begin. With encryption they
    /// become records by `seal_from`.
    pub(super) fn begin(&mut self, len: usize) -> usize {
        self.compact();
        let at = self.queue.len();
        self.queue.resize(at + len, 0);
        at
    }

    fn compact(&mut self) {
        if self.sent > 0 && (self.sent == self.queue.len() || self.sent > QUEUE_MAX_BYTES / 2) {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends a word without a body.
    pub fn say(&mut self, kind: Kind) -> Result<(), Broken> {
        let header = frame::header(kind, 0, 0, 0);
        let at = self.begin(frame::HEADER);
        self.queue[at..].copy_from_slice(&header);
        self.seal_from(at)?;
        self.flush()?;
        Ok(())
    }

    /// Sends from the front of a stream's body, straight from the caller's memory; returns how many
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
        if self.stream_left > 0 {
            let piece = &body[..self.stream_left.min(body.len())];
            let gone = write(&self.socket, &mut self.write_max, &[], piece)?;
            self.stream_left -= gone;
            return Ok(gone);
        }
        let piece = &body[..body.len().min(self.stream_max)];
        let (start, n) = stream_start(message, head, piece.len());
        let gone = write(&self.socket, &mut self.write_max, &start[..n], piece)?;
        if gone == 0 {
            return Ok(0);
        }
        self.farewell_said = false;
        if gone < n {
            self.keep(&start[..n], &[], gone);
        }
        let taken = gone.saturating_sub(n);
        self.stream_left = piece.len() - taken;
        Ok(taken)
    }

    /// Hands the socket what waits. Returns whether it took any.
    pub fn flush(&mut self) -> Result<bool, Broken> {
        let mut moved = false;
        while self.is_behind() {
            let gone = write(
                &self.socket,
                &mut self.write_max,
                &self.queue[self.sent..],
                &[],
            )?;
            if gone == 0 {
                return Ok(moved);
            }
            moved = true;
            self.sent += gone;
        }
        self.queue.clear();
        self.sent = 0;
        // A burst is over: what it needed is not kept for ever.
        if self.queue.capacity() > 2 * frame::WHOLE_MAX {
            self.queue = Vec::new();
        }
        Ok(moved)
    }

    /// Returns whether a stream frame has begun and is not complete. Then nothing but its rest can
    /// be sent.
    pub fn in_stream(&self) -> bool {
        self.stream_left > 0
    }
}
