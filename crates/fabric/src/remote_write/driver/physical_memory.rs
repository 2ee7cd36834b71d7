//! A rank's physical memory: which pages a buffer lies on, and their addresses.

use std::collections::BTreeMap;

/// Bytes that lie one after the other in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Physical address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: usize,
}

/// A modelled address space.
///
/// A buffer begins at the start of a page. The addresses of its pages depend on what was there
/// before, and no two of its pages are neighbours. If the whole memory is contiguous, a buffer is
/// one run.
pub struct PhysicalMemory {
    page_bytes: u64,
    contiguous: bool,
    /// Address of the next page that was never used.
    next_page: u64,
    /// Addresses of pages that were used and are free.
    free: Vec<u64>,
    /// By address: bytes of a run, its buffer's number, and its offset in the buffer.
    mapped: BTreeMap<u64, (usize, u64, usize)>,
}

impl PhysicalMemory {
    /// A memory with pages of this size, in bytes.
    pub fn new(page_bytes: u64, contiguous: bool) -> PhysicalMemory {
        PhysicalMemory {
            page_bytes,
            contiguous,
            // The first page is the operating system's.
            next_page: page_bytes,
            free: Vec::new(),
            mapped: BTreeMap::new(),
        }
    }

    /// Number of pages that `len` bytes lie on.
    pub fn pages(&self, len: usize) -> u64 {
        (len as u64).div_ceil(self.page_bytes)
    }

    /// Maps buffer `number` of `len` bytes. Returns its runs.
    pub fn map(&mut self, number: u64, len: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.contiguous {
            let address = self.next_page;
            self.next_page += self.pages(len.max(1)) * self.page_bytes;
            self.mapped.insert(address, (len, number, 0));
            runs.push(Run { address, len });
            return runs;
        }
        let mut at = 0;
        while at < len {
            let address = self.free.pop().unwrap_or_else(|| {
                let address = self.next_page;
                self.next_page += 2 * self.page_bytes;
                address
            });
            let run = (len - at).min(self.page_bytes as usize);
            self.mapped.insert(address, (run, number, at));
            runs.push(Run { address, len: run });
            at += run;
        }
        runs
    }

    /// Unmaps a buffer, given by its runs.
    pub fn unmap(&mut self, runs: &[Run]) {
        for run in runs {
            self.mapped.remove(&run.address);
            if !self.contiguous {
                self.free.push(run.address);
            }
        }
    }

    /// The buffer that these bytes belong to, and their offset in it. `None` if they belong to
    /// none, or to two.
    pub fn find(&self, address: u64, len: usize) -> Option<(u64, usize)> {
        let (&first, &(run, number, offset)) = self.mapped.range(..=address).next_back()?;
        let within = (address - first) as usize;
        (within.checked_add(len)? <= run).then_some((number, offset + within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_found_where_it_was_mapped(
            contiguous: bool,
            sizes in prop::collection::vec(1usize..20_000, 1..12),
            freed in prop::collection::vec(any::<bool>(), 12),
        ) {
            let mut memory = PhysicalMemory::new(4096, contiguous);
            let mut kept = Vec::new();
            for (number, &len) in sizes.iter().enumerate() {
                let runs = memory.map(number as u64, len);
                prop_assert_eq!(runs.iter().map(|r| r.len).sum::<usize>(), len);
                if freed[number] {
                    memory.unmap(&runs);
                    prop_assert_eq!(memory.find(runs[0].address, 1), None);
                } else {
                    kept.push((number as u64, runs));
                }
            }
            for (number, runs) in kept {
                let mut at = 0;
                for run in runs {
                    prop_assert_eq!(memory.find(run.address, run.len), Some((number, at)));
                    prop_assert_eq!(memory.find(run.address + run.len as u64 - 1, 2), None);
                    at += run.len;
                }
            }
        }
    }
}
