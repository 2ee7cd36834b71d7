//! Virtual time, and rates of links and memories.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in virtual time, or a span of it, in picoseconds. Sums saturate at [`Time::MAX`], after
/// 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The job's beginning, or an empty span.
    pub const ZERO: Time = Time(0);
    /// Never.
    pub const MAX: Time = Time(u64::MAX);

    /// `n` picoseconds.
    pub const fn ps(n: u64) -> Time {
        Time(n)
    }
    /// `n` nanoseconds.
    pub const fn ns(n: u64) -> Time {
        Time(n.saturating_mul(1_000))
    }
    /// `n` microseconds.
    pub const fn us(n: u64) -> Time {
        Time(n.saturating_mul(1_000_000))
    }
    /// In picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-12
    }
    /// In microseconds.
    pub fn micros(self) -> f64 {
        self.0 as f64 * 1e-6
    }
    /// The span from `earlier` to this time. Zero if this time is before it.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
    /// The span times `factor`, rounded to picoseconds. Zero if the factor is negative.
    pub fn scaled(self, factor: f64) -> Time {
        Time((self.0 as f64 * factor.max(0.0)).round() as u64)
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        self.since(other)
    }
}

impl Mul<u64> for Time {
    type Output = Time;
    fn mul(self, times: u64) -> Time {
        Time(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Time {
    /// In the unit that suits it, exact to the picosecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, digits) = match self.0 {
            1_000_000_000_000.. => (1_000_000_000_000, "s", 12),
            1_000_000_000.. => (1_000_000_000, "ms", 9),
            1_000_000.. => (1_000_000, "us", 6),
            _ => (1_000, "ns", 3),
        };
        let fraction = format!("{:0digits$}", self.0 % unit);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{} {name}", self.0 / unit),
            rest => write!(f, "{}.{rest} {name}", self.0 / unit),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bits in a second. Not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `n` bits in a second, and one if `n` is zero.
    pub const fn bits_per_second(n: u64) -> Rate {
        Rate(if n == 0 { 1 } else { n })
    }
    /// In bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// How long `bytes` bytes take, rounded down to picoseconds.
    pub const fn time_of(self, bytes: u64) -> Time {
        let ps = bytes as u128 * 8_000_000_000_000 / self.0 as u128;
        Time(if ps > u64::MAX as u128 {
            u64::MAX
        } else {
            ps as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_exact_to_the_picosecond() {
        assert_eq!(
            Rate::bits_per_second(512_000_000).time_of(1),
            Time::ps(15_625)
        );
        assert_eq!(
            Rate::bits_per_second(40_000_000_000).time_of(1500),
            Time::ns(300)
        );
        assert_eq!(Rate::bits_per_second(0).time_of(u64::MAX), Time::MAX);
    }

    #[test]
    fn times_are_shown_in_the_unit_that_suits() {
        for (time, shown) in [
            (Time::ZERO, "0 ns"),
            (Time::ps(1_500), "1.5 ns"),
            (Time::us(2), "2 us"),
            (Time::ps(5_120_001), "5.120001 us"),
            (Time::us(3_000_000), "3 s"),
        ] {
            assert_eq!(time.to_string(), shown);
        }
        assert_eq!(Time::us(1) - Time::us(2), Time::ZERO);
        assert_eq!(Time::MAX + Time::us(1), Time::MAX);
    }
}
