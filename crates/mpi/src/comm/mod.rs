//! Communicators (MPI 5.0 chapter 7).

pub(crate) mod agree;
pub(crate) mod create;
mod from_group;
mod hints;
mod idup;
mod inter;

pub use create::{SHARED_MEMORY, SplitType};
pub use from_group::{create_from_group, intercomm_create_from_groups};
pub use hints::Hints;
pub use idup::OnDuplicate;
pub use inter::{PeerLeader, intercomm_create};

use crate::attr::Attributes;
use crate::device::{ContextId, Describe, Device, ProcId};
use crate::dynamic::foreign;
use crate::group::{Comparison, Table};
use crate::pt2pt::BufferPool;
use crate::topo::Topology;
use crate::{Errhandler, ErrhandlerSlot, Group, Identity};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A communicator: a context, one group or two, and its attributes.
///
/// Active operations keep it alive ([`Arc`]) after the program has freed it.
pub struct Comm {
    /// The handle.
    pub identity: Identity,
    /// Context of point-to-point messages. `.collective()` and `.control()` are its other contexts.
    pub context: ContextId,
    /// The local group. This process is in it.
    pub group: Arc<Group>,
    /// The remote group of an intercommunicator.
    pub remote: Option<Arc<Group>>,
    /// An intercommunicator's private communicator over its local group.
    pub local: Option<Arc<Comm>>,
    /// Number of collectives started. It is the tag of the next one's messages.
    pub collectives: AtomicU64,
    /// Its name (MPI_Comm_set_name).
    name: Mutex<Vec<u8>>,
    /// Its error handler.
    pub errhandler: ErrhandlerSlot,
    /// Its cached attributes.
    pub attributes: Attributes,
    /// Its topology, if it has one.
    pub topology: OnceLock<Arc<Topology>>,
    assertions: hints::Assertions,
    /// Locked while its hints are changed.
    hints_lock: Mutex<()>,
    /// Schedules of its latest collectives.
    pub coll: crate::coll::CommState,
    /// The buffer attached to it for buffered sends (MPI_Comm_attach_buffer).
    pub buffers: BufferPool,
    /// From peer rank to process: the table of the remote group, or of the only group.
    table: Table,
    rank: u32,
    /// The processes of other jobs in it, which stay connected as long as it lives.
    foreign: foreign::ForeignMembers,
    /// The program has freed it.
    freed: AtomicBool,
    /// Number of agreements among all members. It is the tag of the next one's messages in the
    /// control context.
    agreements: AtomicU32,
}

impl Comm {
    /// MPI_COMM_WORLD of process `me` in a job of `size` processes.
    pub fn world(me: ProcId, size: u32) -> Arc<Comm> {
        let comm = Comm::intra(ContextId::WORLD, Group::first(size, me));
        comm.rename(b"MPI_COMM_WORLD");
        comm.errhandler.set(Errhandler::initial());
        Arc::new(comm)
    }

    /// MPI_COMM_SELF of process `me`.
    pub fn comm_self(me: ProcId) -> Arc<Comm> {
        let comm = Comm::intra(ContextId::SELF, Group::new([me], me));
        comm.rename(b"MPI_COMM_SELF");
        comm.errhandler.set(Errhandler::initial());
        Arc::new(comm)
    }

    /// An intracommunicator without parent. This process is in `group`.
    pub(crate) fn intra(context: ContextId, group: Arc<Group>) -> Comm {
        Comm {
            identity: Identity::none(),
            context,
            table: group.table().clone(),
            rank: group.rank().unwrap_or(0),
            foreign: foreign::keep_connected(context, &group),
            group,
            remote: None,
            local: None,
            collectives: AtomicU64::new(0),
            name: Mutex::default(),
            errhandler: ErrhandlerSlot::default(),
            attributes: Attributes::new(),
            topology: OnceLock::new(),
            assertions: hints::Assertions::default(),
            hints_lock: Mutex::default(),
            coll: crate::coll::CommState::default(),
            buffers: BufferPool::new(),
            freed: AtomicBool::new(false),
            agreements: AtomicU32::new(0),
        }
    }

    /// A new intracommunicator that inherits the error handler and the session of this one. This
    /// process is in `group`.
    pub(crate) fn child(&self, context: ContextId, group: Arc<Group>) -> Comm {
        let group = group.with_session(self.group.session());
        Comm {
            errhandler: self.errhandler.clone(),
            ..Comm::intra(context, group)
        }
    }

    /// A new intercommunicator, as [`Comm::child`]. `local_context` is that of its local
    /// communicator.
    pub(crate) fn inter(
        &self,
        context: ContextId,
        local_context: ContextId,
        group: Arc<Group>,
        remote: Arc<Group>,
    ) -> Comm {
        let local = self.child(local_context, group.clone());
        Comm {
            table: remote.table().clone(),
            foreign: foreign::keep_connected(context, &remote),
            remote: Some(remote),
            local: Some(Arc::new(local)),
            ..self.child(context, group)
        }
    }

    /// Are there processes of several jobs in it?
    #[inline]
    pub(crate) fn spans_jobs(&self) -> bool {
        !self.foreign.is_empty() || self.local.as_ref().is_some_and(|l| l.spans_jobs())
    }

    /// The tag of the next agreement among all members, in the control context.
    pub(crate) fn next_agreement(&self) -> u32 {
        self.agreements.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff
    }

    /// This process's rank in the local group.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Size of the local group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Is this an intercommunicator?
    #[inline]
    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// The group whose ranks are the peers of sends and receives. For an intercommunicator, the
    /// remote group.
    #[inline]
    pub fn remote_group(&self) -> &Group {
        self.remote.as_deref().unwrap_or(&self.group)
    }

    /// The process of peer `rank`, which must be less than the number of peers.
    #[inline]
    pub fn peer(&self, rank: u32) -> ProcId {
        self.table.process(rank)
    }

    /// Is this process one that messages go to and come from?
    #[cold]
    pub fn has_peer(&self, process: ProcId) -> bool {
        (0..self.remote_group().size()).any(|rank| self.peer(rank) == process)
    }

    /// Its name, without a final null. Empty if it has none.
    pub fn name(&self) -> Vec<u8> {
        self.name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets its name.
    pub fn rename(&self, name: &[u8]) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_vec();
    }

    /// The result of MPI_Comm_compare with `other`.
    pub fn compare(self: &Arc<Comm>, other: &Arc<Comm>) -> Comparison {
        if Arc::ptr_eq(self, other) {
            return Comparison::Identical;
        }
        let remote = match (&self.remote, &other.remote) {
            (None, None) => Comparison::Identical,
            (Some(a), Some(b)) => a.compare(b),
            _ => Comparison::Unequal,
        };
        match (self.group.compare(&other.group), remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Comparison::Unequal,
            (Comparison::Identical, Comparison::Identical) => Comparison::Congruent,
            _ => Comparison::Similar,
        }
    }
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let remote = self.remote.as_ref().map(|g| g.size());
        write!(
            f,
            "Comm({:#x} {:?}, rank {} of {}, remote {remote:?})",
            self.context.0,
            String::from_utf8_lossy(&self.name()),
            self.rank,
            self.size()
        )
    }
}

impl Describe for Comm {
    fn describe(&self, _device: &mut Device, status: &ferry_job::RankStatus) {
        status.comm_name.store(&self.name());
        status.comm_size.store(self.size(), Ordering::Relaxed);
        status.comm_rank.store(self.rank as i32, Ordering::Relaxed);
        status.collective.store(0, Ordering::Relaxed);
        status.root.store(-1, Ordering::Relaxed);
        if let Ok(peer) = ProcId::try_from(status.peer.load(Ordering::Relaxed))
            && foreign::is_foreign(peer)
        {
            let name = foreign::name_of(peer);
            status.peer_rank.store(name.rank, Ordering::Relaxed);
            status.peer_job.store(name.job, Ordering::Relaxed);
        }
    }
}
