//! Small puts to a peer's memory, gathered until they are flushed: one system call writes many.
//!
//! Their bytes are copied, so a put is complete at the origin at once. It is complete at the target
//! after the next flush, unlock, complete or fence. A single one of up to 8 bytes is left with a
//! target that polls (`short_update`). Any other operation to the target comes after
//! them.

use super::Win;
use super::inbox::{Inbox, Inboxes};
use super::short_update::ShortUpdate;
use super::target::{Reach, Target};
use super::transfer::peer_error;
use crate::Result;
use crate::device::{self, PeerMemory};
use ferry_job::TAG_WINDOW_FLUSH;
use std::sync::atomic::Ordering;

/// Bytes of a put that is queued, at most. A choice: longer ones are copied faster than a call
/// takes.
pub(super) const PUT_MAX_BYTES: usize = 512;
/// Runs in the queue, at most: as many as one call takes.
const RUNS_MAX: usize = 64;
/// Bytes in the queue, at most.
const BYTES_MAX: usize = 16 << 10;

/// The puts that wait for one target.
#[derive(Default)]
pub(super) struct PutQueue {
    /// All bytes, in order.
    bytes: Vec<u8>,
    /// Where they go: address and length.
    runs: Vec<(u64, usize)>,
}

impl PutQueue {
    /// Appends a put, after the one before it in one run if it continues that.
    fn push(&mut self, address: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        match self.runs.last_mut() {
            Some((at, len)) if *at + *len as u64 == address => *len += bytes.len(),
            _ => self.runs.push((address, bytes.len())),
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    fn is_full(&self) -> bool {
        self.runs.len() == RUNS_MAX || self.bytes.len() > BYTES_MAX - PUT_MAX_BYTES
    }
}

impl Win {
    /// Queues a put of `len` bytes if it is small. Returns whether it did.
    ///
    /// Errors: as [`Win::drain_puts`], of puts before it.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub(super) unsafe fn queue_put(
        &self,
        target: &Target,
        from: *const u8,
        at: u64,
        len: usize,
    ) -> Result<bool> {
        if len > PUT_MAX_BYTES {
            return Ok(false);
        }
        // The address of no bytes may be null.
        if len == 0 {
            return Ok(true);
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from, len) };
        let mut queue = target.puts.lock();
        queue.push(at, bytes);
        let full = queue.is_full();
        target.has_puts.store(true, Ordering::Relaxed);
        drop(queue);
        if full {
            self.drain_puts(target)?;
        }
        Ok(true)
    }

    /// Does what is queued for the target: small puts, then what [`Win::queue_transfer`] has. This
    /// process has direct access to its memory then.
    ///
    /// Errors: RmaRange if the target's memory cannot be accessed there.
    #[inline]
    pub(super) fn drain_puts(&self, target: &Target) -> Result<()> {
        match target.reach {
            Reach::Peer(memory) => {
                self.await_taken(target);
                let mut result = Ok(());
                if target.has_puts.load(Ordering::Acquire) {
                    result = self.drain(target, memory);
                }
                if target.has_transfers.load(Ordering::Acquire) {
                    result = result.and(self.drain_transfers(target, memory));
                }
                result
            }
            _ => Ok(()),
        }
    }

    fn drain(&self, target: &Target, memory: PeerMemory) -> Result<()> {
        let mut queue = target.puts.lock();
        let short = match queue.runs.as_slice() {
            &[(at, _)] => ShortUpdate::put(at, &queue.bytes),
            _ => None,
        };
        let written = match short.and_then(|update| self.offer(target, update)) {
            Some(done) => done.map(drop),
            None => {
                let all = [(queue.bytes.as_ptr(), queue.bytes.len())];
                // SAFETY: the queue's own bytes.
                unsafe { memory.write(&all, &queue.runs) }
            }
        };
        queue.clear();
        // Only now: a thread that sees it takes its own puts, which were in the queue, for written.
        target.has_puts.store(false, Ordering::Release);
        written.map_err(|e| peer_error(e, target, "MPI_Put"))
    }

    /// Blocks until a peer has written what origins have left with it before the last fence. It is
    /// in that fence, behind the barrier.
    #[inline]
    fn await_taken(&self, target: &Target) {
        if let Some(member) = target.member
            && let Some(inboxes) = self.control.inboxes(member)
        {
            let inbox = inboxes.fence(self.epochs.fences.load(Ordering::Relaxed));
            if !inbox.is_empty() {
                self.wait_for_taken(target, member, inbox);
            }
        }
    }

    #[cold]
    fn wait_for_taken(&self, target: &Target, member: usize, inbox: &Inbox) {
        let waiting = self.control.wait_set(member);
        let what = self.waiting_for(target.process, TAG_WINDOW_FLUSH);
        device::wait_for_memory(&what, |_| {
            waiting.add(self.member);
            inbox.is_empty()
        });
    }

    /// Leaves the queued puts in one of the target's inboxes, or writes them. The target takes part
    /// in the end of this epoch, and takes them out then.
    ///
    /// Errors: as [`Win::drain_puts`].
    pub(super) fn leave_puts(
        &self,
        target: &Target,
        which: impl FnOnce(&Inboxes) -> &Inbox,
    ) -> Result<()> {
        if target.has_transfers.load(Ordering::Acquire) {
            return self.drain_puts(target);
        }
        if target.reach == Reach::Mapped || !target.has_puts.load(Ordering::Acquire) {
            return Ok(());
        }
        let inboxes = target
            .member
            .and_then(|member| self.control.inboxes(member));
        if let Some(inbox) = inboxes.map(which) {
            let mut queue = target.puts.lock();
            if inbox.leave(&queue.runs, &queue.bytes) {
                queue.clear();
                target.has_puts.store(false, Ordering::Release);
                return Ok(());
            }
        }
        self.drain_puts(target)
    }

    /// As [`Win::leave_puts`], for all targets before this fence.
    pub(super) fn leave_all_puts(&self, fence: u64) -> Result<()> {
        let mut result = Ok(());
        for target in self.targets.iter() {
            let left = self.leave_puts(target, |inboxes| inboxes.fence(fence));
            result = result.and(left);
        }
        result
    }

    /// Writes what origins have left in an inbox of this process into its memory. They have told
    /// that they are done. Wakes who waits for that.
    pub(super) fn take_puts(&self, which: impl FnOnce(&Inboxes) -> &Inbox) {
        let inbox = self.control.inboxes(self.member).map(which);
        let Some(inbox) = inbox.filter(|inbox| !inbox.is_empty()) else {
            return;
        };
        let (base, size) = (self.memory.base(), self.memory.size());
        inbox.take(|address, bytes| {
            let at = (address as usize).wrapping_sub(base.addr()) as u64;
            if at <= size && bytes.len() as u64 <= size - at {
                let to = base.wrapping_add(at as usize);
                // SAFETY: within the window's memory, to which nobody else has access now that is
                // not erroneous, and `bytes` is a copy.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
        });
        self.control
            .wait_set(self.member)
            .drain(|waiting| self.wake(&mut device::device(), waiting));
    }

    /// As [`Win::drain_puts`], for all targets.
    pub(super) fn drain_all_puts(&self) -> Result<()> {
        let mut result = Ok(());
        for target in self.targets.iter() {
            let drained = self.drain_puts(target);
            result = result.and(drained);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_that_continue_each_other_are_one_run() {
        let mut queue = PutQueue::default();
        queue.push(100, &[1; 8]);
        queue.push(108, &[2; 8]);
        queue.push(120, &[3; 4]);
        queue.push(100, &[4; 8]);
        assert_eq!(queue.runs, [(100, 16), (120, 4), (100, 8)]);
        assert_eq!(queue.bytes.len(), 28);
        assert!(!queue.is_full());
        for i in 0..RUNS_MAX as u64 - 3 {
            queue.push(1000 + 16 * i, &[0; 8]);
        }
        assert!(queue.is_full());
    }
}
