//! The parts of a [`ConnTransport`](super::ConnTransport)'s state, by what they serve.

use super::conn::{self, FlushThread, zero_copy::SplicePipe};
use super::{PENDING_MAX, PENDING_TIMEOUT, PendingAccept, timeout};
use crate::ProcId;
use ferry_auth::{HandshakeBacklog, HandshakeConfig, RejectionCounts};
use ferry_job::{Directory, Nodes};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// This process, and its settings. Constant once the transport is open.
pub(super) struct Local {
    pub(super) me: ProcId,
    /// Processes of this job.
    pub(super) size: u32,
    pub(super) nodes: Nodes,
    /// Connections lead to processes of this job, too, not only to those of other jobs.
    pub(super) serves_job: bool,
    pub(super) handshake_config: HandshakeConfig,
    /// How long a process may be tried in vain, and its host be silent.
    pub(super) timeout: Duration,
}

/// Where business cards of other processes come from.
pub(super) struct CardLookup {
    pub(super) directory: Box<dyn Directory>,
    /// A card has been asked for, and the directory's descriptor is in the poll set.
    pub(super) is_awaited: bool,
}

/// Which entry of `ConnTransport::peers` belongs to which process.
pub(super) struct PeerSlots {
    /// By process: its index in `peers`, plus 1. 0: there is none. Pages that are never written
    /// cost no memory.
    pub(super) by_process: Vec<u32>,
    /// Indices in `peers` that no process has now, and that the poll set may still report.
    pub(super) vacated: Vec<usize>,
    /// Indices in `peers` that another process can get.
    pub(super) vacant: Vec<usize>,
    /// Some peer is [`Peer::leaving`](super::Peer::leaving).
    pub(super) any_leaving: bool,
}

impl PeerSlots {
    pub(super) fn new(size: u32) -> PeerSlots {
        PeerSlots {
            by_process: vec![0; size as usize],
            vacated: Vec::new(),
            vacant: Vec::new(),
            any_leaving: false,
        }
    }
}

/// Connections that others have made and that have not proved which process they are from.
pub(super) struct Accepting {
    pub(super) pending: HandshakeBacklog<PendingAccept>,
    pub(super) rejections: RejectionCounts,
}

impl Accepting {
    pub(super) fn new() -> Accepting {
        Accepting {
            pending: HandshakeBacklog::new(PENDING_MAX, PENDING_TIMEOUT),
            rejections: RejectionCounts::default(),
        }
    }
}

/// The descriptor that stands for all connections while the process sleeps.
pub(super) struct PollSet {
    pub(super) epoll: OwnedFd,
    pub(super) timer: timeout::Timer,
    /// A descriptor that the layer above watches was readable at the last look at the poll set.
    pub(super) watched_is_ready: bool,
}

/// The connection that is read at each poll, and how often the others are looked at.
pub(super) struct BusyPoll {
    /// The peer whose connection last brought something.
    pub(super) peer: Option<usize>,
    /// Polls since the poll set was last asked.
    pub(super) polls_since_look: u32,
    /// Polls after which the poll set is asked.
    pub(super) polls_per_look: u32,
    /// Number of polls.
    pub(super) polls: u64,
}

impl BusyPoll {
    pub(super) fn new() -> BusyPoll {
        BusyPoll {
            peer: None,
            polls_since_look: 0,
            polls_per_look: 1,
            polls: 0,
        }
    }
}

/// What receiving needs.
pub(super) struct Incoming {
    /// Bytes that are on their way between a socket and a message, also of a send.
    pub(super) scratch: Box<[u8]>,
    /// Peers from which a stream comes in, or whose connection has a low-water mark.
    pub(super) streams: Vec<usize>,
    /// Bytes of an incoming stream that collect before the progress thread is woken.
    pub(super) low_water_bytes: usize,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming {
            scratch: vec![0; conn::SCRATCH_BYTES].into_boxed_slice(),
            streams: Vec::new(),
            low_water_bytes: 0,
        }
    }
}

/// What sending needs.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Peers for which bytes wait, or a sender that was answered Full.
    pub(super) writers: Vec<usize>,
    pub(super) splice_pipe: SplicePipe,
    /// Sends what connections have kept to coalesce, while the program computes.
    pub(super) flush_thread: FlushThread,
    /// Eager messages that follow each other wait for the next poll. Only where one thread uses the
    /// device: another might wait for what this one has sent.
    pub(super) coalesces: bool,
    /// Some connection keeps messages to coalesce.
    pub(super) keeps_any: bool,
    /// The process has nothing more to send, and waits until all has arrived.
    pub(super) settling: bool,
}
