//! Copies that a receiver and a sender make together: the system calls and the bells around
//! [`share`](super::share).

use super::share::{Begun, Chunk, Desk, Receiver, SHARE_MIN};
use super::{Shm, cma};
use crate::{Fetch, ProcId, ReadError};
use std::sync::atomic::Ordering;

/// A sender that sleeps is woken for messages of at least so many bytes: a wake takes some
/// microseconds.
const WAKE_MIN: usize = 1024 * 1024;
/// Bytes after which a helper looks at its own affairs again.
const HELP_MAX: u64 = 2 * 1024 * 1024;

/// What one process keeps of the copies between itself and a peer.
pub(super) struct Sharing {
    /// The desk on which this process, as a receiver, puts its copies.
    own: Receiver,
    /// The peer's desk, on which this process helps.
    peers: &'static Desk,
    under_way: Vec<(u32, Begun, Option<ReadError>)>,
    numbers: u32,
}

impl Sharing {
    pub(super) fn new(own: &'static Desk, peers: &'static Desk) -> Sharing {
        Sharing {
            own: Receiver::new(own),
            peers,
            under_way: Vec::new(),
            numbers: 0,
        }
    }
}

impl Receiver {
    /// Copies what nobody has claimed, and what the peer could not copy. After a fault nothing more
    /// is copied, but all is claimed.
    ///
    /// # Safety
    /// The copy's target must be writable.
    unsafe fn carry_on(&self, pid: i32, begun: &mut Begun, fault: &mut Option<ReadError>) {
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
    /// As [`fetch`](crate::Transport::fetch).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn share(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<Fetch, ReadError> {
        let i = self.index(from).ok_or(ReadError::Refused)?;
        let alone = !self.cores_to_spare || len < SHARE_MIN;
        let me = self.me;
        let control = &self.controls[i];
        let peer = self.peer(i).map_err(|_| ReadError::Refused)?;
        if !*peer.readable.get_or_insert_with(|| cma::probe(control)) {
            return Err(ReadError::Refused);
        }
        let pid = control.pid.load(Ordering::Relaxed) as i32;
        let sharing = &mut peer.sharing;
        let begun = if alone {
            None
        } else {
            sharing.own.begin(address, into as u64, len as u64)
        };
        let Some(mut begun) = begun else {
            // SAFETY: the caller's promise.
            unsafe { cma::read(pid, address, &[(into, len)])? };
            return Ok(Fetch::Done);
        };
        control.asking[me / 64].fetch_or(1 << (me % 64), Ordering::SeqCst);
        control.asked.fetch_add(1, Ordering::SeqCst);
        if len >= WAKE_MIN {
            control.ring_if_asleep();
        }
        let mut fault = None;
        // SAFETY: the caller's promise.
        unsafe { sharing.own.carry_on(pid, &mut begun, &mut fault) };
        if sharing.own.ended(&begun) {
            return fault.map_or(Ok(Fetch::Done), Err);
        }
        sharing.numbers = sharing.numbers.wrapping_add(1);
        sharing.under_way.push((sharing.numbers, begun, fault));
        Ok(Fetch::Begun(sharing.numbers))
    }

    /// As [`fetched`](crate::Transport::fetched).
    pub(super) fn shared(&mut self, from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        let i = self.index(from)?;
        let pid = self.controls[i].pid.load(Ordering::Relaxed) as i32;
        let sharing = &mut self.peers[i].as_mut()?.sharing;
        let mut found = None;
        for (at, (_, begun, fault)) in sharing.under_way.iter_mut().enumerate() {
            // SAFETY: `share`'s caller promised it until the copy has ended.
            unsafe { sharing.own.carry_on(pid, begun, fault) };
            if sharing.own.ended(begun) {
                found = Some(at);
                break;
            }
        }
        let (number, _, fault) = sharing.under_way.remove(found?);
        Some((number, fault.map_or(Ok(()), Err)))
    }

    /// Copies what peers have put on their desks, up to a fair share. Returns how many chunks that
    /// was.
    #[cold]
    pub(super) fn help(&mut self) -> usize {
        let controls = self.controls;
        let mine = &controls[self.me];
        self.asked_seen = mine.asked.load(Ordering::SeqCst);
        let (mut chunks, mut bytes) = (0, 0);
        for w in 0..self.locals.len().div_ceil(64) {
            let mut bits = mine.asking[w].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let from = w * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(peer) = self.peers.get(from).and_then(|p| p.as_ref()) else {
                    continue;
                };
                let pid = controls[from].pid.load(Ordering::Relaxed) as i32;
                let desk = peer.sharing.peers;
                loop {
                    if bytes >= HELP_MAX {
                        // The rest at the next look, unless the receiver was faster.
                        mine.asking[w].fetch_or(bits | 1 << (from % 64), Ordering::SeqCst);
                        self.asked_seen = self.asked_seen.wrapping_sub(1);
                        return chunks;
                    }
                    let Some((at, chunk)) = desk.help() else {
                        break;
                    };
                    if cma::write(pid, chunk.source, chunk.target, chunk.len) {
                        desk.helped(at, chunk);
                    } else {
                        desk.refuse(at, chunk);
                    }
                    controls[from].ring_if_asleep();
                    chunks += 1;
                    bytes += chunk.len;
                }
            }
        }
        chunks
    }
}
