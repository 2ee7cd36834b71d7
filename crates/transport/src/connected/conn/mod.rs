//! One open connection: frames out, frames in.

mod batch;
pub(crate) mod frame;
pub(super) mod zero_copy;

use super::medium::SocketOps;
use crate::poll_throttle::PollThrottle;
use crate::{Body, Inbox, ProcId, ZeroCopy};
use ferry_auth::{HEADER as SEALED, Opener, PAYLOAD_MAX, Sealer, TAG, body as sealed_body};
use frame::{Found, Kind, Reader};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use zero_copy::SplicePipe;

/// Bytes that may wait for room in the socket; more messages are answered Full.
pub const QUEUE_MAX: usize = 256 * 1024;
/// Bytes of memory for what comes in at once, shared by all connections.
pub const SCRATCH: usize = 256 * 1024;
/// Bytes read beyond the end of a stream's frame: what follows a stream is mostly another one,
/// whose body is not to be copied.
const AHEAD: usize = 256;
/// Bytes that a connection which is read directly is said to wait for: more than any message that
/// is sent at once.
const WATCHED: usize = 128 * 1024;
/// Messages (frame header and all) up to this many bytes are copied into one run before they are
/// sent: the system takes that sooner than two.
const FLAT_MAX: usize = 16 * 1024 + 128;
/// Polls in which a connection that is read directly may be said to be empty before it is read all
/// the same: only then it tells that it has broken.
const SAID_EMPTY_MAX: u32 = 64;
/// Reads from one connection before the next one's turn.
const FAIR_SHARE: usize = 16;

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

/// Both directions' keys, where everything is encrypted.
pub struct Seal {
    pub sealer: Sealer,
    pub opener: Opener,
    /// A record that has come in part.
    begun: Vec<u8>,
}

impl Seal {
    pub fn new((sealer, opener): (Sealer, Opener)) -> Seal {
        Seal {
            sealer,
            opener,
            begun: Vec::new(),
        }
    }
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
    pub interest: super::PollInterest,
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
    /// Bytes were lent to its system.
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
            interest: super::PollInterest::Nothing,
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

    /// Does anything wait for room?
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.sent < self.queue.len()
    }

    /// May another frame begin now?
    #[inline]
    fn has_room(&self) -> bool {
        self.stream_left == 0 && self.queue.len() - self.sent < QUEUE_MAX
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
                    && run.len() <= FLAT_MAX
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
    fn keep(&mut self, start: &[u8], bytes: &[u8], gone: usize) {
        self.compact();
        self.queue
            .extend_from_slice(&start[gone.min(start.len())..]);
        self.queue
            .extend_from_slice(&bytes[gone.saturating_sub(start.len())..]);
    }

    /// Room at the end of the queue for `len` bytes; returns where they begin. With encryption they
    /// become records by `seal_from`.
    fn begin(&mut self, len: usize) -> usize {
        self.compact();
        let at = self.queue.len();
        self.queue.resize(at + len, 0);
        at
    }

    fn compact(&mut self) {
        if self.sent > 0 && (self.sent == self.queue.len() || self.sent > QUEUE_MAX / 2) {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Seals what stands in the queue from `at` on, if this connection is encrypted.
    fn seal_from(&mut self, at: usize) -> Result<(), Broken> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let plain = self.queue.split_off(at);
        for piece in plain.chunks(PAYLOAD_MAX) {
            let start = self.queue.len();
            self.queue.extend_from_slice(&[0; SEALED]);
            self.queue.extend_from_slice(piece);
            self.queue.extend_from_slice(&[0; TAG]);
            seal.sealer
                .seal(&mut self.queue[start..])
                .map_err(|_| Broken::Malformed("nothing: a record could not be sealed"))?;
        }
        Ok(())
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

    /// Is a stream frame begun and not complete? Then nothing but its rest can be sent.
    pub fn in_stream(&self) -> bool {
        self.stream_left > 0
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

    /// As [`Conn::stream`], but the bytes are lent to the system, where it can be.
    pub fn stream_zero_copy(
        &mut self,
        pipe: &mut SplicePipe,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<usize, Broken> {
        if self.zero_copy() == ZeroCopy::Never || !pipe.serves(self.peer) {
            return self.stream(message, head, body);
        }
        if self.is_behind() {
            self.flush()?;
        }
        if self.stream_left == 0 && !self.is_behind() {
            let len = body.len().min(self.stream_max);
            let (start, n) = stream_start(message, head, len);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
            let gone = match rustix::net::send(&self.socket, &start[..n], flags) {
                Ok(gone) => gone,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
                Err(e) => return Err(Broken::System(e)),
            };
            self.farewell_said = false;
            self.stream_left = len;
            if gone < n {
                self.keep(&start[..n], &[], gone);
            }
        }
        if self.is_behind() {
            return Ok(0);
        }
        self.lent = true;
        let piece = &body[..self.stream_left.min(body.len())];
        let taken = pipe.give(self.peer, &self.socket, piece)?;
        self.stream_left -= taken;
        Ok(taken)
    }

    /// Nothing more goes this way, whatever its system still holds: what was lent is the program's
    /// again, and must not go with other bytes in it.
    pub fn give_up(&self) {
        if self.lent {
            // It is closed at once then, and its peer's system told so. If it is refused, the
            // system goes on trying for a while.
            let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }

    /// Can bytes be lent to its system?
    pub fn zero_copy(&self) -> ZeroCopy {
        match self.seal {
            None => self.path.ops.zero_copy(),
            Some(_) => ZeroCopy::Never,
        }
    }

    /// A piece of a stream as a frame of its own, in records.
    fn sealed_stream(&mut self, message: u8, head: &[u8], body: &[u8]) -> Result<usize, Broken> {
        let piece = &body[..body.len().min(QUEUE_MAX / 2)];
        let n = frame::HEADER + head.len();
        let at = self.begin(n + piece.len());
        let out = &mut self.queue[at..];
        out[..frame::HEADER].copy_from_slice(&frame::header(
            Kind::Stream,
            message,
            head.len(),
            head.len() + piece.len(),
        ));
        out[frame::HEADER..n].copy_from_slice(head);
        out[n..].copy_from_slice(piece);
        self.seal_from(at)?;
        self.flush()?;
        self.farewell_said = false;
        Ok(piece.len())
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

    /// Delivers what has come, up to a fair share.
    #[inline]
    pub fn receive(&mut self, scratch: &mut [u8], inbox: &mut dyn Inbox) -> Result<Found, Broken> {
        let mut all = Found::default();
        for _ in 0..FAIR_SHARE {
            let before = all.delivered;
            let asked;
            let got = if self.seal.is_some() {
                asked = scratch.len();
                self.receive_sealed(scratch, inbox, &mut all)?
            } else {
                match self.reader.space(self.peer, inbox) {
                    None => {
                        asked = if self.bulk { AHEAD } else { scratch.len() };
                        match read(&self.socket, &mut scratch[..asked])? {
                            Some(n) => {
                                self.bulk = false;
                                let found = self.reader.feed(self.peer, &scratch[..n], inbox);
                                merge(&mut all, found.map_err(Broken::Malformed)?);
                                n
                            }
                            None => 0,
                        }
                    }
                    Some(space) => {
                        let (filled, room) = (space.filled, space.bytes.len());
                        // Into a stream's place nothing has come before. What follows the rest of a
                        // short message are others like it, which are to come with it.
                        let streams = filled == 0;
                        self.bulk = streams || filled + room >= frame::HEADER + frame::DIRECT_MIN;
                        let more = if self.bulk { AHEAD } else { scratch.len() };
                        asked = room + more;
                        let n = match read2(&self.socket, space.bytes, &mut scratch[..more]) {
                            Ok(n) => n.unwrap_or(0),
                            Err(e) => {
                                let _ = self.reader.filled(self.peer, inbox, filled, 0);
                                return Err(e);
                            }
                        };
                        let direct = n.min(room);
                        let found = self.reader.filled(self.peer, inbox, filled, direct);
                        merge(&mut all, found.map_err(Broken::Malformed)?);
                        if n > room {
                            let found = self.reader.feed(self.peer, &scratch[..n - room], inbox);
                            merge(&mut all, found.map_err(Broken::Malformed)?);
                        }
                        n
                    }
                }
            };
            self.idle = got == 0;
            if got > 0 {
                let one = all.delivered == before + 1 && self.reader.is_between();
                self.large = got > PACKET && !one;
            }
            // A short read has emptied the socket; to ask again would cost a system call for
            // nothing.
            let kept = std::mem::take(&mut all.kept);
            if got < asked || all.delivered > before && self.throttle.stops_after(kept) {
                break;
            }
        }
        if all.delivered > 0 {
            self.leaving = false;
        }
        self.leaving |= all.farewell;
        Ok(all)
    }

    fn receive_sealed(
        &mut self,
        scratch: &mut [u8],
        inbox: &mut dyn Inbox,
        all: &mut Found,
    ) -> Result<usize, Broken> {
        let Some(n) = read(&self.socket, scratch)? else {
            return Ok(0);
        };
        let Some(seal) = &mut self.seal else {
            return Ok(0);
        };
        let bad = |_| Broken::Malformed("a record that is not genuine");
        let mut bytes = &mut scratch[..n];
        while !bytes.is_empty() {
            // Header first, then the length that it names.
            let needs = match seal.begun.first_chunk::<SEALED>() {
                Some(header) => SEALED + sealed_body(header).map_err(bad)?,
                None => SEALED,
            };
            let take = (needs - seal.begun.len()).min(bytes.len());
            let (mine, rest) = bytes.split_at_mut(take);
            bytes = rest;
            seal.begun.extend_from_slice(mine);
            let whole = match seal.begun.first_chunk::<SEALED>() {
                Some(header) => SEALED + sealed_body(header).map_err(bad)?,
                None => usize::MAX,
            };
            if seal.begun.len() == whole {
                let mut record = std::mem::take(&mut seal.begun);
                let plain = seal.opener.open(&mut record).map_err(bad)?;
                let found = self.reader.feed(self.peer, plain, inbox);
                merge(all, found.map_err(Broken::Malformed)?);
                record.clear();
                seal.begun = record;
            }
        }
        Ok(n)
    }

    /// Is a stream coming in, part of which is here? Nothing else can come before its end.
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
            self.receive_low_water = if directly { WATCHED } else { 1 };
            self.path
                .ops
                .set_receive_low_water(&self.socket, self.receive_low_water);
        }
    }

    /// Is there certainly nothing to read? PollInterest only of a connection that is read directly, and
    /// after a read in vain.
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
        if self.said_empty < SAID_EMPTY_MAX && self.path.ops.is_empty(&self.socket) {
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

fn merge(all: &mut Found, found: Found) {
    all.opened |= found.opened;
    all.kept |= found.kept;
    all.farewell = found.farewell || all.farewell && found.delivered == 0;
    all.delivered += found.delivered;
}

/// Bytes that go into one packet of any network.
const PACKET: usize = 1200;

/// Header and head of a stream whose body has `len` bytes, and how many bytes they are.
fn stream_start(
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
fn write(socket: &OwnedFd, most: &mut usize, first: &[u8], second: &[u8]) -> Result<usize, Broken> {
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
            Err(Errno::MSGSIZE) if *most > PACKET => {
                *most = PACKET;
                continue;
            }
            Err(e) => Err(Broken::System(e)),
        };
    }
}

/// Reads what is there; `None`: nothing.
#[inline]
fn read(socket: &OwnedFd, into: &mut [u8]) -> Result<Option<usize>, Broken> {
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

/// As [`read`], into two places.
fn read2(socket: &OwnedFd, first: &mut [u8], second: &mut [u8]) -> Result<Option<usize>, Broken> {
    loop {
        let mut places = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let mut none = RecvAncillaryBuffer::default();
        return match recvmsg(socket, &mut places, &mut none, RecvFlags::DONTWAIT) {
            Ok(m) if m.bytes == 0 => Err(Broken::Closed),
            Ok(m) => Ok(Some(m.bytes)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => Err(Broken::System(e)),
        };
    }
}
