//! A ring buffer of indirect vector stores (IVS), as the receiving card keeps it.

/// Records take a multiple of this many bytes, which is the width of the SO-DIMM.
pub const WORD_BYTES: u32 = 8;

/// A ring in the SO-DIMM. One sending process appends, and one process reads.
///
/// The two addresses are offsets in the ring, in bytes. Equal addresses mean an empty ring, so it
/// holds one word less than its size. Reception stops when the next write address would reach the
/// next read address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    base: u64,
    size: u32,
    nwa: u32,
    nra: u32,
}

/// One or two runs of bytes in the SO-DIMM: address and length.
pub type Runs = [(u64, u32); 2];

impl Ring {
    /// A ring of `size` bytes at `base`. `None`: the size is not a multiple of a word, or is less
    /// than two words.
    pub fn new(base: u64, size: u32) -> Option<Ring> {
        let whole = size.is_multiple_of(WORD_BYTES) && size >= 2 * WORD_BYTES;
        whole.then_some(Ring {
            base,
            size,
            nwa: 0,
            nra: 0,
        })
    }

    /// Next Write Addr, as announced in LLCM.
    pub fn nwa(&self) -> u32 {
        self.nwa
    }

    /// Next Read Addr, as the reader has written it.
    pub fn nra(&self) -> u32 {
        self.nra
    }

    /// Bytes that wait to be read.
    pub fn waiting(&self) -> u32 {
        filled(self.nra, self.nwa, self.size)
    }

    /// Bytes that can be appended.
    pub fn room(&self) -> u32 {
        self.size - WORD_BYTES - self.waiting()
    }

    /// Appends a record of `bytes` bytes. Returns where they go. `None`: there is no room now.
    pub fn append(&mut self, bytes: u32) -> Option<Runs> {
        let taken = bytes.checked_next_multiple_of(WORD_BYTES)?;
        if taken > self.room() {
            return None;
        }
        let runs = runs(self.base, self.size, self.nwa, bytes);
        self.nwa = (self.nwa + taken) % self.size;
        Some(runs)
    }

    /// The reader has consumed everything before `nra`. Returns false if that does not lie between
    /// the two addresses; nothing changes then.
    pub fn consume(&mut self, nra: u32) -> bool {
        let good = nra < self.size
            && nra.is_multiple_of(WORD_BYTES)
            && filled(self.nra, nra, self.size) <= self.waiting();
        if good {
            self.nra = nra;
        }
        good
    }
}

/// Bytes between two offsets in a ring of `size` bytes.
pub fn filled(from: u32, to: u32, size: u32) -> u32 {
    if to >= from {
        to - from
    } else {
        size - from + to
    }
}

/// Where `bytes` bytes from offset `at` on lie.
pub fn runs(base: u64, size: u32, at: u32, bytes: u32) -> Runs {
    let first = bytes.min(size - at);
    [(base + u64::from(at), first), (base, bytes - first)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn sizes_that_make_no_ring() {
        assert!(Ring::new(0, 8).is_none());
        assert!(Ring::new(0, 20).is_none());
        assert!(Ring::new(0, 16).is_some());
    }

    #[test]
    fn a_full_ring_stops() {
        let mut ring = Ring::new(0, 32).unwrap();
        assert_eq!(ring.append(24), Some([(0, 24), (0, 0)]));
        assert_eq!(ring.append(1), None);
        assert!(ring.consume(8));
        assert_eq!(ring.append(3), Some([(24, 3), (0, 0)]));
        assert_eq!((ring.nwa(), ring.nra(), ring.room()), (0, 8, 0));
        // Neither back nor beyond what was written.
        assert!(!ring.consume(0x18 + 16) && !ring.consume(4));
        assert!(ring.consume(0) && ring.waiting() == 0);
    }

    proptest! {
        /// Any order of records and reads: what is read is what was appended, nothing is lost or
        /// written over, around the end as often as may be.
        #[test]
        fn no_byte_is_lost_or_overwritten(
            words in 2u32..40,
            base in 0u64..1000,
            steps in proptest::collection::vec((any::<bool>(), 0u32..120), 1..400),
        ) {
            let size = words * WORD_BYTES;
            let mut ring = Ring::new(base, size).unwrap();
            // Which byte of the stream lies there.
            let mut memory = vec![None::<u64>; size as usize];
            let mut expected: VecDeque<(u32, u64)> = VecDeque::new();
            let (mut written, mut read) = (0u64, 0u64);
            for (write, n) in steps {
                if write {
                    let room = ring.room();
                    match ring.append(n) {
                        None => prop_assert!(n.next_multiple_of(WORD_BYTES) > room),
                        Some(runs) => {
                            prop_assert!(n.next_multiple_of(WORD_BYTES) <= room);
                            let mut left = n;
                            for (address, len) in runs {
                                for i in 0..u64::from(len) {
                                    let at = (address + i - base) as usize;
                                    prop_assert!(memory[at].is_none(), "written over");
                                    memory[at] = Some(written);
                                    written += 1;
                                }
                                left -= len;
                            }
                            prop_assert_eq!(left, 0);
                            expected.push_back((n, written - u64::from(n)));
                        }
                    }
                } else if let Some((n, first)) = expected.pop_front() {
                    for (address, len) in runs(base, size, ring.nra(), n) {
                        for i in 0..u64::from(len) {
                            let at = (address + i - base) as usize;
                            prop_assert_eq!(memory[at].take(), Some(read));
                            read += 1;
                        }
                    }
                    prop_assert_eq!(read, first + u64::from(n));
                    let next = (ring.nra() + n.next_multiple_of(WORD_BYTES)) % size;
                    prop_assert!(ring.consume(next));
                }
                let waits: u32 = expected.iter().map(|(n, _)| n.next_multiple_of(WORD_BYTES)).sum();
                prop_assert_eq!(ring.waiting(), waits);
                prop_assert!(ring.waiting() < size);
            }
        }

        /// A read address from nowhere changes nothing.
        #[test]
        fn only_read_addresses_between_the_two_are_taken(fill in 0u32..64, nra in any::<u32>()) {
            let mut ring = Ring::new(0, 64).unwrap();
            prop_assert!(ring.append(40).is_some() && ring.consume(40));
            let _ = ring.append(fill);
            let before = ring.clone();
            let aligned = nra.is_multiple_of(WORD_BYTES) && nra < 64;
            let inside = aligned && (nra + 64 - 40) % 64 <= before.waiting();
            prop_assert_eq!(ring.consume(nra), inside);
            if !inside {
                prop_assert_eq!(ring, before);
            }
        }
    }
}
