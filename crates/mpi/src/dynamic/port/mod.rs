//! Ports (MPI 5.0 §11.9.2): a process listens for one, and whoever has its name can connect.
//!
//! A port's name holds the business card of its process and a ticket, a random key. The handshake
//! of a connection is made by this key, so that nobody without the name gets an answer. The ticket
//! holds until the port is closed.

use super::base64::{from_base64, to_base64};
use super::{With, host_number, intercomm_by, open_connections, universe};
use crate::comm::Comm;
use crate::comm::agree::{receive_found, send};
use crate::device::{
    self, ContextId, Device, ForeignProcess, Key, Link, Pattern, Tags, WaitingFor,
};
use crate::process::process;
use crate::{ProcId, Result, err};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What every name of a port begins with: program and version.
const PREFIX: &str = "ferry2:";
/// Tag of what both roots say first.
const TAG_FIRST: u32 = 0;
/// Tag of what they say then.
const TAG_NEXT: u32 = 1;
/// Tag of the message that a port is closed.
const TAG_CLOSED: u32 = 2;

/// The ports that this process has opened.
static PORTS: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

fn ports() -> MutexGuard<'static, Option<HashSet<u64>>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a port's name says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PortName {
    /// The port's random number.
    id: u64,
    /// The ticket.
    key: [u8; 32],
    /// The number of its host.
    host: u64,
    /// Its job.
    job: u64,
    /// The business card of its process.
    card: Vec<u8>,
}

impl PortName {
    fn encode(&self) -> String {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.extend(self.key);
        bytes.extend(self.host.to_le_bytes());
        bytes.extend(self.job.to_le_bytes());
        bytes.extend(&self.card);
        format!("{PREFIX}{}", to_base64(&bytes))
    }

    /// Errors: Port if it is no name of a port.
    fn parse(name: &str) -> Result<PortName> {
        let wrong = || {
            err!(
                Port,
                "{name:?} is no name that MPI_Open_port of Ferry has given"
            )
        };
        let bytes = name.trim().strip_prefix(PREFIX).and_then(from_base64);
        let bytes = bytes.ok_or_else(wrong)?;
        let (id, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
        let (key, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (host, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (job, card) = rest.split_first_chunk().ok_or_else(wrong)?;
        Ok(PortName {
            id: u64::from_le_bytes(*id),
            key: *key,
            host: u64::from_le_bytes(*host),
            job: u64::from_le_bytes(*job),
            card: card.to_vec(),
        })
    }

    /// Is its process one of this job, or of one that this process knows?
    fn is_known(&self) -> bool {
        let own = process().rank_info.job;
        own != 0 && self.job == own || universe::knows_job(self.job)
    }

    /// Is its process on this host?
    fn is_here(&self) -> bool {
        self.host == host_number()
    }

    /// The context of messages by this port.
    fn context(id: u64) -> ContextId {
        ContextId::random(id | 1 << 62)
    }
}

/// Opens a port (MPI_Open_port). `outside`: processes of other hosts can connect. Returns its name.
///
/// Errors: this process cannot be connected to.
pub fn open(outside: bool) -> Result<String> {
    let card = open_connections(outside)?;
    let key = ferry_job::new_key().map_err(|e| err!(Port, "no ticket can be made: {e}"))?;
    let id = universe::random();
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

fn close_port(id: u64) {
    if let Some(ports) = ports().as_mut() {
        ports.remove(&id);
    }
    let context = PortName::context(id);
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
        // One that has met a group here stays connected.
        if !universe::is_lifeline(process) {
            d.remove_foreign(process);
        }
    }
    d.remove_link(id);
}

/// The number of a port that this process has open.
fn own_port(name: &str) -> Result<u64> {
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

/// Waits at a port of this process's for a group to connect (MPI_Comm_accept). Collective over
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
    let limit = Limit::new(*timeout.as_ref().unwrap_or(&None));
    let nothing = |d: &mut Device| {
        let late = limit.is_over(d);
        late.then(|| err!(Port, "nobody has connected within the timeout"))
    };
    let visit = Visit::new(comm, &nothing);
    let talk = |bytes| match visit.number.get() {
        None => {
            timeout.clone()?;
            visit.first(own_port(name)?, bytes)
        }
        Some(_) => visit.next(bytes),
    };
    let met = intercomm_by(comm, root, &talk, true, With::Anyone);
    match &met {
        Ok(met) => visit.stay(met),
        Err(_) => visit.end(),
    }
    met
}

/// Waits for processes that `start` starts, at a port that it opens and whose number it returns.
/// `ended` says why they will not come, once that is known. `stays`: the connection stays, to tell
/// when they have died. Collective as [`accept`].
pub(super) fn accept_started(
    comm: &Arc<Comm>,
    root: u32,
    start: &dyn Fn() -> Result<u64>,
    ended: &dyn Fn(&mut Device) -> Option<crate::Error>,
    stays: &dyn Fn() -> bool,
    outside: bool,
) -> Result<Arc<Comm>> {
    let visit = Visit::new(comm, ended);
    let talk = |bytes| match visit.number.get() {
        None => visit.first(start()?, bytes),
        Some(_) => visit.next(bytes),
    };
    let met = intercomm_by(comm, root, &talk, outside, With::Children);
    match &met {
        Ok(met) if stays() => visit.stay(met),
        _ => visit.end(),
    }
    met
}

/// The number of the port of this name, which this process has open.
pub(super) fn number_of(name: &str) -> Result<u64> {
    own_port(name)
}

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
    let forever = limit.as_ref().is_ok_and(|limit| limit.0.is_none());
    // A job that sleeps until a time limit does not hang, even if nobody else can come.
    let with = match PortName::parse(name) {
        Ok(port) if port.is_known() && forever => With::Known,
        _ => With::Anyone,
    };
    connect_by(name, comm, root, true, limit, with)
}

/// Connects to the port at which the process waits that has started this job.
pub(super) fn connect_started(name: &str, world: &Arc<Comm>) -> Result<Arc<Comm>> {
    // Where the parent or others are on another host, so are addresses of this job's.
    let outside = !PortName::parse(name)?.is_here() || process().rank_info.nodes.len() > 1;
    let forever = Ok(Limit::new(None));
    connect_by(name, world, 0, outside, forever, With::Parents)
}

fn connect_by(
    name: &str,
    comm: &Arc<Comm>,
    root: u32,
    outside: bool,
    limit: Result<Limit>,
    with: With,
) -> Result<Arc<Comm>> {
    let call: Cell<Option<Call<'_>>> = Cell::new(None);
    let talk = |bytes| {
        let (call_now, tag) = match call.get() {
            None => (Call::begin(name, comm)?, TAG_FIRST),
            Some(begun) => (begun, TAG_NEXT),
        };
        call.set(Some(call_now));
        call_now.exchange(tag, bytes, limit.as_ref().map_err(|e| e.clone())?)
    };
    let met = intercomm_by(comm, root, &talk, outside, with);
    match (call.get(), &met) {
        (Some(call), Ok(met)) => call.stay(met),
        (Some(call), Err(_)) => call.end(),
        _ => {}
    }
    met
}

/// Until when a call waits.
struct Limit(Option<Instant>);

impl Limit {
    fn new(timeout: Option<Duration>) -> Limit {
        Limit(timeout.map(|timeout| Instant::now() + timeout))
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

/// A connection to a port, at the root that connects.
#[derive(Clone, Copy)]
struct Call<'a> {
    comm: &'a Comm,
    link: u64,
    context: ContextId,
    /// This process's number in the link.
    number: u32,
    /// The port's process.
    process: ProcId,
}

impl<'a> Call<'a> {
    fn begin(name: &str, comm: &'a Comm) -> Result<Call<'a>> {
        let port = PortName::parse(name)?;
        if is_own(port.id) {
            return Err(err!(
                Comm,
                "this process has opened the port: it cannot be in both groups"
            ));
        }
        let (link, number) = (universe::random(), universe::random() as u32 >> 1 | 1);
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
        Ok(Call {
            comm,
            link,
            context: PortName::context(port.id),
            number,
            process: process.ok_or_else(|| err!(Intern, "there are no connections"))?,
        })
    }

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

    /// The connection stays, to tell when the other job has died.
    fn stay(&self, met: &Comm) {
        match universe::job_of_others(met) {
            Some(job) => universe::add_lifeline(job, self.process, self.link),
            None => self.end(),
        }
    }

    fn end(&self) {
        let mut d = device::device();
        d.remove_foreign(self.process);
        d.remove_link(self.link);
    }
}

fn waiting_for(comm: &Comm) -> WaitingFor<'_> {
    WaitingFor {
        context: comm.context,
        peer: ferry_job::PEER_AT_PORT,
        tag: -1,
        details: Some(comm),
    }
}

/// A connection at a port, at the root that accepts.
struct Visit<'a> {
    comm: &'a Comm,
    /// Says why nobody will come.
    ended: &'a dyn Fn(&mut Device) -> Option<crate::Error>,
    context: Cell<ContextId>,
    /// The visitor's number in the link, once there is one.
    number: Cell<Option<u32>>,
    process: Cell<ProcId>,
}

impl<'a> Visit<'a> {
    fn new(comm: &'a Comm, ended: &'a dyn Fn(&mut Device) -> Option<crate::Error>) -> Visit<'a> {
        Visit {
            comm,
            ended,
            context: Cell::new(ContextId::WORLD),
            number: Cell::new(None),
            process: Cell::new(0),
        }
    }

    /// Waits for a visitor, and exchanges the first bytes with it.
    fn first(&self, port: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.context.set(PortName::context(port));
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

    /// Exchanges further bytes with the visitor.
    fn next(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.send(TAG_NEXT, bytes)?;
        self.receive(self.number.get(), TAG_NEXT).map(|(b, _, _)| b)
    }

    fn send(&self, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let key = Key {
            context: self.context.get(),
            source: self.number.get().unwrap_or(0),
            tag,
        };
        send(self.process.get(), key, bytes)
    }

    /// Receives from visitor `number`, or from the first that comes.
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

    /// The connection stays, to tell when the other job has died.
    fn stay(&self, met: &Comm) {
        match (universe::job_of_others(met), self.number.get()) {
            // No link of this number: that of the port stays.
            (Some(job), Some(_)) => universe::add_lifeline(job, self.process.get(), 0),
            _ => self.end(),
        }
    }

    fn end(&self) {
        if self.number.get().is_some() {
            device::device().remove_foreign(self.process.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports_come_back() {
        for len in [0, 1, 2, 3, 300] {
            let name = PortName {
                id: 0x1234_5678_9abc_def0,
                key: std::array::from_fn(|i| i as u8),
                host: 77,
                job: 78,
                card: (0..len).map(|i| (i * 7) as u8).collect(),
            };
            let text = name.encode();
            assert!(text.bytes().all(|b| b.is_ascii_graphic()));
            assert_eq!(PortName::parse(&text).unwrap(), name);
        }
        for wrong in ["", "ferry2:", "ferry2:AAAA", "tcp://here", "ferry2:$$$$"] {
            assert!(PortName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fuzz_names_of_ports() {
        let good = PortName {
            id: 1,
            key: [2; 32],
            host: 3,
            job: 4,
            card: vec![4; 20],
        };
        let seeds = [good.encode().into_bytes()];
        ferry_fuzz::fuzz("names of ports", &seeds, |bytes| {
            PortName::parse(&String::from_utf8_lossy(bytes)).is_ok()
        });
    }
}
