//! Hardware that is not there, and how long it takes.
//!
//! A job on a modelled machine has one clock, which is virtual. A process of its own, the *model*,
//! holds that clock, the queue of what happens next, the cards and the links ([`kernel`]). The
//! ranks are the program's real processes. On each, the driver software of the card really runs: it
//! issues hardware commands, reads the memory that the card shows it, and waits ([`Client`]).
//!
//! # Time
//! Each rank has its own clock. It moves when the driver says what its work costs
//! ([`Client::charge`]), and when the rank waits. A command is stamped with the rank's clock and
//! goes on its way at once; the rank does not wait for it. What the card has done is seen only
//! after [`Client::sync`], which lets the model catch up with the rank's clock.
//!
//! # Order
//! The model moves on only while every rank has stopped, be it for a moment ([`Client::sync`]) or
//! until something comes for it ([`Client::wait`]). It then takes what is due in the order of
//! (time, rank, sequence); at one instant the hardware goes before the programs. So two runs of a
//! program do the same, to the last digit, as long as its own computation counts as zero.
//!
//! # A new card
//! Its server side implements [`Model`]: commands come in, events are set for later, words and
//! bytes go out to ranks. Its driver uses a [`Client`]. Neither sees the other's memory; what a
//! command needs travels with it.

pub mod dimmnet2;
pub mod driver;
pub mod kernel;
pub mod machine;
mod network;
pub mod put;
mod report;
mod time;

pub use kernel::{Arena, Client, Event, Kernel, Model, Nonsense, Rank, Server, Sight};
pub use network::{LinkUse, Network, Packet};
pub use report::{Outcome, Report, open, serve};
pub use time::{Rate, Time};
