//! The driver's own memory for a body that does not lie in one run at the program's side.
//!
//! It begins with a page. Where both sides have such memory, all but the last part of a body goes
//! without bounce pages. And how a transfer is cut into messages depends on where its memory lies:
//! what the driver allocates must not lie elsewhere in each run.

use crate::driver::Body;
use crate::rapidio::driver::control::{PAGE_BYTES, UserMemory};

/// Bytes that begin with a page.
pub(super) struct Staging {
    /// They are preceded by less than a page. Never reallocated.
    bytes: Vec<u8>,
    /// Where the page begins.
    start: usize,
}

/// Where the first page in this memory begins.
fn page_start(memory: &[u8]) -> usize {
    let address = memory.as_ptr().addr();
    address.next_multiple_of(PAGE_BYTES) - address
}

impl Staging {
    /// None yet, and room for this many. `None`: there is no such memory.
    pub fn with_capacity(bytes: usize) -> Option<Staging> {
        let mut memory: Vec<u8> = Vec::new();
        let room = bytes.checked_add(PAGE_BYTES - 1)?;
        memory.try_reserve_exact(room).ok()?;
        let start = page_start(&memory);
        memory.resize(start, 0);
        Some(Staging {
            bytes: memory,
            start,
        })
    }

    /// This many, all zero. Ends the process like any `vec!` if there is no such memory.
    pub fn zeroed(bytes: usize) -> Staging {
        let mut memory = vec![0; bytes + PAGE_BYTES - 1];
        let start = page_start(&memory);
        memory.truncate(start + bytes);
        Staging {
            bytes: memory,
            start,
        }
    }

    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Adds a part of a body. All parts together must fit the capacity, so that none moves.
    pub fn append(&mut self, part: Body<'_>) {
        debug_assert!(self.bytes.len() + part.len() <= self.bytes.capacity());
        part.append_to(&mut self.bytes);
    }

    /// The bytes as memory of a transfer, to send from.
    pub fn send_memory(&self) -> UserMemory {
        UserMemory::of(self.as_slice())
    }

    /// The bytes as memory of a transfer, to receive into.
    pub fn receive_memory(&mut self) -> UserMemory {
        let memory = &mut self.bytes[self.start..];
        UserMemory {
            address: memory.as_mut_ptr().expose_provenance(),
            bytes: memory.len(),
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_page_and_does_not_move() {
        for bytes in [1, 255, 4096, 70_000] {
            let content: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let mut packed = Staging::with_capacity(bytes).unwrap();
            let before = packed.send_memory().address;
            for part in content.chunks(1000) {
                packed.append(Body::Bytes(part));
            }
            let memory = packed.send_memory();
            assert_eq!((memory.address, memory.bytes), (before, bytes));
            assert!(memory.address.is_multiple_of(PAGE_BYTES));
            assert_eq!((packed.as_slice(), packed.len()), (&content[..], bytes));
            let mut zeroed = Staging::zeroed(bytes);
            let memory = zeroed.receive_memory();
            assert!(memory.address.is_multiple_of(PAGE_BYTES) && memory.bytes == bytes);
            assert!(Staging::with_capacity(usize::MAX).is_none());
            assert!(Staging::with_capacity(usize::MAX >> 1).is_none());
            assert!(zeroed.as_slice().iter().all(|b| *b == 0));
        }
    }
}
