//! Memory on the card: the SO-DIMM, of which only pages that were written take room here.

use crate::{Arena, Rank};
use std::collections::HashMap;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Where of a process's part of the SO-DIMM its program's memory begins: a multiple of this, bytes.
pub const SHARED_ALIGNMENT: u64 = PAGE as u64;

/// The end of a process's part of the SO-DIMM, which lies in the memory that the card shows: the
/// program has its buffers there.
pub struct Shared {
    /// The job's memory.
    pub arena: Arena,
    /// The process.
    pub rank: Rank,
    /// Where in what its card shows this begins …
    pub shown: usize,
    /// … and where in the SO-DIMM: a multiple of [`SHARED_ALIGNMENT`].
    pub from: u64,
}

impl Shared {
    fn place(&self, address: u64) -> Option<usize> {
        let at = address.checked_sub(self.from)?;
        Some(self.shown + at as usize)
    }
}

/// A process's part of the SO-DIMM. What was never written reads as zeros.
pub struct SoDimm {
    bytes: u64,
    pages: HashMap<u64, Box<[u8; PAGE]>>,
    shared: Option<Shared>,
}

impl SoDimm {
    /// A part of so many bytes.
    pub fn new(bytes: u64) -> SoDimm {
        SoDimm {
            bytes,
            pages: HashMap::new(),
            shared: None,
        }
    }

    /// Its end is the program's, too, from now on.
    pub fn share(&mut self, shared: Shared) {
        self.shared = Some(shared);
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Do these bytes lie in it?
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes)
    }

    /// Reads what lies there; zeros beyond the end.
    pub fn read(&self, address: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let at = address + done as u64;
            let (page, offset) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let piece = (PAGE - offset).min(into.len() - done);
            let out = &mut into[done..done + piece];
            let shared = self.shared.as_ref();
            if let Some((s, place)) = shared.and_then(|s| Some((s, s.place(at)?))) {
                s.arena.read(s.rank, place, out);
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

    /// Writes; the caller has asked [`SoDimm::holds`].
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        debug_assert!(self.holds(address, bytes.len() as u64));
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let (page, offset) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let piece = (PAGE - offset).min(bytes.len() - done);
            let shared = self.shared.as_ref();
            if let Some((s, place)) = shared.and_then(|s| Some((s, s.place(at)?))) {
                s.arena.write(s.rank, place, &bytes[done..done + piece]);
                done += piece;
                continue;
            }
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE]));
            page[offset..offset + piece].copy_from_slice(&bytes[done..done + piece]);
            done += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_end_lies_in_what_the_card_shows() {
        let (page, shown) = (PAGE as u64, 8192);
        let arena = Arena::create(2, 4 * page, b"").unwrap();
        let mut memory = SoDimm::new(3 * page);
        memory.share(Shared {
            arena: arena.clone(),
            rank: 1,
            shown,
            from: page,
        });
        memory.write(page - 2, b"abcd");
        let mut back = [0; 4];
        memory.read(page - 2, &mut back);
        assert_eq!(&back, b"abcd");
        let mut two = [0; 2];
        arena.read(1, shown, &mut two);
        assert_eq!(&two, b"cd");
        arena.write(1, shown + PAGE, b"xy");
        memory.read(2 * page, &mut two);
        assert_eq!(&two, b"xy");
    }

    #[test]
    fn keeps_what_is_written_across_pages() {
        let mut memory = SoDimm::new(3 * PAGE as u64);
        let bytes: Vec<u8> = (0..PAGE + 100).map(|i| i as u8 | 1).collect();
        memory.write(PAGE as u64 - 50, &bytes);
        let mut back = vec![0; bytes.len() + 2];
        memory.read(PAGE as u64 - 51, &mut back);
        assert_eq!(back[0], 0);
        assert_eq!(&back[1..=bytes.len()], bytes);
        assert_eq!(back[bytes.len() + 1], 0);
        assert!(memory.holds(0, 3 * PAGE as u64) && !memory.holds(1, 3 * PAGE as u64));
        assert!(!memory.holds(u64::MAX, 2));
    }
}
