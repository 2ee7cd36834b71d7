//! Allocation of addresses in memory that a card reaches: first fit.

use std::collections::BTreeMap;

/// A range of addresses. Each allocation gets the first gap that is large enough.
pub(crate) struct AddressAllocator {
    from: u64,
    end: u64,
    /// Allocated ranges: beginning and end.
    used: BTreeMap<u64, u64>,
}

impl AddressAllocator {
    /// An allocator of the `bytes` addresses from `from` on.
    pub fn new(from: u64, bytes: u64) -> AddressAllocator {
        AddressAllocator {
            from,
            end: from + bytes,
            used: BTreeMap::new(),
        }
    }

    /// Allocates `bytes` bytes at a multiple of `alignment`, a power of two. `None`: there is no
    /// such gap.
    pub fn allocate(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
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

    /// Frees what [`AddressAllocator::allocate`] gave. Returns false if it gave no such thing.
    pub fn free(&mut self, at: u64) -> bool {
        self.used.remove(&at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_address_is_allocated_twice(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300, 0u32..9), 1..80),
        ) {
            let mut allocator = AddressAllocator::new(100, 4000);
            let mut given: Vec<(u64, u64)> = Vec::new();
            for (takes, bytes, shift) in steps {
                if takes || given.is_empty() {
                    let alignment = 1 << shift;
                    if let Some(at) = allocator.allocate(bytes, alignment) {
                        prop_assert!(at % alignment == 0 && at >= 100);
                        let end = at + bytes.max(1);
                        prop_assert!(end <= 4100);
                        prop_assert!(given.iter().all(|(a, e)| end <= *a || *e <= at));
                        given.push((at, end));
                    }
                } else {
                    let (at, _) = given.swap_remove(bytes as usize % given.len());
                    prop_assert!(allocator.free(at));
                    prop_assert!(!allocator.free(at));
                }
            }
            for (at, _) in given.drain(..) {
                prop_assert!(allocator.free(at));
            }
            prop_assert_eq!(allocator.allocate(4000, 1), Some(100));
            prop_assert_eq!(allocator.allocate(1, 1), None);
        }
    }
}
