//! A queue of the messages in flight, with room for a few that needs no allocation.

use std::collections::VecDeque;

/// Entries without an allocation. Most algorithms have two messages in flight at a time, ring and
/// pairwise exchange included.
const INLINE_CAPACITY: usize = 4;

/// A first-in, first-out queue.
pub(crate) struct InFlight<T> {
    /// The first entries: a ring that begins at `at`.
    inline: [Option<T>; INLINE_CAPACITY],
    at: usize,
    len: usize,
    /// The entries behind them.
    more: VecDeque<T>,
}

impl<T> Default for InFlight<T> {
    fn default() -> InFlight<T> {
        InFlight {
            inline: std::array::from_fn(|_| None),
            at: 0,
            len: 0,
            more: VecDeque::new(),
        }
    }
}

impl<T> InFlight<T> {
    #[inline]
    pub fn push_back(&mut self, one: T) {
        if self.len == INLINE_CAPACITY || !self.more.is_empty() {
            return self.more.push_back(one);
        }
        self.inline[(self.at + self.len) % INLINE_CAPACITY] = Some(one);
        self.len += 1;
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        if self.len > 0 {
            self.inline[self.at].as_ref()
        } else {
            self.more.front()
        }
    }

    #[inline]
    pub fn pop_front(&mut self) {
        if self.len > 0 {
            (self.at, self.len) = ((self.at + 1) % INLINE_CAPACITY, self.len - 1);
        } else {
            self.more.pop_front();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let inline =
            (0..self.len).filter_map(|i| self.inline[(self.at + i) % INLINE_CAPACITY].as_ref());
        inline.chain(&self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let mut queue = InFlight::default();
        let (mut into, mut out) = (0, 0);
        for round in 0..200u32 {
            for _ in 0..round % 7 {
                queue.push_back(into);
                into += 1;
            }
            let all: Vec<u32> = queue.iter().copied().collect();
            assert_eq!(all, (out..into).collect::<Vec<_>>());
            for _ in 0..round % 5 {
                let front = queue.front().copied();
                assert_eq!(front, (out < into).then_some(out));
                queue.pop_front();
                out += u32::from(front.is_some());
            }
        }
    }
}
