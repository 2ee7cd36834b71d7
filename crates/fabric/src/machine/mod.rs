//! Machines: what a machine file says, and the hardware and drivers that follow from it.

mod explain;
mod file;
mod find;
mod registry;
mod remote;

pub use explain::explain;
pub use file::{FileError, read};
pub use find::find;
pub use registry::{BuiltIn, Nic, built_in};

use crate::driver::Driver;
use crate::ethernet::FrameChannel;
use crate::kernel::{ModelSegment, Rank};
use crate::platform::Platform;
use crate::rapidio::MxLevel;
use crate::report::{Job, Outcome};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// All but its card.
    pub platform: Platform,
    /// The card in each node.
    pub nic: Nic,
}

/// What to do besides running the hardware.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions<'a> {
    /// Where to write a timeline, if one is wanted.
    pub trace: Option<&'a Path>,
    /// End the job when a driver programs its card in a way that goes wrong (`--machine-check`).
    pub check: bool,
}

impl Machine {
    /// Encodes the machine, for [`ModelSegment::create`].
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Decodes a machine. `None`: the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Machine> {
        postcard::from_bytes(bytes).ok()
    }

    /// Bytes of memory that the card maps for each rank, for [`ModelSegment::create`].
    pub fn mapped_bytes(&self) -> u64 {
        self.nic.kind().mapped_bytes(&self.platform)
    }

    /// The driver of rank `me`'s card.
    pub fn driver(&self, me: Rank) -> Box<dyn Driver> {
        self.nic.kind().driver(&self.platform, me)
    }

    /// The channel for Ethernet frames of rank `me`'s card. `None`: the card has none.
    pub fn frame_channel(&self, me: Rank) -> Option<Box<dyn FrameChannel>> {
        self.nic.kind().frame_channel(&self.platform, me)
    }

    /// The MX level of rank `me`'s driver, for programs that use it without MPI. `None`: there is
    /// none.
    pub fn mx_level(&self, me: Rank) -> Option<MxLevel> {
        match &self.nic {
            Nic::Rapidio(figures) => Some(figures.mx_level(&self.platform, me)),
            _ => None,
        }
    }

    /// Runs the hardware for the ranks that join `segment`, until it is closed. `on_deadlock` is
    /// called when no rank can go on.
    ///
    /// # Errors
    /// The timeline cannot be written.
    pub fn run(
        &self,
        segment: ModelSegment,
        options: RunOptions<'_>,
        mut on_deadlock: impl FnMut(Time),
    ) -> Result<Outcome, String> {
        self.nic.kind().run(Job {
            platform: &self.platform,
            segment,
            trace: options.trace,
            check: options.check,
            on_deadlock: &mut on_deadlock,
        })
    }

    /// Measures what card and driver can do without MPI: tables as comma-separated values, with an
    /// empty line between two. The card's own, as its paper has it, and what puts and gets take
    /// beside messages, if it has remote memory.
    ///
    /// # Errors
    /// The system gives no memory, or there is nothing to measure.
    pub fn measure(&self) -> Result<String, String> {
        let tables = [
            self.nic.kind().measure(&self.platform)?,
            remote::table(self)?,
        ];
        let tables: Vec<String> = tables.into_iter().flatten().collect();
        if tables.is_empty() {
            return Err("there is no measurement without MPI for this kind of card".into());
        }
        Ok(tables.join("\n"))
    }
}
