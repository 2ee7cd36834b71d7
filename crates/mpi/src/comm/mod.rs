//! Communicators (MPI 5.0 chapter 7).

use crate::device::{ContextId, ProcId};
use crate::{Group, Identity};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A communicator: a context and one group (or two), with what the user has hung on it.
///
/// Fields that later modules need (attributes, name, error handler, info, topology) stand beside these.
#[derive(Debug)]
pub struct Comm {
    /// The handle.
    pub identity: Identity,
    /// Context of point-to-point messages; `.collective()` and `.control()` are its twins.
    pub context: ContextId,
    /// The local group; this process is in it.
    pub group: Arc<Group>,
    /// The remote group of an intercommunicator.
    pub remote: Option<Arc<Group>>,
    /// An intercommunicator's private communicator over its local group.
    pub local: Option<Arc<Comm>>,
    /// Collectives started so far: the tag of the next one's messages.
    pub collectives: AtomicU64,
}

impl Comm {
    /// This process's rank in the local group.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.group.rank().expect("a communicator's own process is in its local group")
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
    /// The group whose ranks name peers in sends and receives: remote for an intercommunicator.
    #[inline]
    pub fn peers(&self) -> &Group {
        self.remote.as_deref().unwrap_or(&self.group)
    }
    /// The process of peer `rank`.
    #[inline]
    pub fn peer(&self, rank: u32) -> ProcId {
        self.peers().process(rank)
    }
}
