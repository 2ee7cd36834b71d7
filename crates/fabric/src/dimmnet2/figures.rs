//! The figures of a machine file's `[nic]` table with `kind = "dimmnet2"`.

use crate::platform::{Count, Figure, Size, figures};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The cache mode of the Write Window: how the processor's stores reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writes {
    /// In lines of 64 bytes, gathered in the processor's write-combining buffers.
    Combining,
    /// Four bytes at a time.
    Uncached,
}

/// The cache mode of the Prefetch Window: how the processor's loads read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loads {
    /// The bytes of a register at a time.
    Uncached,
    /// In lines of 64 bytes, each after a CLFLUSH of what was there.
    Cached,
}

figures! {
    /// A DIMMnet-2 card and its driver.
    pub struct Figures {
        /// the kind of card
        kind: String,
        /// a cycle of the FPGA
        cycle: Figure<Time>,
        /// bytes that the card's data paths move in a cycle
        width: Figure<Size>,
        /// cycles to fetch and decode a command of several words and to report its end in LLCM
        command: Figure<Count>,
        /// cycles from a packet image in the Write Window to the link
        send: Figure<Count>,
        /// cycles from the link to a packet that has been understood
        receive: Figure<Count>,
        /// cycles until the SO-DIMM gives or takes the first bytes
        memory: Figure<Count>,
        /// cycles for each further block of a vector
        block: Figure<Count>,
        /// cycles to append an IVS packet: the sender's ring, room in it, the new Next Write Addr
        append: Figure<Count>,
        /// SO-DIMM of a process
        sodimm: Figure<Size>,
        /// most data in a packet between SO-DIMMs
        packet: Figure<Size>,
        /// "combining" or "uncached": cache mode of the Write Window
        writes: Writes,
        /// storing a line of 64 bytes in the Write Window (combining), or a word of 4 (uncached)
        write: Figure<Time>,
        /// "uncached" or "cached": cache mode of the Prefetch Window
        loads: Loads,
        /// an uncached read, of LLCM or of the Prefetch Window
        read: Figure<Time>,
        /// part of `read` that is left when the card has given the word: its way to the processor
        reply: Figure<Time>,
        /// bytes of an uncached read of the Prefetch Window: 4 by a register of IA-32, 16 by SSE2
        read_width: Figure<Size>,
        /// CLFLUSH and fill of a line, where the Prefetch Window is cached
        line: Option<Figure<Time>>,
        /// an uncached store of a word of 4 bytes, to User Registers or LLCM
        register: Figure<Time>,
        /// the driver's own instructions for an envelope, on each side
        envelope: Figure<Time>,
        /// the library's work for CTS, FTS and other control messages, on each side (for messages:
        /// cpu.send, cpu.receive)
        control: Figure<Time>,
        /// bytes that the first VL of an envelope brings
        poll_read: Figure<Size>,
        /// a slot of the windows: longest packet image, most that a VL brings
        slot: Figure<Size>,
        /// slots of the Write Window for packet images
        slots: Figure<Count>,
        /// a ring
        ring: Figure<Size>,
        /// a buffer for the data of a rendezvous; each connection has two
        rendezvous_buffer: Figure<Size>,
        /// messages up to this, the library's header included, go without asking the receiver; 0:
        /// none
        eager: Figure<Size>,
    }
}

impl Figures {
    /// Checks that the figures fit each other. The error says which do not.
    pub(super) fn check_ranges(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64, multiple: u64| {
            if !(least..=most).contains(&value) {
                return Err(format!(
                    "nic.{name} is {value}; it must be from {least} to {most}"
                ));
            }
            if !value.is_multiple_of(multiple) {
                return Err(format!(
                    "nic.{name} is {value}; it must be a multiple of {multiple}"
                ));
            }
            Ok(())
        };
        within("width", self.width.value.0, 1, 64, 1)?;
        within("slot", self.slot.value.0, 256, 16 * 1024, 64)?;
        within("slots", self.slots.value.0.into(), 4, 64, 1)?;
        within(
            "poll_read",
            self.poll_read.value.0,
            32,
            self.slot.value.0,
            8,
        )?;
        within("ring", self.ring.value.0, 2 * self.slot.value.0, 1 << 20, 8)?;
        within(
            "rendezvous_buffer",
            self.rendezvous_buffer.value.0,
            4096,
            1 << 22,
            8,
        )?;
        within(
            "packet",
            self.packet.value.0,
            self.slot.value.0,
            16 * 1024,
            8,
        )?;
        within("read_width", self.read_width.value.0, 1, 64, 1)?;
        within("eager", self.eager.value.0, 0, 1 << 20, 1)?;
        within("sodimm", self.sodimm.value.0, 1 << 20, u32::MAX.into(), 8)?;
        within(
            "read (in picoseconds)",
            self.read.value.as_ps(),
            1,
            u64::MAX,
            1,
        )?;
        within(
            "reply (in picoseconds)",
            self.reply.value.as_ps(),
            0,
            self.read.value.as_ps(),
            1,
        )?;
        if self.loads == Loads::Cached && self.line.is_none() {
            return Err(
                "nic.loads is \"cached\", but nic.line does not say how long a line takes".into(),
            );
        }
        Ok(())
    }

    /// Bytes of each window.
    pub fn window_bytes(&self) -> u32 {
        2 * self.slots.value.0 * self.slot.value.0 as u32
    }
}
