//! What the processor's accesses to the card cost, by the cache modes of the windows.

use crate::dimmnet2::figures::{Figures, Loads, Writes};
use crate::platform::Cpu;
use crate::time::Time;

/// How stores reach the Write Window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Write-combining: the time of each line of 64 bytes.
    Combining(Time),
    /// Uncached: the time of each 4 bytes.
    Uncached(Time),
}

/// How loads read the Prefetch Window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchMode {
    /// Uncached: the bytes that each read brings (4 with the registers of IA-32, 16 with SSE2).
    Uncached(u32),
    /// Cached: the time of a CLFLUSH and the fill of a line, for each 64 bytes.
    Cached(Time),
}

/// What accesses and the library's work cost the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCosts {
    /// Mode of the Write Window.
    pub writes: WriteMode,
    /// Mode of the Prefetch Window.
    pub loads: PrefetchMode,
    /// An uncached store of one word of 32 bits: to the User Registers, or to LLCM.
    pub register: Time,
    /// An uncached read.
    pub read: Time,
    /// The part of `read` after the card has given the word.
    pub reply: Time,
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

impl HostCosts {
    /// The costs on a machine.
    pub fn new(f: &Figures, cpu: &Cpu) -> HostCosts {
        HostCosts {
            writes: match f.writes {
                Writes::Combining => WriteMode::Combining(f.write.value),
                Writes::Uncached => WriteMode::Uncached(f.write.value),
            },
            loads: match (f.loads, &f.line) {
                (Loads::Cached, Some(line)) => PrefetchMode::Cached(line.value),
                _ => PrefetchMode::Uncached(f.read_width.value.0 as u32),
            },
            register: f.register.value,
            read: f.read.value,
            reply: f.reply.value,
            envelope: f.envelope.value,
            copy: cpu.copy.value.time_of(64),
            send: cpu.send.value,
            receive: cpu.receive.value,
            control: f.control.value,
        }
    }

    /// The costs without the work of library and MPI device, for measurements of card and driver.
    /// The envelope is the device's: the paper describes it there.
    pub fn without_library(self) -> HostCosts {
        HostCosts {
            send: Time::ZERO,
            receive: Time::ZERO,
            control: Time::ZERO,
            envelope: Time::ZERO,
            ..self
        }
    }

    /// Time to store `bytes` bytes in the Write Window.
    pub fn store_time(&self, bytes: u32) -> Time {
        match self.writes {
            WriteMode::Combining(line) => line * u64::from(bytes.div_ceil(64)),
            WriteMode::Uncached(word) => word * u64::from(bytes.div_ceil(4)),
        }
    }

    /// Time to load `bytes` bytes from the Prefetch Window.
    pub fn load_time(&self, bytes: u32) -> Time {
        match self.loads {
            PrefetchMode::Uncached(width) => self.read * u64::from(bytes.div_ceil(width.max(1))),
            PrefetchMode::Cached(line) => line * u64::from(bytes.div_ceil(64)),
        }
    }

    /// Time to copy `bytes` bytes within the cache.
    pub fn copy_time(&self, bytes: usize) -> Time {
        self.copy * (bytes as u64).div_ceil(64)
    }
}
