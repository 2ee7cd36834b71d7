//! A flat board: shared memory of a small group. Each member writes its own slot, and reads the
//! slots of all others.
//!
//! It serves groups whose members have a core each. On a [counter board](super::counter_board) one
//! counter shows that all members have posted. That needs few lines, but all members compete for
//! them. Here each member's slot shows it, in the line that also holds its first data. If two
//! members exchange eight bytes, each of them fetches one line from the other's cache.
//!
//! The members go through numbered *phases* together. [`PHASES`] phases can be in progress at a
//! time, with slots of their own. A member that has seen all others post in a phase knows that they
//! are done with the phase before. In phases where not all wait for all, such as a broadcast, each
//! member writes into a word of its own that it is done.
//!
//! ```text
//! line PHASES + 2       members that have left for good, as on a counter board
//! line PHASES + 3 ..    a word for each member: the last phase that it is done with, of those in
//!                       which not all wait for all; on an unordered board a word for each part
//! byte 4096             the first member's slots, part by part, then the next one's: a line with
//!                       the word and short data, then longer data
//! word                  phase, and a mark of MARK_BITS bits
//! ```

use super::counter_board::SLOT_MAX_BYTES;
use super::memory::{Base, FlatBoardMemory, LINE_BYTES, Ordering, PHASES};
use super::unordered_flat_board::UnorderedFlatBoard;

/// Most members of a flat board. A choice: each member reads a line of every other.
pub const FLAT_MAX_RANKS: u32 = 8;
/// Bits of a slot's word for the mark, by which members compare what they do. The other 44 count
/// phases: enough for months of a phase every microsecond.
pub const MARK_BITS: u32 = 20;
/// Most bytes that a member can post in a phase: a slot without the line of its word.
pub const POST_MAX_BYTES: usize = SLOT_MAX_BYTES - LINE_BYTES;
/// Most bytes of data that lie in the line of their slot's word.
const IN_LINE_MAX_BYTES: usize = LINE_BYTES - 8;

/// The offset of slot `i` in a phase, bytes from the first slot. It begins with member `i`'s word.
#[inline]
pub(super) fn slot_at(i: u32, phase: u64) -> usize {
    const PARTS: u64 = PHASES as u64;
    (u64::from(i) * PARTS + phase % PARTS) as usize * SLOT_MAX_BYTES
}

/// What a member posts in a phase. All members know it of each other.
#[derive(Clone, Copy)]
pub struct Post {
    /// Bytes, up to [`POST_MAX_BYTES`].
    pub len: usize,
    /// All members post, not one alone or all but one.
    pub by_all: bool,
}

/// The offset of the data that member `i` of `members` posts in a phase. They lie behind its word,
/// but for what two members exchange and does not fit into the word's line. There the two swap
/// their slots in each round through the parts: a core that has just read lines writes them faster
/// than one whose lines another has read (docs/measured/collectives.md).
#[inline]
pub(super) fn data_at(i: u32, phase: u64, members: u32, post: Post) -> usize {
    if post.len <= IN_LINE_MAX_BYTES || !post.by_all || members != 2 {
        return slot_at(i, phase) + 8;
    }
    let round = (phase / PHASES as u64) as u32;
    slot_at(i ^ round & 1, phase) + LINE_BYTES
}

/// One member's view of a board.
pub struct FlatBoard {
    memory: FlatBoardMemory,
    members: u32,
    me: u32,
    phase: u64,
    /// All members are known to be done with this phase.
    common: u64,
}

impl FlatBoard {
    /// Member `me`'s view of a flat board of `members` members, at most [`FLAT_MAX_RANKS`].
    ///
    /// # Safety
    /// `base` is page-aligned shared memory as long as a board for `members` members. It is never
    /// unmapped. Only the members use it. It is zeroed or [reset](FlatBoard::reset) before the
    /// first of them uses it.
    pub unsafe fn new(base: Base, members: u32, me: u32) -> FlatBoard {
        debug_assert!(me < members && members <= FLAT_MAX_RANKS);
        // SAFETY: the caller's promise.
        let memory = unsafe { FlatBoardMemory::new(base) };
        FlatBoard {
            memory,
            members,
            me,
            phase: 0,
            common: 0,
        }
    }

    /// The same member's view of the same board, which nobody has used yet, for phases that need
    /// not end in their order.
    pub fn unordered(self) -> UnorderedFlatBoard {
        UnorderedFlatBoard::new(self.memory, self.members, self.me)
    }

    /// Sets all words to their initial values. Only where nobody uses the board.
    pub fn reset(&self) {
        for i in 0..self.members {
            for part in 0..PHASES {
                self.memory
                    .done_in(i as usize, part)
                    .store(0, Ordering::SeqCst);
                let at = slot_at(i, part as u64);
                self.memory.slot(at).store(0, Ordering::SeqCst);
            }
        }
    }

    /// This member leaves for good.
    pub fn leave(&self) {
        self.memory.departed().fetch_add(1, Ordering::AcqRel);
    }

    /// Goes on to the next phase. Its slots may be written to once they [are
    /// free](FlatBoard::is_free).
    #[inline]
    pub fn next(&mut self) {
        self.phase += 1;
    }

    /// Returns whether all members are done with what this member posted `PHASES` phases ago.
    #[inline]
    pub fn is_free(&mut self) -> bool {
        let old = self.phase.saturating_sub(PHASES as u64);
        if old <= self.common {
            return true;
        }
        let done = |i: u32| self.memory.done(i as usize).load(Ordering::Acquire);
        let all = (0..self.members).filter(|&i| i != self.me).map(done).min();
        self.common = self.common.max(all.unwrap_or(old));
        old <= self.common
    }

    /// The address of what member `i` posts in this phase. This member's own
    /// may be written once they are free, until it posts. Another's may be read once that member
    /// has posted, until this one is done.
    #[inline]
    pub fn data(&self, i: u32, post: Post) -> *mut u8 {
        self.memory.data(data_at(i, self.phase, self.members, post))
    }

    /// Publishes this member's data and its mark (below 2^[`MARK_BITS`]), with a full barrier.
    #[inline]
    pub fn post(&self, mark: u32) {
        debug_assert!(mark < 1 << MARK_BITS);
        let at = slot_at(self.me, self.phase);
        let word = self.phase << MARK_BITS | u64::from(mark);
        self.memory.slot(at).swap(word, Ordering::SeqCst);
    }

    /// The mark of member `i` in this phase, if it has posted.
    #[inline]
    pub fn posted(&self, i: u32) -> Option<u32> {
        self.posted_in(i, self.phase)
    }

    /// What member `i` posted `back` phases ago (0: in this one), if it did and has not posted in
    /// the same slot since. `back` is less than [`PHASES`].
    pub fn posted_before(&self, i: u32, back: u64) -> Option<u32> {
        let phase = self.phase.checked_sub(back).filter(|&p| p > 0)?;
        self.posted_in(i, phase)
    }

    /// What member `i` posted in the phase after this one, if it did.
    pub fn posted_next(&self, i: u32) -> Option<u32> {
        self.posted_in(i, self.phase + 1)
    }

    #[inline]
    fn posted_in(&self, i: u32, phase: u64) -> Option<u32> {
        let at = slot_at(i, phase);
        let word = self.memory.slot(at).load(Ordering::Acquire);
        (word >> MARK_BITS == phase).then_some(word as u32 & ((1 << MARK_BITS) - 1))
    }

    /// Ends this member's part in this phase, in which it has seen all others post.
    #[inline]
    pub fn end_full_phase(&mut self) {
        // Each of them was done with the phase before.
        self.common = self.phase - 1;
        self.prepare();
    }

    /// Ends this member's part in this phase, in which not all wait for all. With a full barrier:
    /// a member may wait for it.
    #[inline]
    pub fn end_phase(&mut self) {
        let mine = self.memory.done(self.me as usize);
        mine.swap(self.phase, Ordering::SeqCst);
        self.prepare();
    }

    /// Ends this member's part in this phase, in which not all wait for all. Without a barrier,
    /// because a [post](FlatBoard::post) follows.
    #[inline]
    pub fn end_phase_before_post(&mut self) {
        let mine = self.memory.done(self.me as usize);
        mine.store(self.phase, Ordering::Release);
    }

    /// Prefetches the line in which this member will post next. Probably nobody looks at it before.
    #[inline]
    pub fn prepare(&self) {
        let at = slot_at(self.me, self.phase + 1);
        self.memory.prefetch_for_write(at);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::counter_board::tests::Memory;
    use super::*;

    /// Threads in place of processes: in each phase either all post and add up, or one posts and
    /// the others read.
    #[test]
    fn all_read_what_is_posted() {
        const N: u32 = 4;
        const POST: Post = Post {
            len: 8,
            by_all: true,
        };
        let mut memory = Memory::new(u64::from(N));
        let base = memory.base() as usize;
        let threads: Vec<_> = (0..N)
            .map(|me| {
                std::thread::spawn(move || {
                    // SAFETY: the memory outlives the threads; each stands for a process with its
                    // own view.
                    let mut board = unsafe { FlatBoard::new(base as *mut u8, N, me) };
                    for phase in 1..=600u64 {
                        board.next();
                        while !board.is_free() {
                            std::thread::yield_now();
                        }
                        let one = (phase / 50 % 2 == 1).then_some(phase as u32 % 3);
                        if one.is_none_or(|root| root == me) {
                            let mine = board.data(me, POST).cast::<u64>();
                            // SAFETY: the slot is free, and this member's until it has posted.
                            unsafe { mine.write(u64::from(me) + phase) };
                            if one.is_some() {
                                board.end_phase_before_post();
                            }
                            board.post(7);
                        }
                        let read = |i: u32| {
                            while board.posted(i) != Some(7) {
                                std::thread::yield_now();
                            }
                            // SAFETY: it has posted, and does not write there before this member is
                            // done.
                            unsafe { board.data(i, POST).cast::<u64>().read() }
                        };
                        if one == Some(me) {
                            continue;
                        }
                        if let Some(root) = one {
                            assert_eq!(read(root), u64::from(root) + phase);
                            board.end_phase();
                        } else {
                            assert_eq!((0..N).map(read).sum::<u64>(), u64::from(N) * phase + 6);
                            board.end_full_phase();
                        }
                    }
                    board.leave();
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        // SAFETY: as above.
        let board = unsafe { super::super::counter_board::CounterBoard::new(base as *mut u8, N) };
        assert!(board.is_deserted(N));
    }

    #[test]
    fn one_that_was_reset_is_as_new() {
        let mut memory = Memory::new(2);
        memory.0.fill(!0);
        let base = memory.base();
        // SAFETY: nobody else uses the memory.
        let mut board = unsafe { FlatBoard::new(base, 2, 0) };
        board.reset();
        for _ in 0..PHASES {
            board.next();
            assert!(board.is_free() && board.posted(0).is_none() && board.posted(1).is_none());
            board.post(1);
            assert_eq!(board.posted(0), Some(1));
            board.end_phase();
        }
        board.next();
        assert!(!board.is_free(), "the other is done with nothing");
    }
}
