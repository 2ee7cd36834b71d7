//! Epochs: between which calls a process may access other members' memory, and others its own (MPI
//! 5.0 §12.5).
//!
//! The calls that open and close epochs change [`Epochs`] under its lock, which is never held while
//! they wait. Operations look at [`Target::access`] and [`Epochs::fence`] only.

use super::Win;
use super::target::{ALL, CLOSED, LOCKED, NO_CHECK, Target};
use crate::state_lock::{StateGuard, StateLock};
use crate::{Group, Result, err};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No fence, or one with MPI_MODE_NOSUCCEED.
pub(super) const NO_FENCE: u32 = 0;
/// A fence was the last synchronisation. It opens an epoch if an operation follows.
pub(super) const FENCE: u32 = 1;
/// An operation has followed the fence: the epoch ends with the next fence.
pub(super) const FENCE_EPOCH: u32 = 2;

/// The access epoch that is open, apart from that of a fence.
#[derive(Debug)]
pub(super) enum Access {
    None,
    /// Between MPI_Win_start and MPI_Win_complete, with these ranks.
    Started(Vec<u32>),
    /// In MPI_Win_complete.
    Completing,
    /// This many targets are locked.
    Locked(u32),
    /// Between MPI_Win_lock_all and MPI_Win_unlock_all.
    LockedAll {
        no_check: bool,
    },
}

/// The exposure epoch between MPI_Win_post and MPI_Win_wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exposure {
    /// How many origins it is for.
    pub origins: u32,
    /// The origin, if there is only one.
    pub only: Option<u32>,
}

impl Exposure {
    /// Adds an origin.
    pub fn add(&mut self, rank: u32) {
        self.origins += 1;
        self.only = Some(rank).filter(|_| self.origins == 1);
    }
}

/// The epochs of one window in this process.
pub(super) struct Epochs {
    /// [`NO_FENCE`], [`FENCE`] or [`FENCE_EPOCH`].
    pub fence: AtomicU32,
    /// How many fences have ended, or are behind their barrier.
    pub fences: AtomicU64,
    state: StateLock<EpochState>,
}

pub(super) struct EpochState {
    pub access: Access,
    pub exposure: Option<Exposure>,
    /// Room for the ranks of the next MPI_Win_start.
    pub spare_ranks: Vec<u32>,
    /// Ranks that were locked for MPI_Win_lock_all when they were first used.
    pub locked_on_use: Vec<u32>,
}

impl Epochs {
    /// None open.
    pub fn new() -> Epochs {
        Epochs {
            fence: AtomicU32::new(NO_FENCE),
            fences: AtomicU64::new(0),
            state: StateLock::new(EpochState {
                access: Access::None,
                exposure: None,
                spare_ranks: Vec::new(),
                locked_on_use: Vec::new(),
            }),
        }
    }

    /// The state, locked.
    #[inline]
    pub fn state(&self) -> StateGuard<'_, EpochState> {
        self.state.lock()
    }
}

impl EpochState {
    /// What is open, in words for messages. `None`: no access epoch.
    pub fn open_access(&self) -> Option<String> {
        match &self.access {
            Access::None => None,
            Access::Started(ranks) => Some(format!(
                "between MPI_Win_start with {} and MPI_Win_complete",
                ranks_text(ranks.len() as u32)
            )),
            Access::Completing => Some("in MPI_Win_complete of another thread".into()),
            Access::Locked(n) => Some(format!(
                "with {} locked, before MPI_Win_unlock",
                ranks_text(*n)
            )),
            Access::LockedAll { .. } => {
                Some("between MPI_Win_lock_all and MPI_Win_unlock_all".into())
            }
        }
    }
}

/// A number of ranks, in words.
pub(super) fn ranks_text(n: u32) -> String {
    if n == 1 {
        "1 rank".into()
    } else {
        format!("{n} ranks")
    }
}

impl Win {
    /// Opens the way to a target whose access is closed as far as the operation could see: the
    /// first operation after a fence, or to a target of MPI_Win_lock_all. The latter blocks while
    /// another origin has locked the target exclusively.
    ///
    /// Errors: RmaSync outside an access epoch.
    #[inline]
    pub(super) fn open_access(&self, target: &Target, call: &str) -> Result<()> {
        // While a fence is in effect, no other access epoch is open.
        let fence = &self.epochs.fence;
        if fence.load(Ordering::Relaxed) == NO_FENCE {
            return self.open_other_access(target, call);
        }
        fence.store(FENCE_EPOCH, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn open_other_access(&self, target: &Target, call: &str) -> Result<()> {
        let state = self.epochs.state();
        if target.access.load(Ordering::Relaxed) != CLOSED {
            return Ok(());
        }
        match &state.access {
            Access::LockedAll { no_check } => {
                let no_check = *no_check;
                drop(state);
                self.lock_on_use(target, no_check)
            }
            Access::None | Access::Completing => Err(err!(
                RmaSync,
                "{call} to rank {} of the window outside an access epoch: none of MPI_Win_fence, \
                 MPI_Win_start, MPI_Win_lock and MPI_Win_lock_all is in effect",
                target.rank
            )),
            Access::Started(ranks) => Err(err!(
                RmaSync,
                "{call} to rank {} of the window, which is not in the group of {} that \
                 MPI_Win_start was called with",
                target.rank,
                ranks_text(ranks.len() as u32)
            )),
            Access::Locked(n) => Err(err!(
                RmaSync,
                "{call} to rank {} of the window, which is not locked ({} locked)",
                target.rank,
                if *n == 1 {
                    "1 other rank is".into()
                } else {
                    format!("{n} other ranks are")
                }
            )),
        }
    }

    /// Takes a target's lock for MPI_Win_lock_all, at its first use.
    fn lock_on_use(&self, target: &Target, no_check: bool) -> Result<()> {
        let mut bits = LOCKED | ALL;
        if no_check {
            bits |= NO_CHECK;
        } else {
            self.acquire(target, false)?;
        }
        let mut state = self.epochs.state();
        if target.access.load(Ordering::Relaxed) != CLOSED {
            // Another thread was faster.
            drop(state);
            return if no_check {
                Ok(())
            } else {
                self.release(target, false)
            };
        }
        state.locked_on_use.push(target.rank);
        target.access.store(bits, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that no access epoch is open but that of a fence, and that this fence's has seen no
    /// operation. The fence is no longer in effect then.
    ///
    /// Errors: RmaSync.
    pub(super) fn begin_access(&self, state: &EpochState, call: &str) -> Result<()> {
        if let Some(open) = state.open_access() {
            return Err(err!(RmaSync, "{call} {open}"));
        }
        self.end_fence(call)
    }

    /// The fence is no longer in effect.
    ///
    /// Errors: RmaSync if operations have followed it.
    pub(super) fn end_fence(&self, call: &str) -> Result<()> {
        if self.epochs.fence.load(Ordering::Relaxed) == FENCE_EPOCH {
            return Err(err!(
                RmaSync,
                "{call} in the epoch that MPI_Win_fence has opened: operations have followed it, \
                 so another MPI_Win_fence (MPI_MODE_NOSUCCEED) has to end it"
            ));
        }
        self.epochs.fence.store(NO_FENCE, Ordering::Relaxed);
        Ok(())
    }

    /// The ranks of a group's members in the window, in the group's order.
    ///
    /// Errors, each: Group if the window lacks it.
    pub(super) fn ranks_of(&self, group: &Group) -> impl Iterator<Item = Result<u32>> {
        let own = &self.comm.group;
        group.iter().enumerate().map(move |(rank, process)| {
            own.rank_of(process).ok_or_else(|| {
                err!(
                    Group,
                    "rank {rank} of group (process {process} of the job) is not in the window's \
                     group"
                )
            })
        })
    }
}
