//! What MPICH calls the ADI: virtual connections, matching by key and pattern, posted and
//! unexpected queues, eager and rendezvous, the progress engine, and waiting without burning a
//! core.
//!
//! The device knows processes ([`ProcId`]), match keys and bytes; it never hears of communicators
//! or datatypes.

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
pub use device::{Background, Capabilities, Device, SendMode, Unreceived};
pub use counters::{COUNTERS, Count, Counters, Traffic, WAYS};
pub use ferry_transport::connected::REFUSED;
pub use ferry_transport::model::{is_modelled, virtual_time};
pub use ferry_transport::shm::{READ_MIN_ADAPTIVE, read_min, set_read_min};
pub use protocol::deferred::END_MAX;
pub use base::key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
pub use progress::lock::{DeviceGuard, allow_progress, device, finish, is_alone, start};
pub use protocol::failure::trouble;
pub use node::counter_board::{Meeting, SLOT_MAX_BYTES};
pub use protocol::control::Note;
pub use progress::core_sharing::leave_in_turn;
pub use progress::test_backoff::ask;
pub use progress::thread::{has_progress_thread, poke, start_progress, stop_progress};
pub use base::request::{Completion, Fault, ReqId};
pub use node::flat_board::{MARK_BITS, POST_MAX_BYTES, Round};
pub use progress::wait::{CALL, Describe, WaitingFor, set_yields, wait, wait_until, yields};
