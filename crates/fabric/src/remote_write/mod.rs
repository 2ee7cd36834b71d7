//! Cards with remote write: their one primitive is PUT, and the driver makes messages of it.
//!
//! A processor writes an entry into the LME, the list of messages to emit in its memory, and tells
//! the card. The card fetches the entry, reads the bytes from physical memory and sends them off.
//! The receiver's card writes them to the physical address that the entry names. If the entry says
//! so, it notes their arrival in its LMR, the list of messages received.
//!
//! This is the FastHSL card of the MPC machine (paper 4, docs/machines/mpc.md). With other figures
//! it is any card with remote write. A LogGP card is one whose figures are LogGP's.

mod card;
mod driver;
mod entry;
mod figures;
mod measure;

pub use card::Card;
pub use driver::RemoteWriteDriver;
pub use figures::{Figures, Loggp};
pub use measure::{Layer, measure};

use crate::card_kind::CardKind;
use crate::driver::Driver;
use crate::kernel::Rank;
use crate::platform::Platform;
use crate::report::{Job, Outcome};

impl CardKind for Figures {
    fn meanings(&self) -> &'static [(&'static str, &'static str)] {
        if self.is_loggp() {
            Loggp::MEANINGS
        } else {
            Figures::MEANINGS
        }
    }

    fn check(&self, _platform: &Platform) -> Result<(), String> {
        self.check_ranges()
    }

    fn mapped_bytes(&self, _platform: &Platform) -> u64 {
        self.window_bytes()
    }

    fn driver(&self, platform: &Platform, me: Rank) -> Box<dyn Driver> {
        Box::new(RemoteWriteDriver::new(platform, self, me))
    }

    fn run(&self, job: Job<'_>) -> Result<Outcome, String> {
        let card = Card::new(job.platform, self, job.ranks());
        let links = card.links();
        job.run(card, links)
    }

    fn measure(&self, platform: &Platform) -> Result<Option<String>, String> {
        let [hardware, put] = measure(platform, self)?;
        let row = |layer: &str, l: Layer| {
            format!("{layer},{:.3},{:.1}\n", l.latency.micros(), l.throughput)
        };
        Ok(Some(format!(
            "layer,one_way_latency_us,throughput_Mbit_s\n{}{}",
            row("hardware", hardware),
            row("PUT", put)
        )))
    }
}
