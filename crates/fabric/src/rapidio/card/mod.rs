//! The card: a RapidIO controller as the driver sees it.
//!
//! ```text
//!   commands ─► send list ─► segments ──► network ──► input buffer ─► dedicated queues ─► memory
//!                  ▲                         │            │    └────► general queue
//!                  └── resend ◄── responses ◄┘◄───────────┘ accepted, or refused
//! ```
//!
//! A message's segments leave one after the other. The receiver refuses a segment that finds its
//! input buffer full. The sender then sends this segment again, behind others that have left
//! meanwhile. Letters and segment numbers keep order: a message's place among those of its node and
//! mailbox follows from its letter.

mod checker;
mod model;
mod packet;
mod receiver;
mod segments;
mod sender;
mod stats;

pub use model::{Cards, ModelEvent};
pub use stats::CardStats;
