//! The update slot of a process: where another process of the node leaves one short update of this
//! one's private memory, while this one polls in MPI.
//!
//! A process that polls does such an update sooner than two system calls do. Nobody waits for one
//! that does not: who has left an update takes it back unless it was taken soon.
//!
//! ```text
//! origin                                     target
//! FREE → CLAIMED    the slot is this origin's
//!        OFFERED    the update is there      polls, finds it
//!                                            OFFERED → TAKEN   does it
//!                                                      DONE    the result is there
//! OFFERED → CLAIMED if not taken soon
//!           FREE
//! ```
//!
//! An update that was taken is done: the origin waits for that. `tests/loom.rs` checks that each is
//! done once, or taken back.

use super::memory::{AtomicU32, AtomicU64, Ordering};

/// Words of an update.
pub const UPDATE_WORDS: usize = 4;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const OFFERED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;

/// How an update ended that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The target has done it, with this result.
    Done(u64),
    /// The target polls, but has not taken it.
    TakenBack,
    /// Nothing was offered: the target does not poll, or the slot is in use.
    Refused,
    /// The target has begun it, and the caller does not wait for the end. The slot stays in use.
    Abandoned,
}

/// What an origin waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferState {
    /// The target has not begun the update.
    Offered,
    /// It has, and mostly ends it at once.
    Taken,
}

/// The update slot of one process. All zeros: it is free, and the process does not poll.
#[repr(C, align(64))]
pub struct UpdateSlot {
    /// Not 0 while the process polls. A line of its own, which changes rarely.
    polls: AtomicU32,
    _line: [u32; 15],
    state: AtomicU32,
    update: [AtomicU64; UPDATE_WORDS],
    result: AtomicU64,
}

impl UpdateSlot {
    /// A free slot of a process that does not poll.
    #[cfg(any(test, loom))]
    pub fn free() -> UpdateSlot {
        UpdateSlot {
            polls: AtomicU32::new(0),
            _line: [0; 15],
            state: AtomicU32::new(FREE),
            update: std::array::from_fn(|_| AtomicU64::new(0)),
            result: AtomicU64::new(0),
        }
    }

    /// Leaves an update here, if the process polls. Waits for its end while `waits` returns true.
    /// What is taken back the target does not do.
    #[inline]
    pub fn offer(
        &self,
        update: [u64; UPDATE_WORDS],
        mut waits: impl FnMut(OfferState) -> bool,
    ) -> Offered {
        if self.polls.load(Ordering::Relaxed) == 0 || !self.exchange(FREE, CLAIMED) {
            return Offered::Refused;
        }
        for (word, value) in self.update.iter().zip(update) {
            word.store(value, Ordering::Relaxed);
        }
        self.state.store(OFFERED, Ordering::Release);
        let ended = loop {
            match self.state.load(Ordering::Acquire) {
                DONE => break Offered::Done(self.result.load(Ordering::Relaxed)),
                TAKEN if !waits(OfferState::Taken) => return Offered::Abandoned,
                OFFERED if !waits(OfferState::Offered) && self.exchange(OFFERED, CLAIMED) => {
                    break Offered::TakenBack;
                }
                _ => {}
            }
        };
        self.state.store(FREE, Ordering::Release);
        ended
    }

    /// Does an update that was left here. For the process itself, one thread at a time. `run` gets
    /// its words and returns the result. Returns whether there was one.
    #[inline]
    pub fn serve(&self, run: impl FnOnce([u64; UPDATE_WORDS]) -> u64) -> bool {
        if self.polls.load(Ordering::Relaxed) == 0 {
            self.polls.store(1, Ordering::Relaxed);
        }
        if self.state.load(Ordering::Relaxed) != OFFERED || !self.exchange(OFFERED, TAKEN) {
            return false;
        }
        let words = std::array::from_fn(|i| self.update[i].load(Ordering::Relaxed));
        self.result.store(run(words), Ordering::Relaxed);
        self.state.store(DONE, Ordering::Release);
        true
    }

    /// The process does not poll any more. What was left here is taken back.
    #[inline]
    pub fn stop(&self) {
        if self.polls.load(Ordering::Relaxed) != 0 {
            self.polls.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
        self.state.compare_exchange(from, to, won, lost).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn impatient(_: OfferState) -> bool {
        false
    }

    #[test]
    fn who_does_not_poll_is_offered_nothing() {
        let slot = UpdateSlot::free();
        assert_eq!(slot.offer([1; 4], impatient), Offered::Refused);
        slot.serve(|_| unreachable!("nothing was offered"));
        assert_eq!(slot.offer([1; 4], impatient), Offered::TakenBack);
        slot.stop();
        assert_eq!(slot.offer([1; 4], impatient), Offered::Refused);
    }

    #[test]
    fn an_update_in_the_slot_keeps_others_out() {
        let slot = UpdateSlot::free();
        slot.serve(|_| 0);
        let mut other = Offered::TakenBack;
        let ended = slot.offer([7, 8, 9, 10], |_| {
            other = slot.offer([0; 4], impatient);
            slot.serve(|words| words.iter().sum());
            true
        });
        assert_eq!((ended, other), (Offered::Done(34), Offered::Refused));
    }

    #[test]
    fn each_update_is_done_once_or_taken_back() {
        let (slot, ends) = (UpdateSlot::free(), AtomicBool::new(false));
        std::thread::scope(|s| {
            let target = s.spawn(|| {
                let mut sum = 0;
                while !ends.load(Ordering::SeqCst) {
                    slot.serve(|words| {
                        let old = sum;
                        sum += words[0];
                        old
                    });
                }
                sum
            });
            let mut expected = 0;
            while slot.offer([0; 4], |_| true) == Offered::Refused {
                std::hint::spin_loop();
            }
            for i in 1..=20_000 {
                let mut left = i % 50;
                let ended = slot.offer([i, 0, 0, 0], |state| {
                    left = left.saturating_sub(1);
                    left > 0 || state == OfferState::Taken
                });
                match ended {
                    Offered::Done(old) => {
                        assert_eq!(old, expected);
                        expected += i;
                    }
                    Offered::TakenBack => {}
                    Offered::Refused | Offered::Abandoned => unreachable!("{ended:?}"),
                }
            }
            ends.store(true, Ordering::SeqCst);
            assert_eq!(target.join().unwrap(), expected);
        });
    }
}
