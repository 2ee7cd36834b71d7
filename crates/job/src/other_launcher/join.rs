//! How a rank that another launcher has started finds its job: what Ferry's own launcher would tell
//! it, ranks tell each other through the launcher's store of keys and values. The result is a
//! [`JobContext`].
//!
//! | key | who puts it | value, in hexadecimal digits |
//! |---|---|---|
//! | `ferry-key` | rank 0 | the job's key and number |
//! | `ferry-cpus-R` | each rank R | a mask of its CPUs |
//! | `ferry-host-R` | the lowest rank R of a node | the host's name |
//! | `ferry-segment-R` | the same, if the node has more ranks | its socket for `segment_handover` |
//! | `ferry-node-R` | each rank R, if the launcher knows no nodes | the host's name and boot id |

use std::sync::{Arc, Mutex};

use super::encoding::{cpu_mask, hex, mask_cpus, random_bytes, unhex};
use super::job_end::finalize_at_exit;
use super::kvs::{Kvs, SharedKvs, launcher_error};
use super::kvs_directory::KvsDirectory;
use super::nodes::{host_names, nodes};
use super::segment_handover::{self, SegmentServer};
use crate::client::Client;
use crate::error::JobError;
use crate::job_context::{JobContext, host_name};
use crate::{Cores, Nodes, RankInfo, RankStatus, Segment};

/// Most ranks that a launcher may name.
const RANKS_MAX: u32 = 1 << 20;
/// Longest host name in bytes that a rank tells.
const HOST_NAME_MAX_BYTES: usize = 255;
/// Bytes of the job's key and of its number.
const KEY_BYTES: usize = 32;
const JOB_BYTES: usize = 8;

/// Finds this process's job through another launcher. Collective over the job: blocks until all
/// ranks are here.
///
/// # Errors
/// The launcher does not answer or says what cannot be; the kernel refuses the node's segment.
pub(crate) fn join(mut kvs: Box<dyn Kvs>) -> Result<JobContext, JobError> {
    let (rank, size, appnum) = (kvs.rank(), kvs.size(), kvs.appnum());
    if rank >= size || size > RANKS_MAX {
        return Err(launcher_error(format!(
            "the launcher says that this is rank {rank} of {size}"
        )));
    }
    let node_of = nodes(kvs.as_mut())?;
    let node = LocalRanks::of(rank, &node_of);
    let own_cpus: Vec<usize> = Cores::counted().cores.concat();

    put_own(kvs.as_mut(), rank, &own_cpus)?;
    let server = put_as_leader(kvs.as_mut(), &node)?;
    kvs.fence()?;

    let (key, job) = job_key(kvs.as_mut())?;
    let segment = node_segment(kvs.as_mut(), &node, server, &key)?;
    let cores = node_cores(kvs.as_mut(), &node, own_cpus)?;
    let hosts = host_names(kvs.as_mut(), &node_of)?;
    let status: &'static RankStatus = match &segment {
        Some(segment) => segment
            .status(node.local_rank)
            .ok_or_else(|| launcher_error("the node's segment is too small"))?,
        None => Box::leak(Box::default()),
    };
    let rank_info = RankInfo {
        rank,
        size,
        local_rank: node.local_rank,
        local_ranks: node.ranks,
        appnum,
        job,
        cores,
        segment_len: segment.as_ref().map_or(0, |s| s.layout.total_bytes()),
        key,
        parent: kvs.parent()?.unwrap_or_default(),
        universe: kvs.universe().unwrap_or(size).max(size),
        nodes: Nodes::of(&hosts, &node_of),
    };
    let kvs: SharedKvs = Arc::new(Mutex::new(kvs));
    finalize_at_exit(kvs.clone(), status);
    Ok(JobContext {
        rank_info,
        segment,
        status,
        client: Some(Client::of_other_launcher(kvs.clone())),
        directory: Some(Box::new(KvsDirectory::new(kvs, rank, size))),
    })
}

/// The ranks of this rank's node.
struct LocalRanks {
    /// This rank in the job.
    rank: u32,
    /// This rank among those of the node.
    local_rank: u32,
    /// All of them, in ascending order.
    ranks: Vec<u32>,
}

impl LocalRanks {
    fn of(rank: u32, node_of: &[u32]) -> LocalRanks {
        let own_node = node_of[rank as usize];
        let all = (0u32..).zip(node_of);
        let ranks: Vec<u32> = all
            .filter(|&(_, &n)| n == own_node)
            .map(|(r, _)| r)
            .collect();
        LocalRanks {
            rank,
            local_rank: ranks.iter().position(|&r| r == rank).unwrap_or(0) as u32,
            ranks,
        }
    }

    /// The lowest rank of the node. It makes the segment.
    fn leader(&self) -> u32 {
        self.ranks[0]
    }
}

/// Puts this rank's CPUs, and as rank 0 the job's key and number.
fn put_own(kvs: &mut dyn Kvs, rank: u32, cpus: &[usize]) -> Result<(), JobError> {
    let mask = cpu_mask(cpus, kvs.value_max());
    kvs.put(&format!("ferry-cpus-{rank}"), &mask)?;
    if rank == 0 {
        let (key, job) = (random_bytes()?, random_bytes()?);
        let secret = [&key[..KEY_BYTES], &job[..JOB_BYTES]].concat();
        kvs.put("ferry-key", &hex(&secret))?;
    }
    Ok(())
}

/// As the lowest rank of a node, puts the host's name; if there are other ranks, opens a socket
/// for them and puts its name.
fn put_as_leader(kvs: &mut dyn Kvs, node: &LocalRanks) -> Result<Option<SegmentServer>, JobError> {
    let rank = node.rank;
    if rank != node.leader() {
        return Ok(None);
    }
    let host = host_name();
    let host = &host.as_bytes()[..host.len().min(HOST_NAME_MAX_BYTES)];
    kvs.put(&format!("ferry-host-{rank}"), &hex(host))?;
    if node.ranks.len() == 1 {
        return Ok(None);
    }
    let server = SegmentServer::open()?;
    kvs.put(&format!("ferry-segment-{rank}"), &hex(server.name()))?;
    Ok(Some(server))
}

/// The job's key and number, as rank 0 has put them.
fn job_key(kvs: &mut dyn Kvs) -> Result<([u8; KEY_BYTES], u64), JobError> {
    let secret = unhex(&required(kvs, 0, "ferry-key")?)
        .filter(|bytes| bytes.len() == KEY_BYTES + JOB_BYTES)
        .ok_or_else(|| launcher_error("the launcher has changed the job's key"))?;
    let (mut key, mut job) = ([0; KEY_BYTES], [0; JOB_BYTES]);
    key.copy_from_slice(&secret[..KEY_BYTES]);
    job.copy_from_slice(&secret[KEY_BYTES..]);
    Ok((key, u64::from_le_bytes(job)))
}

/// The shared memory of the node's ranks: the lowest makes it and hands it to the others. `None`
/// where there is one rank. Blocks until all of them have it.
fn node_segment(
    kvs: &mut dyn Kvs,
    node: &LocalRanks,
    server: Option<SegmentServer>,
    key: &[u8; KEY_BYTES],
) -> Result<Option<Segment>, JobError> {
    let ranks = node.ranks.len() as u32;
    if ranks == 1 {
        return Ok(None);
    }
    if let Some(server) = server {
        let segment = Segment::create(ranks)?;
        server.serve(&segment, key, ranks)?;
        return Ok(Some(segment));
    }
    let leader = node.leader();
    let name = required(kvs, leader, &format!("ferry-segment-{leader}"))?;
    let name = unhex(&name).ok_or_else(|| {
        launcher_error(format!(
            "the launcher has changed what rank {leader} has put"
        ))
    })?;
    let fd = segment_handover::fetch(&name, key, node.local_rank)?;
    Ok(Some(Segment::open(fd, ranks, None)?))
}

/// Cores that the node's ranks share: those that any of them may use, at most the quota.
fn node_cores(kvs: &mut dyn Kvs, node: &LocalRanks, own_cpus: Vec<usize>) -> Result<u32, JobError> {
    let mut cpus = own_cpus;
    for &rank in node.ranks.iter().filter(|&&r| r != node.rank) {
        cpus.extend(mask_cpus(&required(
            kvs,
            rank,
            &format!("ferry-cpus-{rank}"),
        )?));
    }
    cpus.sort_unstable();
    cpus.dedup();
    let quota = crate::cpu_quota().map_or(usize::MAX, |q| q.ceil().max(1.0) as usize);
    Ok(cpus.len().min(quota).max(1) as u32)
}

/// What a rank has put before the fence. It is an error if the launcher does not have it.
fn required(kvs: &mut dyn Kvs, owner: u32, key: &str) -> Result<String, JobError> {
    kvs.get(owner, key)?.ok_or_else(|| {
        launcher_error(format!(
            "the launcher does not pass on what rank {owner} has put ({key})"
        ))
    })
}
