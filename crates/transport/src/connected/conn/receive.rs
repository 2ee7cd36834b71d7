//! The receiving side of a connection: reads into a message's own place, or into scratch memory
//! that all connections share.

use super::frame::{self, Found, Reader};
use super::{Broken, Conn, Direction, PACKET_BYTES};
use crate::Inbox;
use crate::poll_throttle::PollThrottle;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

/// Bytes of the scratch memory into which all connections read. A choice: about four of the
/// longest whole messages.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// Bytes read beyond the end of a stream frame. A choice: more than any header and head. Mostly
/// another stream frame follows, whose body is not to be copied.
const READ_AHEAD_BYTES: usize = 256;

/// Reads from one connection before another one is polled. A choice.
const READS_PER_POLL: usize = 16;

/// Low-water mark of a connection that is busy-polled, bytes. A choice: more than any eager
/// message, so that the mark is not reached by one. What the mark gains is measured
/// (docs/measured/tcp.md).
const BUSY_LOW_WATER_BYTES: usize = 128 * 1024;

/// Polls in a row that may find a busy-polled connection empty without a read. Then it is read all
/// the same: only a read finds that the connection has broken. A choice: one read in 64 polls
/// costs next to nothing.
const EMPTY_CHECKS_MAX: u32 = 64;

/// How this process finds out that something has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMode {
    /// By the poll set, which may wake it.
    PollSet,
    /// By reading the connection at each poll. Nobody sleeps for it.
    Busy,
}

/// What the last read found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastRead {
    Nothing,
    Bytes,
}

/// What the bytes that came last belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Short messages.
    Messages,
    /// A stream, or a message so long that it is read straight into its place.
    Bulk,
}

/// How the bytes that came last arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// In one packet, or as a single message.
    Single,
    /// In several packets, with more than one message.
    Burst,
}

/// What a connection keeps for receiving.
pub(super) struct Receiver {
    pub reader: Reader,
    mode: ReadMode,
    /// Bytes that must have come before the system reports the socket as readable.
    low_water: usize,
    last_read: LastRead,
    /// Polls since the last read that found the connection empty.
    empty_checks: u32,
    content: Content,
    arrival: Arrival,
    direction: Direction,
    throttle: PollThrottle,
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver {
            reader: Reader::new(),
            mode: ReadMode::PollSet,
            low_water: 1,
            last_read: LastRead::Bytes,
            empty_checks: 0,
            content: Content::Messages,
            arrival: Arrival::Single,
            direction: Direction::Open,
            throttle: PollThrottle::default(),
        }
    }
}

/// Adds what one read has found to what the reads before it have.
pub(super) fn merge(all: &mut Found, found: Found) {
    all.opened |= found.opened;
    all.unexpected |= found.unexpected;
    all.close_notify = found.close_notify || all.close_notify && found.delivered == 0;
    all.delivered += found.delivered;
}

/// Reads what is there. `None`: nothing.
#[inline]
pub(super) fn read(socket: &OwnedFd, into: &mut [u8]) -> Result<Option<usize>, Broken> {
    loop {
        return match recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Broken::Closed),
            Ok((n, _)) => Ok(Some(n)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => Err(Broken::System(e)),
        };
    }
}

/// Reads what is there into `first` and then `second`. `None`: nothing.
fn read2(socket: &OwnedFd, first: &mut [u8], second: &mut [u8]) -> Result<Option<usize>, Broken> {
    loop {
        let mut runs = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let mut none = RecvAncillaryBuffer::default();
        return match recvmsg(socket, &mut runs, &mut none, RecvFlags::DONTWAIT) {
            Ok(m) if m.bytes == 0 => Err(Broken::Closed),
            Ok(m) => Ok(Some(m.bytes)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => Err(Broken::System(e)),
        };
    }
}

impl Conn {
    /// Delivers what has come, up to a fair share.
    #[inline]
    pub fn receive(&mut self, scratch: &mut [u8], inbox: &mut dyn Inbox) -> Result<Found, Broken> {
        let mut all = Found::default();
        for _ in 0..READS_PER_POLL {
            let before = all.delivered;
            let (asked, got) = if self.seal.is_some() {
                (
                    scratch.len(),
                    self.receive_sealed(scratch, inbox, &mut all)?,
                )
            } else {
                self.receive_plain(scratch, inbox, &mut all)?
            };
            let receiver = &mut self.receiver;
            if got == 0 {
                receiver.last_read = LastRead::Nothing;
            } else {
                receiver.last_read = LastRead::Bytes;
                let one = all.delivered == before + 1;
                // A part of one whole message tells nothing: what is behind it does.
                if !one || !receiver.reader.is_in_message() {
                    let one = one && receiver.reader.is_between_frames();
                    receiver.arrival = if got > PACKET_BYTES && !one {
                        Arrival::Burst
                    } else {
                        Arrival::Single
                    };
                }
            }
            let unexpected = std::mem::take(&mut all.unexpected);
            // A short read has emptied the socket. Another would cost a system call for nothing.
            let found = all.delivered > before || unexpected;
            if got < asked || found && receiver.throttle.stops_after(unexpected) {
                break;
            }
        }
        if all.close_notify {
            self.receiver.direction = Direction::Finished;
        } else if all.delivered > 0 {
            self.receiver.direction = Direction::Open;
        }
        Ok(all)
    }

    /// One read of a connection that is not encrypted. Returns how many bytes were asked for, and
    /// how many came.
    #[inline]
    fn receive_plain(
        &mut self,
        scratch: &mut [u8],
        inbox: &mut dyn Inbox,
        all: &mut Found,
    ) -> Result<(usize, usize), Broken> {
        let receiver = &mut self.receiver;
        let Some(space) = receiver.reader.space(self.peer, inbox) else {
            let asked = match receiver.content {
                Content::Bulk => READ_AHEAD_BYTES,
                Content::Messages => scratch.len(),
            };
            let Some(got) = read(&self.socket, &mut scratch[..asked])? else {
                return Ok((asked, 0));
            };
            receiver.content = Content::Messages;
            let found = receiver.reader.feed(self.peer, &scratch[..got], inbox);
            merge(all, found.map_err(Broken::Malformed)?);
            return Ok((asked, got));
        };
        let (filled, room) = (space.filled, space.bytes.len());
        // A stream's place has nothing in it yet. Behind the rest of a short message mostly come
        // others like it, so those are read along.
        let is_stream = filled == 0;
        let (content, ahead) =
            if is_stream || filled + room >= frame::HEADER_BYTES + frame::DIRECT_MIN_BYTES {
                (Content::Bulk, READ_AHEAD_BYTES)
            } else {
                (Content::Messages, scratch.len())
            };
        receiver.content = content;
        let got = match read2(&self.socket, space.bytes, &mut scratch[..ahead]) {
            Ok(got) => got.unwrap_or(0),
            Err(e) => {
                let _ = receiver.reader.filled(self.peer, inbox, filled, 0);
                return Err(e);
            }
        };
        let direct = got.min(room);
        let found = receiver.reader.filled(self.peer, inbox, filled, direct);
        merge(all, found.map_err(Broken::Malformed)?);
        if got > room {
            let found = receiver
                .reader
                .feed(self.peer, &scratch[..got - room], inbox);
            merge(all, found.map_err(Broken::Malformed)?);
        }
        Ok((room + ahead, got))
    }

    /// Returns whether the peer's last frame was a close notification.
    pub fn peer_has_finished(&self) -> bool {
        self.receiver.direction == Direction::Finished
    }

    /// Returns whether the last read brought several packets with more than one message.
    #[inline]
    pub fn brings_bursts(&self) -> bool {
        self.receiver.arrival == Arrival::Burst
    }

    /// Returns whether what came last was a stream or a long message.
    #[inline]
    pub fn brings_bulk(&self) -> bool {
        self.receiver.content == Content::Bulk
    }

    /// Returns whether a part of a stream has come. Nothing else can come before its end.
    #[inline]
    pub fn is_streamed_to(&self) -> bool {
        self.receiver.reader.stream_left() > 0
    }

    /// Sets the low-water mark: the system reports the socket as readable when `most` bytes of the
    /// incoming stream are there, or the rest of it. Returns whether that is later than at the
    /// first byte.
    pub fn set_receive_low_water(&mut self, most: usize) -> bool {
        // What is in an encrypted record is not known before it is whole.
        let coming = if self.seal.is_some() {
            0
        } else {
            self.receiver.reader.stream_left()
        };
        let bytes = coming.min(most).max(1);
        if self.receiver.low_water != bytes {
            self.receiver.low_water = bytes;
            self.path.ops.set_receive_low_water(&self.socket, bytes);
        }
        bytes > 1
    }

    /// Sets how this process finds out that something has arrived.
    ///
    /// While it is busy-polled, the low-water mark is high. The system acknowledges what came in
    /// more than one packet when it is read, before the read returns. Below a low-water mark it
    /// acknowledges when the packets come: on the sender's core, if that is this machine's, and
    /// never between a message and its answer.
    pub fn set_read_mode(&mut self, mode: ReadMode) {
        if self.receiver.mode != mode {
            self.receiver.mode = mode;
            self.receiver.low_water = match mode {
                ReadMode::Busy => BUSY_LOW_WATER_BYTES,
                ReadMode::PollSet => 1,
            };
            self.path
                .ops
                .set_receive_low_water(&self.socket, self.receiver.low_water);
        }
    }

    /// Returns whether there is certainly nothing to read. Only of a busy-polled connection whose
    /// last read found nothing.
    ///
    /// A read locks the connection even if there is nothing. What arrives meanwhile is then
    /// processed by this core, before that call ends. For a long message that has begun to arrive
    /// that is wanted ([`ConnTransport::asks_first`](super::super::ConnTransport)).
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        let receiver = &mut self.receiver;
        if receiver.last_read == LastRead::Bytes
            || receiver.mode == ReadMode::PollSet
            || receiver.content == Content::Bulk && !receiver.reader.is_between_frames()
        {
            return false;
        }
        receiver.empty_checks += 1;
        if receiver.empty_checks < EMPTY_CHECKS_MAX && self.path.ops.is_empty(&self.socket) {
            return true;
        }
        receiver.empty_checks = 0;
        false
    }
}

#[cfg(test)]
mod tests;
