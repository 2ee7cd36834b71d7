//! The figures of a card with remote write: the `[nic]` table of its machine files.

use crate::platform::{Count, Figure, Size, figures};
use crate::time::Time;

figures! {
    /// A card with remote write, and its driver.
    pub struct Figures {
        /// the kind of card
        kind: String,
        /// the card's work before the first byte of an entry is on its way: fetching the entry,
        /// starting to read memory
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
        /// if the card tells of arrivals and ends by interrupt: what an interrupt takes, its
        /// handler included
        interrupt: Option<Figure<Time>>,
        /// after an interrupt, until the process that waits runs again (0 if not said)
        wake: Option<Figure<Time>>,
        /// the processor's work for each entry of the LMR (0 if not said)
        notice: Option<Figure<Time>>,
        /// telling the card that entries have been seen (0 if not said)
        acknowledge: Option<Figure<Time>>,
        /// a page of physical memory
        page: Figure<Size>,
        /// finding a page's physical address: locking it, translating, releasing it; without this
        /// figure memory is contiguous and translation is an addition
        lock: Option<Figure<Time>>,
        /// largest control message: what is longer goes by rendezvous
        control: Figure<Size>,
        /// buffers for control messages that a node keeps for each other one: the sender's credits
        credits: Figure<Count>,
        /// memory of each rank, pinned when the job begins, for segments that others write into
        /// (none if not said)
        window: Option<Figure<Size>>,
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

/// LogGP's L and G are the network's latency and rate.
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
            window: None,
        }
    }
}

/// Least bytes of the largest control message. The device's heads and a few runs of an RSP must
/// fit.
const CONTROL_MIN_BYTES: u64 = 256;
/// Most bytes of the largest control message. One command carries it whole.
const CONTROL_MAX_BYTES: u64 = 32 * 1024;

impl Figures {
    /// Returns whether these are made of LogGP's figures.
    pub fn is_loggp(&self) -> bool {
        self.kind == "loggp"
    }

    /// Bytes of a rank's window.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window.as_ref().map_or(0, |w| w.value.0)
    }

    /// Checks that the figures fit each other. The error says which do not.
    pub(super) fn check_ranges(&self) -> Result<(), String> {
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
        within(
            control,
            self.control.value.0,
            CONTROL_MIN_BYTES,
            CONTROL_MAX_BYTES,
        )?;
        within(entry, self.entry.value.0, 256, 65_024)?;
        within("entries", self.entries.value.0.into(), 4, 65_536)?;
        within("credits", self.credits.value.0.into(), 2, 16_384)?;
        within("page", self.page.value.0, 256, 1 << 30)?;
        within("window", self.window_bytes(), 0, 1 << 30)?;
        within(
            "poll (in picoseconds)",
            self.poll.value.as_ps(),
            1,
            u64::MAX,
        )
    }

    /// A figure that may be left out.
    pub(super) fn or_zero(figure: &Option<Figure<Time>>) -> Time {
        figure.as_ref().map_or(Time::ZERO, |f| f.value)
    }
}
