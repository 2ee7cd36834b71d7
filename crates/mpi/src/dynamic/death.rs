//! How a process learns that a job has died whose processes it knows.
//!
//! Messages to them may go through shared memory, which tells nothing of a death. So each process
//! keeps a connection to one process of each such job, its *partner*: a job dies as a whole, and
//! its connections break then. It hears of it whatever the other processes of its own job do. The
//! root of a meeting needs no partner: the connection by the port stays
//! ([`universe::add_lifeline`]), or a socket to the job's launcher. Nor do processes that others
//! have started: their launcher ends them.

use super::{Side, With, universe};
use crate::ProcId;
use crate::device::{self, Device, WaitingFor};
use std::collections::BTreeMap;

/// The partners that this process gets by a meeting.
pub(super) struct Partners {
    /// Some process of either side gets one. Both sides agree on it.
    pub any: bool,
    /// Those that this process connects to. The others connect to it.
    calls: Vec<ProcId>,
    /// One of each job.
    watched: BTreeMap<u64, ProcId>,
}

/// Members of one job, its root's first.
fn by_job(side: &Side) -> BTreeMap<u64, Vec<usize>> {
    let mut jobs: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let size = side.members.len();
    for at in (0..size).map(|i| (side.root as usize + i) % size) {
        jobs.entry(side.members[at].name.job).or_default().push(at);
    }
    jobs
}

/// Does member `at` of a side need a partner?
fn needs(side: &Side, at: usize, with: With, is_mine: bool) -> bool {
    match with {
        With::Introduced => true,
        With::Anyone | With::Known => at != side.root as usize,
        With::Children => is_mine && at != side.root as usize,
        With::Parents => !is_mine && at != side.root as usize,
    }
}

impl Partners {
    /// Those of member `rank` of this side. `held`: who was not known before. Who was has led to a
    /// partner already.
    pub fn new(
        mine: &Side,
        theirs: &Side,
        rank: u32,
        with: With,
        held: &universe::Held,
    ) -> Partners {
        let any_of =
            |side: &Side, is_mine| (0..side.members.len()).any(|at| needs(side, at, with, is_mine));
        let mut partners = Partners {
            any: any_of(mine, true) || any_of(theirs, false),
            calls: Vec::new(),
            watched: BTreeMap::new(),
        };
        let rank = rank as usize;
        let Some(own_job) = mine.members.get(rank).map(|m| m.name.job) else {
            return partners;
        };
        let (ours, others) = (by_job(mine), by_job(theirs));
        let own = &ours[&own_job];
        let Some(i) = own.iter().position(|&at| at == rank) else {
            return partners;
        };
        for (&job, group) in others.iter().filter(|(job, _)| **job != own_job) {
            for (j, &at) in group.iter().enumerate() {
                let is_pair = j == i % group.len() && needs(mine, rank, with, true)
                    || i == j % own.len() && needs(theirs, at, with, false);
                let process = universe::process_named(theirs.members[at].name);
                let Some(process) = process.filter(|&p| is_pair && held.has(p)) else {
                    continue;
                };
                partners.watched.entry(job).or_insert(process);
                // One of the two connects.
                if mine.link < theirs.link {
                    partners.calls.push(process);
                }
            }
        }
        if !needs(mine, rank, with, true) {
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
            universe::add_partner(job, process);
        }
    }
}
