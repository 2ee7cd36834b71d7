//! Simulates collectives of many ranks on a network, by their schedules alone: no processes, no
//! bytes (LogGOPSim's idea, with links that are shared).
//!
//! ```text
//! ferry-schedule: plan of each rank ── program ── run ── seconds
//!                                                  │
//!                                               network: fat tree, dragonfly
//!
//! sweep: all algorithms of a collective at each size and number of ranks
//! ```
//!
//! What the cost model ([`ferry_schedule::Cost`]) cannot know, the simulation does: which links
//! messages share, how long they wait there, and how late ranks make others later. So it says where
//! the model's choice is not the quickest.
//!
//! ```
//! use ferry_schedule::{Collective, Cost};
//! use ferry_simulate::{Job, Network, simulate};
//!
//! let network = Network::fat_tree(16, 1)?;
//! let job = Job { ranks: 64, per_node: 4, network: &network, cost: Cost::network() };
//! let outcome = simulate(&job, &Collective::Barrier, None, 1_000_000)?;
//! assert!(outcome.seconds > 6.0 * 1e-6); // six rounds of messages at least
//! # Ok::<(), ferry_simulate::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bound;
mod network;
mod program;
mod run;
mod sweep;

pub use network::{LINK_LATENCY_S, Network};
pub use run::{Job, Outcome, simulate};
pub use sweep::{KINDS, Row, Sweep, call_of};

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// All ranks together would send more than the limit, or do too much besides.
    #[error("more than {0} messages, or too many steps for so many")]
    TooManyMessages(u64),
    /// The network has fewer nodes than the job needs.
    #[error("{ranks} ranks, {per_node} a node, need {needed} nodes; the network has {nodes}")]
    TooFewNodes {
        /// Ranks of the job.
        ranks: u32,
        /// Ranks on a node.
        per_node: u32,
        /// Nodes that it needs.
        needed: u32,
        /// Nodes of the network.
        nodes: u32,
    },
    /// A number that must not be zero is.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// The algorithm cannot serve the call.
    #[error("{0} cannot serve this call")]
    NotAllowed(&'static str),
    /// A rank waits for a message that is never sent: a mistake in an algorithm.
    #[error("rank {0} waits for ever")]
    Deadlock(u32),
    /// Sends and receives between two ranks differ in number or in size: a mistake in an algorithm.
    #[error("rank {from} sends rank {to} {sent} messages, which takes {received} or other sizes")]
    Unmatched {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// Messages sent.
        sent: u64,
        /// Messages received.
        received: u64,
    },
}
