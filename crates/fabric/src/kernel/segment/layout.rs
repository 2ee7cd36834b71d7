//! The layout of the shared memory of a job and its model.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the memory.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ferrymod");
/// Version of the layout. Raised with each change of it.
pub(super) const VERSION: u32 = 6;
/// The system's page size.
pub(super) const PAGE_BYTES: usize = 4096;
/// Most bytes of the machine's encoded description.
pub(super) const MACHINE_MAX_BYTES: usize = 64 * 1024;
/// Most bytes of commands, and of events, in a mailbox.
pub(in crate::kernel) const QUEUE_MAX_BYTES: usize = 256 * 1024;
/// Most ranks of a modelled job.
pub(super) const RANKS_MAX: u32 = 4096;
/// Most bytes that one rank's card maps.
pub(super) const MAPPED_MAX_BYTES: u64 = 1 << 32;

/// Kinds of commands with a response time in the header. That of others is zero.
pub(in crate::kernel) const COMMAND_KINDS: usize = 8;
/// Most cores that ranks are spread over.
pub(super) const CPUS_MAX: usize = 64;

/// States of a rank.
pub(in crate::kernel) mod state {
    /// It has not joined yet. Counts as running.
    pub const ABSENT: u32 = 0;
    /// It has the turn.
    pub const RUNNING: u32 = 1;
    /// It waits for the model to catch up with its clock.
    pub const SYNCING: u32 = 2;
    /// It waits until the model has something for it.
    pub const WAITING: u32 = 3;
    /// It takes no part any more.
    pub const LEFT: u32 = 4;
    /// It waited, or had left, and asks to go on.
    pub const RESUMING: u32 = 5;
    /// It polls, and waits if nothing is there.
    pub const POLLING: u32 = 6;
}

/// What all ranks and the model share.
#[repr(C)]
pub(in crate::kernel) struct Header {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// Ranks of the job.
    pub(super) ranks: AtomicU32,
    /// Bytes that each rank's card maps.
    pub(super) mapped_bytes: AtomicU64,
    /// Bytes of the machine's description.
    pub(super) machine_bytes: AtomicU64,
    /// What the model sleeps on.
    pub wakeup: AtomicU32,
    /// The model sleeps.
    pub asleep: AtomicU32,
    /// Ranks that have not stopped yet.
    pub running: AtomicU32,
    /// Ranks that have asked to go on.
    pub resume_requests: AtomicU32,
    /// A rank's process has ended, so `running` may be too high.
    pub exited: AtomicU32,
    /// The job is over.
    pub closing: AtomicU32,
    /// Ranks record their work for the timeline, span by span.
    pub traced: AtomicU32,
    /// Virtual time does not run ahead of real time.
    pub paced: AtomicU32,
    /// By kind of command: least time until its own rank can see anything of it, picoseconds.
    pub response_times: [AtomicU64; COMMAND_KINDS],
    /// Virtual time in picoseconds, for observers.
    pub now: AtomicU64,
    /// Commands so far, for observers.
    pub commands: AtomicU64,
    /// How often a rank that waits for its turn yields before it sleeps.
    pub yields: AtomicU32,
    /// How many of `cpus` the ranks are on, from the first one on.
    pub cores: AtomicU32,
    /// CPUs that the ranks may be spread over. Zero: they stay where they are.
    pub(super) cpu_count: AtomicU32,
    pub(super) cpus: [AtomicU32; CPUS_MAX],
}

/// What a rank and the model share.
#[repr(C)]
pub(in crate::kernel) struct Mailbox {
    /// One of [`state`].
    pub state: AtomicU32,
    /// How often the rank has got the turn. Only the model raises it. A rank with one thread sleeps
    /// on it; of a rank with several, the thread that asks to go on.
    pub turn: AtomicU32,
    /// What the threads of a rank with several sleep on. The model raises it after a turn that none
    /// of them has asked for. The rank raises it when one thread has something for another.
    pub wakeup: AtomicU32,
    /// Somebody sleeps on `turn`, or is about to.
    pub asleep: AtomicU32,
    /// Threads of the rank may call MPI at once. A waiting rank may then go on by itself.
    pub concurrent: AtomicU32,
    /// The process has ended.
    pub exited: AtomicU32,
    /// A device outside the model has something for the rank: it goes on if it waits.
    pub interrupted: AtomicU32,
    /// There are more events than the mailbox holds.
    pub more_events: AtomicU32,
    /// The rank goes on because its poll has found something. It has not waited.
    pub poll_found: AtomicU32,
    /// Bytes of commands in the mailbox.
    pub command_bytes: AtomicU32,
    /// Bytes of events in the mailbox.
    pub event_bytes: AtomicU32,
    /// The rank's clock in picoseconds: when it stopped, or when it goes on.
    pub clock: AtomicU64,
    /// Nothing changes for the rank before this time, in picoseconds, unless it issues commands.
    pub horizon: AtomicU64,
    /// How often the waiting rank polls, picoseconds.
    pub poll_period: AtomicU64,
}

/// Bytes of a rank's part before what its card maps.
pub(super) const MAILBOX_BYTES: usize = PAGE_BYTES + 2 * QUEUE_MAX_BYTES;

/// Bytes of a rank's part.
pub(super) fn rank_stride(mapped_bytes: usize) -> usize {
    MAILBOX_BYTES + mapped_bytes
}
