//! The first words of the launcher to a rank.

/// What the launcher tells each rank, written into its socket before the rank starts, together with the
/// node segment's descriptor (SCM_RIGHTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// This rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Ranks in MPI_COMM_WORLD.
    pub size: u32,
    /// This rank's place among the ranks of its node.
    pub local_rank: u32,
    /// The job's ranks on this node (`local_ranks[local_rank] == rank`).
    pub local_ranks: Vec<u32>,
    /// Which program block of the mpiexec command this rank belongs to (MPI_APPNUM).
    pub appnum: u32,
    /// A number that tells this job from others on the node.
    pub job: u64,
    /// Cores that the job may use on this node (affinity and cgroup).
    pub cores: u32,
    /// Bytes in the node's segment.
    pub segment_len: u64,
}
