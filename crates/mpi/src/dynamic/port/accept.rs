//! The side that accepts at a port (MPI 5.0 §11.9.2): its root exchanges bytes with the root that
//! connects.

use super::super::{Relation, foreign, make_intercomm};
use super::{Limit, TAG_FIRST, TAG_NEXT, context_of, own_port, waiting_for};
use crate::comm::Comm;
use crate::comm::agree::{receive_found, send};
use crate::device::{self, ContextId, Device, Key, Pattern, Tags};
use crate::{ProcId, Result, err};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Waits at a port of this process until a group connects (MPI_Comm_accept). Collective over
/// `comm`; `name` matters at `root` only.
///
/// Errors: Port if it is no open port of the root, or nobody connects within `timeout`; Comm if a
/// process is in both groups.
pub fn accept(
    name: &str,
    comm: &Arc<Comm>,
    root: u32,
    timeout: Result<Option<Duration>>,
) -> Result<Arc<Comm>> {
    let seconds = timeout.as_ref().ok().copied().flatten();
    let limit = Limit::new(seconds);
    let seconds = seconds.unwrap_or_default().as_secs_f64();
    let timed_out = |d: &mut Device| {
        let late = limit.is_over(d);
        late.then(|| err!(Port, "nobody has connected within {seconds} s, the timeout"))
    };
    let acceptor = Acceptor::new(comm, &timed_out);
    let exchange = |bytes| match acceptor.number.get() {
        None => {
            timeout.clone()?;
            acceptor.exchange_first(own_port(name)?, bytes)
        }
        Some(_) => acceptor.exchange_next(bytes),
    };
    let intercomm = make_intercomm(comm, root, &exchange, true, Relation::AnyJob);
    match &intercomm {
        Ok(intercomm) => acceptor.keep_as_lifeline(intercomm),
        Err(_) => acceptor.disconnect(),
    }
    intercomm
}

/// Waits for processes that `start` starts, at a port that it opens and whose number it returns.
/// `ended` says why they will not come, once that is known. `keeps_connection`: the
/// connection stays, to tell when they have died. Collective as [`accept`].
pub(in crate::dynamic) fn accept_started(
    comm: &Arc<Comm>,
    root: u32,
    start: &dyn Fn() -> Result<u64>,
    ended: &dyn Fn(&mut Device) -> Option<crate::Error>,
    keeps_connection: &dyn Fn() -> bool,
    other_hosts: bool,
) -> Result<Arc<Comm>> {
    let acceptor = Acceptor::new(comm, ended);
    let exchange = |bytes| match acceptor.number.get() {
        None => acceptor.exchange_first(start()?, bytes),
        Some(_) => acceptor.exchange_next(bytes),
    };
    let intercomm = make_intercomm(comm, root, &exchange, other_hosts, Relation::Children);
    match &intercomm {
        Ok(intercomm) if keeps_connection() => acceptor.keep_as_lifeline(intercomm),
        _ => acceptor.disconnect(),
    }
    intercomm
}

/// A connection at a port, at the root that accepts.
struct Acceptor<'a> {
    comm: &'a Comm,
    /// Says why no root will connect, once that is known.
    ended: &'a dyn Fn(&mut Device) -> Option<crate::Error>,
    /// The context of the port's messages.
    context: Cell<ContextId>,
    /// The connecting root's number in the link, once it has connected.
    number: Cell<Option<u32>>,
    /// The connecting root.
    process: Cell<ProcId>,
}

impl<'a> Acceptor<'a> {
    fn new(comm: &'a Comm, ended: &'a dyn Fn(&mut Device) -> Option<crate::Error>) -> Acceptor<'a> {
        Acceptor {
            comm,
            ended,
            context: Cell::new(ContextId::WORLD),
            number: Cell::new(None),
            process: Cell::new(0),
        }
    }

    /// Waits until a root connects, and exchanges the first bytes with it.
    fn exchange_first(&self, port: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.context.set(context_of(port));
        loop {
            let (theirs, number, process) = self.receive(None, TAG_FIRST)?;
            // One that has given up leaves its message behind.
            if device::device().has_left(process) {
                device::device().remove_foreign(process);
                continue;
            }
            self.number.set(Some(number));
            self.process.set(process);
            self.send(TAG_FIRST, bytes)?;
            return Ok(theirs);
        }
    }

    /// Exchanges further bytes with the connected root.
    fn exchange_next(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.send(TAG_NEXT, bytes)?;
        self.receive(self.number.get(), TAG_NEXT).map(|(b, _, _)| b)
    }

    /// Sends to the connected root.
    fn send(&self, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let key = Key {
            context: self.context.get(),
            source: self.number.get().unwrap_or(0),
            tag,
        };
        send(self.process.get(), key, bytes)
    }

    /// Receives from the root of this number, or from the first that connects. Returns the bytes,
    /// the root's number in the link and its process number.
    fn receive(&self, number: Option<u32>, tag: u32) -> Result<(Vec<u8>, u32, ProcId)> {
        let pattern = Pattern {
            context: self.context.get(),
            source: number,
            tag: Tags::one(tag),
        };
        let what = waiting_for(self.comm);
        let (mut found, mut from, mut why) = (None, 0, None);
        device::wait_until(&what, |d| {
            found = d.matched_probe(&pattern);
            if let Some((message, _)) = found {
                from = d.sender_of(message).unwrap_or(0);
                return true;
            }
            if number.is_some() && d.has_left(self.process.get()) {
                let cause = device::last_failure().unwrap_or_else(|| "it has left".into());
                why = Some(err!(Port, "the group that connected is gone: {cause}"));
            }
            why = why.take().or_else(|| (self.ended)(d));
            why.is_some() || device::failed_wholly()
        });
        let Some((message, envelope)) = found else {
            let cause = || err!(Other, "{}", device::last_failure().unwrap_or_default());
            return Err(why.unwrap_or_else(cause));
        };
        let bytes = receive_found(message, envelope.len, from, &what)?;
        Ok((bytes, envelope.source, from))
    }

    /// Keeps the connection as a lifeline: it breaks when the other job dies.
    fn keep_as_lifeline(&self, intercomm: &Comm) {
        match (foreign::job_of_others(intercomm), self.number.get()) {
            // No link of this number: that of the port stays.
            (Some(job), Some(_)) => foreign::add_lifeline(job, self.process.get(), 0),
            _ => self.disconnect(),
        }
    }

    /// Ends the connection, if there is one.
    fn disconnect(&self) {
        if self.number.get().is_some() {
            device::device().remove_foreign(self.process.get());
        }
    }
}
