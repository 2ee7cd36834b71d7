//! Memory on the card: the SO-DIMM. Only pages that were written take memory of this process.

use crate::kernel::{ModelSegment, Rank};
use rustc_hash::FxHashMap;

/// Bytes of a page of the modelled memory.
const PAGE_BYTES: usize = 4096;

/// Program memory begins in the SO-DIMM at a multiple of this, bytes.
pub const SHARED_ALIGNMENT: u64 = PAGE_BYTES as u64;

/// The end of a process's part of the SO-DIMM, in which the program has buffers. It lies in the
/// memory that the card maps.
pub struct SharedMemory {
    /// The job's memory.
    pub segment: ModelSegment,
    /// The process's rank.
    pub rank: Rank,
    /// Offset in the mapped memory.
    pub mapped_at: usize,
    /// Address in the SO-DIMM, a multiple of [`SHARED_ALIGNMENT`].
    pub from: u64,
}

impl SharedMemory {
    /// Offset in the mapped memory of an address in the SO-DIMM, if it lies there.
    fn mapped_offset(&self, address: u64) -> Option<usize> {
        let at = address.checked_sub(self.from)?;
        Some(self.mapped_at + at as usize)
    }
}

/// A process's part of the SO-DIMM. What was never written reads as zeros.
pub struct SoDimm {
    bytes: u64,
    pages: FxHashMap<u64, Box<[u8; PAGE_BYTES]>>,
    shared: Option<SharedMemory>,
}

impl SoDimm {
    /// A part of `bytes` bytes.
    pub fn new(bytes: u64) -> SoDimm {
        SoDimm {
            bytes,
            pages: FxHashMap::default(),
            shared: None,
        }
    }

    /// Its end is shared with the program from now on.
    pub fn share(&mut self, shared: SharedMemory) {
        self.shared = Some(shared);
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether these bytes lie in it.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes)
    }

    /// Reads from an address. Beyond the end there are zeros.
    pub fn read(&self, address: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let at = address + done as u64;
            let (page, offset) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let piece = (PAGE_BYTES - offset).min(into.len() - done);
            let out = &mut into[done..done + piece];
            let shared = self.shared.as_ref();
            if let Some((s, place)) = shared.and_then(|s| Some((s, s.mapped_offset(at)?))) {
                s.segment.read(s.rank, place, out);
                done += piece;
                continue;
            }
            match self.pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[offset..offset + piece]),
                None => out.fill(0),
            }
            done += piece;
        }
    }

    /// Writes to an address. The caller has checked it with [`SoDimm::holds`].
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        debug_assert!(self.holds(address, bytes.len() as u64));
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let (page, offset) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let piece = (PAGE_BYTES - offset).min(bytes.len() - done);
            let shared = self.shared.as_ref();
            if let Some((s, place)) = shared.and_then(|s| Some((s, s.mapped_offset(at)?))) {
                s.segment.write(s.rank, place, &bytes[done..done + piece]);
                done += piece;
                continue;
            }
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[offset..offset + piece].copy_from_slice(&bytes[done..done + piece]);
            done += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_end_lies_in_the_mapped_memory() {
        let (page, mapped_at) = (PAGE_BYTES as u64, 8192);
        let segment = ModelSegment::create(2, 4 * page, b"").unwrap();
        let mut memory = SoDimm::new(3 * page);
        memory.share(SharedMemory {
            segment: segment.clone(),
            rank: 1,
            mapped_at,
            from: page,
        });
        memory.write(page - 2, b"abcd");
        let mut back = [0; 4];
        memory.read(page - 2, &mut back);
        assert_eq!(&back, b"abcd");
        let mut two = [0; 2];
        segment.read(1, mapped_at, &mut two);
        assert_eq!(&two, b"cd");
        segment.write(1, mapped_at + PAGE_BYTES, b"xy");
        memory.read(2 * page, &mut two);
        assert_eq!(&two, b"xy");
    }

    #[test]
    fn writes_across_pages_read_back() {
        let mut memory = SoDimm::new(3 * PAGE_BYTES as u64);
        let bytes: Vec<u8> = (0..PAGE_BYTES + 100).map(|i| i as u8 | 1).collect();
        memory.write(PAGE_BYTES as u64 - 50, &bytes);
        let mut back = vec![0; bytes.len() + 2];
        memory.read(PAGE_BYTES as u64 - 51, &mut back);
        assert_eq!(back[0], 0);
        assert_eq!(&back[1..=bytes.len()], bytes);
        assert_eq!(back[bytes.len() + 1], 0);
        assert!(memory.holds(0, 3 * PAGE_BYTES as u64) && !memory.holds(1, 3 * PAGE_BYTES as u64));
        assert!(!memory.holds(u64::MAX, 2));
    }
}
