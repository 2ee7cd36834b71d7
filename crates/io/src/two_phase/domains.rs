//! Domains of aggregators, and their windows.

use std::ops::Range;

/// The domains of a collective transfer: neighbouring parts of the file's range, one for each
/// aggregator, which works through it in windows.
///
/// Domains begin at multiples of the alignment, so that no two aggregators write the same block of
/// the file system. Windows begin at multiples of their size from there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domains {
    range: Range<u64>,
    /// Start of the first domain, if it were not cut to the range.
    base: u64,
    /// Bytes of a domain, a multiple of the alignment.
    domain_bytes: u64,
    window_bytes: u64,
    aggregators: u64,
}

impl Domains {
    /// Splits `range` among `aggregators`. All are bytes but for their number; each is taken for 1
    /// if it is 0.
    pub fn new(
        range: Range<u64>,
        aggregators: usize,
        alignment: u64,
        window_bytes: u64,
    ) -> Domains {
        let aggregators = aggregators.max(1) as u64;
        let alignment = alignment.max(1);
        let base = range.start / alignment * alignment;
        let share = range.end.saturating_sub(base).div_ceil(aggregators);
        let domain_bytes = share.div_ceil(alignment).max(1).saturating_mul(alignment);
        Domains {
            range,
            base,
            domain_bytes,
            window_bytes: window_bytes.max(1),
            aggregators,
        }
    }

    /// The range of the file that is split.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Start of an aggregator's domain, not cut to the range.
    fn start(&self, aggregator: usize) -> u64 {
        let before = (aggregator as u64).saturating_mul(self.domain_bytes);
        self.base.saturating_add(before)
    }

    /// The part of `start..end` that lies in the range.
    fn clip(&self, start: u64, end: u64) -> Range<u64> {
        let start = start.clamp(self.range.start, self.range.end.max(self.range.start));
        start..end.clamp(start, self.range.end.max(start))
    }

    /// The domain of an aggregator. It may be empty.
    pub fn domain(&self, aggregator: usize) -> Range<u64> {
        let start = self.start(aggregator);
        self.clip(start, start.saturating_add(self.domain_bytes))
    }

    /// The window of an aggregator in a round. It is empty once the domain ends.
    pub fn window(&self, aggregator: usize, round: u64) -> Range<u64> {
        let domain_start = self.start(aggregator);
        let domain_end = domain_start.saturating_add(self.domain_bytes);
        let before = round.saturating_mul(self.window_bytes);
        let start = domain_start.saturating_add(before).min(domain_end);
        self.clip(
            start,
            start.saturating_add(self.window_bytes).min(domain_end),
        )
    }

    /// Number of rounds until all windows have been.
    pub fn rounds(&self) -> u64 {
        if self.range.is_empty() {
            return 0;
        }
        // No domain is longer than the first, but for the part before the range.
        let longest = self.domain_bytes.min(self.range.end - self.base);
        longest.div_ceil(self.window_bytes)
    }

    /// The aggregator whose domain holds an offset of the range.
    pub fn aggregator_of(&self, offset: u64) -> usize {
        let domain = offset.saturating_sub(self.base) / self.domain_bytes;
        domain.min(self.aggregators - 1) as usize
    }

    /// The aggregators whose domains meet a range of the file.
    pub fn aggregators_of(&self, range: &Range<u64>) -> Range<usize> {
        let (start, end) = (
            range.start.max(self.range.start),
            range.end.min(self.range.end),
        );
        match start < end {
            true => self.aggregator_of(start)..self.aggregator_of(end - 1) + 1,
            false => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_are_the_range(
            start in 0u64..5000, len in 0u64..5000, aggregators in 1usize..9,
            alignment in 1u64..600, window in 1u64..900,
        ) {
            let range = start..start + len;
            let domains = Domains::new(range.clone(), aggregators, alignment, window);
            let mut windows = Vec::new();
            for aggregator in 0..aggregators {
                let domain = domains.domain(aggregator);
                prop_assert!(domain.is_empty() || domain.start == start
                    || domain.start.is_multiple_of(alignment));
                for round in 0..domains.rounds() {
                    let window = domains.window(aggregator, round);
                    if !window.is_empty() {
                        prop_assert!(window.start >= domain.start && window.end <= domain.end);
                        prop_assert_eq!(domains.aggregator_of(window.start), aggregator);
                        prop_assert_eq!(domains.aggregator_of(window.end - 1), aggregator);
                        windows.push(window);
                    }
                }
                prop_assert!(domains.window(aggregator, domains.rounds()).is_empty());
            }
            let mut end = start;
            for window in &windows {
                prop_assert_eq!(window.start, end);
                end = window.end;
            }
            prop_assert_eq!(end, range.end);
            prop_assert_eq!(domains.aggregators_of(&range).is_empty(), range.is_empty());
        }
    }
}
