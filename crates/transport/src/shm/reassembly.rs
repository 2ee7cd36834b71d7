//! Reassembly of messages that arrive in parts: those that are longer than a record of the ring,
//! and early records.

use super::early::EarlyBody;
use super::ring::SPLIT_MAX_BYTES;
use crate::{Inbox, ProcId, TransportError};

/// Longest head of a split message that is delivered as it comes, bytes. A choice: more than the
/// layer above has.
const HEAD_MAX_BYTES: usize = 64;

/// A split message that is arriving: its first parts are here.
pub struct Reassembly {
    message: u8,
    /// Bytes that are still to come.
    remaining: usize,
    delivery: Delivery,
}

/// One record of a message.
pub struct Part<'a> {
    /// The message's number.
    pub message: u8,
    pub bytes: &'a [u8],
    /// Other parts follow.
    pub more: bool,
}

/// How the parts are delivered.
enum Delivery {
    /// Each as it comes, with this head of this many bytes.
    Parts([u8; HEAD_MAX_BYTES], usize),
    /// All together. These have come so far.
    Whole(Vec<u8>),
    /// Each as it comes, as bytes of a fragment with this head of this many bytes.
    Fragment([u8; HEAD_MAX_BYTES], usize),
}

/// The peer has written parts that no Ferry writes.
#[derive(Debug, PartialEq, Eq)]
pub struct MalformedRecords;

impl MalformedRecords {
    /// The error, which is this peer's.
    pub fn by(self, peer: ProcId) -> TransportError {
        TransportError::Malformed {
            peer,
            what: "records that make no message",
        }
    }
}

impl Reassembly {
    /// Takes the first part of a message.
    pub fn begin(
        from: ProcId,
        message: u8,
        bytes: &[u8],
        inbox: &mut dyn Inbox,
    ) -> Result<Reassembly, MalformedRecords> {
        let (total, start) = bytes.split_first_chunk::<8>().ok_or(MalformedRecords)?;
        let total = usize::try_from(u64::from_le_bytes(*total)).map_err(|_| MalformedRecords)?;
        if total > SPLIT_MAX_BYTES || total <= start.len() {
            return Err(MalformedRecords);
        }
        let delivery = match inbox.on_message_start(from, message, start, total) {
            Some(head) if head <= HEAD_MAX_BYTES.min(start.len()) => {
                let mut kept = [0; HEAD_MAX_BYTES];
                kept[..head].copy_from_slice(&start[..head]);
                inbox.stream_part(from, message, &start[..head], &start[head..]);
                Delivery::Parts(kept, head)
            }
            Some(_) => return Err(MalformedRecords),
            None => {
                let mut bytes = Vec::with_capacity(total);
                bytes.extend_from_slice(start);
                Delivery::Whole(bytes)
            }
        };
        Ok(Reassembly {
            message,
            remaining: total - start.len(),
            delivery,
        })
    }

    /// Begins with an early record, of whose body, of `body` bytes, nothing was read yet.
    pub fn begin_early(
        from: ProcId,
        message: u8,
        head: &[u8],
        body: usize,
        inbox: &mut dyn Inbox,
    ) -> Result<Reassembly, MalformedRecords> {
        let total = head.len() + body;
        let mut kept = [0; HEAD_MAX_BYTES];
        kept[..head.len()].copy_from_slice(head);
        let delivery = if inbox.takes_fragments(message) {
            Delivery::Fragment(kept, head.len())
        } else {
            match inbox.on_message_start(from, message, head, total) {
                Some(len) if len <= head.len() => Delivery::Parts(kept, len),
                Some(_) => return Err(MalformedRecords),
                None => {
                    let mut bytes = Vec::with_capacity(total);
                    bytes.extend_from_slice(head);
                    Delivery::Whole(bytes)
                }
            }
        };
        Ok(Reassembly {
            message,
            remaining: body,
            delivery,
        })
    }

    /// Takes what is there of an early record's body, straight into the receive's buffer where that
    /// is one run of bytes. True: the message is complete and has been delivered.
    pub fn take_early(
        &mut self,
        from: ProcId,
        message: u8,
        body: &EarlyBody,
        inbox: &mut dyn Inbox,
    ) -> Result<bool, MalformedRecords> {
        if message != self.message || self.remaining > body.len() {
            return Err(MalformedRecords);
        }
        while self.remaining > 0 {
            if let Delivery::Parts(head, len) | Delivery::Fragment(head, len) = &self.delivery {
                let head = &head[..*len];
                if let Some(buffer) = inbox.stream_buffer(from, message, head, self.remaining)
                    && !buffer.is_empty()
                {
                    let room = buffer.len().min(self.remaining);
                    let copied = body.copy(self.remaining, &mut buffer[..room]);
                    if copied == 0 {
                        return Ok(false);
                    }
                    self.remaining -= copied;
                    let last = self.remaining == 0;
                    match &self.delivery {
                        Delivery::Fragment(..) => {
                            inbox.fragment_written(from, message, head, copied, last);
                        }
                        _ => inbox.stream_written(from, message, head, copied),
                    }
                    continue;
                }
            }
            let bytes = body.next(self.remaining);
            if bytes.is_empty() {
                return Ok(false);
            }
            let more = bytes.len() < self.remaining;
            let part = Part {
                message,
                bytes,
                more,
            };
            self.append(from, &part, inbox)?;
        }
        Ok(true)
    }

    /// Takes the next part. True: the message is complete and has been delivered.
    pub fn append(
        &mut self,
        from: ProcId,
        part: &Part<'_>,
        inbox: &mut dyn Inbox,
    ) -> Result<bool, MalformedRecords> {
        let &Part {
            message,
            bytes: record,
            more,
        } = part;
        let remaining = self
            .remaining
            .checked_sub(record.len())
            .ok_or(MalformedRecords)?;
        if message != self.message || more == (remaining == 0) || record.is_empty() {
            return Err(MalformedRecords);
        }
        self.remaining = remaining;
        match &mut self.delivery {
            Delivery::Parts(head, len) => inbox.stream_part(from, message, &head[..*len], record),
            Delivery::Fragment(head, len) => {
                inbox.fragment_part(from, message, &head[..*len], record, !more);
            }
            Delivery::Whole(bytes) => {
                bytes.extend_from_slice(record);
                if !more {
                    inbox.on_message(from, message, bytes);
                }
            }
        }
        Ok(!more)
    }
}

/// Takes the next part of a split message.
pub fn reassemble(
    from: ProcId,
    partial: &mut Option<Reassembly>,
    part: &Part<'_>,
    inbox: &mut dyn Inbox,
) -> Result<(), TransportError> {
    let whole = match partial {
        None => Reassembly::begin(from, part.message, part.bytes, inbox).map(|begun| {
            *partial = Some(begun);
            false
        }),
        Some(begun) => begun.append(from, part, inbox),
    };
    match whole {
        Ok(true) => *partial = None,
        Ok(false) => {}
        Err(malformed) => return Err(malformed.by(from)),
    }
    Ok(())
}

/// Takes what is there of the body of an early record. Returns whether that was all.
#[inline(never)]
pub fn reassemble_early(
    from: ProcId,
    partial: &mut Option<Reassembly>,
    message: u8,
    head: &[u8],
    body: &EarlyBody,
    inbox: &mut dyn Inbox,
) -> Result<bool, TransportError> {
    let begun = match partial {
        Some(begun) => Ok(begun),
        None => Reassembly::begin_early(from, message, head, body.len(), inbox)
            .map(|begun| partial.insert(begun)),
    };
    let whole = begun
        .and_then(|begun| begun.take_early(from, message, body, inbox))
        .map_err(|malformed| malformed.by(from))?;
    if whole {
        *partial = None;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what it is given. Takes messages as streams if `head` says how long their heads are.
    #[derive(Default)]
    struct Seen {
        head: Option<usize>,
        whole: Vec<u8>,
        parts: Vec<u8>,
    }

    impl Inbox for Seen {
        fn on_message(&mut self, _: ProcId, _: u8, bytes: &[u8]) -> bool {
            self.whole.extend_from_slice(bytes);
            false
        }
        fn on_message_start(&mut self, _: ProcId, _: u8, _: &[u8], _: usize) -> Option<usize> {
            self.head
        }
        fn stream_part(&mut self, _: ProcId, _: u8, head: &[u8], bytes: &[u8]) {
            assert_eq!(head, b"head");
            self.parts.extend_from_slice(bytes);
        }
    }

    fn part(message: u8, bytes: &[u8], more: bool) -> Part<'_> {
        Part {
            message,
            bytes,
            more,
        }
    }

    fn first(total: u64, start: &[u8]) -> Vec<u8> {
        [&total.to_le_bytes(), start].concat()
    }

    #[test]
    fn records_make_one_message_or_parts_of_it() {
        for head in [None, Some(4)] {
            let mut seen = Seen {
                head,
                ..Seen::default()
            };
            let mut long = Reassembly::begin(3, 7, &first(9, b"headab"), &mut seen)
                .unwrap_or_else(|_| panic!("sound"));
            assert_eq!(long.append(3, &part(7, b"cd", true), &mut seen), Ok(false));
            assert_eq!(long.append(3, &part(7, b"e", false), &mut seen), Ok(true));
            match head {
                None => assert_eq!(seen.whole, b"headabcde"),
                Some(_) => assert_eq!(seen.parts, b"abcde"),
            }
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let mut seen = Seen::default();
        let mut begins = |record: &[u8]| Reassembly::begin(3, 7, record, &mut seen).is_ok();
        assert!(!begins(b"short"));
        assert!(!begins(&first(6, b"headab")));
        assert!(!begins(&first(u64::MAX, b"headab")));
        assert!(!begins(&first(SPLIT_MAX_BYTES as u64 + 1, b"headab")));
        assert!(begins(&first(SPLIT_MAX_BYTES as u64, b"headab")));
        for (message, record, more) in [
            (7, &b"cde"[..], true),
            (7, b"cd", false),
            (7, b"cdef", false),
            (8, b"cde", false),
            (7, b"", true),
        ] {
            let mut long = Reassembly::begin(3, 7, &first(9, b"headab"), &mut seen)
                .unwrap_or_else(|_| panic!("sound"));
            assert_eq!(
                long.append(3, &part(message, record, more), &mut seen),
                Err(MalformedRecords)
            );
        }
    }
}
