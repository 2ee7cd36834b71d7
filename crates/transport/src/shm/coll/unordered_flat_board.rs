//! An unordered flat board: a [flat board](super::flat_board) whose phases need not begin or end in
//! their order. It serves collectives in the background, of which several can be under way.
//!
//! Who has posted in a phase need not be done with the phase before. So each member has a word for
//! each part of the board: the last phase that it is done with there. They share a line, which the
//! others read about once in [`PHASES`] phases.

use super::flat_board::{MARK_BITS, Post, data_at, slot_at};
use super::memory::{AtomicU64, FlatBoardMemory, Ordering, PHASES};

/// One member's view of a board.
pub struct UnorderedFlatBoard {
    memory: FlatBoardMemory,
    members: u32,
    me: u32,
    /// By part: the last phase with which all members are known to be done, this one as well: it
    /// may have begun a later one before.
    common: [u64; PHASES],
}

impl UnorderedFlatBoard {
    /// Member `me`'s view of the board that has this memory.
    pub(super) fn new(memory: FlatBoardMemory, members: u32, me: u32) -> UnorderedFlatBoard {
        UnorderedFlatBoard {
            memory,
            members,
            me,
            common: [0; PHASES],
        }
    }

    /// This member leaves for good.
    pub fn leave(&self) {
        self.memory.departed().fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    fn part(phase: u64) -> usize {
        (phase % PHASES as u64) as usize
    }

    /// Returns whether all members are done with the phase that used the slots of `phase` before.
    /// Then this member may write to its own.
    #[inline]
    pub fn is_free(&mut self, phase: u64) -> bool {
        let (old, part) = (
            phase.saturating_sub(PHASES as u64),
            UnorderedFlatBoard::part(phase),
        );
        if old > self.common[part] {
            self.look_at_all();
        }
        old <= self.common[part]
    }

    /// All members are known to be done with this phase, since they have begun what comes after it.
    #[inline]
    pub fn all_are_done(&mut self, phase: u64) {
        let common = &mut self.common[UnorderedFlatBoard::part(phase)];
        *common = phase.max(*common);
    }

    /// Reads what the members are done with.
    fn look_at_all(&mut self) {
        for (part, common) in self.common.iter_mut().enumerate() {
            let done = |i: u32| {
                self.memory
                    .done_in(i as usize, part)
                    .load(Ordering::Acquire)
            };
            *common = (0..self.members).map(done).min().unwrap_or(0);
        }
    }

    /// The address of what member `i` posts in a phase. This member's own may be written once they
    /// are [free](UnorderedFlatBoard::is_free), until it posts. Another's may be read once that
    /// member has posted, until this one is done.
    #[inline]
    pub fn data(&self, i: u32, phase: u64, post: Post) -> *mut u8 {
        self.memory.data(data_at(i, phase, self.members, post))
    }

    /// Publishes this member's data and its mark (below 2^[`MARK_BITS`]) in a phase, with a full
    /// barrier.
    #[inline]
    pub fn post(&self, phase: u64, mark: u32) {
        debug_assert!(mark < 1 << MARK_BITS);
        let at = slot_at(self.me, phase);
        let word = phase << MARK_BITS | u64::from(mark);
        self.memory.slot(at).swap(word, Ordering::SeqCst);
    }

    /// The mark of member `i` in a phase, if it has posted and has not posted there since.
    #[inline]
    pub fn posted(&self, i: u32, phase: u64) -> Option<u32> {
        let at = slot_at(i, phase);
        let word = self.memory.slot(at).load(Ordering::Acquire);
        (word >> MARK_BITS == phase).then_some(word as u32 & ((1 << MARK_BITS) - 1))
    }

    /// This member is done with a phase. With a full barrier: a member may wait for it.
    #[inline]
    pub fn end(&self, phase: u64) {
        self.done(phase).swap(phase, Ordering::SeqCst);
        self.prefetch(phase + 1);
    }

    /// As [`UnorderedFlatBoard::end`], without a barrier, because a
    /// [post](UnorderedFlatBoard::post) follows.
    #[inline]
    pub fn end_before_post(&self, phase: u64) {
        self.done(phase).store(phase, Ordering::Release);
    }

    /// Prefetches the line in which this member will probably post next.
    #[inline]
    fn prefetch(&self, phase: u64) {
        let at = slot_at(self.me, phase);
        self.memory.prefetch_for_write(at);
    }

    /// The word that says with which phase this member is done, in a phase's part.
    #[inline]
    fn done(&self, phase: u64) -> &AtomicU64 {
        self.memory
            .done_in(self.me as usize, UnorderedFlatBoard::part(phase))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::counter_board::tests::Memory;
    use super::super::flat_board::FlatBoard;
    use super::*;

    /// Threads in place of processes: each has up to `PHASES` phases under way, and ends the later
    /// ones first. All read what all posted.
    #[test]
    fn phases_may_end_in_any_order() {
        // Phases with data in the line of the word, and others.
        let post = |phase: u64| Post {
            len: if phase.is_multiple_of(3) { 8 } else { 800 },
            by_all: phase.is_multiple_of(2),
        };
        for n in [2, 3] {
            end_in_any_order(n, post);
        }
    }

    fn end_in_any_order(members: u32, post: impl Fn(u64) -> Post + Copy + Send + 'static) {
        let mut memory = Memory::new(u64::from(members));
        let base = memory.base() as usize;
        let threads: Vec<_> = (0..members)
            .map(|me| {
                std::thread::spawn(move || {
                    // SAFETY: the memory outlives the threads; each stands for a process with its
                    // own view.
                    let mut board =
                        unsafe { FlatBoard::new(base as *mut u8, members, me) }.unordered();
                    for round in 0..200u64 {
                        let under_way = 1 + (round + u64::from(me)) % PHASES as u64;
                        let first = 1 + round * PHASES as u64;
                        let all = first..first + PHASES as u64;
                        for some in all.collect::<Vec<_>>().chunks(under_way as usize) {
                            for &phase in some {
                                while !board.is_free(phase) {
                                    std::thread::yield_now();
                                }
                                // SAFETY: the slot is free, and this member's until it has posted.
                                unsafe {
                                    let mine = board.data(me, phase, post(phase)).cast::<u64>();
                                    mine.write(u64::from(me) + phase);
                                }
                                board.post(phase, 5);
                            }
                            for &phase in some.iter().rev() {
                                let read = |i: u32| {
                                    while board.posted(i, phase) != Some(5) {
                                        std::thread::yield_now();
                                    }
                                    // SAFETY: it has posted, and does not write there before this
                                    // member is done.
                                    unsafe {
                                        board.data(i, phase, post(phase)).cast::<u64>().read()
                                    }
                                };
                                let sum: u64 = (0..members).map(read).sum();
                                assert_eq!(
                                    sum,
                                    u64::from(members) * phase
                                        + u64::from(members * (members - 1) / 2)
                                );
                                board.end(phase);
                            }
                        }
                    }
                    board.leave();
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
    }

    #[test]
    fn a_slot_is_free_when_all_others_are_done_with_what_was_there() {
        let mut memory = Memory::new(3);
        let base = memory.base();
        // SAFETY: nobody else uses the memory.
        let [mut a, b, c] = [0, 1, 2].map(|me| unsafe { FlatBoard::new(base, 3, me) }.unordered());
        let again = 4 + PHASES as u64;
        assert!(a.is_free(4) && !a.is_free(again));
        b.end(4);
        assert!(!a.is_free(again), "one is not done");
        c.end(5);
        assert!(!a.is_free(again), "it is done with another part");
        a.end(4);
        assert!(!a.is_free(again), "one is not done");
        c.end_before_post(4);
        assert!(a.is_free(again) && !a.is_free(again + 1));
        assert_eq!(b.posted(2, 4), None);
        c.post(4, 9);
        assert_eq!((b.posted(2, 4), b.posted(2, again)), (Some(9), None));
    }
}
