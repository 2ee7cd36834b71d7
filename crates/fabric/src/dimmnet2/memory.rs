//! Memory on the card: the SO-DIMM, of which only pages that were written take room here.

use std::collections::HashMap;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A process's part of the SO-DIMM. What was never written reads as zeros.
#[derive(Debug)]
pub struct SoDimm {
    bytes: u64,
    pages: HashMap<u64, Box<[u8; PAGE]>>,
}

impl SoDimm {
    /// A part of so many bytes.
    pub fn new(bytes: u64) -> SoDimm {
        SoDimm {
            bytes,
            pages: HashMap::new(),
        }
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
