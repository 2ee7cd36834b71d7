//! Puts and gets of up to 64 KiB on memory of a peer of the node that this process does not map,
//! gathered until they are to be complete: one system call copies many, and a long run of them is
//! shared with the target (`shared_copy`).
//!
//! The bytes are not copied before: until then the program may not use their place at the origin
//! (MPI 5.0 §12.3). A target has puts or gets in its queue, not both.

use super::Win;
use super::shared_copy::SHARED_MIN_BYTES;
use super::target::Target;
use super::transfer::{Way, copy_runs, peer_error};
use crate::Result;
use crate::device::{PeerMemory, ReadError};
use std::sync::atomic::Ordering;

/// Bytes of a put or get that is queued, at most. A choice: longer ones gain nothing, for a system
/// call is short beside the copy (docs/measured/onesided.md).
const TRANSFER_MAX_BYTES: usize = 64 << 10;
/// Runs in the queue, at most. A choice: what a call takes by itself is little beside so many.
const RUNS_MAX: usize = 64;
/// Once so many bytes wait, they are copied. A choice: what is shared with the target at a time.
const BYTES_MAX: usize = 512 << 10;

/// The puts or gets that wait for one target.
pub(super) struct TransferQueue {
    way: Way,
    /// Where the bytes are at the origin, and how many.
    near: Vec<(*mut u8, usize)>,
    /// Where they are at the target: as many runs, of the same lengths.
    far: Vec<(u64, usize)>,
    bytes: usize,
}

// SAFETY: the addresses are the program's, which it leaves to MPI until the transfers are complete.
unsafe impl Send for TransferQueue {}

impl TransferQueue {
    /// An empty queue.
    pub fn new() -> TransferQueue {
        TransferQueue {
            way: Way::Put,
            near: Vec::new(),
            far: Vec::new(),
            bytes: 0,
        }
    }

    /// Appends a transfer, in one run with the one before it if it continues that on both sides.
    fn push(&mut self, here: *mut u8, there: u64, len: usize) {
        self.bytes += len;
        if let (Some(near), Some(far)) = (self.near.last_mut(), self.far.last_mut())
            && near.0.addr() + near.1 == here.addr()
            && far.0 + far.1 as u64 == there
        {
            near.1 += len;
            far.1 += len;
            return;
        }
        self.near.push((here, len));
        self.far.push((there, len));
    }

    fn clear(&mut self) {
        self.near.clear();
        self.far.clear();
        self.bytes = 0;
    }

    fn is_full(&self) -> bool {
        self.near.len() == RUNS_MAX || self.bytes >= BYTES_MAX
    }
}

impl Win {
    /// Queues a put or get of `len` bytes, if it is not too long. Returns whether it did. A small
    /// put is left to [`Win::queue_put`] if no others are queued.
    ///
    /// Errors: as [`Win::drain_puts`], of what was queued before.
    ///
    /// # Safety
    /// `here` is readable, or writable if it is a get, for `len` bytes, until the queue is drained.
    pub(super) unsafe fn queue_transfer(
        &self,
        target: &Target,
        way: Way,
        here: *mut u8,
        there: u64,
        len: usize,
    ) -> Result<bool> {
        // Without the lock: what another thread queues meanwhile has no order with this.
        let is_small = way == Way::Put && len <= super::put_queue::PUT_MAX_BYTES;
        let is_first = !target.has_transfers.load(Ordering::Acquire);
        if len == 0 || len > TRANSFER_MAX_BYTES || is_small && is_first {
            return Ok(false);
        }
        let full = loop {
            let mut queue = target.transfers.lock();
            if queue.near.is_empty() {
                if is_small {
                    return Ok(false);
                }
                queue.way = way;
            }
            if queue.way == way {
                queue.push(here, there, len);
                target.has_transfers.store(true, Ordering::Relaxed);
                break queue.is_full();
            }
            // Puts and gets in turns keep the order of the calls.
            drop(queue);
            self.drain_puts(target)?;
        };
        if full {
            self.drain_puts(target)?;
        }
        Ok(true)
    }

    /// Copies what is queued.
    ///
    /// Errors: RmaRange if the target's memory cannot be accessed there.
    pub(super) fn drain_transfers(&self, target: &Target, memory: PeerMemory) -> Result<()> {
        let mut queue = target.transfers.lock();
        let copied = self.copy_queued((target, memory), &queue);
        let call = queue.way.call();
        queue.clear();
        // Only now: a thread that sees it takes its own transfers for done.
        target.has_transfers.store(false, Ordering::Release);
        copied.map_err(|e| peer_error(e, target, call))
    }

    fn copy_queued(
        &self,
        (target, memory): (&Target, PeerMemory),
        queue: &TransferQueue,
    ) -> std::result::Result<(), ReadError> {
        let (near, far, way) = (&queue.near, &queue.far, queue.way);
        if way == Way::Get
            && let (&[(to, len)], &[(from, _)]) = (near.as_slice(), far.as_slice())
        {
            // SAFETY: the promise of `queue_transfer`.
            if let Some(got) = unsafe { self.get_short(target, from, to, len) } {
                return got;
            }
        }
        let mut done = 0;
        while done < near.len() {
            let short = near[done..]
                .iter()
                .take_while(|run| run.1 < SHARED_MIN_BYTES);
            let end = done + short.count();
            if end > done {
                let (near, far) = (&near[done..end], &far[done..end]);
                // SAFETY: the promise of `queue_transfer`.
                unsafe { copy_runs(memory, way == Way::Put, near, far) }?;
                done = end;
                continue;
            }
            let ((here, len), (there, _)) = (near[done], far[done]);
            // SAFETY: as above.
            unsafe { self.copy_with_target((target, memory), way, here, there, len) }?;
            done += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_continues_the_one_before_on_both_sides_is_one_run() {
        let mut bytes = [0u8; 64];
        let at = bytes.as_mut_ptr();
        let mut queue = TransferQueue::new();
        queue.push(at, 1000, 8);
        queue.push(at.wrapping_add(8), 1008, 8);
        queue.push(at.wrapping_add(16), 1024, 8);
        queue.push(at.wrapping_add(32), 1032, 8);
        assert_eq!(queue.far, [(1000, 16), (1024, 8), (1032, 8)]);
        let near = [(at, 16), (at.wrapping_add(16), 8), (at.wrapping_add(32), 8)];
        assert_eq!((queue.near.as_slice(), queue.bytes), (&near[..], 32));
        queue.clear();
        assert!(queue.near.is_empty() && queue.far.is_empty() && !queue.is_full());
    }

    #[test]
    fn it_is_full_of_runs_or_of_bytes() {
        let at = std::ptr::dangling_mut::<u8>();
        let mut runs = TransferQueue::new();
        for i in 0..RUNS_MAX {
            assert!(!runs.is_full());
            runs.push(at, 16 * i as u64, 8);
        }
        assert!(runs.is_full());
        let mut long = TransferQueue::new();
        for i in 0..BYTES_MAX / TRANSFER_MAX_BYTES {
            assert!(!long.is_full());
            let at = i * TRANSFER_MAX_BYTES;
            long.push(
                std::ptr::without_provenance_mut(at),
                at as u64,
                TRANSFER_MAX_BYTES,
            );
        }
        assert!(long.is_full() && long.near.len() == 1);
    }
}
