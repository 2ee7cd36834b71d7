//! The handle that the abi layer gives an object.

use std::sync::atomic::{AtomicU64, Ordering};

/// The place in each object for the handle by which programs know it. Opaque on this layer.
#[derive(Debug, Default)]
pub struct Identity(AtomicU64);

impl Identity {
    /// An object that has no handle yet.
    pub const fn none() -> Identity {
        Identity(AtomicU64::new(0))
    }
    /// The handle's bits. 0 without a handle.
    #[inline]
    pub fn bits(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    /// Gives the object its handle.
    pub fn set(&self, bits: u64) {
        self.0.store(bits, Ordering::Relaxed);
    }
}
