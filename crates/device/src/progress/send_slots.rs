//! Taking turns: where ranks share cores, the bytes of announced messages leave a node by one rank
//! a core at a time.
//!
//! If all of them send whenever they have the core, each finds its buffer, and what the system
//! keeps of it, out of the caches, and meets a receiver that has just handed its own core over. One
//! that goes on for some milliseconds, while the others let it, sends as fast as one that is alone.
//!
//! Each rank writes on its status page since when it wants a turn, since when it has one, and when
//! bytes of it last went. No lock is behind it, and nothing depends on it: two ranks that see a
//! free turn at once both send; a rank that has not moved anything for a while (its peer does not
//! read, it is asleep or out of MPI) counts as if it had none. A rank that waits for one hands its
//! core over, and does not sleep.

use ferry_job::{RankInfo, RankStatus, SendSlot};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::Ordering::Relaxed;

/// After so many nanoseconds a turn is given to another rank that waits for it: the time of some
/// 200 MB, so that the caches are filled anew seldom.
const TURN_NS: u64 = 20_000_000;
/// Who has moved nothing for so many nanoseconds is not waited for: a network of 5 GB/s makes room
/// in a full buffer sooner.
const STALL_NS: u64 = 500_000;

/// What a process knows of its node's turns.
pub(crate) struct SendSlots {
    node: &'static [RankStatus],
    me: usize,
    /// So many may send at once, …
    places: usize,
    /// … of those that may use the same cores: 0 all of them, otherwise this one alone, counted
    /// from 1.
    core: u32,
    /// A message waits for a turn.
    waits: bool,
}

impl SendSlots {
    /// For a node whose ranks have these pages. `None`: there is nobody to take turns with.
    pub fn new(rank_info: &RankInfo, node: &'static [RankStatus]) -> Option<SendSlots> {
        let me = rank_info.local_rank as usize;
        if node.len() < 2 || me >= node.len() {
            return None;
        }
        let given = sched_getaffinity(None).ok()?;
        let core = match given.count() {
            1 => (0..CpuSet::MAX_CPU).position(|core| given.is_set(core))? as u32 + 1,
            _ => 0,
        };
        let places = if core == 0 {
            rank_info.cores as usize
        } else {
            1
        };
        Some(SendSlots::on(node, me, places, core))
    }

    fn on(node: &'static [RankStatus], me: usize, places: usize, core: u32) -> SendSlots {
        node[me].send_slot.core.store(core, Relaxed);
        SendSlots {
            node,
            me,
            places,
            core,
            waits: false,
        }
    }

    fn mine(&self) -> &'static SendSlot {
        &self.node[self.me].send_slot
    }

    /// The turns of those on the same cores.
    fn others(&self) -> impl Iterator<Item = &'static SendSlot> + use<> {
        let (me, core) = (self.me, self.core);
        let all = self.node.iter().enumerate();
        all.filter(move |&(rank, page)| rank != me && page.send_slot.core.load(Relaxed) == core)
            .map(|(_, page)| &page.send_slot)
    }

    /// Is there a place that nobody has, or whoever has it does not use?
    fn is_free(&self, now: u64) -> bool {
        let sends = |turn: &&SendSlot| {
            turn.holding_since.load(Relaxed) != 0
                && now.saturating_sub(turn.last_sent.load(Relaxed)) < STALL_NS
        };
        self.others().filter(sends).count() < self.places
    }

    /// All messages that wait for a turn are about to ask again; of one that is gone nothing is
    /// left.
    #[inline]
    pub fn ask_anew(&mut self) {
        self.waits = false;
    }

    /// May another message begin to go now, by the clock of [`RankStatus::now`]? Otherwise this
    /// rank waits for its turn, until it asks again or [ends](SendSlots::end) it.
    pub fn may_begin(&mut self, now: u64) -> bool {
        let mine = self.mine();
        let since = mine.holding_since.load(Relaxed);
        if since != 0 && now.saturating_sub(since) >= TURN_NS {
            let wanted = |turn: &&SendSlot| {
                turn.holding_since.load(Relaxed) == 0 && turn.waiting_since.load(Relaxed) != 0
            };
            let longest = self
                .others()
                .filter(wanted)
                .min_by_key(|turn| turn.waiting_since.load(Relaxed));
            if let Some(next) = longest {
                mine.holding_since.store(0, Relaxed);
                mine.waiting_since.store(now, Relaxed);
                next.last_sent.store(now, Relaxed);
                next.holding_since.store(now, Relaxed);
                self.waits = true;
                return false;
            }
        }
        let unused = since == 0 || now.saturating_sub(mine.last_sent.load(Relaxed)) >= STALL_NS;
        if unused && !self.is_free(now) {
            mine.holding_since.store(0, Relaxed);
            if mine.waiting_since.load(Relaxed) == 0 {
                mine.waiting_since.store(now, Relaxed);
            }
            self.waits = true;
            return false;
        }
        if since == 0 {
            mine.holding_since.store(now, Relaxed);
            mine.waiting_since.store(0, Relaxed);
        }
        mine.last_sent.store(now, Relaxed);
        true
    }

    /// Bytes have gone.
    pub fn moved(&self, now: u64) {
        let mine = self.mine();
        if now.saturating_sub(mine.last_sent.swap(now, Relaxed)) >= STALL_NS {
            // Somebody else may have gone on instead.
            mine.holding_since.store(0, Relaxed);
        }
    }

    /// There is nothing more to send.
    #[inline]
    pub fn end(&mut self) {
        let mine = self.mine();
        if mine.holding_since.load(Relaxed) != 0 || mine.waiting_since.load(Relaxed) != 0 {
            mine.holding_since.store(0, Relaxed);
            mine.waiting_since.store(0, Relaxed);
        }
        self.waits = false;
    }

    /// Does a message wait for a turn? Nobody rings this rank when it comes.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ranks of one node, on these cores, so many of which may send at once.
    fn ranks(cores: &[u32], places: usize) -> Vec<SendSlots> {
        let pages: Vec<RankStatus> = cores.iter().map(|_| RankStatus::default()).collect();
        let node: &'static [RankStatus] = pages.leak();
        let of = |(me, &core)| SendSlots::on(node, me, places, core);
        cores.iter().enumerate().map(of).collect()
    }

    #[test]
    fn so_many_send_at_once_as_there_are_cores() {
        for places in 1..4 {
            let mut node = ranks(&[0; 5], places);
            let sending = node.iter_mut().map(|r| r.may_begin(MS)).collect::<Vec<_>>();
            assert_eq!(sending.iter().filter(|&&s| s).count(), places);
            assert!(node.iter().zip(sending).all(|(r, s)| r.waits() != s));
        }
    }

    #[test]
    fn who_has_one_keeps_it_for_a_while_and_then_the_one_goes_that_has_waited_longest() {
        let mut node = ranks(&[0; 3], 1);
        let mut now = MS;
        assert!(node[1].may_begin(now));
        assert!(!node[2].may_begin(now + 1));
        assert!(!node[0].may_begin(now + 2));
        while now < MS + TURN_NS {
            assert!(node[1].may_begin(now));
            node[1].moved(now + STALL_NS / 2);
            now += STALL_NS - 1;
        }
        assert!(!node[1].may_begin(now) && node[1].waits());
        assert!(!node[0].may_begin(now));
        node[2].ask_anew();
        assert!(node[2].may_begin(now) && !node[2].waits());
        node[2].end();
        assert!(node[0].may_begin(now));
    }

    #[test]
    fn nobody_else_wants_it_and_the_turn_goes_on() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(node[0].may_begin(MS + 10 * TURN_NS));
        node[0].end();
        assert!(node[1].may_begin(MS + 10 * TURN_NS));
    }

    #[test]
    fn who_stands_still_is_passed_over_and_waits_when_it_comes_back() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(!node[1].may_begin(MS + STALL_NS - 1));
        assert!(node[1].may_begin(MS + STALL_NS));
        assert!(!node[0].may_begin(MS + STALL_NS + 1));
        node[1].end();
        assert!(node[0].may_begin(MS + STALL_NS + 2));
    }

    #[test]
    fn what_stood_still_ends_its_message_and_asks_before_the_next() {
        let mut node = ranks(&[0; 2], 1);
        assert!(node[0].may_begin(MS));
        assert!(node[1].may_begin(MS + STALL_NS));
        node[0].moved(MS + STALL_NS + 1);
        node[1].moved(MS + STALL_NS + 2);
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
