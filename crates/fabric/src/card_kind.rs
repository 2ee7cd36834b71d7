//! What the registry of machines asks of each kind of card.
//!
//! A kind of card is a folder of this crate. Its figures, the `[nic]` table of a machine file,
//! implement [`CardKind`].

use crate::driver::Driver;
use crate::ethernet::FrameChannel;
use crate::kernel::Rank;
use crate::platform::Platform;
use crate::report::{Job, Outcome};

/// A kind of card, with the figures of one machine.
pub trait CardKind {
    /// What each figure of the `[nic]` table means: name and meaning.
    fn meanings(&self) -> &'static [(&'static str, &'static str)];

    /// Checks that the figures fit each other and the rest of the machine. The error says which do
    /// not.
    ///
    /// # Errors
    /// Some do not.
    fn check(&self, platform: &Platform) -> Result<(), String>;

    /// Bytes of memory that the card maps for each rank.
    fn mapped_bytes(&self, _platform: &Platform) -> u64 {
        0
    }

    /// The driver of rank `me`'s card.
    fn driver(&self, platform: &Platform, me: Rank) -> Box<dyn Driver>;

    /// The channel for Ethernet frames of rank `me`'s card. `None`: the card has none.
    fn frame_channel(&self, _platform: &Platform, _me: Rank) -> Option<Box<dyn FrameChannel>> {
        None
    }

    /// Runs the cards and the network of a job until it is closed.
    ///
    /// # Errors
    /// The timeline cannot be written.
    fn run(&self, job: Job<'_>) -> Result<Outcome, String>;

    /// Measures what card and driver can do without MPI, as the card's paper does. Returns a table
    /// as comma-separated values, with a line of titles. `None`: the paper has no such measurement.
    ///
    /// # Errors
    /// The system gives no memory.
    fn measure(&self, _platform: &Platform) -> Result<Option<String>, String> {
        Ok(None)
    }
}
