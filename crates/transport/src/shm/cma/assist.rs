//! Copies that a receiver and a sender make together: the system calls and the wakeups around
//! [`share`](super::share).

use super::super::Shm;
use super::cooperative::{ActiveCopy, COOPERATIVE_MIN_BYTES, Chunk, CopyReceiver, CopyTable};
use crate::shm::cma;
use crate::{ProcId, ReadError, ReadStart};
use std::sync::atomic::Ordering;

/// A sender that sleeps is woken for messages of at least this many bytes: a wake takes some
/// microseconds.
const WAKE_MIN_BYTES: usize = 1024 * 1024;
/// Bytes after which a helper looks at its own affairs again.
const ASSIST_MAX_BYTES: u64 = 2 * 1024 * 1024;

/// What one process keeps of the copies between itself and a peer.
pub(in crate::shm) struct CooperativeCopies {
    /// The copy table on which this process, as a receiver, puts its copies.
    own: CopyReceiver,
    /// The peer's copy table, on which this process helps.
    peers: &'static CopyTable,
    under_way: Vec<(u32, ActiveCopy, Option<ReadError>)>,
    numbers: u32,
}

impl CooperativeCopies {
    pub(in crate::shm) fn new(
        own: &'static CopyTable,
        peers: &'static CopyTable,
    ) -> CooperativeCopies {
        CooperativeCopies {
            own: CopyReceiver::new(own),
            peers,
            under_way: Vec::new(),
            numbers: 0,
        }
    }
}

impl CopyReceiver {
    /// Copies what nobody has claimed, and what the peer could not copy. After a fault nothing more
    /// is copied, but all is claimed.
    ///
    /// # Safety
    /// The copy's target must be writable.
    unsafe fn carry_on(&self, pid: i32, begun: &mut ActiveCopy, fault: &mut Option<ReadError>) {
        while let Some(Chunk {
            source,
            target,
            len,
            ..
        }) = self.next(begun)
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
    /// As [`fetch`](crate::Transport::start_read).
    ///
    /// # Safety
    /// As there.
    pub(in crate::shm) unsafe fn copy_cooperatively(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<ReadStart, ReadError> {
        let i = self.index(from).ok_or(ReadError::Refused)?;
        let alone = !self.cores_to_spare || len < COOPERATIVE_MIN_BYTES;
        let me = self.me;
        let control = &self.controls[i];
        let peer = self.peer(i).map_err(|_| ReadError::Refused)?;
        if !*peer.readable.get_or_insert_with(|| cma::probe(control)) {
            return Err(ReadError::Refused);
        }
        let pid = control.pid.load(Ordering::Relaxed) as i32;
        let copies = &mut peer.copies;
        let begun = if alone {
            None
        } else {
            copies.own.begin(address, into as u64, len as u64)
        };
        let Some(mut begun) = begun else {
            // SAFETY: the caller's promise.
            unsafe { cma::read(pid, address, &[(into, len)])? };
            return Ok(ReadStart::Done);
        };
        control.assist_wanted_by[me / 64].fetch_or(1 << (me % 64), Ordering::SeqCst);
        control.assist_requests.fetch_add(1, Ordering::SeqCst);
        if len >= WAKE_MIN_BYTES {
            control.wake_if_asleep();
        }
        let mut fault = None;
        // SAFETY: the caller's promise.
        unsafe { copies.own.carry_on(pid, &mut begun, &mut fault) };
        if copies.own.ended(&begun) {
            return fault.map_or(Ok(ReadStart::Done), Err);
        }
        copies.numbers = copies.numbers.wrapping_add(1);
        copies.under_way.push((copies.numbers, begun, fault));
        Ok(ReadStart::Pending(copies.numbers))
    }

    /// As [`fetched`](crate::Transport::finished_read).
    pub(in crate::shm) fn finished_copy(
        &mut self,
        from: ProcId,
    ) -> Option<(u32, Result<(), ReadError>)> {
        let i = self.index(from)?;
        let pid = self.controls[i].pid.load(Ordering::Relaxed) as i32;
        let copies = &mut self.peers[i].as_mut()?.copies;
        let mut found = None;
        for (at, (_, begun, fault)) in copies.under_way.iter_mut().enumerate() {
            // SAFETY: `share`'s caller promised it until the copy has ended.
            unsafe { copies.own.carry_on(pid, begun, fault) };
            if copies.own.ended(begun) {
                found = Some(at);
                break;
            }
        }
        let (number, _, fault) = copies.under_way.remove(found?);
        Some((number, fault.map_or(Ok(()), Err)))
    }

    /// Copies what peers have put on their copy tables, up to a fair share. Returns how many chunks
    /// that was.
    #[cold]
    pub(in crate::shm) fn assist(&mut self) -> usize {
        let controls = self.controls;
        let mine = &controls[self.me];
        self.assists_seen = mine.assist_requests.load(Ordering::SeqCst);
        let (mut chunks, mut bytes) = (0, 0);
        for w in 0..self.locals.len().div_ceil(64) {
            let mut bits = mine.assist_wanted_by[w].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let from = w * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(peer) = self.peers.get(from).and_then(|p| p.as_ref()) else {
                    continue;
                };
                let pid = controls[from].pid.load(Ordering::Relaxed) as i32;
                let table = peer.copies.peers;
                loop {
                    if bytes >= ASSIST_MAX_BYTES {
                        // The rest at the next look, unless the receiver was faster.
                        mine.assist_wanted_by[w]
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
