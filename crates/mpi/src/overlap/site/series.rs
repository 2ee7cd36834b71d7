//! Times of calls, and whether one way of calling is faster than the other.

/// Samples that are compared. A choice.
const SAMPLES_MAX: usize = 5;
/// Overlap must be faster by this fraction to be kept. A choice.
const GAIN_MIN_FRACTION: f64 = 0.02;

/// The last few of a series of times, seconds.
#[derive(Clone, Default)]
pub(in crate::overlap) struct RecentTimes(Vec<f64>);

impl RecentTimes {
    pub fn add(&mut self, seconds: f64) {
        if self.0.len() == SAMPLES_MAX {
            self.0.remove(0);
        }
        self.0.push(seconds);
    }

    /// The least time. Longer ones may have other causes.
    fn least(&self) -> Option<f64> {
        self.0.iter().copied().min_by(f64::total_cmp)
    }
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Returns whether these times are shorter than the others by [`GAIN_MIN_FRACTION`]. The least
    /// time must be shorter than the others' least. The median of the last three must be shorter
    /// than the others' median, because one time may be short by chance. `None`: nothing to
    /// compare.
    pub fn is_faster_than(&self, others: &RecentTimes) -> Option<bool> {
        let faster = |one: f64, other: f64| one < (1.0 - GAIN_MIN_FRACTION) * other;
        let last = RecentTimes(self.0[self.0.len().saturating_sub(3)..].to_vec());
        let least = faster(self.least()?, others.least()?);
        Some(least && faster(last.median()?, others.median()?))
    }
}

/// Times of calls that went one way: to the next MPI call, and to a later one.
#[derive(Clone, Default)]
pub(in crate::overlap) struct Series([RecentTimes; 2]);

impl Series {
    pub fn add(&mut self, times: Times) {
        for (recent, seconds) in self.0.iter_mut().zip(times) {
            recent.add(f64::from(seconds));
        }
    }

    /// Returns whether both times are shorter. Where later calls pay for what a call saves, only
    /// the time to the next call is shorter. `None`: nothing to compare.
    pub fn is_faster_than(&self, others: &Series) -> Option<bool> {
        let [next, later] = [0, 1].map(|of| self.0[of].is_faster_than(&others.0[of]));
        Some(next? && later?)
    }

    /// The least time divided by the others' least, for each of the two times.
    pub(super) fn ratios(&self, others: &Series) -> Option<[f64; 2]> {
        let ratio = |of: usize| {
            let (one, other) = (self.0[of].least()?, others.0[of].least()?);
            (other > 0.0).then(|| one / other)
        };
        Some([ratio(0)?, ratio(1)?])
    }
}

/// Seconds from a collective call to the next MPI call, and to a later one.
pub(in crate::overlap) type Times = [f32; 2];
