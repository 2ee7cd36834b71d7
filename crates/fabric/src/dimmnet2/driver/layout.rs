//! How the drivers of a job lay out windows and SO-DIMM. The layout is the same in all processes.
//!
//! ```text
//! SO-DIMM: | ring of each sender | rendezvous buffers of each sender | program memory |
//! Write Window: | slots for packet images | slots for stores and lists |
//! Prefetch Window: | two slots for rings and bodies | slots for remote loads |
//! ```

use crate::dimmnet2::card::ProgramMemory;
use crate::dimmnet2::card::access::llcm_end;
use crate::dimmnet2::card::packet::{HEADER_BYTES, Process};
use crate::dimmnet2::card::sodimm::SHARED_ALIGNMENT;
use crate::dimmnet2::figures::Figures;
use crate::platform::Platform;

/// How a driver uses windows and SO-DIMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Processes that a card serves.
    pub processes: u16,
    /// Bytes of a slot of the windows: the longest packet image, and the most that a VL brings.
    pub slot: u32,
    /// Slots of the Write Window for packet images. Behind them are as many for other uses.
    pub slots: u32,
    /// Bytes of a ring.
    pub ring: u32,
    /// Bytes of a rendezvous buffer. Each connection has [`RENDEZVOUS_BUFFERS`].
    pub rendezvous_buffer: u32,
    /// Bytes that the first VL of an envelope brings. They hold all of a short message.
    pub first_read: u32,
}

/// Rendezvous buffers of a connection. One is filled while the other is emptied.
pub const RENDEZVOUS_BUFFERS: u32 = 2;

impl MemoryLayout {
    /// The layout on a machine whose cards serve `processes` processes each.
    pub fn new(f: &Figures, processes: u16) -> MemoryLayout {
        MemoryLayout {
            processes,
            slot: f.slot.value.0 as u32,
            slots: f.slots.value.0,
            ring: f.ring.value.0 as u32,
            rendezvous_buffer: f.rendezvous_buffer.value.0 as u32,
            first_read: f.poll_read.value.0 as u32,
        }
    }

    /// Bytes of each window.
    pub fn window(&self) -> u32 {
        2 * self.slots * self.slot
    }

    /// Bytes of SO-DIMM that the driver needs in a job of `senders` processes.
    pub fn driver_memory(&self, senders: u32) -> u64 {
        let buffers = RENDEZVOUS_BUFFERS * self.rendezvous_buffer;
        u64::from(senders) * (u64::from(self.ring) + u64::from(buffers))
    }

    /// Bytes of data in a packet image of one slot.
    pub(super) fn image_data(&self) -> u32 {
        self.slot - HEADER_BYTES
    }

    /// Address of a sender's ring.
    pub(super) fn ring_at(&self, sender: u32) -> u32 {
        sender * self.ring
    }

    /// Address of a sender's rendezvous buffer, in a job of `senders` processes.
    pub(super) fn rendezvous_buffer_at(&self, senders: u32, sender: u32, buffer: u32) -> u32 {
        let before = sender * RENDEZVOUS_BUFFERS + buffer;
        senders * self.ring + before * self.rendezvous_buffer
    }

    /// A process's number among senders.
    pub fn sender(&self, process: Process) -> u32 {
        u32::from(process.node) * u32::from(self.processes) + u32::from(process.port)
    }
}

/// The part of the SO-DIMM that is left to programs. It is the same for each process of a job on
/// this machine, whatever the number of its ranks. `None`: nothing is left.
pub fn program_memory(platform: &Platform, f: &Figures) -> Option<ProgramMemory> {
    let ranks = u32::try_from(platform.ranks_max()).ok()?;
    let layout = MemoryLayout::new(f, platform.processes() as u16);
    let from = layout
        .driver_memory(ranks)
        .next_multiple_of(SHARED_ALIGNMENT);
    let bytes = f.sodimm.value.0.checked_sub(from).filter(|b| *b > 0)?;
    let mapped_at = llcm_end(platform, f, ranks).next_multiple_of(SHARED_ALIGNMENT);
    Some(ProgramMemory {
        mapped_at: mapped_at as usize,
        from,
        bytes,
    })
}
