//! Type signatures (MPI 5.0 §5.1): the sequence of basic types, without displacements.

use crate::Basic;

/// A type signature in three words. Equal sequences have equal signatures. Different sequences have
/// equal ones with a probability of about 2⁻⁶⁴. Signatures are computed by concatenation, so even
/// the longest sequence costs little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Signature {
    leaves: u64,
    hash: u64,
    /// The hash's base to the power of `leaves`.
    weight: u64,
}

/// The hash's base. It is odd, so its powers are not zero modulo 2⁶⁴.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Signature {
    /// No elements.
    pub const EMPTY: Signature = Signature {
        leaves: 0,
        hash: 0,
        weight: 1,
    };

    /// One element. A pair is its value, then its index.
    pub fn of(basic: Basic) -> Signature {
        if let crate::Form::Pair(value, index) = basic.form() {
            return Signature::of(value).then(Signature::of(index));
        }
        let mut h = u64::from(basic.value()).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 33;
        h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Signature {
            leaves: 1,
            hash: h ^ (h >> 29),
            weight: BASE,
        }
    }

    /// This sequence, then `other`.
    pub fn then(self, other: Signature) -> Signature {
        Signature {
            leaves: self.leaves.wrapping_add(other.leaves),
            hash: self.hash.wrapping_add(self.weight.wrapping_mul(other.hash)),
            weight: self.weight.wrapping_mul(other.weight),
        }
    }

    /// This sequence `count` times.
    pub fn times(self, count: i64) -> Signature {
        let (mut all, mut power, mut n) = (Signature::EMPTY, self, count.max(0) as u64);
        while n > 0 {
            if n & 1 == 1 {
                all = all.then(power);
            }
            power = power.then(power);
            n >>= 1;
        }
        all
    }

    /// Basic elements in the sequence.
    pub fn leaves(self) -> u64 {
        self.leaves
    }

    /// The hash.
    pub fn hash(self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouping_does_not_matter_but_order_does() {
        let (a, b) = (Signature::of(Basic::Int), Signature::of(Basic::Double));
        assert_eq!(a.then(b).then(a), a.then(b.then(a)));
        assert_ne!(a.then(b), b.then(a));
        assert_eq!(a.times(3), a.then(a).then(a));
        assert_eq!(a.then(b).times(1000), a.then(b).times(10).times(100));
        assert_ne!(a.times(3), a.times(4));
        assert_eq!(Signature::of(Basic::DoubleInt), b.then(a));
        assert_ne!(
            a,
            Signature::of(Basic::Integer),
            "C int and Fortran INTEGER do not match"
        );
        assert_eq!(a.times(0), Signature::EMPTY);
    }
}
