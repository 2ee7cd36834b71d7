//! Several messages in one system call.
//!
//! Large messages that are handed over one by one reach two thirds of what they reach together:
//! while one call sends much, the peer's system has its acknowledgements processed here, on this
//! core, and not on the core that reads.

use super::conn::{Broken, Conn};
use super::frame::{self, HEAD_MAX, HEADER, Kind};
use crate::{Body, Gone, Parcel};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;

/// Messages to one call, at most.
const PARCELS: usize = 32;

/// A message as it goes: what stands before its body, and so much of the body.
#[derive(Clone, Copy)]
struct Wrapped<'a> {
    start: [u8; HEADER + HEAD_MAX],
    start_len: usize,
    body: &'a [u8],
}

impl Wrapped<'_> {
    fn len(&self) -> usize {
        self.start_len + self.body.len()
    }
}

impl Conn {
    /// Sends messages from the front of `parcels`. If a stream is begun, the first of them is its
    /// rest.
    pub fn send_several(&mut self, parcels: &[Parcel<'_>]) -> Result<Gone, Broken> {
        if self.is_behind() {
            self.flush()?;
            if self.is_behind() {
                return Ok(Gone::default());
            }
        }
        if self.seal.is_some() || self.write_max != usize::MAX {
            return self.one_by_one(parcels);
        }
        let mut wrapped = [Wrapped {
            start: [0; HEADER + HEAD_MAX],
            start_len: 0,
            body: &[],
        }; PARCELS];
        let (mut count, mut total) = (0, 0);
        for (parcel, slot) in parcels.iter().zip(&mut wrapped) {
            *slot = self.wrap(parcel, count == 0);
            count += 1;
            total += slot.len();
            if slot.body.len() < parcel.body.len() || total >= self.stream_max {
                break;
            }
        }
        let wrapped = &wrapped[..count];
        let mut pieces = [IoSlice::new(&[]); 2 * PARCELS];
        let mut n = 0;
        for w in wrapped {
            for bytes in [&w.start[..w.start_len], w.body] {
                if !bytes.is_empty() {
                    pieces[n] = IoSlice::new(bytes);
                    n += 1;
                }
            }
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = loop {
            break match sendmsg(
                &self.socket,
                &pieces[..n],
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(n) => n,
                Err(Errno::AGAIN) => 0,
                Err(Errno::INTR) => continue,
                // Single writes find out how much may go at once.
                Err(Errno::MSGSIZE) => return self.one_by_one(parcels),
                Err(e) => return Err(Broken::System(e)),
            };
        };
        if sent > 0 {
            self.farewell_said = false;
        }
        Ok(self.account(parcels, wrapped, sent))
    }

    /// The frame in which `parcel` goes, or, of a begun one (which only the first can be), what is
    /// left.
    fn wrap<'a>(&self, parcel: &Parcel<'a>, first: bool) -> Wrapped<'a> {
        let mut start = [0; HEADER + HEAD_MAX];
        if first && self.stream_left > 0 {
            let body = &parcel.body[..self.stream_left.min(parcel.body.len())];
            return Wrapped {
                start,
                start_len: 0,
                body,
            };
        }
        let (kind, body) = if parcel.stream {
            let body = &parcel.body[..parcel.body.len().min(self.stream_max)];
            (Kind::Stream, body)
        } else {
            (Kind::Whole, parcel.body)
        };
        let head = parcel.head;
        let apart = if parcel.stream { head.len() } else { 0 };
        let header = frame::header(kind, parcel.message, apart, head.len() + body.len());
        start[..HEADER].copy_from_slice(&header);
        start[HEADER..HEADER + head.len()].copy_from_slice(head);
        Wrapped {
            start,
            start_len: HEADER + head.len(),
            body,
        }
    }

    /// What it means that the socket has taken `sent` bytes.
    fn account(
        &mut self,
        parcels: &[Parcel<'_>],
        wrapped: &[Wrapped<'_>],
        mut sent: usize,
    ) -> Gone {
        let mut gone = Gone::default();
        for (parcel, w) in parcels.iter().zip(wrapped) {
            if sent == 0 && w.len() > 0 {
                break;
            }
            let begun = w.start_len == 0;
            let took = sent.min(w.len());
            sent -= took;
            if parcel.stream {
                if took < w.start_len {
                    self.keep(&w.start[..w.start_len], &[], took);
                }
                let of_body = took.saturating_sub(w.start_len);
                let frame = if begun {
                    self.stream_left
                } else {
                    w.body.len()
                };
                self.stream_left = frame - of_body;
                if of_body < parcel.body.len() {
                    gone.taken = of_body;
                    break;
                }
            } else if took < w.len() {
                self.keep(&w.start[..w.start_len], w.body, took);
                gone.whole += 1;
                break;
            }
            gone.whole += 1;
        }
        gone.between = !self.in_stream();
        gone
    }

    fn one_by_one(&mut self, parcels: &[Parcel<'_>]) -> Result<Gone, Broken> {
        let mut gone = Gone::default();
        for p in parcels {
            if !p.stream {
                if !self.send(p.message, p.head, Body::Bytes(p.body), &mut [])? {
                    break;
                }
            } else {
                gone.taken = self.stream(p.message, p.head, p.body)?;
                if gone.taken < p.body.len() {
                    break;
                }
                gone.taken = 0;
            }
            gone.whole += 1;
        }
        gone.between = !self.in_stream();
        Ok(gone)
    }
}
