//! The errors of transports: why one could not be set up or used, and why a read failed.

use crate::ProcId;

/// Why a peer's memory could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The transport or the system's policy does not allow it for this peer, for the whole job.
    #[error("reading the peer's memory is not allowed")]
    Refused,
    /// The peer's memory is not there (a wrong address, or the peer has ended).
    #[error("the peer's memory could not be read (errno {0})")]
    Failed(i32),
}

/// Why a transport could not be set up or used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// What was tried.
        attempted: String,
        /// What the system said.
        cause: std::io::Error,
        /// What to set.
        advice: &'static str,
    },
    /// What a peer wrote makes no sense.
    #[error(
        "process {peer} wrote {what} into its ring: it is broken, or another program wrote over it"
    )]
    Malformed {
        /// The peer.
        peer: ProcId,
        /// What was found.
        what: &'static str,
    },
    /// The memory shared with a peer cannot be mapped.
    #[error(
        "mapping the memory that is shared with process {peer}: {cause}; raise the limits on \
         address space and mappings (ulimit -v, sysctl vm.max_map_count)"
    )]
    Unmapped {
        /// The peer.
        peer: ProcId,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The node's segment is not there any more. No process will be heard of that was not before.
    #[error(
        "the program has closed a descriptor of MPI's: between MPI_Init and MPI_Finalize it may \
         close only what it has opened"
    )]
    DescriptorClosed,
    /// No transport leads there.
    #[error("no transport reaches process {peer} (tried: {tried})")]
    Unreachable {
        /// The peer.
        peer: ProcId,
        /// Transports that were asked.
        tried: String,
    },
    /// A peer cannot be reached any more, or did not answer.
    #[error("process {peer} on host {host}: {what}")]
    Lost {
        /// The peer.
        peer: ProcId,
        /// The peer's host.
        host: String,
        /// What is known.
        what: String,
    },
    /// This host has no address for TCP.
    #[error("TCP between hosts: {0}; FERRY_TCP_IF=name,… or network,… chooses interfaces")]
    NoAddress(String),
    /// A setting has a value that makes no sense.
    #[error("{name} is {value:?}; it should be {expected}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it can be.
        expected: &'static str,
    },
    /// The modelled machine cannot be used.
    #[error("the modelled machine (mpiexec --machine): {0}")]
    Machine(String),
    /// The launcher's directory does not work.
    #[error(transparent)]
    Directory(#[from] ferry_job::JobError),
}

impl TransportError {
    /// The peer that this error is about, if it is about one.
    pub fn peer(&self) -> Option<ProcId> {
        match self {
            TransportError::Malformed { peer, .. }
            | TransportError::Unmapped { peer, .. }
            | TransportError::Unreachable { peer, .. }
            | TransportError::Lost { peer, .. } => Some(*peer),
            _ => None,
        }
    }
}
