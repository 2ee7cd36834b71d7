//! Which parts of a process's own SO-DIMM its program has.

use std::collections::BTreeMap;

/// A range of addresses, of which parts are given away: the first gap that is large enough.
pub(super) struct Heap {
    from: u64,
    end: u64,
    /// What is given away: where it begins, and where it ends.
    used: BTreeMap<u64, u64>,
}

impl Heap {
    /// All of the `bytes` addresses from `from` on are there to be given.
    pub fn new(from: u64, bytes: u64) -> Heap {
        Heap {
            from,
            end: from + bytes,
            used: BTreeMap::new(),
        }
    }

    /// So many bytes, at a multiple of `alignment` (a power of two). `None`: there is no such gap.
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let bytes = bytes.max(1);
        let mut at = self.from.checked_next_multiple_of(alignment)?;
        for (&begin, &end) in &self.used {
            if at.checked_add(bytes)? <= begin {
                break;
            }
            at = at.max(end).checked_next_multiple_of(alignment)?;
        }
        let end = at.checked_add(bytes)?;
        if end > self.end {
            return None;
        }
        self.used.insert(at, end);
        Some(at)
    }

    /// Takes back what [`Heap::take`] gave. False: it gave no such thing.
    pub fn give_back(&mut self, at: u64) -> bool {
        self.used.remove(&at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_given_twice(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300, 0u32..9), 1..80),
        ) {
            let mut heap = Heap::new(100, 4000);
            let mut given: Vec<(u64, u64)> = Vec::new();
            for (takes, bytes, shift) in steps {
                if takes || given.is_empty() {
                    let alignment = 1 << shift;
                    if let Some(at) = heap.take(bytes, alignment) {
                        prop_assert!(at % alignment == 0 && at >= 100);
                        let end = at + bytes.max(1);
                        prop_assert!(end <= 4100);
                        prop_assert!(given.iter().all(|(a, e)| end <= *a || *e <= at));
                        given.push((at, end));
                    }
                } else {
                    let (at, _) = given.swap_remove(bytes as usize % given.len());
                    prop_assert!(heap.give_back(at));
                    prop_assert!(!heap.give_back(at));
                }
            }
            for (at, _) in given.drain(..) {
                prop_assert!(heap.give_back(at));
            }
            prop_assert_eq!(heap.take(4000, 1), Some(100));
            prop_assert_eq!(heap.take(1, 1), None);
        }
    }
}
