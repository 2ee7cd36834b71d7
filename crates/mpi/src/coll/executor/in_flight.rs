//! What of a run is under way, first ones first.

use std::collections::VecDeque;

/// So many need no memory of their own: most schedules have no more at a time.
const FEW: usize = 4;

/// A queue.
pub(crate) struct UnderWay<T> {
    /// The first ones, from place `at` on, round.
    few: [Option<T>; FEW],
    at: usize,
    len: usize,
    /// Those behind them.
    more: VecDeque<T>,
}

impl<T> Default for UnderWay<T> {
    fn default() -> UnderWay<T> {
        UnderWay {
            few: std::array::from_fn(|_| None),
            at: 0,
            len: 0,
            more: VecDeque::new(),
        }
    }
}

impl<T> UnderWay<T> {
    #[inline]
    pub fn push_back(&mut self, one: T) {
        if self.len == FEW || !self.more.is_empty() {
            return self.more.push_back(one);
        }
        self.few[(self.at + self.len) % FEW] = Some(one);
        self.len += 1;
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        if self.len > 0 {
            self.few[self.at].as_ref()
        } else {
            self.more.front()
        }
    }

    #[inline]
    pub fn pop_front(&mut self) {
        if self.len > 0 {
            (self.at, self.len) = ((self.at + 1) % FEW, self.len - 1);
        } else {
            self.more.pop_front();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let few = (0..self.len).filter_map(|i| self.few[(self.at + i) % FEW].as_ref());
        few.chain(&self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let mut queue = UnderWay::default();
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
