//! The memory of a ring, in this process alone, for tests.

use super::memory::RING_BYTES;

#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; 4096]);

/// A ring's memory, page aligned, zeroed.
pub struct TestRing(Vec<Page>);

impl TestRing {
    pub fn new() -> TestRing {
        TestRing(vec![Page([0; 4096]); RING_BYTES.div_ceil(4096)])
    }

    /// Zeroes it again.
    pub fn clear(&mut self) {
        // Most inputs touch few pages.
        let touched = self.0.iter_mut().filter(|p| p.0 != [0; 4096]);
        touched.for_each(|p| p.0 = [0; 4096]);
    }

    pub fn base(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|page| page.0)
    }
}
