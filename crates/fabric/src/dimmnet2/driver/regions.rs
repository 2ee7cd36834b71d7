//! Where a buffer's bytes lie in an SO-DIMM, as regions of which each is one vector command. An RTS
//! carries them.
//!
//! Encoding: for each region its address, block, stride and count, 32 bits each. If the stride is
//! [`LIST_MARK`], `count` offsets of 32 bits follow.

use crate::dimmnet2::card::pattern::{LIST_MAX, Pattern};

/// In place of a stride: a list follows.
const LIST_MARK: u32 = u32::MAX;
/// Longest encoding, bytes. It comes with the RTS, and the processor reads it word by word.
pub const DESCRIPTION_MAX_BYTES: usize = 1024;
/// Least number of blocks at equal distances that make a stride.
const STRIDE_BLOCKS_MIN: usize = 3;

/// Blocks in an SO-DIMM, from an address on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The SO-DIMM address.
    pub memory: u32,
    /// Which bytes from there, in order.
    pub what: Pattern,
}

/// Makes regions of runs (SO-DIMM address, bytes), in order.
pub fn regions(runs: &[(u32, u32)]) -> Vec<Region> {
    let runs = join(runs);
    let mut out: Vec<Region> = Vec::new();
    let mut rest = &runs[..];
    while let Some(&(memory, block)) = rest.first() {
        let equal = stride_len(rest);
        let taken = if equal >= STRIDE_BLOCKS_MIN {
            let stride = rest[1].0 - memory;
            let what = Pattern::Stride {
                block,
                stride,
                count: equal as u32,
            };
            out.push(Region { memory, what });
            equal
        } else {
            let listed = list_len(rest);
            let blocks = &rest[..listed];
            if listed > 1 {
                let memory = blocks.iter().map(|b| b.0).min().unwrap_or(0);
                let offsets = blocks.iter().map(|b| b.0 - memory).collect();
                let what = Pattern::PackedList { block, offsets };
                out.push(Region { memory, what });
            } else {
                let what = Pattern::Contiguous { bytes: block };
                out.push(Region { memory, what });
            }
            listed
        };
        rest = &rest[taken..];
    }
    out
}

/// Joins runs that are neighbours, and leaves out empty ones.
fn join(runs: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for &(at, bytes) in runs.iter().filter(|r| r.1 > 0) {
        match out.last_mut() {
            Some(last) if last.0.checked_add(last.1) == Some(at) => last.1 += bytes,
            _ => out.push((at, bytes)),
        }
    }
    out
}

/// Number of runs at the front that have one length and equal distances.
fn stride_len(runs: &[(u32, u32)]) -> usize {
    let [first, second, ..] = runs else {
        return runs.len();
    };
    if second.1 != first.1 || second.0 <= first.0 {
        return 1;
    }
    let stride = second.0 - first.0;
    let steps = runs.windows(2).take_while(|pair| {
        pair[1].1 == first.1 && pair[1].0.checked_sub(pair[0].0) == Some(stride)
    });
    1 + steps.count()
}

/// Number of runs at the front that go into a list: of one length, up to where a stride begins.
fn list_len(runs: &[(u32, u32)]) -> usize {
    let block = runs[0].1;
    let mut n = 1;
    while n < runs.len().min(LIST_MAX as usize)
        && runs[n].1 == block
        && stride_len(&runs[n..]) <= STRIDE_BLOCKS_MIN
    {
        n += 1;
    }
    n
}

/// Bytes of all regions together.
pub fn bytes(regions: &[Region]) -> u64 {
    regions.iter().map(|p| p.what.bytes()).sum()
}

/// Encodes regions. `None`: that is more than an RTS should carry.
pub fn encode(regions: &[Region]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for region in regions {
        let mut words = vec![region.memory];
        match &region.what {
            Pattern::Contiguous { bytes } => words.extend([*bytes, 0, 1]),
            Pattern::Stride {
                block,
                stride,
                count,
            } => words.extend([*block, *stride, *count]),
            Pattern::PackedList { block, offsets } => {
                words.extend([*block, LIST_MARK, offsets.len() as u32]);
                words.extend(offsets);
            }
            Pattern::List { .. } => return None,
        }
        out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        if out.len() > DESCRIPTION_MAX_BYTES {
            return None;
        }
    }
    Some(out)
}

/// Decodes regions, which another process has written. `None`: they are not valid.
pub fn decode(bytes: &[u8]) -> Option<Vec<Region>> {
    let (words, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    let words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let mut rest = &words[..];
    let mut out = Vec::new();
    while let Some((&[memory, block, stride, count], behind)) = rest.split_first_chunk::<4>() {
        rest = behind;
        let what = match (stride, count) {
            (LIST_MARK, 1..=LIST_MAX) => {
                let (offsets, behind) = rest.split_at_checked(count as usize)?;
                rest = behind;
                let offsets = offsets.to_vec();
                Pattern::PackedList { block, offsets }
            }
            (0, 1) => Pattern::Contiguous { bytes: block },
            (LIST_MARK | 0, _) | (_, 0) => return None,
            _ => Pattern::Stride {
                block,
                stride,
                count,
            },
        };
        let end = what.extent()?.checked_add(u64::from(memory))?;
        if block == 0 || end > u64::from(u32::MAX) {
            return None;
        }
        out.push(Region { memory, what });
    }
    (rest.is_empty() && !out.is_empty()).then_some(out)
}

/// Splits regions into ones of at most `bytes_max` bytes and `list_max` listed blocks, each of
/// which is one command.
pub fn split(regions: &[Region], bytes_max: u32, list_max: u32) -> Vec<Region> {
    let mut out = Vec::new();
    for region in regions {
        let memory = region.memory;
        let one = |at: u32, bytes: u32| {
            (0..bytes)
                .step_by(bytes_max as usize)
                .map(move |offset| Region {
                    memory: at + offset,
                    what: Pattern::Contiguous {
                        bytes: bytes_max.min(bytes - offset),
                    },
                })
        };
        match &region.what {
            Pattern::Contiguous { bytes } => out.extend(one(memory, *bytes)),
            Pattern::Stride { block, .. } | Pattern::PackedList { block, .. }
                if *block > bytes_max =>
            {
                for (offset, bytes) in region.what.runs() {
                    out.extend(one(memory + offset as u32, bytes));
                }
            }
            Pattern::Stride {
                block,
                stride,
                count,
            } => {
                let each = bytes_max / block;
                out.extend((0..*count).step_by(each as usize).map(|i| Region {
                    memory: memory + i * stride,
                    what: Pattern::Stride {
                        block: *block,
                        stride: *stride,
                        count: each.min(count - i),
                    },
                }));
            }
            Pattern::PackedList { block, offsets } => {
                let each = (bytes_max / block).min(list_max).min(LIST_MAX) as usize;
                out.extend(offsets.chunks(each).map(|part| Region {
                    memory,
                    what: Pattern::PackedList {
                        block: *block,
                        offsets: part.to_vec(),
                    },
                }));
            }
            Pattern::List { .. } => out.push(region.clone()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs_of(regions: &[Region]) -> Vec<(u32, u32)> {
        let runs = regions.iter().flat_map(|p| {
            let runs = p.what.runs().into_iter();
            runs.map(|(offset, bytes)| (p.memory + offset as u32, bytes))
        });
        join(&runs.collect::<Vec<_>>())
    }

    #[test]
    fn a_column_is_one_place() {
        let column: Vec<(u32, u32)> = (0..128).map(|i| (4096 + i * 64, 8)).collect();
        let found = regions(&column);
        let what = Pattern::Stride {
            block: 8,
            stride: 64,
            count: 128,
        };
        assert_eq!(found, [Region { memory: 4096, what }]);
        assert_eq!(encode(&found).map(|e| e.len()), Some(16));
        // Two columns side by side, one after the other.
        let both = [&column[..], &column[..]].concat();
        assert_eq!(regions(&both).len(), 2);
        // A list where there is no stride, also backwards.
        let listed = regions(&[(100, 4), (500, 4), (40, 4), (900, 4), (910, 4)]);
        let what = Pattern::PackedList {
            block: 4,
            offsets: vec![60, 460, 0, 860, 870],
        };
        assert_eq!(listed, [Region { memory: 40, what }]);
        // Neighbours are one run.
        let what = Pattern::Contiguous { bytes: 24 };
        assert_eq!(
            regions(&[(8, 8), (16, 16), (99, 0)]),
            [Region { memory: 8, what }]
        );
        assert!(regions(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn places_are_the_runs(
            runs in proptest::collection::vec(
                (0u32..10_000, prop_oneof![Just(4u32), 0u32..40]),
                0..300,
            ),
            most in 64u32..512,
        ) {
            let found = regions(&runs);
            prop_assert_eq!(runs_of(&found), join(&runs));
            let split = split(&found, most, 32);
            prop_assert_eq!(runs_of(&split), join(&runs));
            prop_assert!(split.iter().all(|p| p.what.bytes() <= most.into()));
            prop_assert_eq!(bytes(&split), runs.iter().map(|r| u64::from(r.1)).sum::<u64>());
            if let Some(bytes) = encode(&found).filter(|b| !b.is_empty()) {
                prop_assert_eq!(decode(&bytes), Some(found));
            }
        }
    }

    #[test]
    fn fuzz_descriptions() {
        let runs = [(0, 8), (64, 8), (128, 8), (1000, 16), (7, 3), (90, 3)];
        let seeds = [
            encode(&regions(&runs)).unwrap(),
            encode(&regions(&runs[..1])).unwrap(),
        ];
        ferry_fuzz::fuzz("dimmnet2 descriptions", &seeds, |input| {
            match decode(input) {
                Some(found) => {
                    assert_eq!(
                        decode(&encode(&found).unwrap_or_default()).is_some(),
                        encode(&found).is_some()
                    );
                    let first = &found[0];
                    assert!(first.what.extent().is_some());
                    Some((first.what.fields().0, found.len()))
                }
                None => None,
            }
        });
    }
}
