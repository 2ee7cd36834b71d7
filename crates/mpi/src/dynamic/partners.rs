//! How a process learns that another job has died with which it is connected.
//!
//! Messages to that job may go through shared memory, which does not report a death. So each
//! process keeps a connection to one process of each such job, its *partner*. A job dies as a
//! whole, and the connection breaks then, whatever the other processes of the own job do.
//!
//! Roots need no partner: they keep the connection by the port ([`foreign::add_lifeline`]) or a
//! socket to the other job's launcher. Spawned processes need none either: their launcher ends
//! them.

use super::{ForeignMembers, GroupInfo, Relation, foreign};
use crate::ProcId;
use crate::device::{self, Device, WaitingFor};
use std::collections::BTreeMap;

/// The partners of this process among the members of a group that it establishes communication
/// with.
pub(super) struct Partners {
    /// Some process of either group gets a partner. The same on both sides.
    pub any: bool,
    /// Partners to which this process connects. The other partners connect to this process.
    calls: Vec<ProcId>,
    /// By job: the partner whose connection is watched.
    watched: BTreeMap<u64, ProcId>,
}

/// Members of one job, its root's first.
fn by_job(group: &GroupInfo) -> BTreeMap<u64, Vec<usize>> {
    let mut jobs: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let size = group.members.len();
    for at in (0..size).map(|i| (group.root as usize + i) % size) {
        jobs.entry(group.members[at].name.job).or_default().push(at);
    }
    jobs
}

/// Does member `at` of a group need a partner?
fn needs(group: &GroupInfo, at: usize, relation: Relation, is_local: bool) -> bool {
    match relation {
        Relation::PeerComm => true,
        Relation::AnyJob | Relation::KnownJob => at != group.root as usize,
        Relation::Children => is_local && at != group.root as usize,
        Relation::Parents => !is_local && at != group.root as usize,
    }
}

impl Partners {
    /// The partners of member `rank` of this group. `new`: members that were not known before. A
    /// process has a partner already in the job of any other.
    pub fn new(
        local: &GroupInfo,
        remote: &GroupInfo,
        rank: u32,
        relation: Relation,
        new: &ForeignMembers,
    ) -> Partners {
        let any_of = |group: &GroupInfo, is_local| {
            (0..group.members.len()).any(|at| needs(group, at, relation, is_local))
        };
        let mut partners = Partners {
            any: any_of(local, true) || any_of(remote, false),
            calls: Vec::new(),
            watched: BTreeMap::new(),
        };
        let rank = rank as usize;
        let Some(own_job) = local.members.get(rank).map(|m| m.name.job) else {
            return partners;
        };
        let (ours, others) = (by_job(local), by_job(remote));
        let own = &ours[&own_job];
        let Some(i) = own.iter().position(|&at| at == rank) else {
            return partners;
        };
        for (&job, group) in others.iter().filter(|(job, _)| **job != own_job) {
            for (j, &at) in group.iter().enumerate() {
                let is_pair = j == i % group.len() && needs(local, rank, relation, true)
                    || i == j % own.len() && needs(remote, at, relation, false);
                let process = foreign::process_named(remote.members[at].name);
                let Some(process) = process.filter(|&p| is_pair && new.contains(p)) else {
                    continue;
                };
                partners.watched.entry(job).or_insert(process);
                // One of the two connects.
                if local.link < remote.link {
                    partners.calls.push(process);
                }
            }
        }
        if !needs(local, rank, relation, true) {
            partners.watched.clear();
        }
        partners
    }

    /// Begins to connect to those that this process is to connect to.
    pub fn begin_to_connect(&self) {
        let mut d = device::device();
        for &process in &self.calls {
            d.connect_to(process);
        }
    }

    /// Blocks until this process has connected to them.
    pub fn await_connections(&self) {
        let is_open = |d: &mut Device, process| d.is_connected(process) || d.is_lost(process);
        device::wait_until(&WaitingFor::SEVERAL, |d| {
            self.calls.iter().all(|&process| is_open(d, process)) || device::failed_wholly()
        });
    }

    /// From now on their loss is the death of their jobs.
    pub fn watch(self) {
        for (job, process) in self.watched {
            foreign::add_partner(job, process);
        }
    }
}
