//! Passive target: MPI_Win_lock to MPI_Win_unlock_all, flushes and MPI_Win_sync (MPI 5.0 §12.5.3,
//! §12.5.4).
//!
//! On a node the lock of a target is a [`NodeLock`] in its control block. A target on another node
//! takes its lock for the origin (`remote`). MPI_Win_lock_all locks each target when it is first
//! used, but this process's own at once: the program may access its own memory directly.
//!
//! [`NodeLock`]: crate::device::NodeLock

use super::epoch::Access;
use super::fence::full_barrier;
use super::target::{ALL, CLOSED, EXCLUSIVE, LOCKED, NO_CHECK, Reach, Target};
use super::{Win, remote};
use crate::device::{self, Describe, Device, NodeLock, Patience, WaitingFor};
use crate::{Result, err};
use ferry_job::{PEER_SEVERAL, RankStatus, TAG_WINDOW_ACCUMULATE, TAG_WINDOW_LOCK};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Flushes and unlocks on a node between two that make progress. A choice: it costs less than a
/// nanosecond each, and a loop of them yields its core after some microseconds.
const FLUSHES_PER_PROGRESS: i32 = 64;
/// The same for a window whose ranks are on several nodes: others may wait for this rank's service.
const FLUSHES_PER_PROGRESS_BETWEEN_NODES: i32 = 8;

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockType {
    /// MPI_LOCK_EXCLUSIVE.
    Exclusive,
    /// MPI_LOCK_SHARED.
    Shared,
}

/// A wait for a lock of the node, as mpiexec's report of a hang shows it.
struct LockWait<'a> {
    win: &'a Win,
    lock: &'a NodeLock,
    target: &'a Target,
}

impl Describe for LockWait<'_> {
    fn describe(&self, d: &mut Device, status: &RankStatus) {
        self.win.describe(d, status);
        let holder = self.lock.exclusive_holder();
        let holder = holder.filter(|&rank| rank < self.win.ranks());
        let peer = holder.map_or(PEER_SEVERAL, |rank| self.win.comm.peer(rank) as i32);
        status.peer.store(peer, Ordering::Relaxed);
        status
            .root
            .store(self.target.process as i32, Ordering::Relaxed);
    }
}

impl Win {
    /// Locks `rank` (MPI_Win_lock). Blocks while another origin's lock excludes it; for a rank on
    /// another node the operations wait instead. `no_check`: the program asserts that no other lock
    /// excludes it.
    ///
    /// Errors: RmaSync in another epoch, or if this process has locked the rank already.
    pub fn lock(&self, kind: LockType, rank: u32, no_check: bool) -> Result<()> {
        let target = self.target(rank)?;
        {
            let mut state = self.epochs.state();
            let count = match state.access {
                Access::Locked(count) => count,
                _ => {
                    self.begin_access(&state, "MPI_Win_lock")?;
                    0
                }
            };
            if target.access.load(Ordering::Relaxed) != CLOSED {
                return Err(err!(
                    RmaSync,
                    "MPI_Win_lock of rank {rank}, which this process has locked already"
                ));
            }
            state.access = Access::Locked(count + 1);
        }
        let exclusive = kind == LockType::Exclusive;
        if !no_check {
            remote::await_locks();
            self.acquire(target, exclusive)?;
            remote::await_own_lock(self, target);
        }
        let mut bits = LOCKED;
        if exclusive {
            bits |= EXCLUSIVE;
        }
        if no_check {
            bits |= NO_CHECK;
        }
        target.access.store(bits, Ordering::Relaxed);
        Ok(())
    }

    /// Unlocks `rank` (MPI_Win_unlock). Blocks until all operations to it are complete.
    ///
    /// Errors: RmaSync if this process has not locked it by [`Win::lock`].
    pub fn unlock(&self, rank: u32) -> Result<()> {
        let target = self.target(rank)?;
        let bits = target.access.load(Ordering::Relaxed);
        if bits & LOCKED == 0 || bits & ALL != 0 {
            let hint = if bits & ALL != 0 || self.has_locked_all() {
                "; MPI_Win_lock_all is ended by MPI_Win_unlock_all"
            } else {
                ""
            };
            return Err(err!(
                RmaSync,
                "MPI_Win_unlock of rank {rank}, which this process has not locked{hint}"
            ));
        }
        self.end_lock(target, bits)?;
        let mut state = self.epochs.state();
        state.access = match state.access {
            Access::Locked(count) if count > 1 => Access::Locked(count - 1),
            _ => Access::None,
        };
        Ok(())
    }

    /// Opens an access epoch to all ranks (MPI_Win_lock_all). Blocks while another origin has
    /// locked this process exclusively.
    ///
    /// Errors: RmaSync in another epoch.
    pub fn lock_all(&self, no_check: bool) -> Result<()> {
        {
            let mut state = self.epochs.state();
            self.begin_access(&state, "MPI_Win_lock_all")?;
            state.access = Access::LockedAll { no_check };
        }
        let own = self.target(self.rank())?;
        self.open_access(own, "MPI_Win_lock_all")
    }

    /// Ends the epoch of [`Win::lock_all`]. Blocks until all operations are complete.
    ///
    /// Errors: RmaSync if there is none.
    pub fn unlock_all(&self) -> Result<()> {
        if !self.has_locked_all() {
            return Err(err!(RmaSync, "MPI_Win_unlock_all without MPI_Win_lock_all"));
        }
        let locked = std::mem::take(&mut self.epochs.state().locked_on_use);
        let (mut result, mut elsewhere, mut no_check) = (Ok(()), Vec::new(), false);
        for rank in locked {
            let target = self.target(rank)?;
            let bits = target.access.load(Ordering::Relaxed);
            if target.member.is_none() {
                target.access.store(CLOSED, Ordering::Relaxed);
                no_check |= bits & NO_CHECK != 0;
                elsewhere.push(target);
                continue;
            }
            let ended = self.end_lock(target, bits);
            result = result.and(ended);
        }
        let ended = match no_check {
            true => remote::flush_all(self),
            false => remote::unlock_all(self, &elsewhere),
        };
        self.epochs.state().access = Access::None;
        result.and(ended)
    }

    fn has_locked_all(&self) -> bool {
        matches!(self.epochs.state().access, Access::LockedAll { .. })
    }

    /// Completes the operations to a target and releases its lock.
    fn end_lock(&self, target: &Target, bits: u32) -> Result<()> {
        let no_check = bits & NO_CHECK != 0;
        let result = match target.reach {
            Reach::Mapped => {
                // Otherwise the release is a barrier, too: an atomic on x86-64.
                if no_check || cfg!(not(target_arch = "x86_64")) {
                    target.order_stores();
                }
                Ok(())
            }
            Reach::Peer(_) => self.drain_puts(target),
            Reach::Remote if no_check || target.member.is_some() => remote::flush(self, target),
            // One message does both.
            Reach::Remote => Ok(()),
        };
        target.access.store(CLOSED, Ordering::Relaxed);
        let result = if no_check {
            result
        } else {
            result.and(self.release(target, bits & EXCLUSIVE != 0))
        };
        // Not before: it may lose the core. Without a lock, too: the program may wait for a store.
        if self.is_time_for_progress() {
            device::poll_after_work();
        }
        result
    }

    /// Blocks until all operations to a target are complete there.
    #[inline]
    fn complete(&self, target: &Target) -> Result<()> {
        if target.reach != Reach::Mapped {
            return self.complete_other(target);
        }
        target.order_stores();
        self.progress_at_times();
        Ok(())
    }

    #[inline(never)]
    fn complete_other(&self, target: &Target) -> Result<()> {
        if target.reach == Reach::Remote {
            return remote::flush(self, target);
        }
        self.drain_puts(target)?;
        self.progress_at_times();
        Ok(())
    }

    /// Makes progress now and then.
    #[inline]
    fn progress_at_times(&self) {
        if self.is_time_for_progress() {
            self.progress();
        }
    }

    /// Makes progress. Who only reads, swaps or stores may wait for another rank, and yields its
    /// core where ranks outnumber cores; who adds has got something done, and yields later. Out of
    /// line: few flushes do it, and it would make all of them save registers.
    #[inline(never)]
    fn progress(&self) {
        if self.has_added.load(Ordering::Relaxed) {
            self.has_added.store(false, Ordering::Relaxed);
            device::poll_after_update();
        } else {
            device::poll_once(|_| None::<()>);
        }
    }

    /// Counts a call. Returns whether it is time to make progress. Operations on a node need none,
    /// but a program may look at the window in a loop until another rank, which needs this one's
    /// progress or its core, has written there.
    #[inline]
    fn is_time_for_progress(&self) -> bool {
        let left = self.flushes_left.load(Ordering::Relaxed) - 1;
        self.flushes_left.store(left, Ordering::Relaxed);
        left <= 0 && self.begin_flushes()
    }

    /// Counts anew. Returns true.
    #[cold]
    fn begin_flushes(&self) -> bool {
        let one_node = self.members.len() == self.ranks() as usize;
        let interval = if one_node {
            FLUSHES_PER_PROGRESS
        } else {
            FLUSHES_PER_PROGRESS_BETWEEN_NODES
        };
        self.flushes_left.store(interval, Ordering::Relaxed);
        true
    }

    /// Takes the lock of a target.
    pub(super) fn acquire(&self, target: &Target, exclusive: bool) -> Result<()> {
        let (Some(member), Some(block)) = (target.member, target.block(&self.control)) else {
            return remote::lock_target(self, target, exclusive);
        };
        self.wait_for_lock(&block.lock.0, target, member, exclusive, TAG_WINDOW_LOCK);
        Ok(())
    }

    /// Releases the lock of a target.
    pub(super) fn release(&self, target: &Target, exclusive: bool) -> Result<()> {
        let (Some(member), Some(block)) = (target.member, target.block(&self.control)) else {
            return remote::unlock(self, target);
        };
        self.release_lock(&block.lock.0, member, exclusive);
        Ok(())
    }

    /// Blocks until this process has a lock of the node. `tag` tells mpiexec what it waits for.
    fn wait_for_lock(
        &self,
        lock: &NodeLock,
        target: &Target,
        member: usize,
        exclusive: bool,
        tag: i32,
    ) {
        let who = self.rank();
        let attempt = |patience| {
            if exclusive {
                lock.try_exclusive(who, patience)
            } else {
                lock.try_shared(who, patience)
            }
        };
        if attempt(Patience::New) {
            return;
        }
        let waiting = self.control.wait_set(member);
        let since = Instant::now();
        waiting.add(self.member);
        lock.begin_wait();
        let details = LockWait {
            win: self,
            lock,
            target,
        };
        let what = WaitingFor {
            details: Some(&details),
            ..self.waiting_for(target.process, tag)
        };
        device::wait_for_memory(&what, |d| {
            waiting.add(self.member);
            // In virtual time a reservation would depend on how long this host takes.
            let patience = match d.is_virtual() {
                true => Patience::New,
                false => Patience::after(since.elapsed()),
            };
            if attempt(patience) {
                return true;
            }
            if let Some(time) = lock.again_in(exclusive) {
                d.sleep_at_most(time);
            }
            false
        });
        // It stays in the wait set: another thread, or the service, may wait there, too. A wakeup
        // for nothing does no harm.
        if lock.end_wait(who) {
            self.wake_waiting(&mut device::device(), member);
        }
    }

    /// Releases a lock of the node, and wakes who can have it next.
    #[inline]
    fn release_lock(&self, lock: &NodeLock, member: usize, exclusive: bool) {
        let somebody_waits = if exclusive {
            lock.release_exclusive()
        } else {
            lock.release_shared()
        };
        if somebody_waits {
            self.wake_next(lock, member);
        }
    }

    #[cold]
    fn wake_next(&self, lock: &NodeLock, member: usize) {
        let mut d = device::device();
        match lock
            .reserved_by()
            .and_then(|rank| self.members.member(rank))
        {
            Some(next) => self.wake(&mut d, next),
            None => self.wake_waiting(&mut d, member),
        }
    }

    /// Calls `f` while this process alone accumulates into the target's memory without atomics.
    pub(super) fn with_accumulate_lock<R>(&self, target: &Target, f: impl FnOnce() -> R) -> R {
        let (Some(member), Some(block)) = (target.member, target.block(&self.control)) else {
            return f();
        };
        let lock = &block.accumulate.0;
        self.wait_for_lock(lock, target, member, true, TAG_WINDOW_ACCUMULATE);
        let result = f();
        self.release_lock(lock, member, true);
        result
    }

    /// Checks that flushing is allowed: in a passive-target epoch.
    fn check_passive(&self, call: &str) -> Result<()> {
        match self.epochs.state().access {
            Access::Locked(_) | Access::LockedAll { .. } => Ok(()),
            _ => Err(err!(
                RmaSync,
                "{call} outside a passive-target epoch: neither MPI_Win_lock nor MPI_Win_lock_all \
                 is in effect"
            )),
        }
    }

    /// Checks that one target may be flushed.
    #[inline]
    fn flushable(&self, rank: u32, call: &str) -> Result<&Target> {
        let target = self.target(rank)?;
        if target.access.load(Ordering::Relaxed) & LOCKED == 0 {
            self.check_unused(rank, call)?;
        }
        Ok(target)
    }

    /// Checks that a target which is not locked may be flushed: MPI_Win_lock_all has not used it
    /// yet.
    #[cold]
    fn check_unused(&self, rank: u32, call: &str) -> Result<()> {
        self.check_passive(call)?;
        if self.has_locked_all() {
            return Ok(());
        }
        Err(err!(
            RmaSync,
            "{call} of rank {rank}, which this process has not locked"
        ))
    }

    /// Blocks until the operations to `rank` are complete at the target (MPI_Win_flush).
    ///
    /// Errors: RmaSync outside a passive-target epoch with that rank.
    #[inline]
    pub fn flush(&self, rank: u32) -> Result<()> {
        let target = self.flushable(rank, "MPI_Win_flush")?;
        self.complete(target)
    }

    /// As [`Win::flush`], for all ranks (MPI_Win_flush_all).
    pub fn flush_all(&self) -> Result<()> {
        self.check_passive("MPI_Win_flush_all")?;
        full_barrier();
        self.progress_at_times();
        self.drain_all_puts().and(remote::flush_all(self))
    }

    /// Blocks until the buffers of operations to `rank` can be used again (MPI_Win_flush_local).
    /// Small puts that were kept go to the target.
    ///
    /// Errors: as [`Win::flush`].
    pub fn flush_local(&self, rank: u32) -> Result<()> {
        let target = self.flushable(rank, "MPI_Win_flush_local")?;
        if target.reach == Reach::Remote {
            return remote::flush_local(self, target);
        }
        self.progress_at_times();
        self.drain_puts(target)
    }

    /// As [`Win::flush_local`], for all ranks (MPI_Win_flush_local_all).
    pub fn flush_local_all(&self) -> Result<()> {
        self.check_passive("MPI_Win_flush_local_all")?;
        self.progress_at_times();
        self.drain_all_puts().and(remote::flush_local_all(self))
    }

    /// Makes stores of all processes to the window visible (MPI_Win_sync). In the unified memory
    /// model that is a memory barrier. Makes progress, for programs call it while they wait for a
    /// value.
    pub fn sync(&self) -> Result<()> {
        full_barrier();
        device::poll_once(|_| None::<()>);
        Ok(())
    }
}
