//! From a launcher's store to a [`JobContext`].

use std::sync::{Arc, Mutex};

use super::encoding::{cpu_mask, hex, mask_cpus, random_bytes, unhex};
use super::job_end::finalize_at_exit;
use super::kvs::{Kvs, SharedKvs, launcher_error};
use super::kvs_directory::KvsDirectory;
use super::nodes::{host_names, nodes};
use super::segment_handover;
use crate::client::Client;
use crate::error::JobError;
use crate::job_context::{JobContext, host_name};
use crate::{Cores, Nodes, RankInfo, RankStatus, Segment};

/// Finds this process's job through another launcher. Collective over the job: blocks until all
/// ranks are here.
pub(crate) fn join(mut kvs: Box<dyn Kvs>) -> Result<JobContext, JobError> {
    let (rank, size, appnum) = (kvs.rank(), kvs.size(), kvs.appnum());
    if rank >= size || size > 1 << 20 {
        return Err(launcher_error(format!(
            "the launcher says that this is rank {rank} of {size}"
        )));
    }
    let node_of = nodes(kvs.as_mut())?;
    let my_node = node_of[rank as usize];
    let local_ranks: Vec<u32> = (0..size)
        .filter(|&r| node_of[r as usize] == my_node)
        .collect();
    let local_rank = local_ranks.iter().position(|&r| r == rank).unwrap_or(0) as u32;
    let leader = local_ranks[0];
    let cpus: Vec<usize> = Cores::counted().cores.concat();
    kvs.put(
        &format!("ferry-cpus-{rank}"),
        &cpu_mask(&cpus, kvs.value_max()),
    )?;
    if rank == 0 {
        let (key, job) = (random_bytes()?, random_bytes()?);
        kvs.put("ferry-key", &hex(&[&key[..], &job[..8]].concat()))?;
    }
    let mut server = None;
    if rank == leader {
        let host = host_name();
        kvs.put(
            &format!("ferry-host-{rank}"),
            &hex(&host.as_bytes()[..host.len().min(255)]),
        )?;
        if local_ranks.len() > 1 {
            let new = segment_handover::SegmentServer::open()?;
            kvs.put(&format!("ferry-door-{rank}"), &hex(new.name()))?;
            server = Some(new);
        }
    }
    kvs.fence()?;
    let required = |kvs: &mut dyn Kvs, owner: u32, key: &str| {
        kvs.get(owner, key)?.ok_or_else(|| {
            launcher_error(format!(
                "the launcher does not pass on what rank {owner} has put ({key})"
            ))
        })
    };
    let secret = unhex(&required(kvs.as_mut(), 0, "ferry-key")?)
        .filter(|bytes| bytes.len() == 40)
        .ok_or_else(|| launcher_error("the launcher has changed the job's key"))?;
    let (mut key, mut job) = ([0u8; 32], [0u8; 8]);
    key.copy_from_slice(&secret[..32]);
    job.copy_from_slice(&secret[32..]);
    let segment = match (&server, local_ranks.len()) {
        (_, 1) => None,
        (Some(server), n) => {
            let segment = Segment::create(n as u32)?;
            server.serve(&segment, &key, n as u32)?;
            Some(segment)
        }
        (None, n) => {
            let socket_name = unhex(&required(
                kvs.as_mut(),
                leader,
                &format!("ferry-door-{leader}"),
            )?)
            .ok_or_else(|| launcher_error("the launcher has changed what rank 0 has put"))?;
            let fd = segment_handover::fetch(&socket_name, &key, local_rank)?;
            Some(Segment::open(fd, n as u32, None)?)
        }
    };
    let mut node_cpus = cpus;
    for &rank in local_ranks.iter().filter(|&&r| r != rank) {
        node_cpus.extend(mask_cpus(&required(
            kvs.as_mut(),
            rank,
            &format!("ferry-cpus-{rank}"),
        )?));
    }
    node_cpus.sort_unstable();
    node_cpus.dedup();
    let quota = crate::cpu_quota().map_or(usize::MAX, |q| q.ceil().max(1.0) as usize);
    let hosts = host_names(kvs.as_mut(), &node_of)?;
    let status: &'static RankStatus = match &segment {
        Some(segment) => segment
            .status(local_rank)
            .ok_or_else(|| launcher_error("the node's segment is too small"))?,
        None => Box::leak(Box::default()),
    };
    let rank_info = RankInfo {
        rank,
        size,
        local_rank,
        local_ranks,
        appnum,
        job: u64::from_le_bytes(job),
        cores: node_cpus.len().min(quota).max(1) as u32,
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
