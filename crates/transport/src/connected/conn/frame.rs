//! Frames: the form of messages in the stream of bytes that a connection carries.
//!
//! ```text
//! u32  bytes that follow the header (head and body), little endian
//! u8   the message's number, for the layer above
//! u8   bytes of the head (streams only; otherwise 0)
//! u8   kind: whole message, stream, open, close notification
//! u8   a mark, by which a reader that is out of step finds out
//! ```
//!
//! A whole message is delivered in one run. A stream's body is delivered as it comes. It is read
//! straight into its buffer if the layer above names one.

use crate::{Inbox, ProcId};

/// Bytes of a frame's header, as laid out above.
pub const HEADER_BYTES: usize = 8;
/// Longest whole message, head and body, bytes: 64 KiB of user data and the headers of the layers
/// above. A choice; longer ones go as streams, so that no process needs memory for them.
pub const WHOLE_MAX_BYTES: usize = 64 * 1024 + 128;
/// Longest head of a stream, bytes. A choice: more than the layer above has.
pub const HEAD_MAX_BYTES: usize = 64;
/// Longest body of one stream frame, bytes. A longer body goes in several frames, and other
/// messages may go between them. Measured (docs/measured/tcp.md): shorter writes carry less, longer
/// ones no more.
pub const STREAM_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Shortest whole message, bytes, that is read straight into its receive's buffer if that is known
/// when the message begins to arrive. A choice: below it a message mostly comes whole with one
/// read, and is copied once anyway.
pub const DIRECT_MIN_BYTES: usize = 8 * 1024;

/// The header's last byte. Any value that text and zeros do not have.
const MARK: u8 = 0xf5;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message, delivered in one run.
    Whole = 0,
    /// A message whose body is delivered as it comes.
    Stream = 1,
    /// The accepting process's first frame: this connection is the one that both use.
    Open = 2,
    /// The sender needs nothing more from the receiver, and may end at any moment (TLS:
    /// close_notify).
    CloseNotify = 3,
}

/// Encodes a frame's header.
pub fn header(kind: Kind, message: u8, head: usize, len: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = (len as u32).to_le_bytes();
    [a, b, c, d, message, head as u8, kind as u8, MARK]
}

/// Decodes a frame's header: kind, number, bytes of the head, bytes of head and body.
fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<(Kind, u8, usize, usize), &'static str> {
    let [a, b, c, d, message, head, kind, mark] = *bytes;
    let (len, head) = (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(head));
    if mark != MARK {
        return Err("a frame without its mark");
    }
    let kind = match kind {
        0 if head == 0 && len <= WHOLE_MAX_BYTES => Kind::Whole,
        1 if head <= HEAD_MAX_BYTES && len > head && len - head <= STREAM_MAX_BYTES => Kind::Stream,
        2 if len == 0 && head == 0 => Kind::Open,
        3 if len == 0 && head == 0 => Kind::CloseNotify,
        _ => return Err("a frame of impossible kind or length"),
    };
    Ok((kind, message, head, len))
}

/// What a read has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Messages, or parts of streams, that were delivered.
    pub delivered: usize,
    /// A frame of kind [`Kind::Open`] has come.
    pub opened: bool,
    /// The last frame was a close notification.
    pub close_notify: bool,
    /// A message was unexpected: its receive was not posted.
    pub unexpected: bool,
}

/// A reader's position in its connection's bytes.
enum State {
    /// Between two frames if `partial` is empty. Otherwise `partial` is the beginning of a frame.
    /// The reader continues when `needs` bytes of it have arrived.
    Frame { partial: Vec<u8>, needs: usize },
    /// In the body of a stream. `remaining` of its bytes have not arrived. `whole`: it is a whole
    /// message that is delivered as a stream.
    Stream {
        whole: bool,
        message: u8,
        head: [u8; HEAD_MAX_BYTES],
        head_len: usize,
        remaining: usize,
    },
}

/// Takes frames out of one connection's bytes. It has memory only for a frame that has come in
/// part.
pub struct Reader {
    state: State,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Reader {
    /// At the beginning of a connection.
    pub fn new() -> Reader {
        Reader {
            state: State::Frame {
                partial: Vec::new(),
                needs: 0,
            },
        }
    }

    /// Where the next bytes of the connection belong: behind a frame that has come in part, or in
    /// the buffer that `inbox` names for a stream or a long message. `None`: it is not known.
    pub fn space<'a>(&'a mut self, from: ProcId, inbox: &'a mut dyn Inbox) -> Option<Space<'a>> {
        self.offer_again(from, inbox);
        match &mut self.state {
            State::Frame { partial, needs } => {
                let filled = partial.len();
                if *needs <= HEADER_BYTES || filled == 0 {
                    return None;
                }
                partial.resize(*needs, 0);
                Some(Space {
                    bytes: &mut partial[filled..],
                    filled,
                })
            }
            State::Stream {
                message,
                head,
                head_len,
                remaining,
                ..
            } => {
                let bytes = inbox.stream_buffer(from, *message, &head[..*head_len], *remaining)?;
                if bytes.is_empty() {
                    return None;
                }
                let len = bytes.len().min(*remaining);
                Some(Space {
                    bytes: &mut bytes[..len],
                    filled: 0,
                })
            }
        }
    }

    /// Takes the `n` bytes that have come into the [`Space`] last given out. That had `filled`
    /// bytes of the same frame in front of it.
    pub fn filled(
        &mut self,
        from: ProcId,
        inbox: &mut dyn Inbox,
        filled: usize,
        n: usize,
    ) -> Result<Found, &'static str> {
        let mut found = Found::default();
        match &mut self.state {
            State::Frame { partial, needs } => {
                partial.truncate(filled + n);
                if partial.len() == *needs {
                    let whole = std::mem::take(partial);
                    *needs = 0;
                    let rest = self.frame(from, &whole, inbox, &mut found)?;
                    debug_assert_eq!(rest, whole.len());
                }
            }
            State::Stream {
                message,
                head,
                head_len,
                remaining,
                ..
            } => {
                if n > 0 {
                    *remaining -= n;
                    inbox.stream_written(from, *message, &head[..*head_len], n);
                    found.delivered = 1;
                }
                self.end_stream();
            }
        }
        Ok(found)
    }

    /// Bytes that are still to come of the stream frame that has begun. 0: none has.
    pub fn stream_left(&self) -> usize {
        match self.state {
            State::Stream { remaining, .. } => remaining,
            State::Frame { .. } => 0,
        }
    }

    /// Returns whether all that came has been delivered.
    pub fn is_between_frames(&self) -> bool {
        matches!(&self.state, State::Frame { partial, .. } if partial.is_empty())
    }

    /// Returns whether a whole message has come in part, and the rest is delivered as a stream.
    pub fn is_in_message(&self) -> bool {
        matches!(self.state, State::Stream { whole: true, .. })
    }

    fn end_stream(&mut self) {
        if matches!(self.state, State::Stream { remaining: 0, .. }) {
            *self = Reader::new();
        }
    }

    /// Takes all of `bytes`, the next ones of the connection, and delivers what is complete.
    pub fn feed(
        &mut self,
        from: ProcId,
        mut bytes: &[u8],
        inbox: &mut dyn Inbox,
    ) -> Result<Found, &'static str> {
        let mut found = Found::default();
        while !bytes.is_empty() {
            match &mut self.state {
                State::Frame { partial, needs } if partial.is_empty() => {
                    let taken = self.frame(from, bytes, inbox, &mut found)?;
                    bytes = &bytes[taken..];
                }
                State::Frame { partial, needs } => {
                    if *needs < HEADER_BYTES {
                        *needs = HEADER_BYTES;
                    }
                    let take = (*needs - partial.len()).min(bytes.len());
                    partial.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if partial.len() == *needs {
                        let whole = std::mem::take(partial);
                        *needs = 0;
                        self.frame(from, &whole, inbox, &mut found)?;
                    }
                }
                State::Stream {
                    message,
                    head,
                    head_len,
                    remaining,
                    ..
                } => {
                    let take = (*remaining).min(bytes.len());
                    *remaining -= take;
                    inbox.stream_part(from, *message, &head[..*head_len], &bytes[..take]);
                    found.delivered += 1;
                    bytes = &bytes[take..];
                    self.end_stream();
                }
            }
        }
        Ok(found)
    }

    /// Takes one frame off the front of `bytes`, where the reader is between frames. Returns how
    /// many bytes that were. What is not a whole frame is kept.
    fn frame(
        &mut self,
        from: ProcId,
        bytes: &[u8],
        inbox: &mut dyn Inbox,
        found: &mut Found,
    ) -> Result<usize, &'static str> {
        let Some((start, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(self.keep(bytes, HEADER_BYTES));
        };
        let (kind, message, head, len) = parse(start)?;
        match kind {
            Kind::Whole => {
                let Some(whole) = rest.get(..len) else {
                    if let Some(head) = self.offer(from, message, rest, len, inbox) {
                        found.close_notify = false;
                        return Ok(HEADER_BYTES + head);
                    }
                    return Ok(self.keep(bytes, HEADER_BYTES + len));
                };
                found.close_notify = false;
                found.delivered += 1;
                found.unexpected |= inbox.on_message(from, message, whole);
                Ok(HEADER_BYTES + len)
            }
            Kind::Stream => {
                let Some(given) = rest.get(..head) else {
                    return Ok(self.keep(bytes, HEADER_BYTES + head));
                };
                found.close_notify = false;
                let mut kept = [0; HEAD_MAX_BYTES];
                kept[..head].copy_from_slice(given);
                found.unexpected |= inbox.stream_is_unexpected(from, message, given);
                self.state = State::Stream {
                    whole: false,
                    message,
                    head: kept,
                    head_len: head,
                    remaining: len - head,
                };
                Ok(HEADER_BYTES + head)
            }
            Kind::Open => {
                found.opened = true;
                Ok(HEADER_BYTES)
            }
            Kind::CloseNotify => {
                found.close_notify = true;
                Ok(HEADER_BYTES)
            }
        }
    }

    /// Offers `inbox` a whole message whose beginning, `start`, has arrived. Returns the bytes of
    /// its head if `inbox` takes the rest as a stream.
    fn offer(
        &mut self,
        from: ProcId,
        message: u8,
        start: &[u8],
        len: usize,
        inbox: &mut dyn Inbox,
    ) -> Option<usize> {
        if len < DIRECT_MIN_BYTES {
            return None;
        }
        let head_len = inbox.on_message_start(from, message, start, len)?;
        let mut head = [0; HEAD_MAX_BYTES];
        head.get_mut(..head_len)?
            .copy_from_slice(start.get(..head_len)?);
        self.state = State::Stream {
            whole: true,
            message,
            head,
            head_len,
            remaining: len - head_len,
        };
        Some(head_len)
    }

    /// Offers `inbox` once more a long message that has come in part: its receive may have been
    /// posted since.
    #[inline]
    fn offer_again(&mut self, from: ProcId, inbox: &mut dyn Inbox) {
        let State::Frame { partial, needs } = &mut self.state else {
            return;
        };
        if *needs < HEADER_BYTES + DIRECT_MIN_BYTES || partial.len() <= HEADER_BYTES {
            return;
        }
        let (kept, needs) = (std::mem::take(partial), *needs);
        let taken = kept.split_first_chunk().and_then(|(start, rest)| {
            let (kind, message, _, len) = parse(start).ok()?;
            let is_whole = kind == Kind::Whole;
            let head = is_whole.then(|| self.offer(from, message, rest, len, inbox));
            Some((rest, head??))
        });
        match taken {
            Some((rest, head)) => self.deliver_part(from, &rest[head..], inbox),
            None => {
                self.state = State::Frame {
                    partial: kept,
                    needs,
                }
            }
        }
    }

    /// Delivers the next bytes of the stream that has begun. More are to come.
    fn deliver_part(&mut self, from: ProcId, bytes: &[u8], inbox: &mut dyn Inbox) {
        if let State::Stream {
            message,
            head,
            head_len,
            remaining,
            ..
        } = &mut self.state
            && !bytes.is_empty()
        {
            *remaining -= bytes.len();
            inbox.stream_part(from, *message, &head[..*head_len], bytes);
        }
    }

    /// Keeps the beginning of a frame until `needs` bytes of it are there.
    fn keep(&mut self, bytes: &[u8], needs: usize) -> usize {
        let mut partial = Vec::with_capacity(needs);
        partial.extend_from_slice(bytes);
        self.state = State::Frame { partial, needs };
        bytes.len()
    }
}

/// Memory for the next bytes of a connection.
pub struct Space<'a> {
    /// The memory.
    pub bytes: &'a mut [u8],
    /// Bytes of the same frame that are in front of it.
    pub filled: usize,
}

#[cfg(test)]
mod tests;
