//! What a rank and its launcher tell each other through the socket, a packet each.

use crate::directory::CARD_MAX;

/// Longest text of a notice, bytes; longer ones are cut.
pub const TEXT_MAX: usize = 16 * 1024;
/// Longest name of a wire, bytes.
pub(crate) const WIRE_NAME_MAX: usize = 32;
/// No packet is longer, bytes.
pub(crate) const PACKET_MAX: usize = 8 + TEXT_MAX;

const ABORT: [u8; 4] = *b"abrt";
const PUT: [u8; 4] = *b"put ";
const GET: [u8; 4] = *b"get ";
const SAY: [u8; 4] = *b"say ";
const TAKEN: [u8; 4] = *b"take";
const CARD: [u8; 4] = *b"card";

/// A message of a rank to its launcher: one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// End the whole job (MPI_Abort, or the fatal error handler).
    Abort {
        /// Exit code for the job.
        code: i32,
        /// What to print; may be empty.
        text: String,
    },
    /// This rank's card for a wire.
    Put {
        /// The wire's name.
        wire: String,
        /// What others need to know.
        card: Vec<u8>,
    },
    /// Wants a rank's card; the answer may take until that rank has put it.
    Get {
        /// The wire's name.
        wire: String,
        /// Whose.
        rank: u32,
    },
    /// A line for the job's log.
    Say {
        /// The line.
        text: String,
    },
}

/// A message of a launcher to its rank: one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A notice of an abort was taken.
    Taken,
    /// A card that was asked for.
    Card {
        /// The wire's name.
        wire: String,
        /// Whose.
        rank: u32,
        /// The card.
        card: Vec<u8>,
    },
}

impl Notice {
    /// The notice as one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Notice::Abort { code, text } => packet(ABORT, *code as u32, &[cut(text)]),
            Notice::Say { text } => packet(SAY, 0, &[cut(text)]),
            Notice::Put { wire, card } => packet(PUT, wire.len() as u32, &[wire.as_bytes(), card]),
            Notice::Get { wire, rank } => packet(GET, *rank, &[wire.as_bytes()]),
        }
    }

    /// Reads a packet; `None` if it is none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Notice> {
        let (kind, number, rest) = opened(bytes)?;
        match kind {
            ABORT => Some(Notice::Abort {
                code: number as i32,
                text: String::from_utf8_lossy(rest).into_owned(),
            }),
            SAY => Some(Notice::Say {
                text: String::from_utf8_lossy(rest).into_owned(),
            }),
            PUT => {
                let (wire, card) = rest.split_at_checked(number as usize)?;
                Some(Notice::Put {
                    wire: wire_name(wire)?,
                    card: a_card(card)?,
                })
            }
            GET => Some(Notice::Get {
                wire: wire_name(rest)?,
                rank: number,
            }),
            _ => None,
        }
    }
}

impl Reply {
    /// The reply as one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Taken => packet(TAKEN, 0, &[]),
            Reply::Card { wire, rank, card } => packet(
                CARD,
                *rank,
                &[&[wire.len() as u8], wire.as_bytes(), card.as_slice()],
            ),
        }
    }

    /// Reads a packet; `None` if it is none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let (kind, number, rest) = opened(bytes)?;
        match kind {
            TAKEN => Some(Reply::Taken),
            CARD => {
                let (&len, rest) = rest.split_first()?;
                let (wire, card) = rest.split_at_checked(usize::from(len))?;
                Some(Reply::Card {
                    wire: wire_name(wire)?,
                    rank: number,
                    card: a_card(card)?,
                })
            }
            _ => None,
        }
    }
}

/// A text that is not too long, cut between characters.
fn cut(text: &str) -> &[u8] {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

fn packet(kind: [u8; 4], number: u32, rest: &[&[u8]]) -> Vec<u8> {
    let mut out = kind.to_vec();
    out.extend(number.to_le_bytes());
    for piece in rest {
        out.extend(*piece);
    }
    out
}

fn opened(bytes: &[u8]) -> Option<([u8; 4], u32, &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    (bytes.len() <= PACKET_MAX).then_some((*kind, u32::from_le_bytes(*number), rest))
}

fn wire_name(bytes: &[u8]) -> Option<String> {
    let good = (1..=WIRE_NAME_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    good.then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn a_card(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= CARD_MAX).then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn notices() -> impl Strategy<Value = Notice> {
        let card = prop::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            (any::<i32>(), ".{0,200}").prop_map(|(code, text)| Notice::Abort { code, text }),
            ".{0,200}".prop_map(|text| Notice::Say { text }),
            ("[a-z]{1,8}", card).prop_map(|(wire, card)| Notice::Put { wire, card }),
            ("[a-z]{1,8}", any::<u32>()).prop_map(|(wire, rank)| Notice::Get { wire, rank }),
        ]
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(notice in notices()) {
            prop_assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        #[test]
        fn a_card_comes_back_too(wire in "[a-z]{1,32}", rank in any::<u32>(), card in prop::collection::vec(any::<u8>(), 0..4096)) {
            let reply = Reply::Card { wire, rank, card };
            prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        #[test]
        fn fuzz_any_bytes_are_answered(kind in 0usize..7, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let kinds = [&b"abrt"[..], b"put ", b"get ", b"card", b"take", b"say ", b""];
            let packet = [kinds[kind], &bytes].concat();
            let _ = (Notice::decode(&packet), Reply::decode(&packet));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notice = Notice::Abort {
            code: 1,
            text: "ö".repeat(TEXT_MAX),
        };
        let Some(Notice::Abort { text, .. }) = Notice::decode(&notice.encode()) else {
            panic!("not read")
        };
        assert_eq!(text, "ö".repeat(TEXT_MAX / 2));
    }
}
