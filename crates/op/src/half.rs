//! binary16 (IEEE 754), which Rust does not have: MPI_REAL2.
//!
//! Sums and products are computed as f32 and rounded once more. That gives the same as rounding
//! once: 24 bits are at least twice the 11 of binary16, and two.

use crate::kernel::{Max, Min, Prod, Rule, Sum};
use std::cmp::Ordering;

/// A number in binary16.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Half(u16);

/// Bits of the fraction in f32 that binary16 does not have.
const SPARE_BITS: u32 = 13;
/// The difference of the two exponents' biases, 127 and 15.
const BIAS: u32 = 112;

impl Half {
    /// The number with these bytes.
    #[cfg(test)]
    pub(crate) fn from_ne_bytes(bytes: [u8; 2]) -> Half {
        Half(u16::from_ne_bytes(bytes))
    }

    /// Its value.
    #[inline(always)]
    pub(crate) fn value(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let exponent = u32::from(self.0 >> 10 & 0x1f);
        let fraction = u32::from(self.0 & 0x3ff);
        let bits = match exponent {
            // A subnormal number is its fraction times 2^-24.
            0 => (fraction as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
            0x1f => 0xff << 23 | fraction << SPARE_BITS,
            _ => (exponent + BIAS) << 23 | fraction << SPARE_BITS,
        };
        f32::from_bits(sign | bits)
    }

    /// The nearest number; of two, that with the even last bit.
    #[inline(always)]
    pub(crate) fn nearest(value: f32) -> Half {
        let sign = (value.to_bits() >> 16 & 0x8000) as u16;
        let bits = value.to_bits() & 0x7fff_ffff;
        let magnitude = if bits > 0xff << 23 {
            0x7e00 | (bits >> SPARE_BITS & 0x3ff) as u16
        } else if bits < (BIAS + 1) << 23 {
            // Below the least normal number: adding 0.5 rounds to multiples of 2^-24.
            (f32::from_bits(bits) + 0.5)
                .to_bits()
                .wrapping_sub(0.5f32.to_bits()) as u16
        } else {
            let odd = bits >> SPARE_BITS & 1;
            let rounded = bits - (BIAS << 23) + (1 << (SPARE_BITS - 1)) - 1 + odd;
            (rounded >> SPARE_BITS).min(0x7c00) as u16
        };
        Half(sign | magnitude)
    }
}

impl PartialEq for Half {
    fn eq(&self, other: &Half) -> bool {
        self.value() == other.value()
    }
}

impl PartialOrd for Half {
    fn partial_cmp(&self, other: &Half) -> Option<Ordering> {
        self.value().partial_cmp(&other.value())
    }
}

impl Rule<Half> for Sum {
    #[inline(always)]
    fn combine(a: Half, b: Half) -> Half {
        Half::nearest(a.value() + b.value())
    }
}

impl Rule<Half> for Prod {
    #[inline(always)]
    fn combine(a: Half, b: Half) -> Half {
        Half::nearest(a.value() * b.value())
    }
}

impl Rule<Half> for Min {
    #[inline(always)]
    fn combine(a: Half, b: Half) -> Half {
        Half::nearest(a.value().min(b.value()))
    }
}

impl Rule<Half> for Max {
    #[inline(always)]
    fn combine(a: Half, b: Half) -> Half {
        Half::nearest(a.value().max(b.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_have_their_bits() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x0001, 2f32.powi(-24)),
            (0x03ff, 1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(Half(bits).value().to_bits(), value.to_bits(), "{bits:#x}");
            assert_eq!(Half::nearest(value).0, bits, "{value}");
        }
        assert!(Half(0x7c01).value().is_nan());
    }

    #[test]
    fn every_number_comes_back() {
        for bits in 0..=u16::MAX {
            let value = Half(bits).value();
            let again = Half::nearest(value);
            if value.is_nan() {
                assert!(again.value().is_nan(), "{bits:#x}");
            } else {
                assert_eq!(again.0, bits);
            }
        }
    }

    /// Between two neighbours the nearest is taken, and in the middle the even one.
    #[test]
    fn rounding_is_to_the_nearest() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (Half(bits).value(), Half(bits + 1).value());
            let middle = (low + high) / 2.0;
            let even = bits + (bits & 1);
            assert_eq!(Half::nearest(middle).0, even, "{bits:#x}");
            assert_eq!(Half::nearest(middle.next_down()).0, bits, "{bits:#x}");
            assert_eq!(Half::nearest(middle.next_up()).0, bits + 1, "{bits:#x}");
        }
        assert_eq!(Half::nearest(65519.0).0, 0x7bff);
        assert_eq!(Half::nearest(65520.0).0, 0x7c00);
        assert_eq!(Half::nearest(f32::MAX).0, 0x7c00);
    }
}
