//! Blocking collectives that return early, behind guards ("T-NBC", Chinese Journal of Computers,
//! 2011).
//!
//! The schedule that the blocking form runs goes on in the background. What it sends is a copy of
//! the program's send buffer; what it receives lands in the shadow of a guard over the receive
//! buffer, and is put in its place when no step needs it any more. Parts of pages at the buffer's
//! ends are finished before the call returns. Any further call of MPI's first waits for all that
//! goes on ([`settle`]): the device never touches a guarded page.
//!
//! The messages are those of the blocking form, so a rank may overlap a call that another one
//! blocks in. That they do the same is better, but nobody's waiting depends on it.

mod cover;
mod extent;
mod lock;
mod pending;
mod report;
mod said;
mod setting;
mod site;
mod start;
mod store;
mod verdict;
mod work;

pub use pending::{is_pending, settle};
pub use setting::{Mode, own_memory, start, stop};

use crate::coll::executor::{self, Binding, Form, Function, Lasting, Number};
use crate::{Comm, Result, process};
use extent::Extent;
use ferry_schedule::{Collective, Schedule};
use pending::close_late;
use said::{open_span, said, say};
use site::{Choice, Record};
use start::Start;
use std::sync::Arc;
use std::time::Instant;
use verdict::{At, Members};

/// Runs a blocking collective so that its call returns early, if that is wanted and may pay.
/// `None`: run it as ever.
///
/// # Safety
/// As for [`executor::run`].
pub(crate) unsafe fn run(
    what: &Collective<'_>,
    b: &Binding<'_>,
    schedule: impl FnOnce() -> Arc<Schedule>,
) -> Option<Result<()>> {
    let comm = b.comm;
    let mut mode = setting::mode();
    if mode == Mode::Off {
        if comm.plans.overlap() != Some(true) {
            return None;
        }
        mode = setting::begin_late();
        if mode == Mode::Off {
            return None;
        }
    }
    if comm.size() < 2 && !comm.is_inter() {
        return None;
    }
    let least = setting::least(mode);
    if extent::volume(what, comm.peers().size().max(comm.size()))? < least
        || !setting::wanted(comm, mode)
        || b.reduction
            .is_some_and(|(op, _)| op.predefined_kind().is_none())
    {
        return None;
    }
    let schedule = schedule();
    let places = b.places();
    let extent = Extent::of(&schedule, &places)?;
    let bytes: usize = extent
        .send
        .iter()
        .chain(&extent.recv)
        .map(|t| t.bytes.len())
        .sum();
    if (bytes as i64) < least {
        return None;
    }
    let kind = setting::guard()?;
    let begun = Instant::now();
    let site = site::here(what.kind(), bytes);
    let number = Number::next(comm, Function::of(what, Form::Blocking));
    close_late(true);
    say(&site::hear(said()));
    let choice = site::choose(site, mode, extent.apart, at(comm, number), members(comm));
    if choice == Choice::Block || (choice == Choice::Trace && !extent.apart) {
        // SAFETY: the caller's promise.
        let result = unsafe { executor::run(&schedule, b, number) };
        open_span(Record::blocking(site, begun, bytes));
        return Some(result);
    }
    let start = Start {
        lasting: Lasting::new(schedule, b, number),
        extent,
        kind,
        site,
        begun,
        bytes,
        root: b.root,
    };
    Some(if choice == Choice::Trace {
        // SAFETY: the caller's promise.
        unsafe { start.traced(b) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { start.overlapped(b) }
    })
}

/// By what others name this call.
fn at(comm: &Comm, number: Number) -> At {
    At {
        context: comm.context.0,
        number: number.in_comm(),
    }
}

/// The two sides of an intercommunicator do not decide together.
fn members(comm: &Comm) -> Members {
    Members {
        me: process::process().me,
        first: (!comm.is_inter()).then(|| comm.peer(0)),
        count: comm.size() as usize,
    }
}
