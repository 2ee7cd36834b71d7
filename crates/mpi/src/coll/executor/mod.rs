//! The executor: runs a schedule on the device, at once or in the background.
//!
//! ```text
//! run ─────────┬─ memory ── view, tmp_buffer   where a schedule's pieces are
//! background ──┤                               a run that its request and the device share
//! request_cache┘─ message ── tag ── signature  keys of messages, and their check
//! ```

mod background;
mod bound_schedule;
mod counters;
mod hang_description;
mod in_flight;
mod memory;
mod message;
mod request_cache;
mod run;
mod signature;
mod tag;
mod tmp_buffer;
mod unreceived;
mod view;

pub(crate) use background::BackgroundRun;
pub(crate) use bound_schedule::BoundSchedule;
pub use counters::{COUNTERS, Counters};
pub(crate) use hang_description::HangDescription;
pub(crate) use memory::{Buffers, Memory};
pub(crate) use message::{check_message, mismatch, process_of};
pub(crate) use request_cache::{CallToCache, Operation, RequestCache};
pub(crate) use run::{EdgeLengths, Run, RunState, WorkPolicy, run};
pub(crate) use signature::{Form, Function, NEW_WINDOW, Name, Signature, root_bits};
pub(crate) use tag::{CollTag, History};
pub(crate) use tmp_buffer::TmpBuffer;
pub(crate) use unreceived::{call_ahead, error_at_board, has_peer_given_up, unreceived_error};
pub use view::{Block, View};

use crate::{Comm, Datatype, Op};
use std::sync::Arc;

/// The arguments of a collective call: communicator, buffers, reduction (UCC: `ucc_coll_args_t`).
#[derive(Clone, Copy)]
pub(crate) struct CollArgs<'a> {
    pub(crate) comm: &'a Arc<Comm>,
    pub(crate) send: View<'a>,
    pub(crate) recv: View<'a>,
    /// The operation and the datatype of a reduction.
    pub(crate) reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
    /// The root's rank; -1: none.
    pub(crate) root: i32,
}

impl<'a> CollArgs<'a> {
    /// The buffers of the call.
    pub(crate) fn buffers(&self) -> Buffers<'a> {
        Buffers {
            send: self.send,
            recv: self.recv,
            element: self.reduction.map(|r| r.1),
        }
    }
}

#[cfg(test)]
mod tests;
