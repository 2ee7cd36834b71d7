//! Which members of a group wait for something in shared memory: a bitmap of all members.
//!
//! ```text
//! waiter                                  who changes what the waiter tests
//! 1. arm the wakeup word                  1. change it (an atomic read-modify-write)
//! 2. add                                  2. drain: wake each
//! 3. test; if it fails, sleep; back to 1
//! ```
//!
//! Between each two steps of either side lies a full fence. So either the waiter's test sees the
//! change, or the drain sees the waiter. A member that an earlier drain has taken out is awake, or
//! was seen to sleep and woken. `tests/loom.rs` checks this in every order.

use crate::atomic::{AtomicU64, Ordering, fence};

/// Which members wait. All zeros: nobody.
#[repr(transparent)]
pub struct WaitSet([AtomicU64]);

impl WaitSet {
    /// Words for a group of this many members.
    pub const fn words(members: usize) -> usize {
        members.div_ceil(64)
    }

    /// The set in these words.
    pub fn new(words: &[AtomicU64]) -> &WaitSet {
        // SAFETY: a WaitSet is such a slice, by `repr(transparent)`.
        unsafe { &*(std::ptr::from_ref(words) as *const WaitSet) }
    }

    /// Member `i` waits. Costs a load if the set has it already, so it may be called before each
    /// test.
    #[inline]
    pub fn add(&self, i: usize) {
        let (word, bit) = self.place(i);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Member `i` does not wait any more.
    pub fn remove(&self, i: usize) {
        let (word, bit) = self.place(i);
        if word.load(Ordering::SeqCst) & bit != 0 {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Takes all members out, and calls `wake` for each.
    pub fn drain(&self, mut wake: impl FnMut(usize)) {
        fence(Ordering::SeqCst);
        for (w, word) in self.0.iter().enumerate() {
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            while bits != 0 {
                wake(w * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    #[inline]
    fn place(&self, i: usize) -> (&AtomicU64, u64) {
        (&self.0[i / 64], 1 << (i % 64))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn members_are_woken_once() {
        let words: Vec<AtomicU64> = (0..WaitSet::words(130))
            .map(|_| AtomicU64::new(0))
            .collect();
        let set = WaitSet::new(&words);
        for i in [0, 63, 64, 129, 64, 100] {
            set.add(i);
        }
        set.remove(100);
        set.remove(101);
        let mut woken = Vec::new();
        set.drain(|i| woken.push(i));
        assert_eq!(woken, [0, 63, 64, 129]);
        set.drain(|i| panic!("{i} was woken before"));
    }
}
