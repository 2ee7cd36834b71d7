//! Transparent overlap: blocking collectives that return early, behind page guards ("T-NBC",
//! Chinese Journal of Computers, 2011).
//!
//! ```text
//! run ─┬─ setting                          FERRY_OVERLAP and its kin
//!      ├─ site ── verdict ── report_exchange  which call sites overlap; all ranks decide
//!      └─ start ─┬─ buffer_access          which memory the schedule uses
//!                ├─ guarded_pages          pages whose bytes have not arrived
//!                ├─ send_copy              copies of what is sent
//!                └─ background_work        what continues after the call
//! pending ───────┘                         what the next call waits for
//! ```
//!
//! The schedule of the blocking form continues in the background. It sends a copy of the program's
//! send buffer. It receives into the shadow of a page guard over the receive buffer. The bytes are
//! moved into the buffer when no step needs them any more. Parts of pages at the buffer's ends are
//! finished before the call returns. The next call of MPI first waits for pending collectives
//! ([`complete_pending`]), so the device never touches a guarded page.
//!
//! The messages are those of the blocking form. So a rank may overlap a call in which another one
//! blocks. It is better if all do the same, but no rank waits for that.

mod background_work;
mod buffer_access;
mod guarded_pages;
mod lock;
mod pending;
mod report_exchange;
mod send_copy;
mod setting;
mod site;
mod site_report;
mod start;
mod verdict;

pub use pending::{complete_pending, is_pending};
pub use setting::{Mode, separates_memory, start, stop};

use crate::coll::executor::{self, BoundSchedule, CollArgs, CollTag, Form, Function};
use crate::{Comm, Op, Result, process};
use buffer_access::BufferAccess;
use ferry_schedule::{Collective, Schedule};
use pending::close_late;
use report_exchange::{open_span, receive_reports, send_reports};
use site::{Choice, Record};
use start::OverlapStart;
use std::sync::Arc;
use std::time::Instant;
use verdict::{CallId, Members};

/// Runs a blocking collective so that its call returns early, if the settings allow it and it may
/// pay. `None`: the caller runs it.
///
/// # Safety
/// As for [`executor::run`].
pub(crate) unsafe fn run(
    collective: &Collective<'_>,
    b: &CollArgs<'_>,
    schedule: impl FnOnce() -> Arc<Schedule>,
) -> Option<Result<()>> {
    let comm = b.comm;
    let mode = mode_for(comm)?;
    if !may_pay(collective, b, mode) {
        return None;
    }
    let schedule = schedule();
    let buffers = b.buffers();
    let accesses = BufferAccess::of(&schedule, &buffers)?;
    let bytes: usize = accesses
        .send
        .iter()
        .chain(&accesses.recv)
        .map(|t| t.bytes.len())
        .sum();
    if (bytes as i64) < setting::min_bytes(mode) {
        return None;
    }
    let kind = setting::guard_kind()?;
    let begun = Instant::now();
    let site = site::current(collective.kind(), bytes);
    let tag = CollTag::next(comm, Function::of(collective, Form::Blocking), b.root);
    close_late(true);
    send_reports(&site::add_reports(receive_reports()));
    let choice = site::choose(
        site,
        mode,
        accesses.independent,
        call_id(comm, tag),
        members(comm),
    );
    if choice == Choice::Block || (choice == Choice::Trace && !accesses.independent) {
        // SAFETY: the caller's promise.
        let result = unsafe { executor::run(&schedule, b, tag) };
        open_span(Record::blocking(site, begun, bytes));
        return Some(result);
    }
    let start = OverlapStart {
        bound: BoundSchedule::new(schedule, b, tag),
        accesses,
        kind,
        site,
        begun,
        bytes,
        root: b.root,
    };
    Some(if choice == Choice::Trace {
        // SAFETY: the caller's promise.
        unsafe { start.run_traced(b) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { start.run_overlapped(b) }
    })
}

/// The mode that holds for a communicator. `None`: its collectives do not overlap.
#[inline]
fn mode_for(comm: &Comm) -> Option<Mode> {
    let mode = match setting::mode() {
        Mode::Off if comm.coll.overlap() == Some(true) => setting::start_late(),
        mode => mode,
    };
    (mode != Mode::Off).then_some(mode)
}

/// May a collective pay that returns early, as far as its arguments tell?
fn may_pay(collective: &Collective<'_>, b: &CollArgs<'_>, mode: Mode) -> bool {
    let comm = b.comm;
    if comm.size() < 2 && !comm.is_inter() {
        return false;
    }
    let ranks = comm.remote_group().size().max(comm.size());
    let Some(moved) = buffer_access::moved_bytes(collective, ranks) else {
        return false;
    };
    let is_predefined = |op: &Op| op.predefined_kind().is_some();
    moved >= setting::min_bytes(mode)
        && setting::is_wanted(comm, mode)
        && b.reduction.is_none_or(|(op, _)| is_predefined(op))
}

/// The call, as all ranks name it.
fn call_id(comm: &Comm, tag: CollTag) -> CallId {
    CallId {
        context: comm.context.0,
        number: tag.sequence(),
    }
}

/// The members that decide together. The two sides of an intercommunicator do not.
fn members(comm: &Comm) -> Members {
    Members {
        me: process::process().me,
        first: (!comm.is_inter()).then(|| comm.peer(0)),
        count: comm.size() as usize,
    }
}
