//! Ports (MPI 5.0 §11.9.2): a process listens for one, and whoever has its name can connect.
//!
//! A port's name holds the business card of its process and a ticket, a random key. The handshake
//! of a connection is made by this key, so that nobody without the name gets an answer. The ticket
//! holds until the port is closed.
//!
//! - here: opening and closing
//! - `name`: the names of ports
//! - `accept`, `connect`: the two sides of a connection

mod accept;
mod connect;
mod name;

pub use accept::accept;
pub(super) use accept::accept_started;
pub use connect::connect;
pub(super) use connect::connect_started;

use super::{foreign, host_number, open_connections};
use crate::comm::Comm;
use crate::comm::agree::{receive_found, send};
use crate::device::{self, ContextId, Device, Key, Link, Pattern, Tags, WaitingFor};
use crate::process::process;
use crate::{Result, err};
use name::PortName;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tag of the first message in each direction.
const TAG_FIRST: u32 = 0;
/// Tag of the further messages.
const TAG_NEXT: u32 = 1;
/// Tag of the message that a port is closed.
const TAG_CLOSED: u32 = 2;

/// The ports that this process has opened.
static PORTS: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

fn ports() -> MutexGuard<'static, Option<HashSet<u64>>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a port (MPI_Open_port), and returns its name. `other_hosts`: processes of other hosts can
/// connect.
///
/// Errors: this process cannot be connected to.
pub fn open(other_hosts: bool) -> Result<String> {
    let card = open_connections(other_hosts)?;
    let key = ferry_job::new_key().map_err(|e| err!(Port, "no ticket can be made: {e}"))?;
    let id = foreign::random();
    device::device().add_link(&Link {
        id,
        wire: id,
        key,
        number: 0,
        encrypt: true,
        is_port: true,
    });
    ports().get_or_insert_default().insert(id);
    let name = PortName {
        id,
        key,
        host: host_number(),
        job: process().rank_info.job,
        card,
    };
    Ok(name.encode())
}

/// Closes a port (MPI_Close_port). Processes that wait at it get an error.
///
/// Errors: Port if this process has not opened it, or has closed it.
pub fn close(name: &str) -> Result<()> {
    close_port(own_port(name)?);
    Ok(())
}

/// Closes all ports. Called when MPI is finalised.
pub(crate) fn close_all() {
    let open = ports().take().unwrap_or_default();
    for port in open {
        close_port(port);
    }
}

/// Closes a port: whoever waits at it gets an answer, and the ticket holds no more.
fn close_port(id: u64) {
    if let Some(ports) = ports().as_mut() {
        ports.remove(&id);
    }
    let context = context_of(id);
    let any = Pattern {
        context,
        source: None,
        tag: Tags::ANY,
    };
    let waiting = |d: &mut Device| {
        let (message, envelope) = d.matched_probe(&any)?;
        let from = d.sender_of(message)?;
        Some((message, envelope, from))
    };
    loop {
        let found = waiting(&mut device::device());
        let Some((message, envelope, from)) = found else {
            break;
        };
        let _ = receive_found(message, envelope.len, from, &WaitingFor::SEVERAL);
        let key = Key {
            context,
            source: envelope.source,
            tag: TAG_CLOSED,
        };
        let _ = send(from, key, Vec::new());
    }
    let mut d = device::device();
    for process in d.processes_of(id) {
        // One by which a group has connected here stays.
        if !foreign::is_lifeline(process) {
            d.remove_foreign(process);
        }
    }
    d.remove_link(id);
}

/// The number of the port of this name, which this process has open.
///
/// Errors: Port if it has not.
pub(super) fn own_port(name: &str) -> Result<u64> {
    let id = PortName::parse(name)?.id;
    is_own(id).then_some(id).ok_or_else(|| {
        err!(
            Port,
            "the port was not opened by this process, or is closed"
        )
    })
}

/// Has this process the port open?
fn is_own(id: u64) -> bool {
    ports().as_ref().is_some_and(|ports| ports.contains(&id))
}

/// The context of messages by this port.
fn context_of(id: u64) -> ContextId {
    ContextId::random(id | 1 << 62)
}

/// Until when a call waits. `None`: for ever.
struct Limit(Option<Instant>);

impl Limit {
    fn new(timeout: Option<Duration>) -> Limit {
        Limit(timeout.map(|timeout| Instant::now() + timeout))
    }

    /// Is there no limit?
    fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Has the time passed? If not, the waiting thread looks again when it has.
    fn is_over(&self, d: &mut Device) -> bool {
        let Some(end) = self.0 else { return false };
        let left = end.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            d.sleep_at_most(left);
        }
        left.is_zero()
    }
}

/// What a root that waits at a port shows in the hang report.
fn waiting_for(comm: &Comm) -> WaitingFor<'_> {
    WaitingFor {
        context: comm.context,
        peer: ferry_job::PEER_AT_PORT,
        tag: -1,
        details: Some(comm),
    }
}
