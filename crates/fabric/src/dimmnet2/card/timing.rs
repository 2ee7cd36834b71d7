//! Sizes of a card's memories and packets, and how long its parts take.

use super::pattern::Pattern;
use crate::dimmnet2::figures::Figures;
use crate::time::Time;

/// Sizes of a card's memories and packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Processes that a card serves.
    pub processes: u16,
    /// Bytes of a process's Write Window, and of its Prefetch Window.
    pub window_bytes: u32,
    /// Bytes of a process's part of the SO-DIMM.
    pub memory_bytes: u32,
    /// Most bytes of data in a packet.
    pub packet_max_bytes: u32,
}

impl Capacity {
    /// The capacity of a machine's cards, each of which serves `processes` processes.
    pub fn new(f: &Figures, processes: u16) -> Capacity {
        Capacity {
            processes,
            window_bytes: f.window_bytes(),
            memory_bytes: f.sodimm.value.0 as u32,
            packet_max_bytes: f.packet.value.0 as u32,
        }
    }
}

/// How long a card's parts take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A cycle of the FPGA.
    pub cycle: Time,
    /// Bytes that its data paths move in a cycle.
    pub bytes_per_cycle: u32,
    /// Cycles to fetch and decode a command of several words and to report its end in LLCM.
    pub command_cycles: u32,
    /// Cycles from a packet image to the link.
    pub send_cycles: u32,
    /// Cycles from the link to a decoded packet.
    pub receive_cycles: u32,
    /// Cycles until the SO-DIMM gives or takes the first bytes.
    pub memory_cycles: u32,
    /// Cycles for each further block of a vector.
    pub block_cycles: u32,
    /// Cycles to find a sender's ring, look whether there is room, and announce the new NWA.
    pub append_cycles: u32,
}

impl Timing {
    /// The timing of a machine's cards.
    pub fn new(f: &Figures) -> Timing {
        Timing {
            cycle: f.cycle.value,
            bytes_per_cycle: f.width.value.0 as u32,
            command_cycles: f.command.value.0,
            send_cycles: f.send.value.0,
            receive_cycles: f.receive.value.0,
            memory_cycles: f.memory.value.0,
            block_cycles: f.block.value.0,
            append_cycles: f.append.value.0,
        }
    }

    /// Cycles to move `bytes` bytes through a data path.
    pub(super) fn move_cycles(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.bytes_per_cycle.max(1)))
    }

    /// Time of `cycles` cycles.
    pub(super) fn time(&self, cycles: u64) -> Time {
        self.cycle * cycles
    }

    /// Least time that a packet takes after its arrival.
    pub fn receive_min(&self) -> Time {
        self.time(self.receive_cycles.into())
    }

    /// Least time that a command takes.
    pub fn command_min(&self) -> Time {
        self.time(self.send_cycles.min(self.command_cycles).into())
    }

    /// Least time from a new Next Read Addr to anything that comes of it.
    pub fn read_addr_min(&self) -> Time {
        self.time(
            self.append_cycles
                .min(self.memory_cycles)
                .min(self.command_cycles)
                .into(),
        )
    }

    /// Cycles of a vector access to the SO-DIMM.
    pub(super) fn vector_cycles(&self, pattern: &Pattern) -> u64 {
        let further = pattern.blocks().saturating_sub(1);
        u64::from(self.memory_cycles)
            + further * u64::from(self.block_cycles)
            + self.move_cycles(pattern.bytes() + u64::from(pattern.list_bytes()))
    }
}
