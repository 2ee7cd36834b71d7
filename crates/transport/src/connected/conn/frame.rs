//! Frames: how messages stand in the stream of bytes that a connection carries.
//!
//! ```text
//! u32  bytes that follow the header (head and body), little endian
//! u8   what the message is to the floor above
//! u8   bytes of the head (streams only; otherwise 0)
//! u8   kind: whole message, stream, opening word, farewell
//! u8   a mark, so that a reader that has lost its place notices
//! ```
//!
//! A whole message is delivered in one run. A stream's body is delivered as it comes, and goes
//! straight to where it belongs if the floor above says where that is.

use crate::{Inbox, ProcId};

/// Bytes of a frame's header.
pub const HEADER: usize = 8;
/// Longest whole message, head and body, bytes.
pub const WHOLE_MAX: usize = 64 * 1024 + 128;
/// Longest head of a stream, bytes.
pub const HEAD_MAX: usize = 64;
/// Longest body of one stream frame, bytes; what is longer goes in several frames, and other
/// messages may stand between them.
pub const STREAM_MAX: usize = 4 * 1024 * 1024;

/// Whole messages from this many bytes on go straight to where they belong, if that is known when
/// they begin to arrive.
pub const DIRECT_MIN: usize = 8 * 1024;

const MARK: u8 = 0xf5;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message, delivered in one run.
    Whole = 0,
    /// A message whose body is delivered as it comes.
    Stream = 1,
    /// The called process's first word: this connection is the one that both use.
    Open = 2,
    /// The sender needs nothing more of the receiver and may end at any moment.
    Farewell = 3,
}

/// A frame's header as it travels.
pub fn header(kind: Kind, message: u8, head: usize, len: usize) -> [u8; HEADER] {
    let [a, b, c, d] = (len as u32).to_le_bytes();
    [a, b, c, d, message, head as u8, kind as u8, MARK]
}

/// Reads a header.
fn parse(bytes: &[u8; HEADER]) -> Result<(Kind, u8, usize, usize), &'static str> {
    let [a, b, c, d, message, head, kind, mark] = *bytes;
    let (len, head) = (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(head));
    if mark != MARK {
        return Err("a frame without its mark");
    }
    let kind = match kind {
        0 if head == 0 && len <= WHOLE_MAX => Kind::Whole,
        1 if head <= HEAD_MAX && len > head && len - head <= STREAM_MAX => Kind::Stream,
        2 if len == 0 && head == 0 => Kind::Open,
        3 if len == 0 && head == 0 => Kind::Farewell,
        _ => return Err("a frame of impossible kind or length"),
    };
    Ok((kind, message, head, len))
}

/// What a reader has found besides messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Messages, or parts of streams, that were delivered.
    pub delivered: usize,
    /// The opening word has come.
    pub opened: bool,
    /// The last frame was a farewell.
    pub farewell: bool,
    /// Messages came before their receives.
    pub kept: bool,
}

/// Where a reader stands in its connection's bytes.
enum State {
    /// Between frames, or in the middle of one whose beginning is here.
    Frame { begun: Vec<u8>, needs: usize },
    /// In the body of a stream.
    Stream {
        message: u8,
        head: [u8; HEAD_MAX],
        head_len: usize,
        left: usize,
    },
}

/// Takes frames out of one connection's bytes. It holds memory only for a frame that has come in
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
                begun: Vec::new(),
                needs: 0,
            },
        }
    }

    /// Where the next bytes of the connection belong, if that is known: the rest of a frame that
    /// has come in part, or a place that `inbox` names for a stream or a long message.
    pub fn space<'a>(&'a mut self, from: ProcId, inbox: &'a mut dyn Inbox) -> Option<Space<'a>> {
        self.begin_again(from, inbox);
        match &mut self.state {
            State::Frame { begun, needs } => {
                let filled = begun.len();
                if *needs <= HEADER || filled == 0 {
                    return None;
                }
                begun.resize(*needs, 0);
                Some(Space {
                    bytes: &mut begun[filled..],
                    filled,
                })
            }
            State::Stream {
                message,
                head,
                head_len,
                left,
            } => {
                let bytes = inbox.stream_buffer(from, *message, &head[..*head_len], *left)?;
                if bytes.is_empty() {
                    return None;
                }
                let len = bytes.len().min(*left);
                Some(Space {
                    bytes: &mut bytes[..len],
                    filled: 0,
                })
            }
        }
    }

    /// `n` bytes have come into the [`Space`] that was given out, which had `filled` bytes before
    /// it.
    pub fn filled(
        &mut self,
        from: ProcId,
        inbox: &mut dyn Inbox,
        filled: usize,
        n: usize,
    ) -> Result<Found, &'static str> {
        let mut found = Found::default();
        match &mut self.state {
            State::Frame { begun, needs } => {
                begun.truncate(filled + n);
                if begun.len() == *needs {
                    let whole = std::mem::take(begun);
                    *needs = 0;
                    let rest = self.frame(from, &whole, inbox, &mut found)?;
                    debug_assert_eq!(rest, whole.len());
                }
            }
            State::Stream {
                message,
                head,
                head_len,
                left,
            } => {
                if n > 0 {
                    *left -= n;
                    inbox.stream_placed(from, *message, &head[..*head_len], n);
                    found.delivered = 1;
                }
                self.end_stream();
            }
        }
        Ok(found)
    }

    /// Bytes that are still to come of the stream frame that has begun; 0: none has.
    pub fn coming(&self) -> usize {
        match self.state {
            State::Stream { left, .. } => left,
            State::Frame { .. } => 0,
        }
    }

    /// Returns whether all that came has been delivered.
    pub fn is_between(&self) -> bool {
        matches!(&self.state, State::Frame { begun, .. } if begun.is_empty())
    }

    fn end_stream(&mut self) {
        if matches!(self.state, State::Stream { left: 0, .. }) {
            *self = Reader::new();
        }
    }

    /// Takes bytes of the connection, all of them, and delivers what is complete.
    pub fn feed(
        &mut self,
        from: ProcId,
        mut bytes: &[u8],
        inbox: &mut dyn Inbox,
    ) -> Result<Found, &'static str> {
        let mut found = Found::default();
        while !bytes.is_empty() {
            match &mut self.state {
                State::Frame { begun, needs } if begun.is_empty() => {
                    let taken = self.frame(from, bytes, inbox, &mut found)?;
                    bytes = &bytes[taken..];
                }
                State::Frame { begun, needs } => {
                    if *needs < HEADER {
                        *needs = HEADER;
                    }
                    let take = (*needs - begun.len()).min(bytes.len());
                    begun.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if begun.len() == *needs {
                        let whole = std::mem::take(begun);
                        *needs = 0;
                        self.frame(from, &whole, inbox, &mut found)?;
                    }
                }
                State::Stream {
                    message,
                    head,
                    head_len,
                    left,
                } => {
                    let take = (*left).min(bytes.len());
                    *left -= take;
                    inbox.stream_part(from, *message, &head[..*head_len], &bytes[..take]);
                    found.delivered += 1;
                    bytes = &bytes[take..];
                    self.end_stream();
                }
            }
        }
        Ok(found)
    }

    /// Between frames: takes one off the front of `bytes` and returns how many bytes that were.
    /// What is not a whole frame is kept.
    fn frame(
        &mut self,
        from: ProcId,
        bytes: &[u8],
        inbox: &mut dyn Inbox,
        found: &mut Found,
    ) -> Result<usize, &'static str> {
        let Some((start, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(self.keep(bytes, HEADER));
        };
        let (kind, message, head, len) = parse(start)?;
        match kind {
            Kind::Whole => {
                let Some(whole) = rest.get(..len) else {
                    if let Some(head) = self.begin(from, message, rest, len, inbox) {
                        found.farewell = false;
                        return Ok(HEADER + head);
                    }
                    return Ok(self.keep(bytes, HEADER + len));
                };
                found.farewell = false;
                found.delivered += 1;
                found.kept |= inbox.on_message(from, message, whole);
                Ok(HEADER + len)
            }
            Kind::Stream => {
                let Some(given) = rest.get(..head) else {
                    return Ok(self.keep(bytes, HEADER + head));
                };
                found.farewell = false;
                let mut kept = [0; HEAD_MAX];
                kept[..head].copy_from_slice(given);
                self.state = State::Stream {
                    message,
                    head: kept,
                    head_len: head,
                    left: len - head,
                };
                Ok(HEADER + head)
            }
            Kind::Open => {
                found.opened = true;
                Ok(HEADER)
            }
            Kind::Farewell => {
                found.farewell = true;
                Ok(HEADER)
            }
        }
    }

    /// A whole message of which `start` is here: if `inbox` takes it as it comes, the bytes of its
    /// head.
    fn begin(
        &mut self,
        from: ProcId,
        message: u8,
        start: &[u8],
        len: usize,
        inbox: &mut dyn Inbox,
    ) -> Option<usize> {
        if len < DIRECT_MIN {
            return None;
        }
        let head_len = inbox.on_message_start(from, message, start, len)?;
        let mut head = [0; HEAD_MAX];
        head.get_mut(..head_len)?
            .copy_from_slice(start.get(..head_len)?);
        self.state = State::Stream {
            message,
            head,
            head_len,
            left: len - head_len,
        };
        Some(head_len)
    }

    /// Of a long message the beginning is here, and `inbox` did not take it when that came. It may
    /// now: a receive may have been posted since.
    #[inline]
    fn begin_again(&mut self, from: ProcId, inbox: &mut dyn Inbox) {
        let State::Frame { begun, needs } = &mut self.state else {
            return;
        };
        if *needs < HEADER + DIRECT_MIN || begun.len() <= HEADER {
            return;
        }
        let (kept, needs) = (std::mem::take(begun), *needs);
        let taken = kept.split_first_chunk().and_then(|(start, rest)| {
            let (kind, message, _, len) = parse(start).ok()?;
            let begins = kind == Kind::Whole;
            let head = begins.then(|| self.begin(from, message, rest, len, inbox));
            Some((rest, head??))
        });
        match taken {
            Some((rest, head)) => self.pass(from, &rest[head..], inbox),
            None => self.state = State::Frame { begun: kept, needs },
        }
    }

    /// The next bytes of the stream that has begun are here; there are more to come.
    fn pass(&mut self, from: ProcId, bytes: &[u8], inbox: &mut dyn Inbox) {
        if let State::Stream {
            message,
            head,
            head_len,
            left,
        } = &mut self.state
            && !bytes.is_empty()
        {
            *left -= bytes.len();
            inbox.stream_part(from, *message, &head[..*head_len], bytes);
        }
    }

    fn keep(&mut self, bytes: &[u8], needs: usize) -> usize {
        let mut begun = Vec::with_capacity(needs);
        begun.extend_from_slice(bytes);
        self.state = State::Frame { begun, needs };
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
