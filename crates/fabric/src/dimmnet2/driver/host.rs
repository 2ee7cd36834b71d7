//! What a processor's accesses to the card cost, by the cache modes of its windows.

use crate::Time;

/// How stores to the Write Window travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Write-combining: lines of 64 bytes, each so long.
    Combining(Time),
    /// Uncached: 4 bytes at a time, each so long.
    Uncached(Time),
}

/// How loads from the Prefetch Window travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchMode {
    /// Uncached: so many bytes at a time (4 with the registers of IA-32, 16 with SSE2), each for
    /// the time of a read.
    Uncached(u32),
    /// Cached: a CLFLUSH and the fill of a line for each 64 bytes, so long together.
    Cached(Time),
}

/// A processor's costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Mode of the Write Window.
    pub writes: WriteMode,
    /// Mode of the Prefetch Window.
    pub loads: PrefetchMode,
    /// An uncached store of one word of 32 bits: to the User Registers, or to LLCM.
    pub register: Time,
    /// An uncached read.
    pub read: Time,
    /// The driver's own instructions for an envelope, on either side.
    pub envelope: Time,
    /// Copying 64 bytes within the cache.
    pub copy: Time,
    /// The library's work for a message that is sent.
    pub send: Time,
    /// The library's work for a message that has come.
    pub receive: Time,
    /// The library's work for a control message, on each side.
    pub control: Time,
}

impl Host {
    /// Storing so many bytes in the Write Window.
    pub fn storing(&self, bytes: u32) -> Time {
        match self.writes {
            WriteMode::Combining(line) => line * u64::from(bytes.div_ceil(64)),
            WriteMode::Uncached(word) => word * u64::from(bytes.div_ceil(4)),
        }
    }

    /// Loading so many bytes from the Prefetch Window.
    pub fn loading(&self, bytes: u32) -> Time {
        match self.loads {
            PrefetchMode::Uncached(width) => self.read * u64::from(bytes.div_ceil(width.max(1))),
            PrefetchMode::Cached(line) => line * u64::from(bytes.div_ceil(64)),
        }
    }

    /// Copying so many bytes within the cache.
    pub fn copying(&self, bytes: usize) -> Time {
        self.copy * (bytes as u64).div_ceil(64)
    }
}
