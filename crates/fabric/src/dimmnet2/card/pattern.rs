//! Which bytes of an SO-DIMM a vector command moves.

/// Most entries of a list in a command or a packet.
pub const LIST_MAX: u32 = 256;

/// The four kinds of addressing. All numbers are bytes. Offsets count from the command's SO-DIMM
/// address. In a window and in a packet the blocks are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One run.
    Contiguous {
        /// Its bytes.
        bytes: u32,
    },
    /// `count` blocks, each beginning `stride` after the one before.
    Stride {
        /// Bytes of a block.
        block: u32,
        /// Bytes from one block's beginning to the next one's.
        stride: u32,
        /// How many.
        count: u32,
    },
    /// Blocks at listed offsets. Each offset takes a word of 64 bits in the list.
    List {
        /// Bytes of a block.
        block: u32,
        /// Offsets.
        offsets: Vec<u64>,
    },
    /// Blocks at listed offsets below 4 GiB. Two offsets take a word of 64 bits, so the list is
    /// half as long.
    PackedList {
        /// Bytes of a block.
        block: u32,
        /// Offsets.
        offsets: Vec<u32>,
    },
}

impl Pattern {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        match self {
            Pattern::Contiguous { bytes } => u64::from(*bytes),
            Pattern::Stride { block, count, .. } => u64::from(*block) * u64::from(*count),
            Pattern::List { block, offsets } => u64::from(*block) * offsets.len() as u64,
            Pattern::PackedList { block, offsets } => u64::from(*block) * offsets.len() as u64,
        }
    }

    /// Blocks moved. The SO-DIMM is given an address for each.
    pub fn blocks(&self) -> u64 {
        match self {
            Pattern::Contiguous { .. } => 1,
            Pattern::Stride { count, .. } => u64::from(*count),
            Pattern::List { offsets, .. } => offsets.len() as u64,
            Pattern::PackedList { offsets, .. } => offsets.len() as u64,
        }
    }

    /// Bytes of its encoded list.
    pub fn list_bytes(&self) -> u32 {
        match self {
            Pattern::Contiguous { .. } | Pattern::Stride { .. } => 0,
            Pattern::List { offsets, .. } => offsets.len() as u32 * 8,
            Pattern::PackedList { offsets, .. } => (offsets.len() as u32 * 4).next_multiple_of(8),
        }
    }

    /// Its runs (offset, bytes), in the order in which their bytes lie in a window.
    pub fn runs(&self) -> Vec<(u64, u32)> {
        match self {
            Pattern::Contiguous { bytes } => vec![(0, *bytes)],
            Pattern::Stride {
                block,
                stride,
                count,
            } => {
                let at = |i: u32| u64::from(i) * u64::from(*stride);
                (0..*count).map(|i| (at(i), *block)).collect()
            }
            Pattern::List { block, offsets } => offsets.iter().map(|&o| (o, *block)).collect(),
            Pattern::PackedList { block, offsets } => {
                offsets.iter().map(|&o| (o.into(), *block)).collect()
            }
        }
    }

    /// Offset of the byte after the last one moved. `None`: it is no address.
    pub fn extent(&self) -> Option<u64> {
        match self {
            Pattern::Contiguous { bytes } => Some(u64::from(*bytes)),
            Pattern::Stride { count: 0, .. } => Some(0),
            Pattern::Stride {
                block,
                stride,
                count,
            } => Some(u64::from(count - 1) * u64::from(*stride) + u64::from(*block)),
            Pattern::List { block, offsets } => match offsets.iter().max() {
                Some(last) => last.checked_add(u64::from(*block)),
                None => Some(0),
            },
            Pattern::PackedList { block, offsets } => {
                let last = offsets.iter().max();
                Some(last.map_or(0, |&l| u64::from(l) + u64::from(*block)))
            }
        }
    }

    /// Encodes the list for a window or a packet.
    pub fn list(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.list_bytes() as usize);
        match self {
            Pattern::Contiguous { .. } | Pattern::Stride { .. } => {}
            Pattern::List { offsets, .. } => {
                offsets.iter().for_each(|o| out.extend(o.to_le_bytes()));
            }
            Pattern::PackedList { offsets, .. } => {
                offsets.iter().for_each(|o| out.extend(o.to_le_bytes()));
                out.resize(self.list_bytes() as usize, 0);
            }
        }
        out
    }

    /// Number of the kind, block, stride and count, as commands and packet headers have them.
    pub fn fields(&self) -> (u8, u32, u32, u32) {
        match self {
            Pattern::Contiguous { bytes } => (0, *bytes, 0, 1),
            Pattern::Stride {
                block,
                stride,
                count,
            } => (1, *block, *stride, *count),
            Pattern::List { block, offsets } => (2, *block, 0, offsets.len() as u32),
            Pattern::PackedList { block, offsets } => (3, *block, 0, offsets.len() as u32),
        }
    }

    /// Decodes a pattern from its fields, and from `bytes`, which begins with its list. Returns the
    /// rest of `bytes`, too. `None`: it is not valid.
    pub fn from_fields(
        (kind, block, stride, count): (u8, u32, u32, u32),
        bytes: &[u8],
    ) -> Option<(Pattern, &[u8])> {
        match kind {
            0 if stride == 0 && count == 1 => Some((Pattern::Contiguous { bytes: block }, bytes)),
            1 => Some((
                Pattern::Stride {
                    block,
                    stride,
                    count,
                },
                bytes,
            )),
            2 if stride == 0 && count <= LIST_MAX => {
                let (list, rest) = bytes.split_at_checked(count as usize * 8)?;
                let (words, _) = list.as_chunks::<8>();
                let offsets = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
                Some((Pattern::List { block, offsets }, rest))
            }
            3 if stride == 0 && count <= LIST_MAX => {
                let padded = (count as usize * 4).next_multiple_of(8);
                let (list, rest) = bytes.split_at_checked(padded)?;
                let (words, _) = list[..count as usize * 4].as_chunks::<4>();
                let offsets = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
                Some((Pattern::PackedList { block, offsets }, rest))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Patterns whose blocks do not overlap, of at most 512 bytes within 8 KiB.
    pub(crate) fn patterns() -> impl Strategy<Value = Pattern> {
        let places = || proptest::sample::subsequence((0u32..128).collect::<Vec<_>>(), 0..32);
        prop_oneof![
            (0u32..512).prop_map(|bytes| Pattern::Contiguous { bytes }),
            (1u32..16, 0u32..48, 0u32..32).prop_map(|(block, gap, count)| Pattern::Stride {
                block,
                stride: block + gap,
                count
            }),
            (1u32..16, places()).prop_map(|(block, at)| Pattern::List {
                block,
                offsets: at.iter().rev().map(|&p| u64::from(p) * 64).collect()
            }),
            (1u32..16, places()).prop_map(|(block, at)| Pattern::PackedList {
                block,
                offsets: at.iter().rev().map(|&p| p * 64).collect()
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_pattern_reads_back(
            pattern in patterns(),
            more in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut bytes = pattern.list();
            prop_assert_eq!(bytes.len() as u32, pattern.list_bytes());
            bytes.extend(&more);
            let back = Pattern::from_fields(pattern.fields(), &bytes);
            prop_assert_eq!(back, Some((pattern, &more[..])));
        }

        #[test]
        fn runs_bytes_and_extent_agree(pattern in patterns()) {
            let runs = pattern.runs();
            prop_assert_eq!(runs.iter().map(|r| u64::from(r.1)).sum::<u64>(), pattern.bytes());
            prop_assert_eq!(runs.len() as u64, pattern.blocks());
            let end = runs.iter().map(|r| r.0 + u64::from(r.1)).max().unwrap_or(0);
            prop_assert_eq!(Some(end), pattern.extent());
        }
    }

    #[test]
    fn offsets_beyond_all_addresses_are_seen() {
        let list = Pattern::List {
            block: 8,
            offsets: vec![u64::MAX - 3],
        };
        assert_eq!(list.extent(), None);
        assert!(Pattern::from_fields((2, 8, 0, LIST_MAX + 1), &[0; 4096]).is_none());
        assert!(Pattern::from_fields((7, 8, 0, 1), &[]).is_none());
    }
}
