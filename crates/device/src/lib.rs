//! What MPICH calls the ADI: matching, eager and rendezvous protocols, the progress engine, and
//! waiting without burning a core.
//!
//! The device knows processes ([`ProcId`]), match keys and bytes. It knows neither communicators
//! nor datatypes. Each folder uses only those below it (`crates/api/tests/house/` checks it):
//!
//! ```text
//! device       what the layer above calls: send, receive, probe, cancel, completions
//! ├ node       in shared memory: boards of collectives, locks between processes
//! ├ progress   the progress engine, waiting, the lock, the progress thread, core sharing
//! ├ protocol   eager, rendezvous, speculative, deferred, single copy, zero copy, streams
//! ├ queue      messages that wait for room on their transport
//! ├ matching   posted and unexpected queues
//! └ base       match keys, buffers, requests, headers of active messages, counters
//!
//!   Device ── Worker ─┬─ Transports       (crate ferry-transport)
//!                     └─ Engine           requests, queues, the state of each protocol
//! ```
//!
//! A process that sends a message to itself:
//!
//! ```
//! use ferry_device::{
//!     ContextId, Key, Pattern, SendMode, Sink, Source, Tags, WaitingFor, device, start, wait,
//! };
//! use ferry_job::{RankStatus, RankInfo};
//!
//! // A job of one rank, without a launcher.
//! let status: &RankStatus = Box::leak(Box::default());
//! let rank_info = RankInfo::on_one_host(0, 1, "here");
//! start(&rank_info, None, None, status, false, false)?;
//!
//! let context = ContextId::WORLD;
//! let (data, mut room) = (*b"hello", [0; 5]);
//! let pattern = Pattern { context, source: Some(0), tag: Tags::one(7) };
//! let sink = Sink::Bytes { ptr: room.as_mut_ptr(), cap: room.len() };
//! // SAFETY: nothing else touches `room` until the receive is complete.
//! let receive = unsafe { device().receive(pattern, sink) };
//!
//! let key = Key { context, source: 0, tag: 7 };
//! let source = Source::Bytes { ptr: data.as_ptr(), len: data.len() };
//! // SAFETY: `data` does not change until the send is complete.
//! let send = unsafe { device().send(0, key, source, SendMode::Standard) };
//! assert!(send.is_none(), "it is complete");
//!
//! let completion = wait(receive, &WaitingFor::SEVERAL);
//! assert_eq!((completion.received, &room), (5, b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod device;
mod matching;
mod node;
mod progress;
mod protocol;
mod queue;

/// The atomics of the library, which `tests/loom.rs` replaces.
mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

pub use base::buffer::{Layout, Sink, Source};
pub use base::counters::{COUNTERS, Count, Counters, HasDevice, TRANSPORT_NAMES, Traffic};
pub use base::key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
pub use base::request::{Completion, Fault, ReqId, SendMode};
pub use device::{Capabilities, Unreceived, finish};
pub use ferry_transport::connected::REFUSED;
pub use ferry_transport::model::{is_modelled, virtual_time};
pub use ferry_transport::shm::{Mapping, PeerMemory, SharedMemory, SharedRange, Waker};
pub use ferry_transport::shm::{OfferState, Offered, UPDATE_WORDS, UpdateSlot};
pub use ferry_transport::shm::{READ_MIN_ADAPTIVE, read_min, set_read_min};
pub use ferry_transport::{
    Blocks, ForeignProcess, Link, Offer, ReadError, RemoteError, RemoteMemory, SegmentKey,
    SharedSegment, TransportError,
};
pub use node::counter_board::{Awaited, CounterBoardGroup, PHASES, SLOT_MAX_BYTES};
pub use node::flat_board::{FLAT_MAX_RANKS, FlatBoardGroup, MARK_BITS, POST_MAX_BYTES, Post};
pub use node::lock::{NodeLock, Patience, STARVING_AFTER};
pub use node::unordered_flat_board::UnorderedFlatGroup;
pub use node::wait_set::WaitSet;
pub use progress::background::Background;
pub use progress::core_sharing::yield_after_barrier;
pub use progress::device::Device;
pub use progress::lock::{
    DeviceGuard, device, enable_progress_thread, end_outside_work, is_alone, is_multiple,
    on_several_threads, start,
};
pub use progress::outside_work::begin_outside_work;
pub use progress::state::FindPeer;
pub use progress::test_backoff::{poll_after_update, poll_after_work, poll_once, poll_once_for};
pub use progress::thread::{
    has_progress_thread, start_progress_thread, stop_progress_thread, wake_progress_thread,
};
pub use progress::wait::{
    CURRENT_CALL, Describe, WaitingFor, set_yields, wait, wait_for_memory, wait_until, yields,
};
pub use protocol::control::ControlMessage;
pub use protocol::deferred::EDGE_MAX_BYTES;
pub use protocol::failure::{failed_wholly, last_failure};
pub use protocol::foreign_members::{add_foreign_members, remove_foreign_members};
