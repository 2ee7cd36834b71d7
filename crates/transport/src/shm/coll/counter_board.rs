//! A counter board: memory of the node in which the members of a group post data for each other,
//! with a counter for each phase.
//!
//! The members go through numbered *phases*. [`PHASES`] of them can be under way at a time: each
//! uses a part of the board, so that nobody writes over what somebody still reads. In a phase each
//! member adds [`COUNT_PER_MEMBER`] to the part's counter when it is done with the part. When all
//! have, the part may be used again. A member that only posts, such as a broadcast's root, is at
//! most `PHASES` ahead of the others. Phases of different parts need not end in their order.
//!
//! In one call all members can go through a *run* of up to [`PHASES`] consecutive phases at once,
//! for data that one slot has no room for. A member waits until all of the run's parts are free
//! ([`CounterBoard::are_free`]), writes its slots in them, and counts itself in the first phase.
//! When that one is open, all slots of the run may be read. Then the member ends the run
//! ([`CounterBoard::end_run`]): first the other phases, the first one last.
//!
//! - Nobody writes over what somebody still reads: a part is free when all members are done with
//!   its last phase. In a run, too, each member is done with a phase only after it has read.
//! - Nobody waits for ever. A run is no longer than the board has parts. So what used its parts
//!   before belongs to earlier calls, and to end those the others need nothing of this run. Of the
//!   members that wait, those in the earliest call wait for nobody in a later one.
//! - Nobody is woken more than twice, for the parts and for the data. Whoever is the last one to be
//!   done with the first phase knows that all are done with the others, and wakes for all parts.
//!
//! ```text
//! line 0 ..          a counter for each part
//! line PHASES + 1    members that wait for a phase's data and, from bit 32 on, for a part
//! line PHASES + 2    members that have left for good
//! line PHASES + 3 .. for each part the last phase whose data are complete
//! byte 4096          slots of the first part, then of the next
//! ```

use super::memory::{AtomicU64, Base, CounterBoardMemory, Ordering, PHASES};

/// What a member adds to a part's counter in each phase: 1 when it has posted, 1 when it has read.
pub const COUNT_PER_MEMBER: u64 = 2;
/// Most bytes that a member can post in a phase: 2 KiB of data and a line. A choice: larger data go
/// by messages.
pub const SLOT_MAX_BYTES: usize = 2048 + 64;
/// Boards that each process of the node can allocate. A choice: one for each communicator whose
/// rank 0 it is; further communicators use messages.
pub const BOARDS_PER_RANK: u32 = 16;

/// Bytes of a board for up to `n` members.
pub const fn board_bytes(n: u64) -> u64 {
    (4096 + PHASES as u64 * n * SLOT_MAX_BYTES as u64).next_multiple_of(4096)
}

/// What a member waits for, as the number that counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Awaited {
    /// That the data of a phase are complete.
    Data = 1,
    /// That a part of the board may be used again.
    Part = 1 << 32,
}

/// One member's view of a board.
pub struct CounterBoard {
    memory: CounterBoardMemory,
    members: u32,
}

impl CounterBoard {
    /// A board for `members` members.
    ///
    /// # Safety
    /// `base` is page-aligned shared memory of at least `board_bytes(members)` bytes, never
    /// unmapped, that all members and nobody else use; zeroed, or [reset](CounterBoard::reset),
    /// before the first of them uses it.
    pub unsafe fn new(base: Base, members: u32) -> CounterBoard {
        // SAFETY: the caller's promise.
        let memory = unsafe { CounterBoardMemory::new(base) };
        CounterBoard { memory, members }
    }

    /// Returns whether all of its `members` have left for good.
    pub fn is_deserted(&self, members: u32) -> bool {
        self.memory.departed().load(Ordering::Acquire) == u64::from(members)
    }

    /// Sets all words to their initial values. Only of a deserted board.
    pub fn reset(&self) {
        let m = &self.memory;
        for word in (0..PHASES)
            .flat_map(|part| [m.counter(part), m.open(part)])
            .chain([m.waiting(), m.departed()])
        {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// This member leaves for good.
    pub fn leave(&self) {
        self.memory.departed().fetch_add(1, Ordering::AcqRel);
    }

    /// The value of `phase`'s counter when all members are done with the part's earlier phases.
    #[inline]
    fn base_of(&self, phase: u64) -> u64 {
        (phase - 1) / PHASES as u64 * COUNT_PER_MEMBER * u64::from(self.members)
    }

    #[inline]
    fn part(phase: u64) -> usize {
        (phase % PHASES as u64) as usize
    }

    #[inline]
    fn counter(&self, phase: u64) -> &AtomicU64 {
        self.memory.counter(CounterBoard::part(phase))
    }

    /// The sum of what members have added in `phase` (counted from 1). Below 0 while its part is
    /// still used by an earlier phase.
    #[inline]
    pub fn progress(&self, phase: u64) -> i64 {
        self.counter(phase)
            .load(Ordering::SeqCst)
            .wrapping_sub(self.base_of(phase)) as i64
    }

    /// Adds to `phase`'s counter. Returns the phase's progress after that.
    #[inline]
    pub fn add(&self, phase: u64, share: u64) -> i64 {
        let before = self.counter(phase).fetch_add(share, Ordering::SeqCst);
        (before + share).wrapping_sub(self.base_of(phase)) as i64
    }

    /// Returns whether the slots of a run of `count` phases from `first` on may be written to.
    pub fn are_free(&self, first: u64, count: u64) -> bool {
        (first..first + count).all(|phase| self.progress(phase) >= 0)
    }

    /// This member has posted in a run of `count` phases from `first` on, and does not need their
    /// slots any more. Returns the first phase's progress after that. If all members are done with
    /// that one, they are done with the whole run.
    pub fn end_run(&self, first: u64, count: u64) -> i64 {
        for phase in first + 1..first + count {
            self.add(phase, COUNT_PER_MEMBER);
        }
        self.add(first, 1)
    }

    /// Publishes that the data of `phase` are complete.
    #[inline]
    pub fn open(&self, phase: u64) {
        self.memory
            .open(CounterBoard::part(phase))
            .store(phase, Ordering::SeqCst);
    }

    /// Returns whether the data of `phase` are complete.
    #[inline]
    pub fn is_open(&self, phase: u64) -> bool {
        let open = self.memory.open(CounterBoard::part(phase));
        open.load(Ordering::SeqCst) >= phase
    }

    /// This member is going to wait.
    #[inline]
    pub fn begin_wait(&self, what: Awaited) {
        self.memory
            .waiting()
            .fetch_add(what as u64, Ordering::SeqCst);
    }

    /// This member does not wait any more.
    #[inline]
    pub fn end_wait(&self, what: Awaited) {
        self.memory
            .waiting()
            .fetch_add((what as u64).wrapping_neg(), Ordering::SeqCst);
    }

    /// Returns whether any member waits for that.
    #[inline]
    pub fn has_waiting(&self, what: Awaited) -> bool {
        let all = self.memory.waiting().load(Ordering::SeqCst);
        match what {
            Awaited::Data => all as u32 != 0,
            Awaited::Part => all >= Awaited::Part as u64,
        }
    }

    /// The address at which member `i` posts up to `stride` bytes in `phase`. All members must use
    /// the same stride, a multiple of 64 up to [`SLOT_MAX_BYTES`].
    #[inline]
    pub fn slot(&self, phase: u64, i: u32, stride: usize) -> *mut u8 {
        debug_assert!(i < self.members && stride <= SLOT_MAX_BYTES);
        let part = CounterBoard::part(phase) * self.members as usize * SLOT_MAX_BYTES;
        self.memory.slots(part + i as usize * stride)
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;

    /// A board's memory, zeroed.
    pub struct Memory(pub Vec<u64>);
    impl Memory {
        pub fn new(members: u64) -> Memory {
            Memory(vec![0; board_bytes(members) as usize / 8 + 512])
        }
        pub fn base(&mut self) -> *mut u8 {
            let p = self.0.as_mut_ptr().cast::<u8>();
            p.wrapping_add(p.align_offset(4096))
        }
    }

    /// Threads in place of processes: each posts its number and adds up all numbers, phase after
    /// phase.
    #[test]
    fn all_read_what_all_posted() {
        const N: u32 = 4;
        let mut memory = Memory::new(u64::from(N));
        let base = memory.base() as usize;
        // SAFETY: the memory outlives the threads.
        let board = unsafe { CounterBoard::new(base as *mut u8, N) };
        let threads: Vec<_> = (0..N)
            .map(|me| {
                std::thread::spawn(move || {
                    // SAFETY: the memory outlives the threads; each stands for a process with its
                    // own view.
                    let b = unsafe { CounterBoard::new(base as *mut u8, N) };
                    for phase in 1..=500u64 {
                        while b.progress(phase) < 0 {
                            std::thread::yield_now();
                        }
                        // SAFETY: the slot is this member's until all have posted.
                        unsafe {
                            b.slot(phase, me, 64)
                                .cast::<u64>()
                                .write(u64::from(me) + phase)
                        };
                        if b.add(phase, 1) == i64::from(N) {
                            b.open(phase);
                        }
                        while !b.is_open(phase) {
                            std::thread::yield_now();
                        }
                        // SAFETY: all have posted, and nobody posts there again before this member
                        // is done.
                        let sum: u64 = (0..N)
                            .map(|i| unsafe { b.slot(phase, i, 64).cast::<u64>().read() })
                            .sum();
                        assert_eq!(sum, u64::from(N) * phase + 6);
                        b.add(phase, 1);
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        assert!(!board.is_deserted(N));
        (0..N).for_each(|_| board.leave());
        assert!(board.is_deserted(N));
    }
}
