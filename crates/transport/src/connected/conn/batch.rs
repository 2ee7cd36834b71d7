//! Several messages in one system call.
//!
//! Large messages that are sent one by one reach two thirds of the bandwidth that they reach
//! together. While one call sends much, the peer's acknowledgements are processed on this core, and
//! not on the core that reads. Measured: docs/measured/tcp.md.

use super::frame::{self, HEAD_MAX_BYTES, HEADER_BYTES, Kind};
use super::{Broken, Conn, Direction};
use crate::{BatchMessage, BatchSent, Body};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;

/// Most messages in one system call. A choice: 32 of 128 KiB fill one stream frame (4 MiB), and
/// their 64 runs are far below the system's limit (IOV_MAX, 1024).
const BATCH_MESSAGES_MAX: usize = 32;

/// A message as it goes to the socket: the bytes in front of its body, and the part of the body
/// that goes with them.
#[derive(Clone, Copy)]
struct Framed<'a> {
    start: [u8; HEADER_BYTES + HEAD_MAX_BYTES],
    start_len: usize,
    body: &'a [u8],
}

impl Framed<'_> {
    fn len(&self) -> usize {
        self.start_len + self.body.len()
    }
}

impl Conn {
    /// Sends messages from the front of `messages`. If a stream has begun, the first of them is the
    /// rest of it.
    pub fn send_batch(&mut self, messages: &[BatchMessage<'_>]) -> Result<BatchSent, Broken> {
        if self.is_behind() {
            self.flush()?;
            if self.is_behind() {
                return Ok(BatchSent::default());
            }
        }
        if self.seal.is_some() || self.sender.write_max != usize::MAX {
            return self.send_one_by_one(messages);
        }
        let mut framed = [Framed {
            start: [0; HEADER_BYTES + HEAD_MAX_BYTES],
            start_len: 0,
            body: &[],
        }; BATCH_MESSAGES_MAX];
        let (mut count, mut total) = (0, 0);
        for (message, slot) in messages.iter().zip(&mut framed) {
            *slot = self.frame(message, count == 0);
            count += 1;
            total += slot.len();
            if slot.body.len() < message.body.len() || total >= self.sender.stream_max {
                break;
            }
        }
        let framed = &framed[..count];
        let mut runs = [IoSlice::new(&[]); 2 * BATCH_MESSAGES_MAX];
        let mut n = 0;
        for f in framed {
            for bytes in [&f.start[..f.start_len], f.body] {
                if !bytes.is_empty() {
                    runs[n] = IoSlice::new(bytes);
                    n += 1;
                }
            }
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = loop {
            break match sendmsg(
                &self.socket,
                &runs[..n],
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(n) => n,
                Err(Errno::AGAIN) => 0,
                Err(Errno::INTR) => continue,
                // Single writes find out how much the system takes at once.
                Err(Errno::MSGSIZE) => return self.send_one_by_one(messages),
                Err(e) => return Err(Broken::System(e)),
            };
        };
        if sent > 0 {
            self.sender.direction = Direction::Open;
        }
        Ok(self.account(messages, framed, sent))
    }

    /// The frame in which `message` goes. Only the first message can have begun before; then it is
    /// what is left of that frame.
    fn frame<'a>(&self, message: &BatchMessage<'a>, first: bool) -> Framed<'a> {
        let mut start = [0; HEADER_BYTES + HEAD_MAX_BYTES];
        if first && self.sender.stream_left > 0 {
            let body = &message.body[..self.sender.stream_left.min(message.body.len())];
            return Framed {
                start,
                start_len: 0,
                body,
            };
        }
        let (kind, body) = if message.stream {
            let body = &message.body[..message.body.len().min(self.sender.stream_max)];
            (Kind::Stream, body)
        } else {
            (Kind::Whole, message.body)
        };
        let head = message.head;
        let head_len = if message.stream { head.len() } else { 0 };
        let header = frame::header(kind, message.message, head_len, head.len() + body.len());
        start[..HEADER_BYTES].copy_from_slice(&header);
        start[HEADER_BYTES..HEADER_BYTES + head.len()].copy_from_slice(head);
        Framed {
            start,
            start_len: HEADER_BYTES + head.len(),
            body,
        }
    }

    /// Returns what has become of `messages` if the socket has taken `sent` bytes, and queues what
    /// cannot be offered again.
    fn account(
        &mut self,
        messages: &[BatchMessage<'_>],
        framed: &[Framed<'_>],
        mut sent: usize,
    ) -> BatchSent {
        let mut result = BatchSent::default();
        for (message, f) in messages.iter().zip(framed) {
            if sent == 0 && f.len() > 0 {
                break;
            }
            let had_begun = f.start_len == 0;
            let taken = sent.min(f.len());
            sent -= taken;
            if message.stream {
                if taken < f.start_len {
                    self.sender.queue_rest(&f.start[..f.start_len], &[], taken);
                }
                let of_body = taken.saturating_sub(f.start_len);
                let frame = if had_begun {
                    self.sender.stream_left
                } else {
                    f.body.len()
                };
                self.sender.stream_left = frame - of_body;
                if of_body < message.body.len() {
                    result.taken = of_body;
                    break;
                }
            } else if taken < f.len() {
                self.sender
                    .queue_rest(&f.start[..f.start_len], f.body, taken);
                result.whole += 1;
                break;
            }
            result.whole += 1;
        }
        result.between = !self.in_stream();
        result
    }

    /// Sends each of `messages` by a system call of its own.
    fn send_one_by_one(&mut self, messages: &[BatchMessage<'_>]) -> Result<BatchSent, Broken> {
        let mut result = BatchSent::default();
        for m in messages {
            if !m.stream {
                if !self.send(m.message, m.head, Body::Bytes(m.body), &mut [])? {
                    break;
                }
            } else {
                result.taken = self.stream(m.message, m.head, m.body)?;
                if result.taken < m.body.len() {
                    break;
                }
                result.taken = 0;
            }
            result.whole += 1;
        }
        result.between = !self.in_stream();
        Ok(result)
    }
}
