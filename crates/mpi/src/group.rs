//! Groups: ordered sets of processes (MPI 5.0 §7.3).

use crate::{Identity, ProcId};
use std::sync::Arc;

/// An ordered set of processes. Immutable.
#[derive(Debug)]
pub struct Group {
    /// The handle.
    pub identity: Identity,
    members: Arc<[ProcId]>,
    my_rank: Option<u32>,
}

impl Group {
    /// The group of `members`, in rank order; `me` is this process.
    pub fn new(members: impl Into<Arc<[ProcId]>>, me: ProcId) -> Arc<Group> {
        let members = members.into();
        let my_rank = members.iter().position(|&p| p == me).map(|r| r as u32);
        Arc::new(Group { identity: Identity::none(), members, my_rank })
    }
    /// Processes in the group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }
    /// This process's rank, if it is a member.
    #[inline]
    pub fn rank(&self) -> Option<u32> {
        self.my_rank
    }
    /// The process of `rank`, which must be less than the size.
    #[inline]
    pub fn process(&self, rank: u32) -> ProcId {
        self.members[rank as usize]
    }
    /// All members in rank order.
    pub fn members(&self) -> &Arc<[ProcId]> {
        &self.members
    }
}
