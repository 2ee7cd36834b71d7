//! The side that connects to a port (MPI 5.0 §11.9.2): its root exchanges bytes with the root that
//! accepts.

use super::super::{Relation, foreign, host_number, make_intercomm};
use super::name::PortName;
use super::{Limit, TAG_CLOSED, TAG_FIRST, TAG_NEXT, context_of, is_own, waiting_for};
use crate::comm::Comm;
use crate::comm::agree::{receive_found, send};
use crate::device::{self, ContextId, ForeignProcess, Key, Link, Pattern, Tags};
use crate::process::process;
use crate::{ProcId, Result, err};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Connects to a port (MPI_Comm_connect). Blocks until a group accepts there. Collective over
/// `comm`; `name` matters at `root` only.
///
/// Errors: Port if it is no port's name, the port is closed, its process cannot be reached, or no
/// group accepts within `timeout`; Comm if a process is in both groups.
pub fn connect(
    name: &str,
    comm: &Arc<Comm>,
    root: u32,
    timeout: Result<Option<Duration>>,
) -> Result<Arc<Comm>> {
    let limit = timeout.map(Limit::new);
    let forever = limit.as_ref().is_ok_and(|limit| limit.is_none());
    // A job that sleeps until a time limit does not hang, even if nobody else can come.
    let relation = match PortName::parse(name) {
        Ok(port) if port.is_known() && forever => Relation::KnownJob,
        _ => Relation::AnyJob,
    };
    connect_by(name, comm, root, true, limit, relation)
}

/// Connects to the port at which the process waits that has started this job.
pub(in crate::dynamic) fn connect_started(name: &str, world: &Arc<Comm>) -> Result<Arc<Comm>> {
    // Where the parent or others are on another host, so are addresses of this job's.
    let other_hosts = !PortName::parse(name)?.is_here() || process().rank_info.nodes.len() > 1;
    let forever = Ok(Limit::new(None));
    connect_by(name, world, 0, other_hosts, forever, Relation::Parents)
}

/// Connects `comm`'s group to the port of this name. `limit`: until when it waits.
fn connect_by(
    name: &str,
    comm: &Arc<Comm>,
    root: u32,
    other_hosts: bool,
    limit: Result<Limit>,
    relation: Relation,
) -> Result<Arc<Comm>> {
    let connector: Cell<Option<Connector<'_>>> = Cell::new(None);
    let exchange = |bytes| {
        let (now, tag) = match connector.get() {
            None => (Connector::begin(name, comm)?, TAG_FIRST),
            Some(begun) => (begun, TAG_NEXT),
        };
        connector.set(Some(now));
        now.exchange(tag, bytes, limit.as_ref().map_err(|e| e.clone())?)
    };
    let intercomm = make_intercomm(comm, root, &exchange, other_hosts, relation);
    match (connector.get(), &intercomm) {
        (Some(begun), Ok(intercomm)) => begun.keep_as_lifeline(intercomm),
        (Some(begun), Err(_)) => begun.disconnect(),
        _ => {}
    }
    intercomm
}

/// A connection to a port, at the root that connects.
#[derive(Clone, Copy)]
struct Connector<'a> {
    comm: &'a Comm,
    /// The link that this side has made, by the port's key.
    link: u64,
    /// The context of the port's messages.
    context: ContextId,
    /// This process's number in the link.
    number: u32,
    /// The port's process.
    process: ProcId,
}

impl<'a> Connector<'a> {
    /// Makes the port's process known, so that messages to it open a connection.
    fn begin(name: &str, comm: &'a Comm) -> Result<Connector<'a>> {
        let port = PortName::parse(name)?;
        if is_own(port.id) {
            return Err(err!(
                Comm,
                "this process has opened the port: it cannot be in both groups"
            ));
        }
        let (link, number) = (foreign::random(), foreign::random() as u32 >> 1 | 1);
        let mut d = device::device();
        d.add_link(&Link {
            id: link,
            wire: port.id,
            key: port.key,
            number,
            encrypt: true,
            is_port: false,
        });
        let process = d.add_foreign(ForeignProcess {
            link,
            number: 0,
            card: port.card,
            same_host: port.host == host_number(),
            host: "of the port".into(),
        });
        Ok(Connector {
            comm,
            link,
            context: context_of(port.id),
            number,
            process: process.ok_or_else(|| err!(Intern, "there are no connections"))?,
        })
    }

    /// Sends bytes to the root at the port and receives those that it sends. Blocks; the first time
    /// until a group accepts or `limit` is over.
    fn exchange(&self, tag: u32, bytes: Vec<u8>, limit: &Limit) -> Result<Vec<u8>> {
        let key = Key {
            context: self.context,
            source: self.number,
            tag,
        };
        send(self.process, key, bytes)?;
        let pattern = |tag| Pattern {
            context: self.context,
            source: Some(self.number),
            tag: Tags::one(tag),
        };
        let what = waiting_for(self.comm);
        let (mut found, mut closed, mut late) = (None, false, false);
        device::wait_until(&what, |d| {
            found = d.matched_probe(&pattern(tag));
            closed = d.probe(&pattern(TAG_CLOSED)).is_some() || d.has_left(self.process);
            // Once a group has accepted, it is only a matter of messages.
            late = tag == TAG_FIRST && found.is_none() && limit.is_over(d);
            found.is_some() || closed || late || device::failed_wholly()
        });
        match found {
            Some((message, envelope)) => receive_found(message, envelope.len, self.process, &what),
            None if device::device().is_lost(self.process) => Err(err!(
                Port,
                "the port cannot be reached: {}. Is it closed, or has its process ended?",
                device::last_failure().unwrap_or_default()
            )),
            None if late => Err(err!(
                Port,
                "no group has accepted within the timeout: {}",
                device::last_failure().unwrap_or_else(|| "the port is there".into())
            )),
            None => Err(err!(Port, "the port was closed before a group accepted")),
        }
    }

    /// Keeps the connection as a lifeline: it breaks when the other job dies.
    fn keep_as_lifeline(&self, intercomm: &Comm) {
        match foreign::job_of_others(intercomm) {
            Some(job) => foreign::add_lifeline(job, self.process, self.link),
            None => self.disconnect(),
        }
    }

    /// Ends the connection.
    fn disconnect(&self) {
        let mut d = device::device();
        d.remove_foreign(self.process);
        d.remove_link(self.link);
    }
}
