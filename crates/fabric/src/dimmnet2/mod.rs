//! DIMMnet-2: a network interface in a memory slot, and the MPI device driver on it.
//!
//! The paper is T. Araki et al., "Design and Implementation of MPI-2 Communication Library on
//! DIMMnet-2" (docs/machines/dimmnet2.md).
//!
//! - [`card`]: windows, SO-DIMM, LLCM, commands, rings, packets.
//! - [`driver`]: the software. It issues commands and reads what they bring.
//! - [`measure`]: what the paper measures below MPI.

pub mod card;
pub mod driver;
pub mod figures;
pub mod measure;

pub use figures::Figures;

use crate::card_kind::CardKind;
use crate::driver::Driver;
use crate::kernel::Rank;
use crate::platform::Platform;
use crate::report::{Job, Outcome};
use card::{Cards, access};
use driver::{DimmnetDriver, program_memory};

impl CardKind for Figures {
    fn meanings(&self) -> &'static [(&'static str, &'static str)] {
        Figures::MEANINGS
    }

    fn check(&self, _platform: &Platform) -> Result<(), String> {
        self.check_ranges()
    }

    fn mapped_bytes(&self, platform: &Platform) -> u64 {
        match program_memory(platform, self) {
            Some(memory) => memory.mapped_at as u64 + memory.bytes,
            None => {
                let ranks = u32::try_from(platform.ranks_max()).unwrap_or(u32::MAX);
                access::llcm_end(platform, self, ranks)
            }
        }
    }

    fn driver(&self, platform: &Platform, _me: Rank) -> Box<dyn Driver> {
        Box::new(DimmnetDriver::new(platform, self))
    }

    fn run(&self, job: Job<'_>) -> Result<Outcome, String> {
        let mut cards = Cards::new(job.platform, self, job.ranks());
        if let Some(memory) = program_memory(job.platform, self) {
            cards.map_program_memory(memory, &job.segment);
        }
        let links = cards.links();
        job.run(cards, links)
    }

    fn measure(&self, platform: &Platform) -> Result<Option<String>, String> {
        Ok(Some(measure::table(platform, self)))
    }
}
