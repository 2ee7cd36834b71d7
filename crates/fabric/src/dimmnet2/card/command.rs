//! Commands, and their encoding in the User Registers: a few words of 32 bits each.

use super::packet::Process;
use super::pattern::{LIST_MAX, Pattern};

/// Bytes of a write-combining line. Packet images begin at a multiple of it.
pub const LINE_BYTES: u32 = 64;

/// Which bytes a command moves. The lists of the last two kinds lie in the Write Window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// One run of this many bytes.
    Contiguous(u32),
    /// Blocks at equal distances.
    Stride {
        /// Bytes of a block.
        block: u32,
        /// Bytes from one block's beginning to the next one's.
        stride: u32,
        /// Blocks.
        count: u32,
    },
    /// Blocks at listed offsets of 64 bits.
    List {
        /// Bytes of a block.
        block: u32,
        /// Blocks.
        count: u32,
        /// Where in the Write Window the list begins.
        list: u32,
    },
    /// Blocks at listed offsets of 32 bits, two in a word of 64 bits.
    PackedList {
        /// Bytes of a block.
        block: u32,
        /// Blocks.
        count: u32,
        /// Where in the Write Window the list begins.
        list: u32,
    },
}

/// An address on a process's own card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a window: the Write Window to take bytes from, the Prefetch Window to put them into.
    Window(u32),
    /// In its part of the SO-DIMM.
    Memory(u32),
}

/// A command of a process to its card. Window and SO-DIMM addresses are the process's own. They
/// count bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// VL: SO-DIMM to Prefetch Window.
    VectorLoad {
        /// Location in the Prefetch Window.
        window: u32,
        /// SO-DIMM address.
        memory: u32,
        /// Which bytes from there.
        what: Addressing,
    },
    /// VS: Write Window to SO-DIMM.
    VectorStore {
        /// Location in the Write Window.
        window: u32,
        /// SO-DIMM address.
        memory: u32,
        /// Which bytes from there.
        what: Addressing,
    },
    /// RVS: to another process's SO-DIMM.
    RemoteStore {
        /// The other process.
        to: Process,
        /// What to send.
        from: Location,
        /// SO-DIMM address of the other process.
        memory: u32,
        /// Which bytes from there.
        what: Addressing,
    },
    /// RVL: from another process's SO-DIMM.
    RemoteLoad {
        /// The other process.
        from: Process,
        /// Where to put it here.
        into: Location,
        /// SO-DIMM address of the other process.
        memory: u32,
        /// Which bytes from there.
        what: Addressing,
    },
    /// BOTF: sends the packet image in the Write Window as it is.
    BlockOnTheFly {
        /// Where the image begins.
        window: u32,
        /// Its bytes.
        bytes: u32,
    },
    /// Sets up rings for IVS: `senders` rings of `size` bytes each, contiguous from `base` on. A
    /// sender's number is its node times the processes of a node, plus its place on the node.
    Rings {
        /// SO-DIMM address of the first one.
        base: u32,
        /// Bytes of each.
        size: u32,
        /// How many.
        senders: u32,
    },
}

/// Why a card does not execute a command or accept a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[repr(u32)]
pub enum CardError {
    /// The words are no command.
    #[error("the words in the User Registers are no command")]
    Command = 1,
    /// An address in a window is not aligned: 64 bytes for packet images, 8 otherwise.
    #[error(
        "a place in a window is not aligned: packet images begin on 64 bytes, everything else on 8"
    )]
    Alignment = 2,
    /// Beyond the end of the window.
    #[error("beyond the end of the window")]
    Window = 3,
    /// Beyond the end of the process's part of the SO-DIMM.
    #[error("beyond the end of the process's part of the SO-DIMM")]
    Memory = 4,
    /// The packet image cannot be sent.
    #[error("the packet image makes no sense")]
    Image = 5,
    /// More than a packet can hold.
    #[error("more bytes than a packet can hold, and not one run, which the card would cut")]
    Packet = 6,
    /// There is no such process.
    #[error("there is no such process")]
    Process = 7,
    /// The rings do not fit the SO-DIMM, or are no rings.
    #[error("rings that do not fit the SO-DIMM, or whose size is no multiple of 8")]
    Rings = 8,
    /// A read address that is not between the ring's two addresses.
    #[error("a read address that does not lie between the ring's two addresses")]
    ReadAddress = 9,
    /// A packet longer than the whole ring.
    #[error("a packet that is longer than the whole ring")]
    TooLong = 10,
}

impl CardError {
    /// The error with this number, as LLCM has it.
    pub fn from_number(number: u32) -> Option<CardError> {
        use CardError::*;
        let all = [
            Command,
            Alignment,
            Window,
            Memory,
            Image,
            Packet,
            Process,
            Rings,
            ReadAddress,
            TooLong,
        ];
        all.into_iter().find(|e| *e as u32 == number)
    }
}

const VL: u32 = 1;
const VS: u32 = 2;
const RVS: u32 = 3;
const RVL: u32 = 4;
const BOTF: u32 = 5;
const RINGS: u32 = 6;

impl Addressing {
    /// Appends block, stride, count and the list's address, as far as the kind has them. Returns
    /// the kind's number.
    fn words(&self, out: &mut Vec<u32>) -> u32 {
        match *self {
            Addressing::Contiguous(bytes) => {
                out.push(bytes);
                0
            }
            Addressing::Stride {
                block,
                stride,
                count,
            } => {
                out.extend([block, stride, count]);
                1
            }
            Addressing::List { block, count, list } => {
                out.extend([block, count, list]);
                2
            }
            Addressing::PackedList { block, count, list } => {
                out.extend([block, count, list]);
                3
            }
        }
    }

    fn from_words(kind: u32, words: &[u32]) -> Option<Addressing> {
        match (kind, words) {
            (0, &[bytes]) => Some(Addressing::Contiguous(bytes)),
            (1, &[block, stride, count]) => Some(Addressing::Stride {
                block,
                stride,
                count,
            }),
            (2, &[block, count, list]) => Some(Addressing::List { block, count, list }),
            (3, &[block, count, list]) => Some(Addressing::PackedList { block, count, list }),
            _ => None,
        }
    }

    /// The pattern, with its list read from the Write Window.
    pub(super) fn resolve(&self, window: &[u8]) -> Result<Pattern, CardError> {
        let (kind, block, count, list, entry) = match *self {
            Addressing::Contiguous(bytes) => return Ok(Pattern::Contiguous { bytes }),
            Addressing::Stride {
                block,
                stride,
                count,
            } => {
                return Ok(Pattern::Stride {
                    block,
                    stride,
                    count,
                });
            }
            Addressing::List { block, count, list } => (2, block, count, list, 8),
            Addressing::PackedList { block, count, list } => (3, block, count, list, 4),
        };
        if !list.is_multiple_of(8) {
            return Err(CardError::Alignment);
        }
        if count > LIST_MAX {
            return Err(CardError::Packet);
        }
        let end = list as usize + (count as usize * entry).next_multiple_of(8);
        let bytes = window.get(list as usize..end).ok_or(CardError::Window)?;
        Pattern::from_fields((kind, block, 0, count), bytes)
            .map(|(pattern, _)| pattern)
            .ok_or(CardError::Window)
    }
}

fn pack(to: Process) -> u32 {
    u32::from(to.node) | u32::from(to.port) << 16
}

fn process(word: u32) -> Process {
    Process {
        node: word as u16,
        port: (word >> 16) as u16,
    }
}

impl Command {
    /// Encodes the command. The card begins sooner if there are fewer words. `None`: a packet image
    /// whose address and length do not fit one word.
    pub fn words(&self) -> Option<Vec<u32>> {
        let mut out = vec![0];
        let place = |place: &Location| match *place {
            Location::Window(at) => (0, at),
            Location::Memory(at) => (1 << 16, at),
        };
        out[0] = match self {
            Command::VectorLoad {
                window,
                memory,
                what,
            } => {
                out.extend([*window, *memory]);
                VL | what.words(&mut out) << 8
            }
            Command::VectorStore {
                window,
                memory,
                what,
            } => {
                out.extend([*window, *memory]);
                VS | what.words(&mut out) << 8
            }
            Command::RemoteStore {
                to,
                from,
                memory,
                what,
            } => {
                let (flag, at) = place(from);
                out.extend([pack(*to), at, *memory]);
                RVS | flag | what.words(&mut out) << 8
            }
            Command::RemoteLoad {
                from,
                into,
                memory,
                what,
            } => {
                let (flag, at) = place(into);
                out.extend([pack(*from), at, *memory]);
                RVL | flag | what.words(&mut out) << 8
            }
            Command::BlockOnTheFly { window, bytes } => {
                let (line, words) = (window / LINE_BYTES, bytes.div_ceil(8));
                let says_all =
                    window.is_multiple_of(LINE_BYTES) && line < 1 << 12 && words < 1 << 12;
                if !says_all {
                    return None;
                }
                BOTF | line << 8 | words << 20
            }
            Command::Rings {
                base,
                size,
                senders,
            } => {
                out.extend([*base, *size, *senders]);
                RINGS
            }
        };
        Some(out)
    }

    /// Decodes a command.
    ///
    /// # Errors
    /// The words are not a command.
    pub fn from_words(words: &[u32]) -> Result<Command, CardError> {
        let (&first, rest) = words.split_first().ok_or(CardError::Command)?;
        let (kind, at) = (first >> 8 & 0xff, first >> 16);
        let place = |word: u32| match at {
            0 => Some(Location::Window(word)),
            1 => Some(Location::Memory(word)),
            _ => None,
        };
        let found =
            match (first & 0xff, rest) {
                (VL, [window, memory, what @ ..]) if at == 0 => Addressing::from_words(kind, what)
                    .map(|what| Command::VectorLoad {
                        window: *window,
                        memory: *memory,
                        what,
                    }),
                (VS, [window, memory, what @ ..]) if at == 0 => Addressing::from_words(kind, what)
                    .map(|what| Command::VectorStore {
                        window: *window,
                        memory: *memory,
                        what,
                    }),
                (RVS, [to, from, memory, what @ ..]) => place(*from)
                    .zip(Addressing::from_words(kind, what))
                    .map(|(from, what)| Command::RemoteStore {
                        to: process(*to),
                        from,
                        memory: *memory,
                        what,
                    }),
                (RVL, [from, into, memory, what @ ..]) => place(*into)
                    .zip(Addressing::from_words(kind, what))
                    .map(|(into, what)| Command::RemoteLoad {
                        from: process(*from),
                        into,
                        memory: *memory,
                        what,
                    }),
                (BOTF, []) => Some(Command::BlockOnTheFly {
                    window: (first >> 8 & 0xfff) * LINE_BYTES,
                    bytes: (first >> 20) * 8,
                }),
                (RINGS, &[base, size, senders]) if first == RINGS => Some(Command::Rings {
                    base,
                    size,
                    senders,
                }),
                _ => None,
            };
        found.ok_or(CardError::Command)
    }

    /// Returns whether the command goes to the network. Such commands of a process leave in order.
    /// The others are executed in order among themselves.
    pub fn is_remote(&self) -> bool {
        matches!(
            self,
            Command::RemoteStore { .. }
                | Command::RemoteLoad { .. }
                | Command::BlockOnTheFly { .. }
        )
    }

    /// Returns whether the command moves blocks by a stride or a list.
    pub fn is_strided(&self) -> bool {
        match self {
            Command::VectorLoad { what, .. }
            | Command::VectorStore { what, .. }
            | Command::RemoteStore { what, .. }
            | Command::RemoteLoad { what, .. } => !matches!(what, Addressing::Contiguous(_)),
            Command::BlockOnTheFly { .. } | Command::Rings { .. } => false,
        }
    }

    /// The command's name, for timelines.
    pub fn name(&self) -> &'static str {
        match self {
            Command::VectorLoad { .. } => "VL",
            Command::VectorStore { .. } => "VS",
            Command::RemoteStore { .. } => "RVS",
            Command::RemoteLoad { .. } => "RVL",
            Command::BlockOnTheFly { .. } => "BOTF",
            Command::Rings { .. } => "rings",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addressings() -> impl Strategy<Value = Addressing> {
        let n = any::<u32>;
        prop_oneof![
            n().prop_map(Addressing::Contiguous),
            (n(), n(), n()).prop_map(|(block, stride, count)| Addressing::Stride {
                block,
                stride,
                count
            }),
            (n(), n(), n()).prop_map(|(block, count, list)| Addressing::List {
                block,
                count,
                list
            }),
            (n(), n(), n()).prop_map(|(block, count, list)| Addressing::PackedList {
                block,
                count,
                list
            }),
        ]
    }

    fn commands() -> impl Strategy<Value = Command> {
        let to = || (any::<u16>(), any::<u16>()).prop_map(|(node, port)| Process { node, port });
        let place = || {
            (any::<bool>(), any::<u32>()).prop_map(|(window, at)| match window {
                true => Location::Window(at),
                false => Location::Memory(at),
            })
        };
        let n = any::<u32>;
        prop_oneof![
            (n(), n(), addressings()).prop_map(|(window, memory, what)| Command::VectorLoad {
                window,
                memory,
                what
            }),
            (n(), n(), addressings()).prop_map(|(window, memory, what)| Command::VectorStore {
                window,
                memory,
                what
            }),
            (to(), place(), n(), addressings()).prop_map(|(to, from, memory, what)| {
                Command::RemoteStore {
                    to,
                    from,
                    memory,
                    what,
                }
            }),
            (to(), place(), n(), addressings()).prop_map(|(from, into, memory, what)| {
                Command::RemoteLoad {
                    from,
                    into,
                    memory,
                    what,
                }
            }),
            (0u32..4096, 0u32..4096).prop_map(|(line, words)| Command::BlockOnTheFly {
                window: line * LINE_BYTES,
                bytes: words * 8
            }),
            (n(), n(), n()).prop_map(|(base, size, senders)| Command::Rings {
                base,
                size,
                senders
            }),
        ]
    }

    proptest! {
        #[test]
        fn words_read_back(command in commands()) {
            let words = command.words().unwrap();
            prop_assert_eq!(Command::from_words(&words), Ok(command));
        }
    }

    #[test]
    fn an_image_on_the_fly_takes_one_word() {
        let command = Command::BlockOnTheFly {
            window: 512,
            bytes: 64,
        };
        assert_eq!(command.words().unwrap().len(), 1);
        let crooked = Command::BlockOnTheFly {
            window: 8,
            bytes: 64,
        };
        assert_eq!(crooked.words(), None);
    }

    #[test]
    fn fuzz_commands() {
        let command = Command::RemoteStore {
            to: Process { node: 1, port: 0 },
            from: Location::Memory(640),
            memory: 128,
            what: Addressing::Stride {
                block: 8,
                stride: 32,
                count: 9,
            },
        };
        let bytes = |words: Vec<u32>| words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let seeds: Vec<Vec<u8>> = vec![bytes(command.words().unwrap())];
        ferry_fuzz::fuzz("dimmnet2 commands", &seeds, |bytes| {
            let (words, _) = bytes.as_chunks::<4>();
            let words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
            match Command::from_words(&words) {
                Ok(command) => {
                    let again = command.words().unwrap();
                    assert_eq!(Command::from_words(&again), Ok(command));
                    command.name()
                }
                Err(_) => "none",
            }
        });
    }

    #[test]
    fn errors_keep_their_numbers() {
        for number in 0..20 {
            let error = CardError::from_number(number);
            assert_eq!(
                error.map(|e| e as u32),
                (1..=10).contains(&number).then_some(number)
            );
        }
    }
}
