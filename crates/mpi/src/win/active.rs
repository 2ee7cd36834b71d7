//! Active target with groups: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait (MPI 5.0
//! §12.5.2).
//!
//! ```text
//! origin                              target
//!                                     post      sets its bit in each origin's posts
//! start     waits for the bits, clears them
//! put …
//! complete  adds 1 to each target's count
//!                                     wait      until the count is that of the group
//! ```
//!
//! Bits and counts lie in the control blocks. To members on other nodes packets carry them
//! (`remote`).

use super::epoch::{Access, Exposure};
use super::fence::full_barrier;
use super::target::{CLOSED, Reach, STARTED, Target};
use super::{Win, remote};
use crate::device;
use crate::{Group, Result, err};
use ferry_job::{TAG_WINDOW_COMPLETE, TAG_WINDOW_POST};
use std::sync::atomic::Ordering;

impl Win {
    /// Opens an exposure epoch for the origins in `group` (MPI_Win_post). Does not block.
    /// `no_check`: they assert that they start after this call.
    ///
    /// Errors: RmaSync in an exposure epoch; Group if a member is not in the window's group.
    pub fn post(&self, group: &Group, no_check: bool) -> Result<()> {
        let mut origins = Exposure::default();
        for rank in self.ranks_of(group) {
            origins.add(rank?);
        }
        {
            let mut state = self.epochs.state();
            if state.exposure.is_some() {
                return Err(err!(
                    RmaSync,
                    "MPI_Win_post in the exposure epoch of another, before MPI_Win_wait"
                ));
            }
            self.end_fence("MPI_Win_post")?;
            state.exposure = Some(origins);
        }
        if no_check {
            return Ok(());
        }
        let mut d = None;
        for rank in self.ranks_of(group) {
            let rank = rank?;
            let Some(member) = self.members.member(rank) else {
                remote::post(self, d.get_or_insert_with(device::device), rank)?;
                continue;
            };
            let (word, bit) = self.post_bit(member, self.member);
            word.fetch_or(bit, Ordering::SeqCst);
            if member != self.member {
                self.wake(d.get_or_insert_with(device::device), member);
            }
        }
        Ok(())
    }

    /// The bit by which `target` has posted to `origin`.
    fn post_bit(&self, origin: usize, target: usize) -> (&std::sync::atomic::AtomicU64, u64) {
        (&self.control.posts(origin)[target / 64], 1 << (target % 64))
    }

    /// Opens an access epoch to the targets in `group` (MPI_Win_start). Blocks until they have
    /// posted, unless the program asserts that they have (`no_check`).
    ///
    /// Errors: RmaSync in another epoch; Group if a member is not in the window's group.
    pub fn start(&self, group: &Group, no_check: bool) -> Result<()> {
        {
            let mut state = self.epochs.state();
            self.begin_access(&state, "MPI_Win_start")?;
            let mut ranks = std::mem::take(&mut state.spare_ranks);
            ranks.clear();
            for rank in self.ranks_of(group) {
                ranks.push(rank?);
            }
            state.access = Access::Started(ranks);
        }
        for rank in self.ranks_of(group) {
            let rank = rank?;
            let target = self.target(rank)?;
            if !no_check {
                self.wait_for_post(target);
            }
            target.access.store(STARTED, Ordering::Relaxed);
        }
        Ok(())
    }

    fn wait_for_post(&self, target: &Target) {
        let what = self.waiting_for(target.process, TAG_WINDOW_POST);
        let Some(member) = target.member else {
            device::wait_until(&what, |_| remote::take_post(self, target.rank));
            return;
        };
        let (word, bit) = self.post_bit(self.member, member);
        if word.load(Ordering::SeqCst) & bit == 0 {
            device::wait_for_memory(&what, |_| word.load(Ordering::SeqCst) & bit != 0);
        }
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Ends the epoch of [`Win::start`] (MPI_Win_complete). Blocks until the operations are
    /// complete at this origin.
    ///
    /// Errors: RmaSync without [`Win::start`].
    pub fn complete_access(&self) -> Result<()> {
        let ranks = {
            let mut state = self.epochs.state();
            let Access::Started(ranks) = &mut state.access else {
                return Err(err!(RmaSync, "MPI_Win_complete without MPI_Win_start"));
            };
            let ranks = std::mem::take(ranks);
            state.access = Access::Completing;
            ranks
        };
        let (mut d, mut result, mut elsewhere) = (None, Ok(()), false);
        full_barrier();
        for &rank in ranks.iter() {
            let target = self.target(rank)?;
            target.access.store(CLOSED, Ordering::Relaxed);
            result = result.and(self.leave_puts(target, |inboxes| &inboxes.groups));
            match (target.member, target.block(&self.control)) {
                (Some(member), Some(block)) if target.reach != Reach::Remote => {
                    block.completed.0.fetch_add(1, Ordering::SeqCst);
                    if member != self.member {
                        self.wake(d.get_or_insert_with(device::device), member);
                    }
                }
                _ => {
                    d = None;
                    elsewhere = true;
                    result = result.and(remote::complete(self, target));
                }
            }
        }
        drop(d);
        if elsewhere {
            result = result.and(remote::flush_local_all(self));
        }
        let mut state = self.epochs.state();
        state.access = Access::None;
        state.spare_ranks = ranks;
        result
    }

    /// Blocks until all origins of [`Win::post`] have completed (MPI_Win_wait).
    ///
    /// Errors: RmaSync without [`Win::post`].
    pub fn wait(&self) -> Result<()> {
        let Exposure { origins, only } = self.exposed_to("MPI_Win_wait")?;
        let completed = &self.own_block().completed.0;
        if completed.load(Ordering::SeqCst) < u64::from(origins) {
            let what = match only {
                Some(rank) => self.waiting_for(self.comm.peer(rank), TAG_WINDOW_COMPLETE),
                None => self.waiting_for_origins(TAG_WINDOW_COMPLETE),
            };
            device::wait_for_memory(&what, |_| {
                completed.load(Ordering::SeqCst) >= u64::from(origins)
            });
        }
        self.end_exposure(origins);
        Ok(())
    }

    /// As [`Win::wait`], without blocking (MPI_Win_test). Returns whether the epoch has ended.
    /// Makes progress.
    ///
    /// Errors: as [`Win::wait`].
    pub fn test(&self) -> Result<bool> {
        let Exposure { origins, .. } = self.exposed_to("MPI_Win_test")?;
        let completed = &self.own_block().completed.0;
        let done = || (completed.load(Ordering::SeqCst) >= u64::from(origins)).then_some(());
        if device::poll_once(|_| done()).is_none() {
            return Ok(false);
        }
        self.end_exposure(origins);
        Ok(true)
    }

    fn exposed_to(&self, call: &str) -> Result<Exposure> {
        let exposure = self.epochs.state().exposure;
        exposure.ok_or_else(|| err!(RmaSync, "{call} without MPI_Win_post"))
    }

    fn end_exposure(&self, origins: u32) {
        self.take_puts(|inboxes| &inboxes.groups);
        let completed = &self.own_block().completed.0;
        completed.fetch_sub(u64::from(origins), Ordering::SeqCst);
        self.epochs.state().exposure = None;
    }
}
