//! One trait for every transport, and one folder for each transport.
//!
//! A transport knows processes and bytes. It carries *active messages*: a number that tells the
//! layer above what the message is, a short head and a body. They arrive whole and in order between
//! two processes. Beside them a transport may offer streams, zero-copy sends, and reads of a peer's
//! memory.
//!
//! ```text
//!              the device (matching, eager, rendezvous)
//!      send, stream, read │                 ▲ Inbox
//!                         ▼                 │
//!  ┌────────────────────────────────────────────────────────┐
//!  │ Transports (registry): which transport leads to a peer │
//!  ├──────┬────────────────────┬────────────────────┬───────┤
//!  │ self │ shm                │ connected          │ model │
//!  │      │ pair: fastbox,     │ connect: handshake │ (the  │
//!  │      │  ring, cells       │  and establishment │ fabric│
//!  │      │ cma: single copy   │ conn: frames       │ crate)│
//!  │      │ coll: boards       ├─────────┬──────────┤       │
//!  │      │                    │ tcp     │ tipc     │       │
//!  └──────┴────────────────────┴─────────┴──────────┴───────┘
//!  Wakeup: what the process's threads sleep on
//! ```
//!
//! [`Transport`] has five required methods. What only some transports offer stands in traits of its
//! own: [`VirtualTime`], [`RendezvousOffload`], [`CardMemory`], [`RemoteMemory`],
//! [`NodeCollectives`], [`ForeignProcesses`].
//!
//! # Example
//! ```
//! use ferry_transport::{SendStatus, Body, Inbox, ProcId, Transport, self_loop::SelfLoop};
//!
//! struct Print;
//! impl Inbox for Print {
//!     fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
//!         assert_eq!((from, message, bytes), (3, 7, &b"head and body"[..]));
//!         false
//!     }
//! }
//!
//! let mut transport = SelfLoop::new(3);
//! let status = transport.send(3, 7, b"head ", Body::Bytes(b"and body"))?;
//! assert_eq!(status, SendStatus::Done);
//! assert_eq!(transport.poll(&mut Print)?, 1);
//! # Ok::<(), ferry_transport::TransportError>(())
//! ```

mod card_memory;
pub mod connected;
mod error;
mod foreign_processes;
mod inbox;
pub mod model;
mod names;
mod node_collectives;
mod poll_throttle;
mod registry;
mod remote_memory;
mod rendezvous_offload;
pub mod self_loop;
pub mod shm;
mod short_copy;
pub mod tcp;
pub mod tipc;
mod transport;
mod virtual_time;
mod wakeup;

pub use card_memory::CardMemory;
pub use error::{ReadError, TransportError};
pub use foreign_processes::{ForeignProcess, ForeignProcesses, Link};
pub use inbox::Inbox;
pub use names::{SHM_INDEX, TRANSPORT_NAMES};
pub use node_collectives::NodeCollectives;
pub use registry::{SharedSegment, Transports, open};
pub use remote_memory::{Blocks, Offer, RemoteError, RemoteMemory, SegmentKey};
pub use rendezvous_offload::{Expected, RendezvousOffload};
pub use short_copy::short_copy;
pub use transport::{
    BatchMessage, BatchSent, Body, FRAGMENT_BYTES, FRAGMENT_HEAD_MAX_BYTES, Features, Fragments,
    ReadStart, SHORT_HEAD_BYTES, SendStatus, Streamed, Transport, ZeroCopy,
};
pub use virtual_time::VirtualTime;
pub use wakeup::Wakeup;

/// A process of the job, numbered across all nodes.
pub type ProcId = u32;

/// The kinds of threads that sleep in a process. A wakeup is for one kind, and wakes no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Sleeper {
    /// The program's threads, in blocking calls.
    Program = 1,
    /// The progress thread.
    Progress = 2,
}

impl Sleeper {
    /// As the kernel's futexes tell sleepers apart (FUTEX_WAKE_BITSET, futex(2)).
    #[inline]
    pub fn bits(self) -> std::num::NonZeroU32 {
        std::num::NonZeroU32::MIN.saturating_add(self as u32 - 1)
    }
}
