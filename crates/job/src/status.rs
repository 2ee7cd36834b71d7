//! Status pages: what each rank tells its launcher in shared memory.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Where a rank is between its start and MPI_Finalize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RankState {
    /// MPI has not been initialised (or the program is no MPI program).
    Started = 0,
    /// Between initialisation and finalisation.
    Running = 1,
    /// MPI_Finalize has returned, or no other rank needs this one any more.
    Finalized = 2,
    /// MPI_Abort was called. `abort_code` is valid.
    Aborted = 3,
}

impl RankState {
    /// The state with this number. Unknown numbers count as `Started`.
    pub fn from_number(number: u32) -> RankState {
        match number {
            1 => RankState::Running,
            2 => RankState::Finalized,
            3 => RankState::Aborted,
            _ => RankState::Started,
        }
    }
}

/// In [`RankStatus::peer`]: several operations, or one of several ranks.
pub const PEER_SEVERAL: i32 = -2;
/// In [`RankStatus::peer`]: the program itself, which completes its generalized requests.
pub const PEER_OWN_PROGRAM: i32 = -3;
/// In [`RankStatus::peer`]: whoever comes to a port, or accepts there.
pub const PEER_AT_PORT: i32 = -4;
/// Requests that a status page names at most, of those that a call waits for. A choice: a line of a
/// report has room for as many.
pub const AWAITED_MAX: usize = 3;
/// Other jobs that a status page names at most. A choice: more than most programs connect with.
pub const KNOWN_JOBS_MAX: usize = 16;

/// In [`RankStatus::tag`]: a window's lock. The peer is the rank that holds it.
/// [`RankStatus::root`] is the rank of the window that is locked.
pub const TAG_WINDOW_LOCK: i32 = -10;
/// In [`RankStatus::tag`]: the lock under which a peer accumulates.
pub const TAG_WINDOW_ACCUMULATE: i32 = -11;
/// In [`RankStatus::tag`]: the peer's MPI_Win_post.
pub const TAG_WINDOW_POST: i32 = -12;
/// In [`RankStatus::tag`]: MPI_Win_complete of origins.
pub const TAG_WINDOW_COMPLETE: i32 = -13;
/// In [`RankStatus::tag`]: one-sided operations that the peer has not done yet.
pub const TAG_WINDOW_FLUSH: i32 = -14;
/// In [`RankStatus::tag`]: MPI_Win_free of the window's other ranks.
pub const TAG_WINDOW_FREE: i32 = -15;

/// What a rank is doing. Written by the rank, read by the launcher. Only the [send slot](SendSlot)
/// is written by other ranks, too. All fields are advisory.
#[repr(C, align(256))]
#[derive(Debug, Default)]
pub struct RankStatus {
    /// A [`RankState`].
    pub state: AtomicU32,
    /// Exit code given to MPI_Abort.
    pub abort_code: AtomicI32,
    /// 1 while every thread of the rank that is in MPI sleeps in a blocking call.
    pub asleep: AtomicU32,
    /// The MPI function that is being executed: its index in `ferry_api`'s list, plus 1. 0 for
    /// none.
    pub call: AtomicU32,
    /// CLOCK_MONOTONIC in nanoseconds when `asleep` became 1.
    pub since: AtomicU64,
    /// The communicator's context (point-to-point form).
    pub context: AtomicU64,
    /// The peer that is waited for, as a rank of MPI_COMM_WORLD; behind those, one of another job
    /// (`peer_rank`). -1 for any, else [`PEER_SEVERAL`], [`PEER_OWN_PROGRAM`] or
    /// [`PEER_AT_PORT`].
    pub peer: AtomicI32,
    /// The tag that is waited for. -1 for any. For collectives: bytes of the data by this rank's
    /// arguments, i32::MAX for more; -1 if that is not known.
    pub tag: AtomicI32,
    /// For collectives: how many the communicator has started, including this one.
    pub collective: AtomicU64,
    /// For rooted collectives: the root's rank in the communicator. -1 for none.
    pub root: AtomicI32,
    /// Threads of this rank may call MPI at once (MPI_THREAD_MULTIPLE).
    pub concurrent: AtomicU32,
    /// Messages given to a transport so far.
    pub sent: AtomicU64,
    /// Messages taken from a transport so far.
    pub received: AtomicU64,
    /// The communicator's name, cut at 40 bytes.
    pub comm_name: ShortText,
    /// The communicator's size (of the local group).
    pub comm_size: AtomicU32,
    /// This process's rank in it.
    pub comm_rank: AtomicI32,
    /// The process id in the process's own namespace. 0 before MPI is initialised.
    pub pid: AtomicI32,
    /// The epoll descriptor that a thread may sleep on in MPI. -1 for none.
    pub epoll_fd: AtomicI32,
    /// Address of the wakeup word that threads sleep on in MPI, in the process.
    pub wakeup_word: AtomicU64,
    /// 1 if it waits for processes of a job that is not connected yet, or is connected with more
    /// jobs than `known_jobs` has room for.
    pub awaits_unknown: AtomicU32,
    /// Number of processes of other jobs that it has disconnected from. Messages with them remain
    /// counted in `sent` and `received`.
    pub parted: AtomicU32,
    /// If the peer is of another job: its rank there.
    pub peer_rank: AtomicU32,
    /// If the peer is of another job: that job's id.
    pub peer_job: AtomicU64,
    /// The ids of the other jobs that it is connected with, any of which may wake it. 0: no further
    /// one.
    pub known_jobs: [AtomicU64; KNOWN_JOBS_MAX],
    /// What the request is that a call waits for: the function that has started it, or a word.
    /// Empty if it waits for none. Cut at 40 bytes.
    pub operation: ShortText,
    /// How many requests are not complete, where a call waits for several. 0: it waits for one, or
    /// for none.
    pub awaited_count: AtomicU32,
    /// The first of them. If all of them have to be complete, the other fields tell of the first.
    pub awaited: [AwaitedRequest; AWAITED_MAX],
    /// Its slot for sending large messages.
    pub send_slot: SendSlot,
}

/// A text of up to 40 bytes, ended by a zero byte if it is shorter.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct ShortText([AtomicU64; 5]);

impl ShortText {
    /// Stores a text, cut at 40 bytes.
    pub fn store(&self, text: &[u8]) {
        let mut bytes = [0u8; 40];
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text[..len]);
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// Makes it empty.
    pub fn clear(&self) {
        self.0[0].store(0, Relaxed);
    }

    fn words(&self) -> [u64; 5] {
        std::array::from_fn(|i| self.0[i].load(Relaxed))
    }

    fn set_words(&self, words: &[u64; 5]) {
        for (word, &bytes) in self.0.iter().zip(words) {
            word.store(bytes, Relaxed);
        }
    }

    /// The text, cut at the first zero byte, without control characters.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end])
            .chars()
            .filter(|c| !c.is_control())
            .collect()
    }
}

/// One of several requests that a call waits for. Its fields are as those of [`RankStatus`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct AwaitedRequest {
    /// The communicator's context.
    pub context: AtomicU64,
    /// The collective's number. 0: it is none.
    pub collective: AtomicU64,
    /// The peer, or [`PEER_SEVERAL`] and its kin.
    pub peer: AtomicI32,
    /// The tag. -1 for any.
    pub tag: AtomicI32,
    /// What it is.
    pub operation: ShortText,
}

/// An [`AwaitedRequest`], copied.
#[derive(Clone, Copy, Debug, Default)]
struct AwaitedCopy {
    context: u64,
    collective: u64,
    peer: i32,
    tag: i32,
    operation: [u64; 5],
}

impl AwaitedRequest {
    fn copy(&self) -> AwaitedCopy {
        AwaitedCopy {
            context: self.context.load(Relaxed),
            collective: self.collective.load(Relaxed),
            peer: self.peer.load(Relaxed),
            tag: self.tag.load(Relaxed),
            operation: self.operation.words(),
        }
    }

    fn set(&self, copy: &AwaitedCopy) {
        self.context.store(copy.context, Relaxed);
        self.collective.store(copy.collective, Relaxed);
        self.peer.store(copy.peer, Relaxed);
        self.tag.store(copy.tag, Relaxed);
        self.operation.set_words(&copy.operation);
    }
}

/// Ranks that share a core send large messages one at a time. Written by the rank, and by the rank
/// that passes its turn on. Times are those of [`RankStatus::now`].
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SendSlot {
    /// Since when it waits for its turn. 0: it does not wait.
    pub waiting_since: AtomicU64,
    /// Since when it has its turn. 0: it has none.
    pub holding_since: AtomicU64,
    /// When it has last sent bytes.
    pub last_sent: AtomicU64,
    /// The only core that it may use, plus 1. 0: any of the job's cores.
    pub core: AtomicU32,
}

/// What one thread waits for: the fields of a status page that it writes. If threads of a rank wait
/// for different things, the page shows one of them.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    call: u32,
    since: u64,
    context: u64,
    peer: i32,
    tag: i32,
    collective: u64,
    root: i32,
    comm_name: [u64; 5],
    comm_size: u32,
    comm_rank: i32,
    peer_rank: u32,
    peer_job: u64,
    operation: [u64; 5],
    awaited_count: u32,
    awaited: [AwaitedCopy; AWAITED_MAX],
}

impl RankStatus {
    /// The fields tell of request `at` of several: keeps them as those of that request.
    pub fn keep_awaited(&self, at: usize) {
        self.awaited[at].set(&AwaitedCopy {
            context: self.context.load(Relaxed),
            collective: self.collective.load(Relaxed),
            peer: self.peer.load(Relaxed),
            tag: self.tag.load(Relaxed),
            operation: self.operation.words(),
        });
    }

    /// What the page says is waited for.
    pub fn shown(&self) -> Wait {
        Wait {
            call: self.call.load(Relaxed),
            since: self.since.load(Relaxed),
            context: self.context.load(Relaxed),
            peer: self.peer.load(Relaxed),
            tag: self.tag.load(Relaxed),
            collective: self.collective.load(Relaxed),
            root: self.root.load(Relaxed),
            comm_name: self.comm_name.words(),
            comm_size: self.comm_size.load(Relaxed),
            comm_rank: self.comm_rank.load(Relaxed),
            peer_rank: self.peer_rank.load(Relaxed),
            peer_job: self.peer_job.load(Relaxed),
            operation: self.operation.words(),
            awaited_count: self.awaited_count.load(Relaxed),
            awaited: std::array::from_fn(|i| self.awaited[i].copy()),
        }
    }

    /// Says that this is waited for, by a thread that is asleep.
    pub fn show(&self, wait: &Wait) {
        self.call.store(wait.call, Relaxed);
        self.since.store(wait.since, Relaxed);
        self.context.store(wait.context, Relaxed);
        self.peer.store(wait.peer, Relaxed);
        self.tag.store(wait.tag, Relaxed);
        self.collective.store(wait.collective, Relaxed);
        self.root.store(wait.root, Relaxed);
        self.comm_name.set_words(&wait.comm_name);
        self.comm_size.store(wait.comm_size, Relaxed);
        self.comm_rank.store(wait.comm_rank, Relaxed);
        self.peer_rank.store(wait.peer_rank, Relaxed);
        self.peer_job.store(wait.peer_job, Relaxed);
        self.operation.set_words(&wait.operation);
        self.awaited_count.store(wait.awaited_count, Relaxed);
        for (to, from) in self.awaited.iter().zip(&wait.awaited) {
            to.set(from);
        }
        self.asleep.store(1, Release);
    }

    /// The time by the clock of [`RankStatus::since`].
    pub fn now() -> u64 {
        crate::clock::monotonic()
    }
}
