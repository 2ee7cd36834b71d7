//! What a machine's hardware implements, so that the kernel can drive it.

use super::Rank;
use super::server::Kernel;
use crate::time::Time;

/// A machine's hardware: cards, links, switches.
pub trait Model {
    /// What the hardware schedules for itself.
    type Event;

    /// A command of rank `from` reaches its card at the current time ([`Kernel::now`]). `kind` and
    /// `bytes` come from another process.
    ///
    /// # Errors
    /// The command is not valid. The job is then ended.
    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<Self::Event>,
    ) -> Result<(), InvalidCommand>;

    /// An event that was scheduled for the current time.
    fn event(&mut self, event: Self::Event, kernel: &mut Kernel<Self::Event>);

    /// Least time from a command of one rank to anything that another rank can see of it. It also
    /// bounds what ranks can see of an event beyond those that [`Model::observers`] names.
    ///
    /// A longer lookahead makes ranks stop less often for each other. Ranks miss events if it is
    /// too long.
    fn lookahead(&self) -> Time {
        Time::ZERO
    }

    /// Least time from a command of this kind to anything that its own rank can see of it.
    fn response_time(&self, _kind: u32) -> Time {
        Time::ZERO
    }

    /// Who can see an effect of a scheduled event sooner than [`Model::lookahead`] after it.
    fn observers(&self, _event: &Self::Event) -> Observers {
        Observers::All(Time::ZERO)
    }

    /// The node of a rank, for [`Observers::Node`].
    fn node_of(&self, rank: Rank) -> u32 {
        rank
    }

    /// Returns whether reports count commands of this kind. Stores into memory are not counted.
    fn is_counted(&self, _kind: u32) -> bool {
        true
    }

    /// Every rank waits and nothing is under way. Returns what a driver has done wrong, if the
    /// hardware knows; the job is then ended.
    fn deadlock(&self) -> Option<String> {
        None
    }

    /// How much each part of the hardware was used in `duration`: a name and a line of figures.
    fn usage(&self, _duration: Time) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Who sees an effect of an event, and how long after it at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Observers {
    /// Nobody before the model's lookahead has passed.
    Nobody,
    /// This rank.
    Rank(Rank, Time),
    /// The ranks of this node.
    Node(u32, Time),
    /// All ranks.
    All(Time),
}

/// A driver has issued a command that its card does not have. The text says what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCommand(pub &'static str);
