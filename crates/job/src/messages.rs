//! Messages between a rank and its launcher. Each is one packet of their socket.

use crate::business_cards::CARD_MAX_BYTES;

/// Longest text of a message. A longer one is cut.
pub const TEXT_MAX_BYTES: usize = 16 * 1024;
/// Longest name of a medium.
pub(crate) const MEDIUM_NAME_MAX_BYTES: usize = 32;
/// Longest packet.
pub(crate) const PACKET_MAX_BYTES: usize = 8 + TEXT_MAX_BYTES;

const ABORT: [u8; 4] = *b"abrt";
const PUT: [u8; 4] = *b"put ";
const GET: [u8; 4] = *b"get ";
const SAY: [u8; 4] = *b"say ";
const SPAWN: [u8; 4] = *b"spwn";
const NAME: [u8; 4] = *b"name";
const TAKEN: [u8; 4] = *b"take";
const CARD: [u8; 4] = *b"card";

/// A message of a rank to its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToLauncher {
    /// End the whole job (MPI_Abort, or the fatal error handler).
    Abort {
        /// Exit code for the job.
        code: i32,
        /// The message to print. May be empty.
        text: String,
    },
    /// Publishes the rank's business card for a medium.
    Put {
        /// The medium's name.
        medium: String,
        /// The card.
        card: Vec<u8>,
    },
    /// Asks for a rank's business card. The answer comes when that rank has published it.
    Get {
        /// The medium's name.
        medium: String,
        /// The rank that the card belongs to.
        rank: u32,
    },
    /// Start a launcher for processes (MPI_Comm_spawn). Its end of the [`SpawnSocket`] comes with
    /// the message.
    ///
    /// [`SpawnSocket`]: crate::SpawnSocket
    Spawn,
    /// A question about a published name. The launcher's end of its socket comes with the message.
    Name,
    /// A line for the job's log.
    Log {
        /// The line.
        text: String,
    },
}

/// A message of the launcher to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// An abort has been received.
    AbortTaken,
    /// A business card that was asked for.
    Card {
        /// The medium's name.
        medium: String,
        /// The rank that the card belongs to.
        rank: u32,
        /// The card.
        card: Vec<u8>,
    },
}

impl ToLauncher {
    /// Encodes the message as a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToLauncher::Abort { code, text } => packet(ABORT, *code as u32, &[cut(text)]),
            ToLauncher::Spawn => packet(SPAWN, 0, &[]),
            ToLauncher::Name => packet(NAME, 0, &[]),
            ToLauncher::Log { text } => packet(SAY, 0, &[cut(text)]),
            ToLauncher::Put { medium, card } => {
                packet(PUT, medium.len() as u32, &[medium.as_bytes(), card])
            }
            ToLauncher::Get { medium, rank } => packet(GET, *rank, &[medium.as_bytes()]),
        }
    }

    /// Decodes a packet. `None` if it is no such message.
    pub fn decode(bytes: &[u8]) -> Option<ToLauncher> {
        let (kind, number, rest) = opened(bytes)?;
        match kind {
            ABORT => Some(ToLauncher::Abort {
                code: number as i32,
                text: String::from_utf8_lossy(rest).into_owned(),
            }),
            SAY => Some(ToLauncher::Log {
                text: String::from_utf8_lossy(rest).into_owned(),
            }),
            PUT => {
                let (medium, card) = rest.split_at_checked(number as usize)?;
                Some(ToLauncher::Put {
                    medium: medium_name(medium)?,
                    card: a_card(card)?,
                })
            }
            SPAWN => Some(ToLauncher::Spawn),
            NAME => Some(ToLauncher::Name),
            GET => Some(ToLauncher::Get {
                medium: medium_name(rest)?,
                rank: number,
            }),
            _ => None,
        }
    }
}

impl ToRank {
    /// Encodes the message as a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToRank::AbortTaken => packet(TAKEN, 0, &[]),
            ToRank::Card { medium, rank, card } => packet(
                CARD,
                *rank,
                &[&[medium.len() as u8], medium.as_bytes(), card.as_slice()],
            ),
        }
    }

    /// Decodes a packet. `None` if it is no such message.
    pub fn decode(bytes: &[u8]) -> Option<ToRank> {
        let (kind, number, rest) = opened(bytes)?;
        match kind {
            TAKEN => Some(ToRank::AbortTaken),
            CARD => {
                let (&len, rest) = rest.split_first()?;
                let (medium, card) = rest.split_at_checked(usize::from(len))?;
                Some(ToRank::Card {
                    medium: medium_name(medium)?,
                    rank: number,
                    card: a_card(card)?,
                })
            }
            _ => None,
        }
    }
}

/// A text, cut between characters if it is too long.
fn cut(text: &str) -> &[u8] {
    let mut end = text.len().min(TEXT_MAX_BYTES);
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
    (bytes.len() <= PACKET_MAX_BYTES).then_some((*kind, u32::from_le_bytes(*number), rest))
}

fn medium_name(bytes: &[u8]) -> Option<String> {
    let good = (1..=MEDIUM_NAME_MAX_BYTES).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic);
    good.then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn a_card(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= CARD_MAX_BYTES).then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn notices() -> impl Strategy<Value = ToLauncher> {
        let card = prop::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            (any::<i32>(), ".{0,200}").prop_map(|(code, text)| ToLauncher::Abort { code, text }),
            ".{0,200}".prop_map(|text| ToLauncher::Log { text }),
            Just(ToLauncher::Spawn),
            Just(ToLauncher::Name),
            ("[a-z]{1,8}", card).prop_map(|(medium, card)| ToLauncher::Put { medium, card }),
            ("[a-z]{1,8}", any::<u32>())
                .prop_map(|(medium, rank)| ToLauncher::Get { medium, rank }),
        ]
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(notice in notices()) {
            prop_assert_eq!(ToLauncher::decode(&notice.encode()), Some(notice));
        }
        #[test]
        fn a_card_comes_back_too(
            medium in "[a-z]{1,32}",
            rank in any::<u32>(),
            card in prop::collection::vec(any::<u8>(), 0..4096),
        ) {
            let reply = ToRank::Card { medium, rank, card };
            prop_assert_eq!(ToRank::decode(&reply.encode()), Some(reply));
        }
        #[test]
        fn fuzz_any_bytes_are_answered(
            kind in 0usize..7,
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let kinds = [&b"abrt"[..], b"put ", b"get ", b"card", b"take", b"say ", b""];
            let packet = [kinds[kind], &bytes].concat();
            let _ = (ToLauncher::decode(&packet), ToRank::decode(&packet));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notice = ToLauncher::Abort {
            code: 1,
            text: "ö".repeat(TEXT_MAX_BYTES),
        };
        let Some(ToLauncher::Abort { text, .. }) = ToLauncher::decode(&notice.encode()) else {
            panic!("not read")
        };
        assert_eq!(text, "ö".repeat(TEXT_MAX_BYTES / 2));
    }
}
