//! What a process remembers of its waiting, its core and its tests.

use crate::progress::thread_usage::ThreadUsage;
use ferry_job::Wait;
use ferry_transport::ProcId;
use ferry_transport::shm::{PeerMemory, UPDATE_WORDS, UpdateSlot};
use std::time::{Duration, Instant};

/// How long a waiting thread polls where it has a core. A choice: about as long as sleeping and
/// waking take together.
const SPIN: Duration = Duration::from_micros(100);

/// How waiting is done in this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitPolicy {
    /// A waiting thread polls for this time before it sleeps.
    pub spin: Duration,
    /// Ranks outnumber cores: a waiting thread yields its core a few times before it sleeps.
    pub oversubscribed: bool,
    /// How many ranks may share a core.
    pub ranks_on_core: u32,
}

impl WaitPolicy {
    /// On a modelled machine: time does not pass by polling.
    pub const NONE: WaitPolicy = WaitPolicy {
        spin: Duration::ZERO,
        oversubscribed: false,
        ranks_on_core: 1,
    };

    /// The policy for `ranks` ranks on a node where the job may use `cores` cores.
    pub fn new(ranks: u32, cores: u32) -> WaitPolicy {
        let fits = ranks <= cores;
        let policy = WaitPolicy {
            spin: SPIN,
            oversubscribed: false,
            // All may be bound to one.
            ranks_on_core: if fits { ranks } else { ranks.div_ceil(cores) },
        };
        if fits {
            policy
        } else {
            policy.oversubscribed()
        }
    }

    /// The policy where ranks outnumber cores.
    pub fn oversubscribed(self) -> WaitPolicy {
        WaitPolicy {
            spin: Duration::ZERO,
            oversubscribed: true,
            ..self
        }
    }
}

/// What is known of the core on which this process's program waits.
pub(crate) struct CoreSharing {
    pub core: u32,
    /// Another rank of the node uses it as well.
    pub shared: bool,
    /// When that was found out.
    pub checked_at: Option<Instant>,
    /// This rank yielded after the last barrier to which it came last.
    pub yielded_at_barrier: bool,
    /// The number of message offers at that barrier.
    pub message_offers: u32,
    /// Large messages count as coming or going by connections until then.
    pub streams_until: Option<Instant>,
    /// This rank does not yield after a barrier until then.
    pub no_yield_until: Option<Instant>,
}

impl CoreSharing {
    pub const UNKNOWN: CoreSharing = CoreSharing {
        core: 0,
        shared: false,
        checked_at: None,
        yielded_at_barrier: false,
        message_offers: 0,
        streams_until: None,
        no_yield_until: None,
    };
}

/// What this process has done to spread the ranks over the cores.
pub(crate) struct CoreBalance {
    /// Yields since it last looked where the ranks are.
    pub yields: u32,
    /// When it last moved to another core.
    pub moved_at: Option<Instant>,
    /// The peer whose message the last wait was for, if it was one and known.
    pub awaited: Option<ProcId>,
    /// It does not move away from a peer until then.
    pub stays_until: Option<Instant>,
    /// How long it stayed the last time.
    pub stay_interval: Duration,
}

impl CoreBalance {
    pub const NEW: CoreBalance = CoreBalance {
        yields: 0,
        moved_at: None,
        awaited: None,
        stays_until: None,
        stay_interval: Duration::ZERO,
    };
}

/// Tests (MPI_Test, MPI_Iprobe and the like) that have found nothing.
pub(crate) struct TestBackoff {
    /// Tests since the clock was read.
    pub count: u32,
    /// Tests for a message of a peer that runs, since the last that found something or yielded.
    pub spins: u32,
    /// When the clock was read.
    pub last: Option<Instant>,
    /// When a test was made outside of a loop, and what the thread had used until then.
    pub outside_loop: Option<(Instant, ThreadUsage)>,
    /// When the core came back from a yield of a program that works.
    pub yielded: Option<Instant>,
}

impl TestBackoff {
    pub const NONE: TestBackoff = TestBackoff {
        count: 0,
        spins: 0,
        last: None,
        outside_loop: None,
        yielded: None,
    };
}

/// Threads that sleep, each with a key of its own, where several may be in MPI. The status page
/// shows the wait of the last one.
#[derive(Default)]
pub(crate) struct Sleepers(pub Vec<(usize, Wait)>);

/// Finds the memory of a peer.
pub type FindPeer<'a> = &'a mut dyn FnMut(ProcId) -> Option<PeerMemory>;
/// Does an update of this process's memory: gets its words and returns the result. Runs with the
/// device's lock.
pub type DoUpdate = fn(FindPeer<'_>, [u64; UPDATE_WORDS]) -> u64;

/// The update slot of this process, and what does the updates.
pub(crate) struct Served {
    pub slot: &'static UpdateSlot,
    pub run: DoUpdate,
    /// How many have asked for it.
    pub users: usize,
}
