//! A reader-writer lock between the processes of a node, in shared memory. All zeros: it is free.
//!
//! Nobody queues: who finds it free takes it, so that an uncontended pair of calls is two atomic
//! operations. Who has waited for [`STARVING_AFTER`] reserves the next turn. Then newcomers are
//! refused until it has had its turn.
//!
//! # Waiting
//! No call here blocks. Who is refused waits so that no wakeup is missed:
//!
//! ```text
//! waiter                                  holder
//! 1. WaitSet::add                         1. release_exclusive or release_shared
//! 2. begin_wait                           2. it answered true: WaitSet::drain, wake each
//! 3. arm the wakeup word
//! 4. WaitSet::add, try again, then sleep; back to 3
//! 5. WaitSet::remove, end_wait
//! ```
//!
//! The count of waiters and the holders are in one word. So a release either sees the waiter of
//! step 2, or the try of step 4 sees the release. [`WaitSet`](super::wait_set) adds what step 4
//! needs after another holder has drained the set. `tests/loom.rs` checks this in every order.
//!
//! A reservation is kept by who tries again as soon as it is woken. A process that tries for
//! another, and may be out of MPI when the turn comes, makes one that lapses
//! ([`Patience::StarvingElsewhere`]). Otherwise its turn would block all others.

use crate::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a request waits before it reserves the next turn. A choice: longer than any wakeup
/// takes, shorter than what a person or a time slice of the scheduler notices.
pub const STARVING_AFTER: Duration = Duration::from_millis(1);

/// One shared holder.
const SHARED: u64 = 1;
/// Bits that count the shared holders. As many as a large job has ranks.
const SHARED_MASK: u64 = (1 << 20) - 1;
/// One waiter.
const WAITER: u64 = 1 << 20;
/// Bits that count the waiters.
const WAITERS_MASK: u64 = SHARED_MASK << 20;
/// Where the exclusive holder's number, plus 1, begins.
const HOLDER_SHIFT: u32 = 40;
/// Bits of the exclusive holder.
const HOLDER_MASK: u64 = !(SHARED_MASK | WAITERS_MASK);

/// The bit of a reservation that is for an exclusive turn.
const FOR_EXCLUSIVE: u64 = 1 << HOLDER_BITS;
/// The bit of a reservation that lapses after [`BLOCK_MS`].
const LAPSES: u64 = FOR_EXCLUSIVE << 1;
/// Bits of a process number, plus 1.
const HOLDER_BITS: u32 = u64::BITS - HOLDER_SHIFT;
/// Where a reservation's time begins, milliseconds.
const TIME_SHIFT: u32 = 32;
/// First time for which an exclusive reservation keeps out shared requests, milliseconds. A choice:
/// some turns of long holders.
const BLOCK_MS: u32 = 16;

/// How long a request has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Not long.
    New,
    /// Longer than [`STARVING_AFTER`]. If it is refused, it reserves the next turn.
    Starving,
    /// The same on behalf of a process of another node. The reservation lapses after 16 ms.
    StarvingElsewhere,
}

impl Patience {
    /// The patience of a request that has waited for this time.
    pub fn after(waited: Duration) -> Patience {
        if waited < STARVING_AFTER {
            Patience::New
        } else {
            Patience::Starving
        }
    }

    /// As [`Patience::after`], for a process of another node.
    pub fn elsewhere_after(waited: Duration) -> Patience {
        match Patience::after(waited) {
            Patience::New => Patience::New,
            _ => Patience::StarvingElsewhere,
        }
    }
}

/// A reader-writer lock between the processes of a node.
#[repr(C)]
pub struct NodeLock {
    /// From bit 0: shared holders, waiters, and the exclusive holder's number plus 1.
    state: AtomicU64,
    /// From bit 0: the number plus 1 of who has reserved the next turn, [`FOR_EXCLUSIVE`], and from
    /// [`TIME_SHIFT`] on when. 0: nobody. Keeps nobody safe: the lock is `state` alone.
    reservation: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<NodeLock>() == 16);

/// Process `who` in the bits of a holder. Numbers up to 2^24 - 2 are told apart.
#[inline]
fn holder(who: u32) -> u64 {
    (u64::from(who) + 1) & (FOR_EXCLUSIVE - 1)
}

impl Default for NodeLock {
    fn default() -> NodeLock {
        NodeLock::new()
    }
}

impl NodeLock {
    /// A free lock.
    pub fn new() -> NodeLock {
        NodeLock {
            state: AtomicU64::new(0),
            reservation: AtomicU64::new(0),
        }
    }

    /// Tries once to take the lock exclusively for process `who`.
    #[inline]
    pub fn try_exclusive(&self, who: u32, patience: Patience) -> bool {
        let reservation = self.reservation.load(Ordering::SeqCst);
        if reservation != 0 && !is_of(reservation, who) && !has_lapsed(reservation) {
            return false;
        }
        let mut state = self.state.load(Ordering::SeqCst);
        while state & (HOLDER_MASK | SHARED_MASK) == 0 {
            let taken = state | holder(who) << HOLDER_SHIFT;
            match self.exchange(state, taken) {
                Ok(_) => return self.had_turn(reservation),
                Err(now) => state = now,
            }
        }
        self.refused(who, patience, reservation, FOR_EXCLUSIVE)
    }

    /// Tries once to take the lock for process `who`, together with other shared holders.
    #[inline]
    pub fn try_shared(&self, who: u32, patience: Patience) -> bool {
        let reservation = self.reservation.load(Ordering::SeqCst);
        let waits = reservation & FOR_EXCLUSIVE != 0 && !is_of(reservation, who);
        if waits && block_left(reservation, now_ms()).is_some() {
            return false;
        }
        let mut state = self.state.load(Ordering::SeqCst);
        while state & HOLDER_MASK == 0 && state & SHARED_MASK != SHARED_MASK {
            match self.exchange(state, state + SHARED) {
                Ok(_) if is_of(reservation, who) => return self.had_turn(reservation),
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        self.refused(who, patience, reservation, 0)
    }

    #[inline]
    fn exchange(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// A request has taken the lock. `reservation`: its own, one that has lapsed, or none.
    #[inline]
    fn had_turn(&self, reservation: u64) -> bool {
        if reservation != 0 {
            self.drop_reservation(reservation);
        }
        true
    }

    /// A request was refused. It reserves the next turn if it starves and nobody else has.
    #[inline]
    fn refused(&self, who: u32, patience: Patience, reservation: u64, exclusive: u64) -> bool {
        if patience != Patience::New && (reservation == 0 || has_lapsed(reservation)) {
            let lapses = match patience {
                Patience::StarvingElsewhere => LAPSES,
                _ => 0,
            };
            let new = holder(who) | exclusive | lapses | u64::from(now_ms()) << TIME_SHIFT;
            let order = Ordering::SeqCst;
            let _ = self
                .reservation
                .compare_exchange(reservation, new, order, order);
        }
        false
    }

    fn drop_reservation(&self, reservation: u64) -> bool {
        let order = Ordering::SeqCst;
        let dropped = self
            .reservation
            .compare_exchange(reservation, 0, order, order);
        dropped.is_ok()
    }

    /// Releases the lock, which is held exclusively. True: somebody may wait, and the wait set is
    /// to be woken.
    #[inline]
    pub fn release_exclusive(&self) -> bool {
        // Only its holder changes these bits.
        let held = self.state.load(Ordering::Relaxed) & HOLDER_MASK;
        debug_assert!(held != 0, "nobody holds the lock exclusively");
        self.state.fetch_sub(held, Ordering::SeqCst) & WAITERS_MASK != 0
    }

    /// Releases the lock for one shared holder. True: somebody may wait, and the wait set is to be
    /// woken.
    #[inline]
    pub fn release_shared(&self) -> bool {
        let before = self.state.fetch_sub(SHARED, Ordering::SeqCst);
        debug_assert!(before & SHARED_MASK != 0, "nobody shares the lock");
        let last = before & SHARED_MASK == SHARED;
        // An exclusive request cannot have its turn yet. It is woken to reserve it, unless it has.
        before & WAITERS_MASK != 0 && (last || self.reservation.load(Ordering::SeqCst) == 0)
    }

    /// Says that a request waits: releases from now on say so.
    pub fn begin_wait(&self) {
        self.state.fetch_add(WAITER, Ordering::SeqCst);
    }

    /// The request of `who` does not wait any more. Drops its reservation. True: others may have
    /// waited for that turn, and the wait set is to be woken. It is never true if the request has
    /// taken the lock.
    pub fn end_wait(&self, who: u32) -> bool {
        let reservation = self.reservation.load(Ordering::SeqCst);
        let dropped = is_of(reservation, who) && self.drop_reservation(reservation);
        let before = self.state.fetch_sub(WAITER, Ordering::SeqCst);
        debug_assert!(before & WAITERS_MASK != 0, "nobody waits");
        dropped && before & WAITERS_MASK != WAITER
    }

    /// The process that holds the lock exclusively.
    pub fn exclusive_holder(&self) -> Option<u32> {
        let held = self.state.load(Ordering::SeqCst) >> HOLDER_SHIFT;
        held.checked_sub(1).map(|who| who as u32)
    }

    /// How many share the lock.
    pub fn shared_holders(&self) -> u32 {
        (self.state.load(Ordering::SeqCst) & SHARED_MASK) as u32
    }

    /// Who has reserved the next turn for itself alone. After a release it is enough to wake this
    /// process: nobody else can take the lock before it, and it wakes the others when it releases.
    /// `None` if the reservation lapses.
    pub fn reserved_by(&self) -> Option<u32> {
        let reservation = self.reservation.load(Ordering::SeqCst);
        let exclusive = reservation & (FOR_EXCLUSIVE | LAPSES) == FOR_EXCLUSIVE;
        exclusive.then(|| (reservation & (FOR_EXCLUSIVE - 1)) as u32 - 1)
    }

    /// When a refused request is to try again although nobody wakes it
    /// ([`Device::sleep_at_most`](crate::Device::sleep_at_most)).
    ///
    /// An exclusive reservation keeps out shared requests. If a holder waits, in the program, for
    /// one of them, neither gets on. So shared requests are let in again after 16 ms, for as long.
    /// The times double, so that holders of any duration end before an exclusive turn at last.
    ///
    /// Exclusive requests try again when a reservation that lapses has lapsed.
    pub fn again_in(&self, exclusive: bool) -> Option<Duration> {
        let reservation = self.reservation.load(Ordering::SeqCst);
        let kept_out_by = if exclusive { LAPSES } else { FOR_EXCLUSIVE };
        if reservation & kept_out_by == 0 {
            return None;
        }
        let left = block_left(reservation, now_ms())?;
        Some(Duration::from_millis(u64::from(left)))
    }
}

/// Is it a reservation of `who`?
#[inline]
fn is_of(reservation: u64, who: u32) -> bool {
    reservation & (FOR_EXCLUSIVE - 1) == holder(who)
}

/// Has a reservation lapsed?
#[inline]
fn has_lapsed(reservation: u64) -> bool {
    reservation & LAPSES != 0 && block_left(reservation, now_ms()).is_none()
}

/// For how many more milliseconds an exclusive reservation keeps out shared requests. `None`: it
/// does not now. It does in the first [`BLOCK_MS`] and in every second of the times that follow,
/// each as long as all before it together.
fn block_left(reservation: u64, now_ms: u32) -> Option<u32> {
    let elapsed = now_ms.wrapping_sub((reservation >> TIME_SHIFT) as u32);
    if reservation & LAPSES != 0 {
        return BLOCK_MS.checked_sub(elapsed).filter(|left| *left > 0);
    }
    let doublings = u32::BITS - (elapsed / BLOCK_MS).leading_zeros();
    let blocks = doublings.is_multiple_of(2);
    blocks.then(|| (BLOCK_MS << doublings).saturating_sub(elapsed).max(1))
}

#[cfg(not(loom))]
fn now_ms() -> u32 {
    (ferry_job::RankStatus::now() / 1_000_000) as u32
}

/// Time stands still in a model.
#[cfg(loom)]
fn now_ms() -> u32 {
    0
}

#[cfg(all(test, not(loom)))]
mod tests;
