//! The figures of a machine file's `[nic]` table with `kind = "rapidio"`.

use crate::platform::{Count, Figure, Platform, Size, figures};
use crate::time::{Rate, Time};

figures! {
    /// A RapidIO controller and its driver.
    pub struct Figures {
        /// the kind of card
        kind: String,
        /// dedicated receive queues of a node
        queues: Figure<Count>,
        /// mailbox numbers; 0 is for control information and small data
        mailboxes: Figure<Count>,
        /// buffers of the general queue, 4 KiB each
        general: Figure<Count>,
        /// messages that can wait in the card's send list
        sends: Figure<Count>,
        /// messages that one programming of a dedicated queue can describe
        list: Figure<Count>,
        /// messages that one programming of a send can describe: 1, and more if the hardware walks
        /// the page table itself
        walk: Figure<Count>,
        /// alignment of physical addresses: the card drops the bits below it
        alignment: Figure<Size>,
        /// the card's work before the first segment of a message
        start: Figure<Time>,
        /// bytes that each segment has besides its data
        header: Figure<Size>,
        /// bytes of the response to a segment, and of a doorbell
        response: Figure<Size>,
        /// segments that a receiver's input buffer holds; what finds it full is refused
        input: Figure<Count>,
        /// how fast the input buffer is emptied into memory
        drain: Figure<Rate>,
        /// how long a sender waits before it resends a segment that was refused
        retry: Figure<Time>,
        /// from something in the card until a driver that sleeps is at work: interrupt and waking;
        /// a driver that is at work polls the card
        report: Figure<Time>,
        /// share of segments that is refused besides, by a seeded generator (0 if not said)
        refuse: Option<f64>,
        /// most bytes of an NREAD or NWRITE
        io: Figure<Size>,
        /// bytes that an NREAD or NWRITE has besides its data
        io_header: Figure<Size>,
        /// memory of a node that NREAD and NWRITE of other nodes reach
        window: Figure<Size>,
        /// mean time of an instruction of the driver
        instruction: Figure<Time>,
        /// instructions of the lower level to send a message
        instructions_send: Figure<Count>,
        /// instructions of the lower level to take a message from the general queue
        instructions_unexpected: Figure<Count>,
        /// instructions of the lower level to open a dedicated queue
        instructions_expect: Figure<Count>,
        /// instructions of the lower level for each message of a dedicated queue that is opened
        instructions_piece: Figure<Count>,
        /// instructions of the lower level to take the completion of a send or of a dedicated queue
        instructions_completion: Figure<Count>,
        /// instructions of the lower level to ring a doorbell, to take one, and for an NREAD or
        /// NWRITE
        instructions_io: Figure<Count>,
        /// longest message that goes through the general queue; what is longer gets a dedicated
        /// queue
        small: Figure<Size>,
        /// instructions of the control level for a call or an event
        instructions_control: Figure<Count>,
        /// instructions of the control level to page a user's page in and to find its physical
        /// address
        instructions_page: Figure<Count>,
        /// processor's cache: no more of a buffer than this is written back and invalidated
        cache: Figure<Size>,
        /// rate at which the cache is written back and invalidated over a buffer's pages, before
        /// the card reads or writes them
        write_back: Figure<Rate>,
        /// instructions of the MX level for a call or an event, matching included
        instructions_mx: Figure<Count>,
        /// instructions of a look at the card that finds nothing
        instructions_poll: Figure<Count>,
    }
}

impl Figures {
    /// How long so many instructions of the driver take.
    pub fn instructions(&self, count: &Figure<Count>) -> Time {
        self.instruction.value * u64::from(count.value.0)
    }

    /// Checks that the figures fit each other and the machine. The error says which do not.
    pub(super) fn check_ranges(&self, platform: &Platform) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "nic.{name} is {value}; it must be from {least} to {most}"
            ))
        };
        if platform.processes() != 1 {
            return Err("nodes.processes must be 1: a RapidIO controller serves one rank".into());
        }
        within("queues", self.queues.value.0.into(), 1, 64)?;
        within("mailboxes", self.mailboxes.value.0.into(), 2, 256)?;
        within("general", self.general.value.0.into(), 4, 4096)?;
        within("sends", self.sends.value.0.into(), 1, 4096)?;
        within("list", self.list.value.0.into(), 1, 4096)?;
        within("walk", self.walk.value.0.into(), 1, 4096)?;
        within("input", self.input.value.0.into(), 1, 4096)?;
        within("alignment", self.alignment.value.0, 1, 256)?;
        within("io", self.io.value.0, 1, 256)?;
        within("small", self.small.value.0, 512, 64 * 1024)?;
        within(
            "instructions_poll",
            self.instructions_poll.value.0.into(),
            1,
            1_000_000,
        )?;
        within("window", self.window.value.0, 4096, 1 << 24)?;
        if !self.alignment.value.0.is_power_of_two() {
            return Err("nic.alignment must be a power of two".into());
        }
        within(
            "instruction (in picoseconds)",
            self.instruction.value.as_ps(),
            1,
            u64::MAX,
        )?;
        match self.refuse {
            Some(share) if !(0.0..=0.9).contains(&share) => {
                Err(format!("nic.refuse is {share}; it must be from 0 to 0.9"))
            }
            _ => Ok(()),
        }
    }
}
