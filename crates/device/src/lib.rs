//! What MPICH calls the ADI: virtual connections, matching by key and pattern, posted and
//! unexpected queues, eager and rendezvous, the progress engine, and waiting without burning a
//! core.
//!
//! The device knows processes ([`ProcId`]), match keys and bytes; it never hears of communicators
//! or datatypes.

mod asking;
mod at_once;
mod buffer;
mod card;
mod copying;
mod core;
mod count;
mod engine;
mod held;
mod key;
mod lending;
mod lock;
mod loss;
mod matcher;
mod meeting;
mod note;
mod outgoing;
mod place;
mod polling;
mod progress;
mod request;
mod round;
mod scattered;
mod stream;
mod turns;
mod virtual_time;
mod waiting;
mod wire;

/// What `tests/loom.rs` replaces.
mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

pub use buffer::{Layout, Sink, Source};
pub use core::{Background, Capabilities, Device, SendMode, Unreceived};
pub use count::{COUNTERS, Count, Counters, Traffic, WAYS};
pub use ferry_transport::connected::REFUSED;
pub use ferry_transport::model::{is_modelled, virtual_time};
pub use ferry_transport::shm::{READ_MIN_ADAPTIVE, read_min, set_read_min};
pub use held::END_MAX;
pub use key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
pub use lock::{DeviceGuard, allow_progress, device, finish, is_alone, start};
pub use loss::trouble;
pub use meeting::{Meeting, SLOT_MAX_BYTES};
pub use note::Note;
pub use place::leave_in_turn;
pub use polling::ask;
pub use progress::{has_progress_thread, poke, start_progress, stop_progress};
pub use request::{Completion, Fault, ReqId};
pub use round::{MARK_BITS, POST_MAX_BYTES, Round};
pub use waiting::{CALL, Describe, WaitingFor, set_yields, wait, wait_until, yields};
