//! The registry of a process's transports: which are opened, and which one leads to which peer.
//!
//! `impl Transports` goes on in `open`, `short` (short messages), `fragments` (pipelined copies),
//! `coalescing`, `node` (what shared memory offers beside messages) and `foreign` (other jobs).

mod coalescing;
mod foreign;
mod fragments;
mod node;
mod open;
mod short;

pub use foreign::SharedSegment;
pub use open::open;

use crate::names::{SHM_INDEX, index_of};
use crate::self_loop::SelfLoop;
use crate::shm::{SharedMemory, Shm};
use crate::wakeup::Wakeup;
use crate::{
    BatchMessage, BatchSent, Body, CardMemory, Expected, Features, Inbox, ProcId, ReadError,
    ReadStart, RemoteMemory, SendStatus, Sleeper, Streamed, Transport, TransportError, VirtualTime,
    ZeroCopy,
};
use std::sync::atomic::AtomicU32;

/// Route to a process that has not been looked up yet.
const ROUTE_UNKNOWN: u8 = 0;
/// Route by shared memory, which is called directly, not as a trait object.
const ROUTE_SHM: u8 = 1;
/// Route of a process to itself.
const ROUTE_SELF: u8 = 2;
/// Route by the first of the other transports. The next one is one more.
const ROUTE_OTHERS: u8 = 3;
/// Route by the first segment that processes of several jobs share. The next one is one more.
const ROUTE_SHARED: u8 = 128;

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

impl Transports {
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
            Some(&route) if route != ROUTE_UNKNOWN => Ok(route),
            _ => self.look_up_route(peer),
        }
    }

    #[cold]
    fn look_up_route(&mut self, peer: ProcId) -> Result<u8, TransportError> {
        let mut found = None;
        for &name in &self.order {
            let route = match name {
                "self" => (peer == self.me).then_some(ROUTE_SELF),
                "shm" => {
                    let reached = self.shm.as_ref().is_some_and(|s| s.reaches(peer));
                    reached.then_some(ROUTE_SHM)
                }
                _ => {
                    let transport = self.others.iter().position(|w| w.reaches(peer));
                    transport.map(|n| ROUTE_OTHERS + n as u8)
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
                self.routes.resize(peer as usize + 1, ROUTE_UNKNOWN);
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
            Ok(ROUTE_SHM | ROUTE_SHARED..) => SHM_INDEX,
            Ok(n @ ROUTE_OTHERS..) => {
                let transport = &self.others[usize::from(n - ROUTE_OTHERS)];
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
            ROUTE_SELF => Some(&mut self.itself),
            ROUTE_SHM => self.shm.as_mut().map(|shm| shm as _),
            ROUTE_SHARED.. => match self.shared.get_mut(usize::from(route - ROUTE_SHARED)) {
                Some(Some(shm)) => Some(shm),
                _ => None,
            },
            n => match self.others.get_mut(usize::from(n - ROUTE_OTHERS)) {
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
            (ROUTE_SHM, Some(shm)) => Ok(shm.features(peer)),
            // Boards are for processes of one job.
            (ROUTE_SHARED.., _) => Ok(Features {
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
    ) -> Result<SendStatus, TransportError> {
        match (self.route(to)?, &mut self.shm) {
            (ROUTE_SHM, Some(shm)) => shm.send(to, message, head, body),
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

    /// Returns whether the hardware on the way to `peer` must be told where a large message goes
    /// before it is asked for ([`crate::RendezvousOffload`]).
    pub fn offloads_rendezvous(&mut self, peer: ProcId) -> bool {
        matches!(
            self.transport(peer).map(|t| t.rendezvous_offload()),
            Ok(Some(_))
        )
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
