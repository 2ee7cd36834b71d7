//! Core contention: where ranks outnumber cores, does another program, or a rank that computes, use
//! the core to which this rank yields?
//!
//! Among ranks that only wait, a yielded core comes back after microseconds. Who computes keeps it
//! for its time slice, so that each yield costs milliseconds. A rank that sees this sleeps instead
//! of yielding: it is woken when its message is there, and the system then gives it the core soon,
//! as it has used less than its share.

use std::time::{Duration, Instant};

/// Yields that take this much longer than ordinary ones were to somebody who computes. A choice:
/// the scheduler's shortest tick, at which it takes a core from who computes.
const LATE_MIN: Duration = Duration::from_millis(1);
/// The most that an ordinary yield takes for each rank of a core. A choice: several times what was
/// measured (docs/measured/messages.md).
const ORDINARY_MAX: Duration = Duration::from_micros(10);
/// So many late waits, without [`ORDINARY_WAITS`] others between them, tell contention. One alone
/// may be an interrupt.
const LATE_WAITS: u32 = 2;
const ORDINARY_WAITS: u32 = 64;
/// How long a rank sleeps instead of yielding before it tries again, from the first time on, and at
/// most. It doubles. Choices: who errs loses little; to try costs a time slice, 1 % at most.
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// What the yields of this rank's waits have told of its core.
pub(crate) struct CoreContention {
    /// Late waits, with fewer than [`ORDINARY_WAITS`] others between them.
    late: u32,
    /// Waits since the last late one that were not late.
    ordinary: u32,
    /// How long the rank sleeps instead of yielding the next time.
    period: Duration,
    /// It sleeps instead of yielding until then.
    contended_until: Option<Instant>,
}

impl CoreContention {
    pub const NONE: CoreContention = CoreContention {
        late: 0,
        ordinary: 0,
        period: PERIOD_MIN,
        contended_until: None,
    };

    /// Is a yield likely to come back late?
    #[inline]
    pub fn is_contended(&self, now: Instant) -> bool {
        self.contended_until.is_some_and(|until| now < until)
    }

    /// A wait of this rank yielded `yields` times, which took `time` in all, on a core of
    /// `ranks` ranks.
    #[inline]
    pub fn note(&mut self, yields: u32, time: Duration, ranks: u32, now: Instant) {
        if time >= LATE_MIN && time >= LATE_MIN + ORDINARY_MAX * yields.saturating_mul(ranks) {
            self.note_late(now);
        } else if self.late > 0 {
            self.note_ordinary();
        }
    }

    #[cold]
    fn note_late(&mut self, now: Instant) {
        self.ordinary = 0;
        self.late += 1;
        if self.late >= LATE_WAITS {
            self.contended_until = Some(now + self.period);
            self.period = PERIOD_MAX.min(self.period * 2);
            // The first late wait after this period is enough.
            self.late = LATE_WAITS - 1;
        }
    }

    #[cold]
    fn note_ordinary(&mut self) {
        self.ordinary += 1;
        if self.ordinary >= ORDINARY_WAITS {
            *self = CoreContention::NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_millis(4);
    const SOON: Duration = Duration::from_micros(20);

    #[test]
    fn two_late_waits_tell_contention_and_one_does_not() {
        let (mut c, start) = (CoreContention::NONE, Instant::now());
        c.note(1, LATE, 2, start);
        assert!(!c.is_contended(start));
        c.note(3, SOON, 2, start);
        c.note(2, LATE, 2, start);
        assert!(c.is_contended(start));
        assert!(c.is_contended(start + PERIOD_MIN - SOON));
        assert!(!c.is_contended(start + PERIOD_MIN));
    }

    #[test]
    fn it_tries_again_ever_less_often() {
        let (mut c, mut now) = (CoreContention::NONE, Instant::now());
        c.note(1, LATE, 2, now);
        let mut periods = Vec::new();
        for _ in 0..9 {
            c.note(1, LATE, 2, now);
            let until = c.contended_until.unwrap();
            periods.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(periods, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn ordinary_waits_end_it() {
        let (mut c, start) = (CoreContention::NONE, Instant::now());
        (0..4).for_each(|_| c.note(1, LATE, 2, start));
        (0..ORDINARY_WAITS).for_each(|_| c.note(1, SOON, 2, start));
        assert!(!c.is_contended(start));
        c.note(1, LATE, 2, start);
        assert!(!c.is_contended(start), "it forgets the earlier ones");
    }

    #[test]
    fn many_ranks_and_many_yields_take_their_time() {
        let (mut c, start) = (CoreContention::NONE, Instant::now());
        (0..4).for_each(|_| c.note(10, LATE, 64, start));
        assert!(!c.is_contended(start));
        c.note(10, LATE, 2, start);
        c.note(1, LATE, 64, start);
        assert!(c.is_contended(start));
        // No number of either overflows.
        c.note(u32::MAX, LATE, u32::MAX, start);
    }
}
