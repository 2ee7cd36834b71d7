//! How much of everything a card has, and how long its parts take.

use super::pattern::Pattern;
use crate::dimmnet2::figures::Figures;
use crate::time::Time;

/// How much of everything a card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Processes that a card serves.
    pub processes: u16,
    /// Bytes of a process's Write Window, and of its Prefetch Window.
    pub window: u32,
    /// Bytes of a process's part of the SO-DIMM.
    pub memory: u32,
    /// Most bytes of data in a packet.
    pub packet: u32,
}

impl Capacity {
    /// The capacity of a machine's cards, each of which serves `processes` processes.
    pub fn new(f: &Figures, processes: u16) -> Capacity {
        Capacity {
            processes,
            window: f.window_bytes(),
            memory: f.sodimm.value.0 as u32,
            packet: f.packet.value.0 as u32,
        }
    }
}

/// How long a card's parts take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A cycle of the FPGA.
    pub cycle: Time,
    /// Bytes that its data paths move in a cycle.
    pub bytes: u32,
    /// Cycles to fetch and decode a command of several words and to report its end in LLCM.
    pub command: u32,
    /// Cycles from a packet image to the link.
    pub send: u32,
    /// Cycles from the link to a decoded packet.
    pub receive: u32,
    /// Cycles until the SO-DIMM gives or takes the first bytes.
    pub memory: u32,
    /// Cycles for each further block of a vector.
    pub block: u32,
    /// Cycles to find a sender's ring, look whether there is room, and announce the new NWA.
    pub append: u32,
}

impl Timing {
    /// The timing of a machine's cards.
    pub fn new(f: &Figures) -> Timing {
        Timing {
            cycle: f.cycle.value,
            bytes: f.width.value.0 as u32,
            command: f.command.value.0,
            send: f.send.value.0,
            receive: f.receive.value.0,
            memory: f.memory.value.0,
            block: f.block.value.0,
            append: f.append.value.0,
        }
    }

    /// Cycles to move `bytes` bytes through a data path.
    pub(super) fn move_cycles(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.bytes.max(1)))
    }

    /// Time of `cycles` cycles.
    pub(super) fn time(&self, cycles: u64) -> Time {
        self.cycle * cycles
    }

    /// Least time that a packet takes after its arrival.
    pub fn receive_min(&self) -> Time {
        self.time(self.receive.into())
    }

    /// Least time that a command takes.
    pub fn command_min(&self) -> Time {
        self.time(self.send.min(self.command).into())
    }

    /// Least time from a new Next Read Addr to anything that comes of it.
    pub fn read_addr_min(&self) -> Time {
        self.time(self.append.min(self.memory).min(self.command).into())
    }

    /// Cycles of a vector access to the SO-DIMM.
    pub(super) fn vector_cycles(&self, pattern: &Pattern) -> u64 {
        let further = pattern.blocks().saturating_sub(1);
        u64::from(self.memory)
            + further * u64::from(self.block)
            + self.move_cycles(pattern.bytes() + u64::from(pattern.list_bytes()))
    }
}
