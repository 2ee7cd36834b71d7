//! One-sided operations by packets, where memory is not reached directly.
//!
//! ```text
//! packets          the wire format
//! pending          what is under way to one target
//! operations       the origin's puts, gets and accumulates become records and messages
//! synchronisation  its flushes, locks and completes
//! card             or they go by a modelled card; notifications: which has doorbells
//! service          the target's side: packets that arrive, when the device makes progress
//! serve            its requests, record by record
//! responses        what goes back to one origin
//! ```
//!
//! Many operations to one target travel as one packet, an active message. More than a few KiB of
//! data go as a message that is matched in the window's own context, from and to the buffers
//! themselves. A flush is one record, and one acknowledgement answers for all before it.

mod card;
mod notifications;
mod operations;
mod packets;
mod pending;
mod responses;
mod serve;
mod service;
mod synchronisation;

pub(super) use notifications::{NO_SLOT, Slot, free_slot, taken};
pub(super) use operations::{accumulate, transfer};
pub(super) use pending::Pending;
pub(super) use service::{State, post, register, take_post, unregister};
pub(super) use synchronisation::{
    await_locks, await_own_lock, complete, flush, flush_all, flush_local, flush_local_all,
    lock_target, unlock, unlock_all,
};

use crate::Op;
use std::sync::Arc;

/// Bits of the number of a message with data.
const NUMBER_MASK: u32 = (1 << 30) - 1;
/// Set in the number of a message that answers a get.
const GET_NUMBER: u32 = 1 << 30;

/// The operation of an accumulate.
#[derive(Clone, Copy)]
pub(super) enum Update<'a> {
    /// `target = origin op target`.
    Op(&'a Arc<Op>),
    /// MPI_Compare_and_swap with this value.
    CompareAndSwap(*const u8),
}
