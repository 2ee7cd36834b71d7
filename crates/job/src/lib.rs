//! What a rank and its launcher share: the welcome, the node's segment, each rank's status page.
//! And how Ferry starts threads of its own in a rank's process.
//!
//! `mpiexec` makes one [`Segment`] a node and one socket pair a rank. Before a rank starts, its
//! [`Welcome`] and the segment's descriptor lie already in its end of the socket, so that [`join`]
//! is one system call and no conversation.

mod client;
mod cores;
mod directory;
mod foreign;
mod launcher;
mod nodes;
mod notice;
mod segment;
mod status;
mod thread;
mod welcome;

pub use client::{Client, JobError, LAUNCH_FD, Place, join};
pub use cores::{Cores, cpu_quota};
pub use directory::{CARD_MAX, Cards, Directory};
pub use launcher::{Heard, JobTerms, Line, NodeJob};
pub use nodes::{Node, Nodes, Run};
pub use notice::{Notice, Reply, TEXT_MAX};
pub use segment::{Segment, SegmentLayout};
pub use status::{ITSELF, RankState, RankStatus, SEVERAL, SendTurn, Wait};
pub use thread::{THREAD_PREFIX, start_thread};
pub use welcome::{Malformed, PROTOCOL, Welcome, new_key};
