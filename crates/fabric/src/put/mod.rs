//! Remote write: cards whose one primitive is PUT, and the driver that makes messages of it.
//!
//! A processor writes a message to emit into the LME, a list in its memory, and tells the card. The
//! card fetches the entry, reads the bytes from physical memory and sends them off; the other
//! side's card writes them to the physical address that the entry names and, if the entry says so,
//! notes in its LMR, the list of messages received, that they are there. This is the MPC machine's
//! FastHSL card (docs/machines/mpc.md); with other figures it is any card with remote write. A
//! LogGP card is one whose figures are LogGP's.

mod card;
mod driver;
mod measure;
mod space;

pub use card::Card;
pub use driver::PutDriver;
pub use measure::{Layer, measure};

use crate::machine::{Count, Figure, Size, figures};
use crate::{Rate, Time};

figures! {
    /// A card with remote write, and its driver.
    pub struct Figures {
        /// the kind of card
        kind: String,
        /// the card's work before the first byte of an entry is on its way: fetching the entry, starting to read memory
        emit: Figure<Time>,
        /// the card's work on an entry that holds up the next one besides (0 if not said)
        gap: Option<Figure<Time>>,
        /// the other card's work after the last byte: writing to memory, noting it in the LMR
        arrive: Figure<Time>,
        /// longest entry
        entry: Figure<Size>,
        /// entries of the LME
        entries: Figure<Count>,
        /// the processor's work for a PUT: writing the entry, telling the card
        post: Figure<Time>,
        /// besides, if every PUT goes through the kernel: what the system call takes
        system_call: Option<Figure<Time>>,
        /// the processor's work each time that it looks at LME and LMR
        poll: Figure<Time>,
        /// if the card tells of arrivals and ends by interrupt: what an interrupt takes, its handler included
        interrupt: Option<Figure<Time>>,
        /// after an interrupt, until the process that waits runs again (0 if not said)
        wake: Option<Figure<Time>>,
        /// the processor's work for each entry of the LMR (0 if not said)
        notice: Option<Figure<Time>>,
        /// telling the card that entries have been seen (0 if not said)
        acknowledge: Option<Figure<Time>>,
        /// a page of physical memory
        page: Figure<Size>,
        /// finding a page's physical address: locking it, translating, releasing it; without this figure memory is contiguous and translation is an addition
        lock: Option<Figure<Time>>,
        /// largest control message: what is longer goes by rendezvous
        control: Figure<Size>,
        /// buffers for control messages that a node keeps for each other one: the sender's credits
        credits: Figure<Count>,
    }
}

figures! {
    /// A card with LogGP's figures.
    pub struct Loggp {
        /// the kind of card
        kind: String,
        /// o: the processor's work for each message it sends
        send: Figure<Time>,
        /// o: the processor's work for each message it receives
        receive: Figure<Time>,
        /// g: least time between two messages of a card
        gap: Figure<Time>,
        /// what is longer goes by rendezvous, straight from and to where it belongs
        eager: Figure<Size>,
        /// longest message of the card: longer ones are cut (64 KiB or less)
        longest: Figure<Size>,
    }
}

/// LogGP's L and G are the network's: its latency and its rate.
impl From<Loggp> for Figures {
    fn from(f: Loggp) -> Figures {
        Figures {
            kind: f.kind,
            emit: Figure::of(Time::ZERO),
            gap: Some(f.gap),
            arrive: Figure::of(Time::ZERO),
            entry: f.longest,
            entries: Figure::of(Count(64)),
            post: f.send,
            system_call: None,
            poll: Figure::of(Time::ns(100)),
            interrupt: None,
            wake: None,
            notice: Some(f.receive),
            acknowledge: None,
            page: Figure::of(Size(4096)),
            lock: None,
            control: f.eager,
            credits: Figure::of(Count(16)),
        }
    }
}

/// Least bytes of a control message: the device's heads must fit, and a few addresses of pages.
const CONTROL_MIN: u64 = 256;
/// Most: a command carries it whole.
const CONTROL_MAX: u64 = 32 * 1024;

impl Figures {
    /// Was it made of LogGP's figures?
    pub fn is_loggp(&self) -> bool {
        self.kind == "loggp"
    }

    /// Do the figures fit each other? If not, says which do not.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "nic.{name} is {value}; it must be from {least} to {most}"
            ))
        };
        let control = if self.is_loggp() { "eager" } else { "control" };
        let entry = if self.is_loggp() { "longest" } else { "entry" };
        within(control, self.control.value.0, CONTROL_MIN, CONTROL_MAX)?;
        within(entry, self.entry.value.0, 256, 65_024)?;
        within("entries", self.entries.value.0.into(), 4, 65_536)?;
        within("credits", self.credits.value.0.into(), 2, 16_384)?;
        within("page", self.page.value.0, 256, 1 << 30)?;
        within(
            "poll (in picoseconds)",
            self.poll.value.as_ps(),
            1,
            u64::MAX,
        )
    }

    pub(crate) fn or_zero(figure: &Option<Figure<Time>>) -> Time {
        figure.as_ref().map_or(Time::ZERO, |f| f.value)
    }
}

/// A command: remote write of the bytes that follow its head.
const PUT: u32 = 1;
/// The same within a node, through shared memory.
const LOCAL: u32 = 2;
/// An event: bytes have been written into this rank's memory.
const WRITTEN: u32 = 1;
/// An event: entries of this rank's LME are done.
const DONE: u32 = 2;

/// Note the arrival in the LMR: the receiver is to look.
const NOTIFY: u8 = 1;
/// Wake the sender when the entry is done.
const WAKE: u8 = 2;

/// Bytes of a PUT's head: receiver, flags, physical address.
const HEAD: usize = 16;

fn head(rank: u32, flags: u8, address: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&rank.to_le_bytes());
    head[4] = flags;
    head[8..].copy_from_slice(&address.to_le_bytes());
    head
}

/// Rank, flags, address, and the bytes.
fn parse(bytes: &[u8]) -> Option<(u32, u8, u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let rank = u32::from_le_bytes(head[..4].try_into().ok()?);
    let address = u64::from_le_bytes(head[8..].try_into().ok()?);
    Some((rank, head[4], address, rest))
}

/// How long bytes take to be copied.
fn copying(rate: Rate, bytes: usize) -> Time {
    rate.time_of(bytes as u64)
}
