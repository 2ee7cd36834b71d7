//! A rank's physical memory, as far as it matters: which pages a buffer lies on, and where these
//! are.

use std::collections::BTreeMap;

/// Bytes that lie one after the other in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Physical address of the first.
    pub address: u64,
    /// How many.
    pub len: usize,
}

/// A modelled address space. A buffer begins at the start of a page; where the pages are depends on
/// what was there before, and no two of a buffer are neighbours, unless the whole memory is
/// contiguous.
pub struct Space {
    page: u64,
    contiguous: bool,
    /// The next page that was never used.
    fresh: u64,
    free: Vec<u64>,
    /// What is where: by first address, bytes and the buffer's number and the offset in it.
    placed: BTreeMap<u64, (usize, u64, usize)>,
}

impl Space {
    /// With pages of so many bytes.
    pub fn new(page: u64, contiguous: bool) -> Space {
        Space {
            page,
            contiguous,
            // The first page is the operating system's.
            fresh: page,
            free: Vec::new(),
            placed: BTreeMap::new(),
        }
    }

    /// Pages that so many bytes lie on.
    pub fn pages(&self, len: usize) -> u64 {
        (len as u64).div_ceil(self.page)
    }

    /// Gives `len` bytes of buffer `number` their place, run by run.
    pub fn place(&mut self, number: u64, len: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.contiguous {
            let address = self.fresh;
            self.fresh += self.pages(len.max(1)) * self.page;
            self.placed.insert(address, (len, number, 0));
            runs.push(Run { address, len });
            return runs;
        }
        let mut at = 0;
        while at < len {
            let address = self.free.pop().unwrap_or_else(|| {
                let address = self.fresh;
                self.fresh += 2 * self.page;
                address
            });
            let run = (len - at).min(self.page as usize);
            self.placed.insert(address, (run, number, at));
            runs.push(Run { address, len: run });
            at += run;
        }
        runs
    }

    /// The buffer's memory is somebody else's from now on.
    pub fn release(&mut self, runs: &[Run]) {
        for run in runs {
            self.placed.remove(&run.address);
            if !self.contiguous {
                self.free.push(run.address);
            }
        }
    }

    /// Which buffer's bytes these are, and from which offset; `None` if they are no buffer's, or of
    /// two.
    pub fn find(&self, address: u64, len: usize) -> Option<(u64, usize)> {
        let (&first, &(run, number, offset)) = self.placed.range(..=address).next_back()?;
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
        fn every_byte_is_found_where_it_was_placed(
            contiguous: bool,
            sizes in prop::collection::vec(1usize..20_000, 1..12),
            freed in prop::collection::vec(any::<bool>(), 12),
        ) {
            let mut space = Space::new(4096, contiguous);
            let mut kept = Vec::new();
            for (number, &len) in sizes.iter().enumerate() {
                let runs = space.place(number as u64, len);
                prop_assert_eq!(runs.iter().map(|r| r.len).sum::<usize>(), len);
                if freed[number] {
                    space.release(&runs);
                    prop_assert_eq!(space.find(runs[0].address, 1), None);
                } else {
                    kept.push((number as u64, runs));
                }
            }
            for (number, runs) in kept {
                let mut at = 0;
                for run in runs {
                    prop_assert_eq!(space.find(run.address, run.len), Some((number, at)));
                    prop_assert_eq!(space.find(run.address + run.len as u64 - 1, 2), None);
                    at += run.len;
                }
            }
        }
    }
}
