//! Send slots: where ranks share cores, one rank a core sends large messages at a time.
//!
//! If all ranks send whenever they have the core, each one's buffer has left the caches, and its
//! receiver has just yielded its own core. A rank that sends for some milliseconds while the others
//! wait is as fast as a rank alone.
//!
//! Each rank writes three times to its status page: since when it waits for a slot, since when it
//! has one, and when it last sent bytes. There is no lock, and correctness does not depend on
//! slots: two ranks that see a free slot at the same time both send. A rank that has sent nothing
//! for [`STALL_NS`] counts as without a slot: its peer does not read, or it sleeps or is outside
//! MPI. A rank that waits for a slot yields its core and does not sleep.

use ferry_job::{RankInfo, RankStatus, SendSlot};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::Ordering::Relaxed;

/// After this time a slot passes to a rank that waits for one. A choice: it is the time for about
/// 200 MB, so that the caches are seldom refilled.
const SLOT_NS: u64 = 20_000_000;
/// A rank that has sent nothing for this time does not use its slot. A choice: a network of 5 GB/s
/// makes room in a full buffer sooner.
const STALL_NS: u64 = 500_000;

/// The send slots of the node, as this process uses them.
pub(crate) struct SendSlots {
    node: &'static [RankStatus],
    me: usize,
    /// The number of slots for the ranks that may use the same cores as this one.
    slots: usize,
    /// The cores that this rank may use: 0 for all, otherwise the number of the only one plus 1.
    core: u32,
    /// A message waits for a slot.
    waits: bool,
}

impl SendSlots {
    /// For a node whose ranks have these status pages. `None`: there is no other rank.
    pub fn new(rank_info: &RankInfo, node: &'static [RankStatus]) -> Option<SendSlots> {
        let me = rank_info.local_rank as usize;
        if node.len() < 2 || me >= node.len() {
            return None;
        }
        let allowed = sched_getaffinity(None).ok()?;
        let core = match allowed.count() {
            1 => (0..CpuSet::MAX_CPU).position(|core| allowed.is_set(core))? as u32 + 1,
            _ => 0,
        };
        let slots = if core == 0 {
            rank_info.cores as usize
        } else {
            1
        };
        Some(SendSlots::on(node, me, slots, core))
    }

    fn on(node: &'static [RankStatus], me: usize, slots: usize, core: u32) -> SendSlots {
        node[me].send_slot.core.store(core, Relaxed);
        SendSlots {
            node,
            me,
            slots,
            core,
            waits: false,
        }
    }

    /// This rank's own entry.
    fn own(&self) -> &'static SendSlot {
        &self.node[self.me].send_slot
    }

    /// The entries of the other ranks on the same cores.
    fn others(&self) -> impl Iterator<Item = &'static SendSlot> + use<> {
        let (me, core) = (self.me, self.core);
        let all = self.node.iter().enumerate();
        all.filter(move |&(rank, page)| rank != me && page.send_slot.core.load(Relaxed) == core)
            .map(|(_, page)| &page.send_slot)
    }

    /// Is there a slot that no rank has, or a slot that its rank does not use?
    fn is_free(&self, now: u64) -> bool {
        let sends = |slot: &&SendSlot| {
            slot.holding_since.load(Relaxed) != 0
                && now.saturating_sub(slot.last_sent.load(Relaxed)) < STALL_NS
        };
        self.others().filter(sends).count() < self.slots
    }

    /// Every message that waits for a slot asks again after this call.
    #[inline]
    pub fn ask_again(&mut self) {
        self.waits = false;
    }

    /// May another large message begin now, by the clock of [`RankStatus::now`]? Otherwise this
    /// rank waits for a slot, until it asks again or [releases](SendSlots::release) it.
    pub fn may_begin(&mut self, now: u64) -> bool {
        let own = self.own();
        let since = own.holding_since.load(Relaxed);
        if since != 0 && now.saturating_sub(since) >= SLOT_NS {
            let waiting = |slot: &&SendSlot| {
                slot.holding_since.load(Relaxed) == 0 && slot.waiting_since.load(Relaxed) != 0
            };
            let longest = self
                .others()
                .filter(waiting)
                .min_by_key(|slot| slot.waiting_since.load(Relaxed));
            if let Some(next) = longest {
                own.holding_since.store(0, Relaxed);
                own.waiting_since.store(now, Relaxed);
                next.last_sent.store(now, Relaxed);
                next.holding_since.store(now, Relaxed);
                self.waits = true;
                return false;
            }
        }
        let unused = since == 0 || now.saturating_sub(own.last_sent.load(Relaxed)) >= STALL_NS;
        if unused && !self.is_free(now) {
            own.holding_since.store(0, Relaxed);
            if own.waiting_since.load(Relaxed) == 0 {
                own.waiting_since.store(now, Relaxed);
            }
            self.waits = true;
            return false;
        }
        if since == 0 {
            own.holding_since.store(now, Relaxed);
            own.waiting_since.store(0, Relaxed);
        }
        own.last_sent.store(now, Relaxed);
        true
    }

    /// Bytes of a large message have been sent.
    pub fn record_sent(&self, now: u64) {
        let own = self.own();
        if now.saturating_sub(own.last_sent.swap(now, Relaxed)) >= STALL_NS {
            // Another rank may have taken the slot.
            own.holding_since.store(0, Relaxed);
        }
    }

    /// There is nothing more to send: releases the slot.
    #[inline]
    pub fn release(&mut self) {
        let own = self.own();
        if own.holding_since.load(Relaxed) != 0 || own.waiting_since.load(Relaxed) != 0 {
            own.holding_since.store(0, Relaxed);
            own.waiting_since.store(0, Relaxed);
        }
        self.waits = false;
    }

    /// Does a message wait for a slot? No rank wakes this one when a slot is free.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ranks of one node on these cores, with `slots` slots.
    fn ranks(cores: &[u32], slots: usize) -> Vec<SendSlots> {
        let pages: Vec<RankStatus> = cores.iter().map(|_| RankStatus::default()).collect();
        let node: &'static [RankStatus] = pages.leak();
        let of = |(me, &core)| SendSlots::on(node, me, slots, core);
        cores.iter().enumerate().map(of).collect()
    }

    #[test]
    fn one_sender_per_core() {
        for slots in 1..4 {
            let mut node = ranks(&[0; 5], slots);
            let sending = node.iter_mut().map(|r| r.may_begin(MS)).collect::<Vec<_>>();
            assert_eq!(sending.iter().filter(|&&s| s).count(), slots);
            assert!(node.iter().zip(sending).all(|(r, s)| r.waits() != s));
        }
    }

    #[test]
    fn a_slot_goes_to_the_longest_waiter_after_slot_ns() {
        let mut node = ranks(&[0; 3], 1);
        let mut now = MS;
        assert!(node[1].may_begin(now));
        assert!(!node[2].may_begin(now + 1));
        assert!(!node[0].may_begin(now + 2));
        while now < MS + SLOT_NS {
            assert!(node[1].may_begin(now));
            node[1].record_sent(now + STALL_NS / 2);
            now += STALL_NS - 1;
        }
        assert!(!node[1].may_begin(now) && node[1].waits());
        assert!(!node[0].may_begin(now));
        node[2].ask_again();
        assert!(node[2].may_begin(now) && !node[2].waits());
        node[2].release();
        assert!(node[0].may_begin(now));
    }

    #[test]
    fn a_slot_is_renewed_when_no_rank_waits() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(node[0].may_begin(MS + 10 * SLOT_NS));
        node[0].release();
        assert!(node[1].may_begin(MS + 10 * SLOT_NS));
    }

    #[test]
    fn a_stalled_rank_loses_its_slot_and_waits_again() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(!node[1].may_begin(MS + STALL_NS - 1));
        assert!(node[1].may_begin(MS + STALL_NS));
        assert!(!node[0].may_begin(MS + STALL_NS + 1));
        node[1].release();
        assert!(node[0].may_begin(MS + STALL_NS + 2));
    }

    #[test]
    fn a_stalled_rank_finishes_its_message_first() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(node[1].may_begin(MS + STALL_NS));
        node[0].record_sent(MS + STALL_NS + 1);
        node[1].record_sent(MS + STALL_NS + 2);
        assert!(!node[0].may_begin(MS + STALL_NS + 3));
        assert!(node[1].may_begin(MS + STALL_NS + 4));
    }

    #[test]
    fn ranks_on_cores_of_their_own_do_not_wait_for_each_other() {
        let mut node = ranks(&[1, 2, 1], 1);
        assert!(node[0].may_begin(MS));
        assert!(node[1].may_begin(MS));
        assert!(!node[2].may_begin(MS));
    }
}
