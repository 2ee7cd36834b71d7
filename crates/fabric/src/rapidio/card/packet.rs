//! What cards send each other: segments of messages and their responses, doorbells, NREAD, NWRITE.

use crate::rapidio::command::{Physical, SEGMENT_MAX_BYTES, SendId};
use std::sync::Arc;

/// Messages of a stream that can be under way at once. A header's letter tells them apart.
pub const LETTERS: u64 = 4;

/// A message under way.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The node that sends it.
    pub from: u32,
    /// The node that it is for.
    pub to: u32,
    /// Its mailbox number.
    pub mailbox: u8,
    /// Its letter, from 0 to 3. The messages of a stream take the letters in turn.
    pub letter: u8,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl Message {
    /// Number of its segments, from 1 to 16.
    pub fn segments(&self) -> u8 {
        self.data.len().div_ceil(SEGMENT_MAX_BYTES).max(1) as u8
    }

    /// Bytes of each segment but the last. The segments are as equal as multiples of 8 bytes can
    /// be.
    pub fn segment_bytes(&self) -> usize {
        let even = self.data.len().div_ceil(usize::from(self.segments()));
        even.next_multiple_of(8)
    }

    /// The bytes of a segment.
    pub fn segment(&self, number: u8) -> &[u8] {
        let from = usize::from(number) * self.segment_bytes();
        let to = (from + self.segment_bytes()).min(self.data.len());
        self.data.get(from..to).unwrap_or_default()
    }
}

/// A segment under way.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its message.
    pub message: Arc<Message>,
    /// Its number in the message, from 0.
    pub number: u8,
}

impl Segment {
    /// Returns whether it is the last of its message.
    pub fn is_last(&self) -> bool {
        self.number + 1 == self.message.segments()
    }
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.message.segment(self.number)
    }
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Payload {
    /// A segment.
    Segment(Segment),
    /// The response to a segment: it has been accepted, or it must be sent again.
    Response {
        /// The segment.
        segment: Segment,
        /// It has been accepted.
        accepted: bool,
    },
    /// A doorbell.
    Doorbell {
        /// The node that rings.
        from: u32,
        /// The node whose doorbell it is.
        to: u32,
        /// Its two bytes.
        info: u16,
    },
    /// NWRITE.
    Write {
        /// The node that writes.
        from: u32,
        /// The node whose memory it is.
        to: u32,
        /// Where the bytes go.
        at: Physical,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// NREAD.
    Read {
        /// The node that reads.
        from: u32,
        /// The node whose memory it is.
        to: u32,
        /// Where the bytes lie.
        at: Physical,
        /// Their number.
        bytes: u16,
        /// The reader's number for it.
        id: SendId,
    },
    /// The answer of an NREAD.
    Answer {
        /// The node that has read.
        to: u32,
        /// The reader's number for it.
        id: SendId,
        /// The bytes.
        data: Arc<[u8]>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_make_up_the_message(data in prop::collection::vec(any::<u8>(), 1..=4096)) {
            let message = Message { from: 0, to: 1, mailbox: 0, letter: 0, data };
            let numbers = 0..message.segments();
            let segments: Vec<&[u8]> = numbers.map(|n| message.segment(n)).collect();
            prop_assert_eq!(segments.concat(), &message.data[..]);
            let (last, rest) = segments.split_last().unwrap();
            prop_assert!(rest.iter().all(|s| s.len() == message.segment_bytes()));
            prop_assert!((1..=SEGMENT_MAX_BYTES).contains(&last.len()));
            prop_assert!(segments.len() <= 16 && message.segment_bytes() <= SEGMENT_MAX_BYTES);
            if message.data.len().is_multiple_of(SEGMENT_MAX_BYTES) {
                prop_assert_eq!(message.segment_bytes(), SEGMENT_MAX_BYTES);
            }
        }
    }
}
