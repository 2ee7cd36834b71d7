//! What MPICH calls the ADI: matching, eager and rendezvous protocols, the progress engine, and
//! waiting without burning a core.
//!
//! The device knows processes ([`ProcId`]), match keys and bytes. It never hears of communicators or
//! datatypes.
//!
//! ```text
//! device       what the floor above calls: send, receive, probe, cancel, progress
//! ├ protocol   eager, RTS and CTS, speculative rendezvous, deferred receives, single copy, zero copy
//! ├ progress   waiting, the lock, the progress thread, ranks that share cores
//! ├ node       boards in shared memory, for collectives within a node
//! ├ matching   posted and unexpected queues
//! ├ queue      messages that wait for room on their transport
//! └ base       match keys, buffers, requests, active-message headers
//! ```

mod base;
mod counters;
mod device;
mod matching;
mod node;
mod progress;
mod protocol;
mod queue;

/// What `tests/loom.rs` replaces.
mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

pub use base::buffer::{Layout, Sink, Source};
pub use base::key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
pub use base::request::{Completion, Fault, ReqId};
pub use counters::{COUNTERS, Count, Counters, TRANSPORT_NAMES, Traffic};
pub use device::{Background, Capabilities, Device, SendMode, Unreceived};
pub use ferry_transport::connected::REFUSED;
pub use ferry_transport::model::{is_modelled, virtual_time};
pub use ferry_transport::shm::{READ_MIN_ADAPTIVE, read_min, set_read_min};
pub use node::counter_board::{CounterBoardGroup, SLOT_MAX_BYTES};
pub use node::flat_board::{FlatBoardGroup, MARK_BITS, POST_MAX_BYTES};
pub use progress::core_sharing::yield_after_barrier;
pub use progress::lock::{DeviceGuard, device, enable_progress_thread, finish, is_alone, start};
pub use progress::test_backoff::poll_once;
pub use progress::thread::{
    has_progress_thread, start_progress_thread, stop_progress_thread, wake_progress_thread,
};
pub use progress::wait::{
    CURRENT_CALL, Describe, WaitingFor, set_yields, wait, wait_until, yields,
};
pub use protocol::control::ControlMessage;
pub use protocol::deferred::EDGE_MAX_BYTES;
pub use protocol::failure::last_failure;
