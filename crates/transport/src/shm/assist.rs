//! Cooperative copies: the system calls and wakeups around [`cma::cooperative`](super::cma).

use super::Shm;
use super::cma::{self, ActiveCopy, COOPERATIVE_MIN_BYTES, Chunk, CopyReceiver};
use crate::{ProcId, ReadError, ReadStart};
use std::sync::atomic::Ordering;

/// Shortest message, bytes, for which a sleeping sender is woken to assist. A choice: a wakeup
/// takes some microseconds, a copy of this length some 50.
const WAKE_MIN_BYTES: usize = 1024 * 1024;
/// Bytes that a process copies for its peers before it continues its own poll. A choice: some 100
/// microseconds.
const ASSIST_MAX_BYTES: u64 = 2 * 1024 * 1024;

impl CopyReceiver {
    /// Copies the chunks that nobody has claimed, and those that the sender could not copy. After a
    /// fault no chunk is copied any more, but all are claimed.
    ///
    /// # Safety
    /// The copy's target must be writable.
    unsafe fn copy_rest(&self, pid: i32, copy: &mut ActiveCopy, fault: &mut Option<ReadError>) {
        while let Some(Chunk {
            source,
            target,
            len,
            ..
        }) = self.next(copy)
        {
            if fault.is_none() {
                // SAFETY: the caller's promise: the chunk lies in its memory.
                *fault =
                    unsafe { cma::read(pid, source, &[(target as *mut u8, len as usize)]) }.err();
            }
        }
    }
}

impl Shm {
    /// [`Transport::start_read`](crate::Transport::start_read).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn copy_cooperatively(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<ReadStart, ReadError> {
        let i = self.index(from).ok_or(ReadError::Refused)?;
        let me = self.me;
        let alone =
            !self.core_each || len < COOPERATIVE_MIN_BYTES || self.controls[me].refuses_writes();
        let control = &self.controls[i];
        let peer = self.peer(i).map_err(|_| ReadError::Refused)?;
        if !*peer.readable.get_or_insert_with(|| cma::probe(control)) {
            return Err(ReadError::Refused);
        }
        let pid = control.pid.load(Ordering::Relaxed) as i32;
        let copies = &mut peer.copies;
        let copy = if alone {
            None
        } else {
            copies.own.begin(address, into as u64, len as u64)
        };
        let Some(mut copy) = copy else {
            // SAFETY: the caller's promise.
            unsafe { cma::read(pid, address, &[(into, len)])? };
            return Ok(ReadStart::Done);
        };
        control.assist_requested_by[me / 64].fetch_or(1 << (me % 64), Ordering::SeqCst);
        control.assist_requests.fetch_add(1, Ordering::SeqCst);
        if len >= WAKE_MIN_BYTES {
            control.wake_if_asleep();
        }
        let mut fault = None;
        // SAFETY: the caller's promise.
        unsafe { copies.own.copy_rest(pid, &mut copy, &mut fault) };
        if copies.own.ended(&copy) {
            return fault.map_or(Ok(ReadStart::Done), Err);
        }
        copies.last_number = copies.last_number.wrapping_add(1);
        copies.under_way.push((copies.last_number, copy, fault));
        Ok(ReadStart::Pending(copies.last_number))
    }

    /// [`Transport::finished_read`](crate::Transport::finished_read).
    pub(super) fn finished_copy(&mut self, from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        let i = self.index(from)?;
        let pid = self.controls[i].pid.load(Ordering::Relaxed) as i32;
        let copies = &mut self.peers[i].as_mut()?.copies;
        let mut found = None;
        for (at, (_, copy, fault)) in copies.under_way.iter_mut().enumerate() {
            // SAFETY: the caller of `copy_cooperatively` promised it until the copy has ended.
            unsafe { copies.own.copy_rest(pid, copy, fault) };
            if copies.own.ended(copy) {
                found = Some(at);
                break;
            }
        }
        let (number, _, fault) = copies.under_way.remove(found?);
        Some((number, fault.map_or(Ok(()), Err)))
    }

    /// Copies chunks from peers' copy tables, up to a fair share. Returns how many.
    #[cold]
    pub(super) fn assist(&mut self) -> usize {
        let controls = self.controls;
        let mine = &controls[self.me];
        self.assists_seen = mine.assist_requests.load(Ordering::SeqCst);
        let (mut chunks, mut bytes) = (0, 0);
        for w in 0..self.locals.len().div_ceil(64) {
            let mut bits = mine.assist_requested_by[w].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let from = w * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(peer) = self.peers.get(from).and_then(|p| p.as_ref()) else {
                    continue;
                };
                let pid = controls[from].pid.load(Ordering::Relaxed) as i32;
                let table = peer.copies.peers_table;
                loop {
                    if bytes >= ASSIST_MAX_BYTES {
                        // The rest at the next poll, unless the receiver is faster.
                        mine.assist_requested_by[w]
                            .fetch_or(bits | 1 << (from % 64), Ordering::SeqCst);
                        self.assists_seen = self.assists_seen.wrapping_sub(1);
                        return chunks;
                    }
                    let Some((at, chunk)) = table.claim() else {
                        break;
                    };
                    if cma::write(pid, chunk.source, chunk.target, chunk.len) {
                        table.complete(at, chunk);
                    } else {
                        table.refuse(at, chunk);
                    }
                    controls[from].wake_if_asleep();
                    chunks += 1;
                    bytes += chunk.len;
                }
            }
        }
        chunks
    }
}
