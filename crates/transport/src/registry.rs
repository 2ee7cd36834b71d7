//! The wires of a process: which there are, and which one leads to whom.

use crate::bell::{self, Bell};
use crate::connected::{self, Connected, Medium};
use crate::model::{self, Model};
use crate::self_loop::SelfLoop;
use crate::shm::{Board, Round, Shm, Waker};
use crate::tcp::{self, Tcp};
use crate::tipc::{self, Tipc};
use crate::{
    Answer, Body, CardMemory, Expected, Features, Fetch, Gone, Inbox, Lends, Parcel, ProcId,
    ReadError, Sleeper, Streamed, Transport, TransportError,
};
use ferry_job::{Directory, Segment, Welcome};
use std::sync::atomic::AtomicU32;

/// What there is to choose from in FERRY_TRANSPORTS; but for the last, which a modelled machine has
/// instead of all others. A process always has the wire to itself.
pub const KNOWN: [&str; 5] = ["self", "shm", "tcp", "tipc", model::NAME];

/// What holds without FERRY_TRANSPORTS, in this order; TIPC only where it joins this node to
/// others.
const USUAL: [&str; 4] = ["self", "shm", "tipc", "tcp"];

/// Which wire leads to a process: not asked for yet, …
const UNKNOWN: u8 = 0;
/// … shared memory, which is called directly, …
const SHM: u8 = 1;
/// … the wire to itself, …
const ITSELF: u8 = 2;
/// … or one of the others, from this number on.
const OTHERS: u8 = 3;

/// Shared memory's place in [`KNOWN`].
const SHM_PLACE: usize = 1;

/// A wire's place in [`KNOWN`].
pub(crate) fn place_of(name: &str) -> usize {
    KNOWN.iter().position(|k| *k == name).unwrap_or(0)
}

/// All wires of this process. The first that reaches a peer carries its messages.
pub struct Wires {
    me: ProcId,
    itself: SelfLoop,
    shm: Option<Shm>,
    others: Vec<Box<dyn Transport>>,
    /// Names in the order in which they are asked.
    order: Vec<&'static str>,
    /// By process: which wire leads there. (What is never written costs no memory.)
    routes: Vec<u8>,
    bell: &'static Bell,
    /// The job is on a modelled machine.
    is_virtual: bool,
}

/// The bell of a process that no peer can ring: its own threads do.
static OWN_BELL: AtomicU32 = AtomicU32::new(0);

/// The names in FERRY_TRANSPORTS, in order; none: the choice is Ferry's.
fn asked(list: Option<&str>) -> Result<Vec<&'static str>, TransportError> {
    let mut order = Vec::new();
    for word in list
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        match USUAL.iter().find(|k| **k == word) {
            Some(name) if !order.contains(name) => order.push(*name),
            Some(_) => {}
            None => {
                return Err(TransportError::Setting {
                    name: "FERRY_TRANSPORTS",
                    value: word.into(),
                    wanted: "a list of self, shm, tcp and tipc, separated by commas",
                });
            }
        }
    }
    Ok(order)
}

/// Opens the transports that this process needs, of those in FERRY_TRANSPORTS: one behind whose
/// predecessors no peer is left is not opened. Under a foreign launcher blocks until all ranks have
/// come to this point, unless they are all on this node. `concurrent`: will threads of the program
/// be in MPI at once?
///
/// Errors: a setting makes no sense, or a transport cannot be set up.
pub fn open(
    welcome: &Welcome,
    segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    concurrent: bool,
) -> Result<Wires, TransportError> {
    let list = std::env::var("FERRY_TRANSPORTS").ok();
    let names = asked(list.as_deref())?;
    open_these(&names, welcome, segment, directory, concurrent)
}

fn open_these(
    names: &[&'static str],
    welcome: &Welcome,
    mut segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    concurrent: bool,
) -> Result<Wires, TransportError> {
    let chosen = !names.is_empty();
    let names = if chosen { names } else { &USUAL };
    let mut wires = Wires {
        me: welcome.rank,
        itself: SelfLoop::new(welcome.rank),
        shm: None,
        others: Vec::new(),
        order: vec!["self"],
        routes: vec![UNKNOWN; welcome.size as usize],
        bell: Box::leak(Box::new(Bell::of_word(&OWN_BELL, true))),
        is_virtual: false,
    };
    if let Some(machine) = segment.as_mut().and_then(|s| s.machine.take()) {
        let wire = Model::open(machine, welcome.rank, welcome.size, concurrent)?;
        wires.others.push(Box::new(wire));
        wires.order.push(model::NAME);
        wires.is_virtual = true;
        wires.hang_bell()?;
        return Ok(wires);
    }
    let mut left = welcome.size > 1;
    // All that connect are one wire: by which of them a peer is reached is found when it is called.
    let mut media: Vec<Box<dyn Medium>> = Vec::new();
    let mut timeout = tipc::TIMEOUT;
    for &name in names {
        match name {
            "shm" if left && media.is_empty() && welcome.local_ranks.len() > 1 => {
                let Some(segment) = segment.take() else {
                    continue;
                };
                wires.shm = Some(Shm::open(
                    segment,
                    welcome.local_ranks.clone(),
                    welcome.local_rank as usize,
                    welcome.job,
                    welcome.cores,
                )?);
                left = welcome.local_ranks.len() < welcome.size as usize;
            }
            tcp::NAME if left && directory.is_some() => {
                let settings = tcp::Settings::from_environment()?;
                timeout = settings.timeout;
                match Tcp::listen(welcome, &settings) {
                    Ok(tcp) => media.push(Box::new(tcp)),
                    // Nodes that only TIPC joins have no other address.
                    Err(TransportError::NoAddress(_)) if !chosen && !media.is_empty() => continue,
                    Err(e) => return Err(e),
                }
            }
            tipc::NAME if left && directory.is_some() => {
                let settings = tipc::Settings::from_environment()?;
                match Tipc::listen(welcome, &settings) {
                    Ok(tipc) if chosen || tipc.is_joined() => media.push(Box::new(tipc)),
                    Err(e) if chosen => return Err(e),
                    _ => continue,
                }
            }
            _ => continue,
        }
        wires.order.push(name);
    }
    if let (false, Some(directory)) = (media.is_empty(), directory) {
        let encrypt = connected::encrypt_from_environment()?;
        let wire = Connected::open(welcome, directory, media, timeout, encrypt)?;
        wires.others.push(Box::new(wire));
    }
    wires.hang_bell()?;
    Ok(wires)
}

impl Wires {
    /// Makes what the process's threads sleep on.
    fn hang_bell(&mut self) -> Result<(), TransportError> {
        let mut word = self.shm.as_ref().and_then(|s| s.doorbell());
        if self.is_virtual {
            word = self.others.first().and_then(|w| w.doorbell());
        }
        let word = word.unwrap_or(&OWN_BELL);
        let mut fds = self.others.iter().filter_map(|w| w.sleep_fd()).peekable();
        let bell = if fds.peek().is_some() {
            let name = self.shm.is_some().then(bell::new_name).transpose()?;
            let bell = Bell::with_door(word, name, fds)?;
            if let (Some(shm), Some(name)) = (&mut self.shm, name) {
                shm.sleep_at_door(name);
            }
            bell
        } else {
            Bell::of_word(word, !self.is_virtual)
        };
        self.bell = Box::leak(Box::new(bell));
        Ok(())
    }

    #[cold]
    fn unreachable(&self, peer: ProcId) -> TransportError {
        TransportError::Unreachable {
            peer,
            tried: self.order.join(", "),
        }
    }

    /// Which wire leads to `peer`.
    #[inline]
    fn route(&mut self, peer: ProcId) -> Result<u8, TransportError> {
        match self.routes.get(peer as usize) {
            Some(&route) if route != UNKNOWN => Ok(route),
            _ => self.find_route(peer),
        }
    }

    #[cold]
    fn find_route(&mut self, peer: ProcId) -> Result<u8, TransportError> {
        let mut found = None;
        for &name in &self.order {
            let route = match name {
                "self" => (peer == self.me).then_some(ITSELF),
                "shm" => {
                    let reached = self.shm.as_ref().is_some_and(|s| s.reaches(peer));
                    reached.then_some(SHM)
                }
                _ => {
                    let wire = self.others.iter().position(|w| w.reaches(peer));
                    wire.map(|n| OTHERS + n as u8)
                }
            };
            found = found.or(route);
        }
        match (found, self.routes.get_mut(peer as usize)) {
            (Some(route), Some(slot)) => {
                *slot = route;
                Ok(route)
            }
            _ => Err(self.unreachable(peer)),
        }
    }

    /// Which wire leads to `peer`: its place in [`KNOWN`].
    #[inline]
    pub fn way(&mut self, peer: ProcId) -> usize {
        match self.route(peer) {
            Ok(SHM) => SHM_PLACE,
            Ok(n @ OTHERS..) => place_of(self.others[usize::from(n - OTHERS)].way(peer)),
            _ => 0,
        }
    }

    /// The wire to `peer`.
    fn wire(&mut self, peer: ProcId) -> Result<&mut dyn Transport, TransportError> {
        let route = self.route(peer)?;
        let missing = TransportError::Unreachable {
            peer,
            tried: String::new(),
        };
        match route {
            ITSELF => Ok(&mut self.itself),
            SHM => match &mut self.shm {
                Some(shm) => Ok(shm),
                None => Err(missing),
            },
            n => match self.others.get_mut(usize::from(n - OTHERS)) {
                Some(wire) => Ok(wire.as_mut()),
                None => Err(missing),
            },
        }
    }

    /// What can be done for `peer`.
    #[inline]
    pub fn features(&mut self, peer: ProcId) -> Result<Features, TransportError> {
        match (self.route(peer)?, &self.shm) {
            (SHM, Some(shm)) => Ok(shm.features(peer)),
            _ => Ok(self.wire(peer)?.features(peer)),
        }
    }

    /// [`Transport::piece`] on the wire to `to`.
    pub fn piece(
        &mut self,
        to: ProcId,
        len: usize,
        awaited: bool,
    ) -> Result<usize, TransportError> {
        Ok(self.wire(to)?.piece(to, len, awaited))
    }

    /// [`Transport::cold`] on the wire to `peer`.
    pub fn cold(&mut self, peer: ProcId) -> u64 {
        self.wire(peer).map_or(0, |wire| wire.cold(peer))
    }

    /// [`Transport::send`] on the wire to `to`.
    #[inline]
    pub fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError> {
        match (self.route(to)?, &mut self.shm) {
            (SHM, Some(shm)) => shm.send(to, message, head, body),
            _ => self.wire(to)?.send(to, message, head, body),
        }
    }

    /// [`Transport::stream`] on the wire to `to`.
    pub fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.wire(to)?.stream(to, message, head, body)
    }

    /// [`Transport::lends`] on the wire to `to`.
    pub fn lends(&mut self, to: ProcId) -> Lends {
        self.wire(to).map_or(Lends::Never, |w| w.lends(to))
    }

    /// [`Transport::lend`] on the wire to `to`.
    pub fn lend(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.wire(to)?.lend(to, message, head, body)
    }

    /// [`Transport::send_several`] on the wire to `to`.
    pub fn send_several(
        &mut self,
        to: ProcId,
        parcels: &[Parcel<'_>],
    ) -> Result<Gone, TransportError> {
        self.wire(to)?.send_several(to, parcels)
    }

    /// [`Transport::poll`] on every wire.
    #[inline]
    pub fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let mut delivered = self.itself.poll(inbox)?;
        if let Some(shm) = &mut self.shm {
            delivered += shm.poll(inbox)?;
        }
        for wire in &mut self.others {
            inbox.by(place_of(wire.name()));
            let polled = wire.poll(inbox);
            inbox.by(SHM_PLACE);
            delivered += polled?;
        }
        Ok(delivered)
    }

    /// Is the job on a modelled machine, whose time is not the system's?
    #[inline]
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// [`Transport::note_sent`] on the wire that has a time of its own.
    pub fn note_sent(&mut self, messages: u64, bytes: u64) {
        if let Some(wire) = self.others.first_mut().filter(|_| self.is_virtual) {
            wire.note_sent(messages, bytes);
        }
    }

    /// Memory on this process's card, on a modelled machine whose programs have any.
    pub fn card_memory(&mut self) -> Option<&mut dyn CardMemory> {
        let wire = self.others.first_mut().filter(|_| self.is_virtual)?;
        wire.card_memory()
    }

    /// [`Transport::will_rest`] on the wire that has a time of its own.
    pub fn will_rest(&mut self) {
        if let Some(wire) = self.others.first_mut().filter(|_| self.is_virtual) {
            wire.will_rest();
        }
    }

    /// [`Transport::owes_poll`] on that wire.
    pub fn owes_poll(&self) -> bool {
        let wire = self.others.first().filter(|_| self.is_virtual);
        wire.is_some_and(|w| w.owes_poll())
    }

    /// [`Transport::rest`] on the wire that has a time of its own.
    pub fn rest(&mut self) -> Option<(&'static AtomicU32, u32)> {
        self.others.first_mut()?.rest()
    }

    /// [`Transport::begin_call`] on every wire.
    pub fn begin_call(&mut self) {
        for wire in &mut self.others {
            wire.begin_call();
        }
    }

    /// [`Transport::end_call`] on every wire.
    pub fn end_call(&mut self, sleepers: bool, left: bool) {
        for wire in &mut self.others {
            wire.end_call(sleepers, left);
        }
    }

    /// [`Transport::announces`] on the wire to `to`.
    pub fn announces(&mut self, to: ProcId, len: usize) {
        if let Ok(wire) = self.wire(to) {
            wire.announces(to, len);
        }
    }

    /// [`Transport::expects`] on the wire to `from`.
    pub fn expects(&mut self, from: ProcId, what: &Expected<'_>) {
        if let Ok(wire) = self.wire(from) {
            wire.expects(from, what);
        }
    }

    /// [`Transport::owes`] on any wire.
    pub fn owes(&self) -> bool {
        self.others.iter().any(|w| w.owes())
    }

    /// [`Transport::settle`] on every wire.
    pub fn settle(&mut self) -> bool {
        // Each is told, whatever the others say.
        let mut settled = true;
        for wire in &mut self.others {
            settled &= wire.settle();
        }
        settled
    }

    /// [`Transport::read`] on the wire to `from`.
    ///
    /// # Safety
    /// The local runs must be writable.
    pub unsafe fn read(
        &mut self,
        from: ProcId,
        address: u64,
        into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        let wire = self.wire(from).map_err(|_| ReadError::Refused)?;
        // SAFETY: the caller's promise, passed on.
        unsafe { wire.read(from, address, into) }
    }

    /// [`Transport::fetch`] on the wire to `from`.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn fetch(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<Fetch, ReadError> {
        match &mut self.shm {
            // SAFETY: the caller's promise, passed on.
            Some(shm) if from != self.me => unsafe { shm.fetch(from, address, into, len) },
            // SAFETY: the caller's promise covers this one run.
            _ => unsafe { self.read(from, address, &[(into, len)]) }.map(|()| Fetch::Done),
        }
    }

    /// [`Transport::fetched`] on the wire to `from`.
    pub fn fetched(&mut self, from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        if self.is_virtual {
            let number = self.card_memory()?.fetched(from)?;
            return Some((number, Ok(())));
        }
        self.shm.as_mut()?.fetched(from)
    }

    /// [`Transport::gather`] on every wire.
    pub fn gather(&mut self, bytes: usize) {
        for wire in &mut self.others {
            wire.gather(bytes);
        }
    }

    /// [`Transport::arm`] on every wire.
    pub fn arm(&mut self, who: Sleeper) {
        if let Some(shm) = &mut self.shm {
            shm.arm(who);
        }
        for wire in &mut self.others {
            wire.arm(who);
        }
    }

    /// [`Transport::disarm`] on every wire.
    pub fn disarm(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.disarm();
        }
        for wire in &mut self.others {
            wire.disarm();
        }
    }

    /// [`Transport::waits_on`] on the wire that knows cores.
    pub fn waits_on(&self, core: u32) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.waits_on(core))
    }

    /// [`Transport::is_polled`] on the wire that knows bells.
    pub fn is_polled(&self, peer: ProcId) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.is_polled(peer))
    }

    /// [`Transport::cores_waited_on`] on the wire that knows cores.
    pub fn cores_waited_on(&self, each: &mut dyn FnMut(u32)) {
        if let Some(shm) = &self.shm {
            shm.cores_waited_on(each);
        }
    }

    /// [`Transport::lend_board`] on the wire that has boards.
    pub fn lend_board(&mut self, members: u32) -> Option<u32> {
        self.shm.as_mut()?.lend_board(members)
    }

    /// [`Transport::board`] on the wire that has boards.
    pub fn board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<Board> {
        self.shm.as_mut()?.board(owner, number, members)
    }

    /// [`Transport::round`] on the wire that has boards.
    pub fn round(&mut self, owner: ProcId, number: u32, members: u32, me: u32) -> Option<Round> {
        self.shm.as_mut()?.round(owner, number, members, me)
    }

    /// [`Transport::waker`] on the wire that has boards.
    pub fn waker(&self, peer: ProcId) -> Option<Waker> {
        self.shm.as_ref()?.waker(peer)
    }

    /// [`Transport::rouse`] on the wire that has boards.
    #[inline]
    pub fn rouse(&self, peer: ProcId) {
        if let Some(shm) = &self.shm {
            shm.rouse(peer);
        }
    }

    /// What this process's threads sleep on.
    #[inline]
    pub fn bell(&self) -> &'static Bell {
        self.bell
    }

    /// Names of the wires that are open, in the order in which they are asked, for reports.
    pub fn names(&self) -> Vec<&'static str> {
        self.order.clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert!(asked(None).unwrap().is_empty());
        assert!(asked(Some(" ")).unwrap().is_empty());
        assert!(USUAL.iter().all(|name| KNOWN.contains(name)));
        assert_eq!(asked(Some("tcp, shm,tcp")).unwrap(), ["tcp", "shm"]);
        let said = asked(Some("shm,ib")).unwrap_err().to_string();
        assert!(
            said.contains("FERRY_TRANSPORTS") && said.contains("\"ib\""),
            "{said}"
        );
    }
}
