//! The registry of a process's transports: which are opened, and which one leads to which peer.
//!
//! `impl Transports` goes on in `short` (short messages), `fragments` (pipelined copies),
//! `coalescing`, `node` (what shared memory offers beside messages) and `foreign` (other jobs).

mod coalescing;
mod foreign;
mod fragments;
mod node;
mod short;

pub use foreign::SharedSegment;

use crate::connected::{self, ConnTransport, Medium};
use crate::model::{self, Model};
use crate::names::{SHM_INDEX, index_of};
use crate::self_loop::SelfLoop;
use crate::shm::{SharedMemory, Shm};
use crate::tcp::{self, Tcp};
use crate::tipc::{self, Tipc};
use crate::wakeup::{self, Wakeup};
use crate::{
    Answer, BatchMessage, BatchSent, Body, CardMemory, Expected, Features, Inbox, ProcId,
    ReadError, ReadStart, RemoteMemory, Sleeper, Streamed, Transport, TransportError, VirtualTime,
    ZeroCopy,
};
use ferry_job::{Directory, RankInfo, Segment};
use std::sync::atomic::AtomicU32;

/// The order of transports without FERRY_TRANSPORTS. TIPC is used only where it joins this node to
/// others.
const DEFAULT_ORDER: [&str; 4] = ["self", "shm", "tipc", "tcp"];

/// Route to a process that has not been looked up yet.
const UNKNOWN: u8 = 0;
/// Route by shared memory, which is called directly, not as a trait object.
const SHM: u8 = 1;
/// Route of a process to itself.
const ITSELF: u8 = 2;
/// Route by the first of the other transports. The next one is one more.
const OTHERS: u8 = 3;
/// Route by the first segment that processes of several jobs share. The next one is one more.
const SHARED: u8 = 128;

/// All transports of this process. The first that reaches a peer carries its messages.
pub struct Transports {
    me: ProcId,
    itself: SelfLoop,
    shm: Option<Shm>,
    /// Segments that processes of several jobs share.
    shared: Vec<Option<Shm>>,
    /// The name of this process's wakeup socket, if it has one.
    socket_name: Option<u64>,
    /// Processes of this job.
    size: u32,
    others: Vec<Box<dyn Transport>>,
    /// The transports' names, in the order in which a peer is looked for.
    order: Vec<&'static str>,
    /// By process: the route there. Pages that are never written cost no memory.
    routes: Vec<u8>,
    /// What this process's threads sleep on.
    wakeup: &'static Wakeup,
    /// Memory shared with the processes of the node, whatever transport leads to them.
    shared_memory: Option<SharedMemory>,
    /// The job runs on a modelled machine.
    is_virtual: bool,
}

/// The wakeup word of a process that no peer can wake: its own threads do.
static OWN_WAKEUP_WORD: AtomicU32 = AtomicU32::new(0);
/// The wakeup until [`Transports::make_wakeup`].
static OWN_WAKEUP: Wakeup = Wakeup::on_word(&OWN_WAKEUP_WORD, true);

/// The names in FERRY_TRANSPORTS, in order. None: Ferry chooses.
fn requested_names(list: Option<&str>) -> Result<Vec<&'static str>, TransportError> {
    let mut order = Vec::new();
    for word in list
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        match DEFAULT_ORDER.iter().find(|k| **k == word) {
            Some(name) if !order.contains(name) => order.push(*name),
            Some(_) => {}
            None => {
                return Err(TransportError::Setting {
                    name: "FERRY_TRANSPORTS",
                    value: word.into(),
                    expected: "a list of self, shm, tcp and tipc, separated by commas",
                });
            }
        }
    }
    Ok(order)
}

/// Opens the transports in FERRY_TRANSPORTS that this process needs. One is not opened if those
/// before it reach all peers. Under a foreign launcher, blocks until all ranks call this, unless
/// all are on this node. `concurrent`: threads of the program will be in MPI at the same time.
///
/// Errors: a setting makes no sense, or a transport cannot be set up.
pub fn open(
    rank_info: &RankInfo,
    segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    concurrent: bool,
) -> Result<Transports, TransportError> {
    let list = std::env::var("FERRY_TRANSPORTS").ok();
    let names = requested_names(list.as_deref())?;
    open_these(&names, rank_info, segment, directory, concurrent)
}

/// Opens the transports of these names that lead to some peer; on a modelled machine its own
/// instead. No names: those of [`DEFAULT_ORDER`].
fn open_these(
    names: &[&'static str],
    rank_info: &RankInfo,
    mut segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    concurrent: bool,
) -> Result<Transports, TransportError> {
    let chosen = !names.is_empty();
    let names = if chosen { names } else { &DEFAULT_ORDER };
    let mut transports = Transports {
        me: rank_info.rank,
        itself: SelfLoop::new(rank_info.rank),
        shm: None,
        shared: Vec::new(),
        socket_name: None,
        size: rank_info.size,
        others: Vec::new(),
        order: vec!["self"],
        routes: vec![UNKNOWN; rank_info.size as usize],
        wakeup: &OWN_WAKEUP,
        shared_memory: None,
        is_virtual: false,
    };
    if let Some(segment) = &mut segment
        && let Some(machine) = segment.machine.take()
    {
        let mut transport = Model::open(machine, rank_info.rank, rank_info.size, concurrent)?;
        if let Some(interface) = segment.interfaces.pop() {
            transport.set_interface(interface);
        }
        transports.others.push(Box::new(transport));
        transports.order.push(model::NAME);
        transports.is_virtual = true;
        transports.make_wakeup()?;
        return Ok(transports);
    }
    transports.shared_memory = segment.as_ref().and_then(SharedMemory::new);
    // Peers are left that no transport reaches yet.
    let mut peers_left = rank_info.size > 1;
    // All media of connections are one transport. Which medium reaches a peer is found when the
    // peer is connected to.
    let mut media: Vec<Box<dyn Medium>> = Vec::new();
    let mut timeout = tipc::TIMEOUT;
    for &name in names {
        match name {
            "shm" if peers_left && media.is_empty() && rank_info.local_ranks.len() > 1 => {
                let Some(segment) = segment.take() else {
                    continue;
                };
                transports.shm = Some(Shm::open(
                    segment,
                    rank_info.local_ranks.clone(),
                    rank_info.local_rank as usize,
                    rank_info.job,
                    rank_info.cores,
                )?);
                peers_left = rank_info.local_ranks.len() < rank_info.size as usize;
            }
            tcp::NAME if peers_left && directory.is_some() => {
                let settings = tcp::Settings::from_environment()?;
                timeout = settings.timeout;
                match Tcp::listen(rank_info, &settings) {
                    Ok(tcp) => media.push(Box::new(tcp)),
                    // Nodes that only TIPC joins have no other address.
                    Err(TransportError::NoAddress(_)) if !chosen && !media.is_empty() => continue,
                    Err(e) => return Err(e),
                }
            }
            tipc::NAME if peers_left && directory.is_some() => {
                let settings = tipc::Settings::from_environment()?;
                match Tipc::listen(rank_info, &settings) {
                    Ok(tipc) if chosen || tipc.is_joined() => media.push(Box::new(tipc)),
                    Err(e) if chosen => return Err(e),
                    _ => continue,
                }
            }
            _ => continue,
        }
        transports.order.push(name);
    }
    if let (false, Some(directory)) = (media.is_empty(), directory) {
        let encrypt = connected::encrypt_from_environment()?;
        let transport = ConnTransport::open(rank_info, directory, media, timeout, encrypt)?;
        transports.others.push(Box::new(transport));
    }
    transports.make_wakeup()?;
    Ok(transports)
}

impl Transports {
    /// Makes what the process's threads sleep on.
    fn make_wakeup(&mut self) -> Result<(), TransportError> {
        let mut word = self.shm.as_ref().and_then(|s| s.wakeup_word());
        if self.is_virtual {
            word = self.others.first().and_then(|w| w.wakeup_word());
        }
        let word = word.unwrap_or(&OWN_WAKEUP_WORD);
        let mut fds = self.others.iter().filter_map(|w| w.event_fd()).peekable();
        let wakeup = if fds.peek().is_some() {
            let name = self
                .shm
                .is_some()
                .then(wakeup::new_socket_name)
                .transpose()?;
            let wakeup = Wakeup::with_descriptors(word, name, fds)?;
            self.socket_name = name;
            if let (Some(shm), Some(name)) = (&mut self.shm, name) {
                shm.use_wakeup_socket(name);
            }
            wakeup
        } else {
            Wakeup::on_word(word, !self.is_virtual)
        };
        self.wakeup = Box::leak(Box::new(wakeup));
        Ok(())
    }

    #[cold]
    fn unreachable(&self, peer: ProcId) -> TransportError {
        TransportError::Unreachable {
            peer,
            tried: self.order.join(", "),
        }
    }

    /// The route to `peer`.
    #[inline]
    fn route(&mut self, peer: ProcId) -> Result<u8, TransportError> {
        match self.routes.get(peer as usize) {
            Some(&route) if route != UNKNOWN => Ok(route),
            _ => self.look_up_route(peer),
        }
    }

    #[cold]
    fn look_up_route(&mut self, peer: ProcId) -> Result<u8, TransportError> {
        let mut found = None;
        for &name in &self.order {
            let route = match name {
                "self" => (peer == self.me).then_some(ITSELF),
                "shm" => {
                    let reached = self.shm.as_ref().is_some_and(|s| s.reaches(peer));
                    reached.then_some(SHM)
                }
                _ => {
                    let transport = self.others.iter().position(|w| w.reaches(peer));
                    transport.map(|n| OTHERS + n as u8)
                }
            };
            found = found.or(route);
        }
        match (found, self.routes.get_mut(peer as usize)) {
            (Some(route), Some(slot)) => {
                *slot = route;
                Ok(route)
            }
            // A process of another job.
            (Some(route), None) => {
                self.routes.resize(peer as usize + 1, UNKNOWN);
                self.routes[peer as usize] = route;
                Ok(route)
            }
            _ => Err(self.unreachable(peer)),
        }
    }

    /// The transport to `peer`, as an index in [`TRANSPORT_NAMES`](crate::TRANSPORT_NAMES).
    #[inline]
    pub fn index_for(&mut self, peer: ProcId) -> usize {
        match self.route(peer) {
            Ok(SHM | SHARED..) => SHM_INDEX,
            Ok(n @ OTHERS..) => {
                let transport = &self.others[usize::from(n - OTHERS)];
                let index = transport.name_index_for(peer);
                index.unwrap_or_else(|| index_of(transport.name()))
            }
            _ => 0,
        }
    }

    /// The transport to `peer`.
    fn transport(&mut self, peer: ProcId) -> Result<&mut dyn Transport, TransportError> {
        let route = self.route(peer)?;
        let found: Option<&mut dyn Transport> = match route {
            ITSELF => Some(&mut self.itself),
            SHM => self.shm.as_mut().map(|shm| shm as _),
            SHARED.. => match self.shared.get_mut(usize::from(route - SHARED)) {
                Some(Some(shm)) => Some(shm),
                _ => None,
            },
            n => match self.others.get_mut(usize::from(n - OTHERS)) {
                Some(transport) => Some(transport.as_mut()),
                None => None,
            },
        };
        found.ok_or_else(|| TransportError::Unreachable {
            peer,
            tried: String::new(),
        })
    }

    /// [`Transport::features`] of the transport to `peer`.
    #[inline]
    pub fn features(&mut self, peer: ProcId) -> Result<Features, TransportError> {
        match (self.route(peer)?, &self.shm) {
            (SHM, Some(shm)) => Ok(shm.features(peer)),
            // Boards are for processes of one job.
            (SHARED.., _) => Ok(Features {
                same_node: false,
                ..self.transport(peer)?.features(peer)
            }),
            _ => Ok(self.transport(peer)?.features(peer)),
        }
    }

    /// [`Transport::send`] on the transport to `to`.
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
            _ => self.transport(to)?.send(to, message, head, body),
        }
    }

    /// [`Transport::stream`] on the transport to `to`.
    pub fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.transport(to)?.stream(to, message, head, body)
    }

    /// [`Transport::zero_copy`] on the transport to `to`.
    pub fn zero_copy(&mut self, to: ProcId) -> ZeroCopy {
        self.transport(to)
            .map_or(ZeroCopy::Never, |w| w.zero_copy(to))
    }

    /// [`Transport::stream_zero_copy`] on the transport to `to`.
    pub fn stream_zero_copy(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.transport(to)?
            .stream_zero_copy(to, message, head, body)
    }

    /// [`Transport::send_batch`] on the transport to `to`.
    pub fn send_batch(
        &mut self,
        to: ProcId,
        messages: &[BatchMessage<'_>],
    ) -> Result<BatchSent, TransportError> {
        self.transport(to)?.send_batch(to, messages)
    }

    /// [`Transport::poll`] on every transport.
    #[inline]
    pub fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let mut delivered = self.itself.poll(inbox)?;
        if let Some(shm) = &mut self.shm {
            delivered += shm.poll(inbox)?;
        }
        for shm in self.shared.iter_mut().flatten() {
            delivered += shm.poll(inbox)?;
        }
        for transport in &mut self.others {
            inbox.set_transport(index_of(transport.name()));
            let polled = transport.poll(inbox);
            inbox.set_transport(SHM_INDEX);
            delivered += polled?;
        }
        Ok(delivered)
    }

    /// Returns whether the job is on a modelled machine, whose time is not the system's.
    #[inline]
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The transport that runs in virtual time, on a modelled machine.
    #[inline]
    fn virtual_time(&mut self) -> Option<&mut dyn VirtualTime> {
        self.others.first_mut()?.virtual_time()
    }

    /// [`VirtualTime::note_sent`] on the transport in virtual time.
    pub fn note_sent(&mut self, messages: u64, bytes: u64) {
        if let Some(virtual_time) = self.virtual_time() {
            virtual_time.note_sent(messages, bytes);
        }
    }

    /// Memory on this process's card, on a modelled machine whose programs have any.
    pub fn card_memory(&mut self) -> Option<&mut dyn CardMemory> {
        let transport = self.others.first_mut().filter(|_| self.is_virtual)?;
        transport.card_memory()
    }

    /// Memory of other processes, on a modelled machine whose card reaches it.
    pub fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        let transport = self.others.first_mut().filter(|_| self.is_virtual)?;
        transport.remote_memory()
    }

    /// [`VirtualTime::will_idle`] on the transport in virtual time.
    pub fn will_idle(&mut self) {
        if let Some(virtual_time) = self.virtual_time() {
            virtual_time.will_idle();
        }
    }

    /// [`VirtualTime::poll_deferred`] on the transport in virtual time.
    pub fn poll_deferred(&mut self) -> bool {
        self.virtual_time().is_some_and(|v| v.poll_deferred())
    }

    /// [`VirtualTime::idle`] on the transport in virtual time.
    pub fn idle(&mut self) -> Option<(&'static AtomicU32, u32)> {
        self.virtual_time()?.idle()
    }

    /// [`VirtualTime::enter_mpi`] on the transport in virtual time.
    pub fn enter_mpi(&mut self) {
        if let Some(virtual_time) = self.virtual_time() {
            virtual_time.enter_mpi();
        }
    }

    /// [`VirtualTime::leave_within_call`] on the transport in virtual time.
    pub fn leave_within_call(&mut self, sleepers: bool) {
        if let Some(virtual_time) = self.virtual_time() {
            virtual_time.leave_within_call(sleepers);
        }
    }

    /// [`VirtualTime::leave_mpi`] on the transport in virtual time.
    pub fn leave_mpi(&mut self, sleepers: bool, finished: bool) {
        if let Some(virtual_time) = self.virtual_time() {
            virtual_time.leave_mpi(sleepers, finished);
        }
    }

    /// [`crate::RendezvousOffload::before_rts`] on the transport to `to`.
    pub fn before_rts(&mut self, to: ProcId, len: usize) {
        if let Ok(Some(offload)) = self.transport(to).map(|t| t.rendezvous_offload()) {
            offload.before_rts(to, len);
        }
    }

    /// [`crate::RendezvousOffload::before_cts`] on the transport to `from`.
    pub fn before_cts(&mut self, from: ProcId, what: &Expected<'_>) {
        if let Ok(Some(offload)) = self.transport(from).map(|t| t.rendezvous_offload()) {
            offload.before_cts(from, what);
        }
    }

    /// [`crate::RendezvousOffload::forget_peer`] on the transport to `peer`.
    pub fn forget_lost_peer(&mut self, peer: ProcId) {
        if let Ok(Some(offload)) = self.transport(peer).map(|t| t.rendezvous_offload()) {
            offload.forget_peer(peer);
        }
    }

    /// [`Transport::has_unsent`] on any transport.
    pub fn has_unsent(&self) -> bool {
        self.others.iter().any(|w| w.has_unsent())
    }

    /// [`Transport::settle`] on every transport.
    pub fn settle(&mut self) -> bool {
        // Each is told, whatever the others answer.
        let mut settled = true;
        for transport in &mut self.others {
            settled &= transport.settle();
        }
        settled
    }

    /// [`Transport::read`] on the transport to `from`.
    ///
    /// # Safety
    /// The local runs must be writable.
    pub unsafe fn read(
        &mut self,
        from: ProcId,
        address: u64,
        into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        let transport = self.transport(from).map_err(|_| ReadError::Refused)?;
        // SAFETY: the caller's promise, passed on.
        unsafe { transport.read(from, address, into) }
    }

    /// [`Transport::start_read`] on the transport to `from`.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn start_read(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<ReadStart, ReadError> {
        match self.shm_to(from) {
            // SAFETY: the caller's promise, passed on.
            Some(shm) => unsafe { shm.start_read(from, address, into, len) },
            // SAFETY: the caller's promise covers this one run.
            _ => unsafe { self.read(from, address, &[(into, len)]) }.map(|()| ReadStart::Done),
        }
    }

    /// [`Transport::finished_read`] on the transport to `from`.
    pub fn finished_read(&mut self, from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        if self.is_virtual {
            let number = self.card_memory()?.finished_read(from)?;
            return Some((number, Ok(())));
        }
        self.shm_to(from)?.finished_read(from)
    }

    /// [`Transport::set_receive_low_water`] on every transport.
    pub fn set_receive_low_water(&mut self, bytes: usize) {
        for transport in &mut self.others {
            transport.set_receive_low_water(bytes);
        }
    }

    /// [`Transport::arm`] on every transport.
    pub fn arm(&mut self, who: Sleeper) {
        if let Some(shm) = &mut self.shm {
            shm.arm(who);
        }
        for shm in self.shared.iter_mut().flatten() {
            shm.arm(who);
        }
        for transport in &mut self.others {
            transport.arm(who);
        }
    }

    /// [`Transport::disarm`] on every transport.
    pub fn disarm(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.disarm();
        }
        for shm in self.shared.iter_mut().flatten() {
            shm.disarm();
        }
        for transport in &mut self.others {
            transport.disarm();
        }
    }

    /// What this process's threads sleep on.
    #[inline]
    pub fn wakeup(&self) -> &'static Wakeup {
        self.wakeup
    }

    /// Names of the transports that are open, in the order in which they are asked, for reports.
    pub fn names(&self) -> Vec<&'static str> {
        self.order.clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
