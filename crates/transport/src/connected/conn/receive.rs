//! Receiving by a connection: reads into a frame's place, or into memory that all share.

use super::frame::{self, Found};
use super::{Broken, Conn, PACKET_BYTES};
use crate::Inbox;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

/// Bytes of memory for what comes in at once, shared by all connections.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// Bytes read beyond the end of a stream's frame: what follows a stream is mostly another one,
/// whose body is not to be copied.
const READ_AHEAD_BYTES: usize = 256;

/// Reads from one connection before the next one's turn.
const READS_PER_POLL: usize = 16;

pub(super) fn merge(all: &mut Found, found: Found) {
    all.opened |= found.opened;
    all.kept |= found.kept;
    all.farewell = found.farewell || all.farewell && found.delivered == 0;
    all.delivered += found.delivered;
}

/// Reads what is there; `None`: nothing.
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

impl Conn {
    /// Delivers what has come, up to a fair share.
    #[inline]
    pub fn receive(&mut self, scratch: &mut [u8], inbox: &mut dyn Inbox) -> Result<Found, Broken> {
        let mut all = Found::default();
        for _ in 0..READS_PER_POLL {
            let before = all.delivered;
            let asked;
            let got = if self.seal.is_some() {
                asked = scratch.len();
                self.receive_sealed(scratch, inbox, &mut all)?
            } else {
                match self.reader.space(self.peer, inbox) {
                    None => {
                        asked = if self.bulk {
                            READ_AHEAD_BYTES
                        } else {
                            scratch.len()
                        };
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
                        let more = if self.bulk {
                            READ_AHEAD_BYTES
                        } else {
                            scratch.len()
                        };
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
                self.large = got > PACKET_BYTES && !one;
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
}
