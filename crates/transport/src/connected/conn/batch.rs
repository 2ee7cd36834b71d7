//! Several messages in one system call.
//!
//! Large messages that are handed over one by one reach two thirds of what they reach batch:
//! while one call sends much, the peer's system has its acknowledgements processed here, on this
//! core, and not on the core that reads.

use super::frame::{self, HEAD_MAX, HEADER, Kind};
use super::{Broken, Conn};
use crate::{BatchMessage, BatchSent, Body};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;

/// Messages to one call, at most.
const BATCH_MESSAGES_MAX: usize = 32;

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
    /// Sends messages from the front of `messages`. If a stream is begun, the first of them is its
    /// rest.
    pub fn send_batch(&mut self, messages: &[BatchMessage<'_>]) -> Result<BatchSent, Broken> {
        if self.is_behind() {
            self.flush()?;
            if self.is_behind() {
                return Ok(BatchSent::default());
            }
        }
        if self.seal.is_some() || self.write_max != usize::MAX {
            return self.one_by_one(messages);
        }
        let mut wrapped = [Wrapped {
            start: [0; HEADER + HEAD_MAX],
            start_len: 0,
            body: &[],
        }; BATCH_MESSAGES_MAX];
        let (mut count, mut total) = (0, 0);
        for (message, slot) in messages.iter().zip(&mut wrapped) {
            *slot = self.wrap(message, count == 0);
            count += 1;
            total += slot.len();
            if slot.body.len() < message.body.len() || total >= self.stream_max {
                break;
            }
        }
        let wrapped = &wrapped[..count];
        let mut pieces = [IoSlice::new(&[]); 2 * BATCH_MESSAGES_MAX];
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
                Err(Errno::MSGSIZE) => return self.one_by_one(messages),
                Err(e) => return Err(Broken::System(e)),
            };
        };
        if sent > 0 {
            self.farewell_said = false;
        }
        Ok(self.account(messages, wrapped, sent))
    }

    /// The frame in which `message` goes, or, of a begun one (which only the first can be), what is
    /// left.
    fn wrap<'a>(&self, message: &BatchMessage<'a>, first: bool) -> Wrapped<'a> {
        let mut start = [0; HEADER + HEAD_MAX];
        if first && self.stream_left > 0 {
            let body = &message.body[..self.stream_left.min(message.body.len())];
            return Wrapped {
                start,
                start_len: 0,
                body,
            };
        }
        let (kind, body) = if message.stream {
            let body = &message.body[..message.body.len().min(self.stream_max)];
            (Kind::Stream, body)
        } else {
            (Kind::Whole, message.body)
        };
        let head = message.head;
        let apart = if message.stream { head.len() } else { 0 };
        let header = frame::header(kind, message.message, apart, head.len() + body.len());
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
        messages: &[BatchMessage<'_>],
        wrapped: &[Wrapped<'_>],
        mut sent: usize,
    ) -> BatchSent {
        let mut gone = BatchSent::default();
        for (message, w) in messages.iter().zip(wrapped) {
            if sent == 0 && w.len() > 0 {
                break;
            }
            let begun = w.start_len == 0;
            let took = sent.min(w.len());
            sent -= took;
            if message.stream {
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
                if of_body < message.body.len() {
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

    fn one_by_one(&mut self, messages: &[BatchMessage<'_>]) -> Result<BatchSent, Broken> {
        let mut gone = BatchSent::default();
        for p in messages {
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
