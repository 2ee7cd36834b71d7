//! What a rank and its launcher share: the welcome, the node's segment, each rank's status page.

mod client;
mod segment;
mod status;
mod welcome;

pub use client::{Client, JobError, Place, join};
pub use segment::{Segment, SegmentLayout};
pub use status::{RankState, RankStatus};
pub use welcome::Welcome;
