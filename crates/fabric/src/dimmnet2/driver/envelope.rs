//! Envelopes: the beginning of each message in a ring.
//!
//! A read of the Prefetch Window takes long, so an envelope is short. Words of 32 bits that are
//! zero are left out, in the body's length and in the library's head. Eager messages and RTS then
//! fit 32 bytes, as in the paper.
//!
//! ```text
//! 0                1         2               3      4                  6
//! | kind, buffer   | message | bytes of head | zero | which words come | words … | rest of head |
//! ```
//!
//! The words are the body's length and then the head's whole words. The length of an envelope is a
//! multiple of 8, at least 32.

use crate::dimmnet2::card::ring::WORD_BYTES;

/// Bytes of an envelope, unless its head is long.
pub const ENVELOPE_BYTES: u32 = 32;
/// Longest head of a message, bytes.
pub const HEAD_MAX_BYTES: usize = 60;
/// Bytes before the words.
const FIXED_BYTES: usize = 6;

/// What an envelope is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A message. Its body follows.
    Message,
    /// A control message of the library. Its body follows.
    Control,
    /// FTS: a piece of a large body lies in this rendezvous buffer of the connection.
    Finish(u8),
    /// That rendezvous buffer is empty again.
    Credit(u8),
    /// RTS of a message that lies in the sender's SO-DIMM. The body says where.
    SodimmRts,
}

/// An envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub kind: Kind,
    /// The library's message number.
    pub message: u8,
    /// Bytes of the body.
    pub body: u32,
    head: [u8; HEAD_MAX_BYTES],
    head_len: usize,
}

/// Rendezvous buffers that an envelope can name.
const BUFFERS_MAX: u8 = 16;

impl Envelope {
    /// A new envelope. Panics if the head is longer than [`HEAD_MAX_BYTES`].
    pub fn new(kind: Kind, message: u8, head: &[u8], body: u32) -> Envelope {
        assert!(
            head.len() <= HEAD_MAX_BYTES,
            "a head of {} bytes",
            head.len()
        );
        let mut all = [0; HEAD_MAX_BYTES];
        all[..head.len()].copy_from_slice(head);
        Envelope {
            kind,
            message,
            body,
            head: all,
            head_len: head.len(),
        }
    }

    /// The library's head.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Encodes the envelope for the ring.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, buffer) = match self.kind {
            Kind::Message => (1, 0),
            Kind::Control => (2, 0),
            Kind::Finish(buffer) => (3, buffer),
            Kind::Credit(buffer) => (4, buffer),
            Kind::SodimmRts => (5, 0),
        };
        debug_assert!(buffer < BUFFERS_MAX);
        let mut out = Vec::with_capacity(ENVELOPE_BYTES as usize);
        out.extend([
            kind << 4 | buffer,
            self.message,
            self.head_len as u8,
            0,
            0,
            0,
        ]);
        let (words, rest) = self.head().as_chunks::<4>();
        let mut there = 0u16;
        for (i, word) in std::iter::once(&self.body.to_le_bytes())
            .chain(words)
            .enumerate()
        {
            if *word != [0; 4] {
                there |= 1 << i;
                out.extend(word);
            }
        }
        out[4..6].copy_from_slice(&there.to_le_bytes());
        out.extend(rest);
        let len = out.len().max(ENVELOPE_BYTES as usize);
        out.resize(len.next_multiple_of(WORD_BYTES as usize), 0);
        out
    }

    /// Bytes of the envelope that begins with `bytes`, and bytes that it takes in the ring. There
    /// must be [`ENVELOPE_BYTES`] at least. `None`: it is not valid.
    pub fn len(bytes: &[u8]) -> Option<(u32, u32)> {
        let first = bytes.first_chunk::<FIXED_BYTES>()?;
        let there = u16::from_le_bytes([first[4], first[5]]);
        let head = usize::from(first[2]);
        if head > HEAD_MAX_BYTES || u32::from(there) >> (1 + head / 4) != 0 {
            return None;
        }
        let own = FIXED_BYTES + there.count_ones() as usize * 4 + head % 4;
        let own = own as u32;
        Some((own, own.max(ENVELOPE_BYTES).next_multiple_of(WORD_BYTES)))
    }

    /// Decodes an envelope, which another process has written. `None`: it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Envelope> {
        let (own, _) = Envelope::len(bytes)?;
        let bytes = bytes.get(..own as usize)?;
        let buffer = bytes[0] & 0xf;
        let kind = match (bytes[0] >> 4, buffer) {
            (1, 0) => Kind::Message,
            (2, 0) => Kind::Control,
            (3, buffer) => Kind::Finish(buffer),
            (4, buffer) => Kind::Credit(buffer),
            (5, 0) => Kind::SodimmRts,
            _ => return None,
        };
        if bytes[3] != 0 {
            return None;
        }
        let there = u16::from_le_bytes([bytes[4], bytes[5]]);
        let mut rest = &bytes[FIXED_BYTES..];
        let mut word = |i: usize| {
            if there & 1 << i == 0 {
                return Some([0; 4]);
            }
            let (word, behind) = rest.split_first_chunk::<4>()?;
            rest = behind;
            Some(*word)
        };
        let body = u32::from_le_bytes(word(0)?);
        let head_len = usize::from(bytes[2]);
        let mut head = [0; HEAD_MAX_BYTES];
        for i in 0..head_len / 4 {
            head[i * 4..i * 4 + 4].copy_from_slice(&word(i + 1)?);
        }
        head[head_len / 4 * 4..head_len].copy_from_slice(rest);
        Some(Envelope {
            kind,
            message: bytes[1],
            body,
            head,
            head_len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Message),
            Just(Kind::Control),
            Just(Kind::SodimmRts),
            (0u8..16).prop_map(Kind::Finish),
            (0u8..16).prop_map(Kind::Credit),
        ]
    }

    proptest! {
        #[test]
        fn an_envelope_reads_back(
            kind in kinds(),
            message in any::<u8>(),
            head in proptest::collection::vec(
                prop_oneof![Just(0u8), any::<u8>()],
                0..=HEAD_MAX_BYTES,
            ),
            body in prop_oneof![Just(0u32), any::<u32>()],
        ) {
            let envelope = Envelope::new(kind, message, &head, body);
            let mut bytes = envelope.encode();
            let (own, taken) = Envelope::len(&bytes).unwrap();
            prop_assert_eq!(taken as usize, bytes.len());
            prop_assert!(own <= taken && taken <= 72 && bytes.len().is_multiple_of(8));
            bytes.extend([7; 9]);
            let back = Envelope::decode(&bytes).unwrap();
            prop_assert_eq!(back.head(), &head[..]);
            prop_assert_eq!(back, envelope);
        }
    }

    #[test]
    fn what_the_library_sends_fits_32_bytes() {
        // Context, source and tag, all of them large, and for RTS the message's length, no address,
        // the request.
        let eager = [&[0xff; 16][..]].concat();
        assert_eq!(
            Envelope::new(Kind::Message, 1, &eager, 4096).encode().len(),
            32
        );
        let length = (1u64 << 31).to_le_bytes();
        let announce = [&[0xff; 16][..], &length, &[0; 8], &[0xff; 4]].concat();
        assert_eq!(
            Envelope::new(Kind::Message, 3, &announce, 0).encode().len(),
            32
        );
    }

    #[test]
    fn fuzz_envelopes() {
        let seeds = [
            Envelope::new(Kind::Message, 1, &[3; 16], 100).encode(),
            Envelope::new(Kind::Finish(1), 5, &[0, 0, 0, 0, 9, 9], 7).encode(),
            Envelope::new(Kind::Control, 4, &[1; HEAD_MAX_BYTES], 0).encode(),
        ];
        ferry_fuzz::fuzz(
            "dimmnet2 envelopes",
            &seeds,
            |bytes| match Envelope::decode(bytes) {
                Some(envelope) => {
                    let again = Envelope::decode(&envelope.encode());
                    assert_eq!(again.as_ref(), Some(&envelope));
                    Some((envelope.kind, envelope.head_len))
                }
                None => None,
            },
        );
    }
}
