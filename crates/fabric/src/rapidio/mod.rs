//! RapidIO: the controller of the 1890VM6Ya system-on-chip, and the message stack on it.
//!
//! The paper is A. S. Kuleshov, "MPI support in Linux OS for RapidIO-based multiprocessor computer
//! systems" (docs/machines/rapidio.md).
//!
//! - [`command`]: what driver and card say to each other.
//! - [`card`]: segments, letters, queues, doorbells, NREAD and NWRITE, refusals, the checker.
//! - [`driver`]: the software, in the paper's levels.

pub mod card;
pub mod command;
pub mod driver;
pub mod figures;

pub use figures::Figures;

use crate::card_kind::CardKind;
use crate::driver::Driver;
use crate::ethernet::FrameChannel;
use crate::kernel::Rank;
use crate::platform::Platform;
use crate::report::{Job, Outcome};
use card::Cards;
use driver::ethernet::Frames;
use driver::levels;
use driver::lower::LowerLevel;
use driver::mpi::RapidioDriver;
use driver::mx::Mx;

/// The MX level of a node's driver.
pub type MxLevel = Mx<LowerLevel>;

impl Figures {
    /// The MX level of rank `me`, for programs that use it without MPI.
    pub fn mx_level(&self, platform: &Platform, me: Rank) -> MxLevel {
        levels::mx_level(platform, self, me, self.small.value.0 as usize)
    }
}

impl CardKind for Figures {
    fn meanings(&self) -> &'static [(&'static str, &'static str)] {
        Figures::MEANINGS
    }

    fn check(&self, platform: &Platform) -> Result<(), String> {
        self.check_ranges(platform)
    }

    fn mapped_bytes(&self, _platform: &Platform) -> u64 {
        self.window.value.0
    }

    fn driver(&self, platform: &Platform, me: Rank) -> Box<dyn Driver> {
        Box::new(RapidioDriver::new(platform, self, me))
    }

    fn frame_channel(&self, platform: &Platform, me: Rank) -> Option<Box<dyn FrameChannel>> {
        Some(Box::new(Frames::new(platform, self, me)))
    }

    fn run(&self, job: Job<'_>) -> Result<Outcome, String> {
        let cards = Cards::new(job.platform, self, job.ranks(), job.check);
        let links = cards.links();
        job.run(cards, links)
    }
}

#[cfg(test)]
mod tests;
