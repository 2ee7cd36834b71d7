//! The launcher's side: what it makes for the ranks of a node.

mod rank_socket;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use crate::error::JobError;
use crate::job_context::host_name;
use crate::{Nodes, RankInfo, Segment, new_key};
pub use rank_socket::{RankSocket, Received};

/// The ranks of a job on this node.
#[derive(Debug)]
pub struct NodeJob {
    /// The node's segment.
    pub segment: Segment,
    info: JobInfo,
    local_ranks: Vec<u32>,
    cores: u32,
}

/// What all ranks of a job are told.
#[derive(Clone, Debug)]
pub struct JobInfo {
    /// The job's id.
    pub job: u64,
    /// Number of ranks.
    pub size: u32,
    /// The job's key.
    pub key: [u8; 32],
    /// The port of the process that has started the job: [`RankInfo::parent`].
    pub parent: String,
    /// [`RankInfo::universe`].
    pub universe: u32,
    /// The job's nodes.
    pub nodes: Nodes,
}

impl NodeJob {
    /// A job of `size` ranks on this node, with a new key. `cores`: cores that the job may use.
    pub fn new(job: u64, size: u32, cores: u32) -> Result<NodeJob, JobError> {
        let info = JobInfo {
            job,
            size,
            key: new_key().map_err(|cause| JobError::Refused {
                attempted: "making the job's key (getrandom)".into(),
                cause,
                advice: "Ferry needs the kernel's random numbers (Linux 3.17)",
            })?,
            parent: String::new(),
            universe: size,
            nodes: Nodes::one(&host_name(), size),
        };
        NodeJob::for_node(info, 0, cores)
    }

    /// The part of a job on its node `node`. `cores`: cores that the job may use there.
    pub fn for_node(info: JobInfo, node: usize, cores: u32) -> Result<NodeJob, JobError> {
        let local_ranks = info.nodes.ranks_of(node);
        Ok(NodeJob {
            segment: Segment::create(local_ranks.len() as u32)?,
            info,
            local_ranks,
            cores,
        })
    }

    /// The job's ranks on this node, ascending.
    pub fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    /// Sets the number of cores that ranks are told: those of a modelled machine.
    pub fn set_cores(&mut self, cores: u32) {
        self.cores = cores.max(1);
    }

    /// What all ranks of the job are told.
    pub fn info(&self) -> &JobInfo {
        &self.info
    }

    /// Makes the socket of a local rank, with its rank info in it. Returns the launcher's end and
    /// the rank's end, both close-on-exec. The rank must inherit its end by the number in
    /// [`LAUNCH_FD`](crate::LAUNCH_FD).
    pub fn create_rank_socket(
        &self,
        local_rank: u32,
        appnum: u32,
    ) -> Result<(RankSocket, OwnedFd), JobError> {
        let refused = |cause: Errno| JobError::Refused {
            attempted: format!("making the socket of rank {local_rank}"),
            cause: cause.into(),
            advice: "raise RLIMIT_NOFILE (ulimit -n), or start fewer ranks",
        };
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(refused)?;
        let rank_info = RankInfo {
            rank: self.local_ranks[local_rank as usize],
            size: self.info.size,
            local_rank,
            local_ranks: self.local_ranks.clone(),
            appnum,
            job: self.info.job,
            cores: self.cores,
            segment_len: self.segment.layout.total_bytes(),
            key: self.info.key,
            parent: self.info.parent.clone(),
            universe: self.info.universe.max(self.info.size),
            nodes: self.info.nodes.clone(),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let mut fds = vec![self.segment.fd.as_fd()];
        fds.extend(self.segment.machine.as_ref().map(|m| m.as_fd()));
        let interface = self.segment.interfaces.get(local_rank as usize);
        fds.extend(interface.map(|i| i.as_fd()));
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(
            &ours,
            &[IoSlice::new(&rank_info.encode())],
            &mut ancillary,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )
        .map_err(refused)?;
        Ok((RankSocket::new(ours), theirs))
    }
}

#[cfg(test)]
mod tests;
