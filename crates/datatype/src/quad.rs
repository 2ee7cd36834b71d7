//! Conversion between x86's 80-bit long double and IEEE binary128, in integer arithmetic.
//!
//! Both have a sign and 15 bits of exponent with the same bias. The significand of x86 is the
//! leading one and 63 further bits, that of binary128 is 112 bits without the leading one.

/// The exponent of infinities and NaNs.
const TOP: u128 = 0x7fff;

/// binary128's bits for an 80-bit number, given in the low 80 bits. Exact.
pub(crate) fn widen(x87: u128) -> u128 {
    let sign = (x87 >> 79 & 1) << 127;
    let exponent = x87 >> 64 & TOP;
    let significand = x87 & u128::from(u64::MAX);
    let (leading, fraction) = (significand >> 63, significand & ((1 << 63) - 1));
    match exponent {
        // A leading one here stands for exponent 1: it falls on that bit by itself.
        0 => sign | significand << 49,
        // Without a leading one, the processor takes it for an invalid operand.
        _ if leading == 0 => sign | TOP << 112 | 1 << 111,
        _ => sign | exponent << 112 | fraction << 49,
    }
}

/// The 80-bit number nearest to a binary128 one, ties to even.
pub(crate) fn narrow(quad: u128) -> u128 {
    let sign = (quad >> 127) << 79;
    let exponent = quad >> 112 & TOP;
    let fraction = quad & ((1 << 112) - 1);
    if exponent == TOP {
        // A NaN must stay one if the bits that say so are lost.
        let lost = fraction != 0 && fraction >> 49 == 0;
        return sign | TOP << 64 | 1 << 63 | fraction >> 49 | u128::from(lost) << 62;
    }
    let kept = (fraction >> 49) | u128::from(exponent != 0) << 63;
    let dropped = fraction & ((1 << 49) - 1);
    let half = 1 << 48;
    let up = dropped > half || (dropped == half && kept & 1 == 1);
    let mut significand = kept + u128::from(up);
    let mut exponent = exponent;
    if significand >> 64 != 0 {
        significand >>= 1;
        exponent += 1;
    }
    if exponent == 0 && significand >> 63 == 1 {
        exponent = 1;
    }
    if exponent == TOP {
        significand = 1 << 63;
    }
    sign | exponent << 64 | significand
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn x87(sign: u128, exponent: u128, significand: u64) -> u128 {
        sign << 79 | exponent << 64 | u128::from(significand)
    }

    #[test]
    fn known_numbers() {
        // One, minus two, one and a half, infinity: textbook encodings.
        for (x, q) in [
            (x87(0, 0x3fff, 1 << 63), 0x3fff << 112),
            (x87(1, 0x4000, 1 << 63), 0xc000 << 112),
            (x87(0, 0x3fff, 3 << 62), 0x3fff << 112 | 1 << 111),
            (x87(0, 0x7fff, 1 << 63), 0x7fff << 112),
            (0, 0),
            (x87(1, 0, 0), 1 << 127),
        ] {
            assert_eq!((widen(x), narrow(q)), (q, x), "{x:x}");
        }
    }

    #[test]
    fn nan_stays_nan() {
        assert_ne!(widen(x87(0, 0x7fff, 3 << 62)) << 16, 0);
        assert_ne!(narrow(0x7fff << 112 | 1) & ((1 << 63) - 1), 0);
    }

    #[test]
    fn rounding_goes_to_even_and_may_carry() {
        let one = 0x3fffu128 << 112;
        assert_eq!(
            narrow(one | 1 << 48),
            x87(0, 0x3fff, 1 << 63),
            "tie, down to even"
        );
        assert_eq!(
            narrow(one | 3 << 48),
            x87(0, 0x3fff, (1 << 63) + 2),
            "tie, up to even"
        );
        assert_eq!(
            narrow(one | ((1 << 112) - 1)),
            x87(0, 0x4000, 1 << 63),
            "carries into the exponent"
        );
        assert_eq!(
            narrow((0x7fff << 112) - 1),
            x87(0, 0x7fff, 1 << 63),
            "overflows to infinity"
        );
        assert_eq!(
            narrow((1 << 112) - 1),
            x87(0, 1, 1 << 63),
            "the largest denormal rounds to a normal number"
        );
    }

    proptest! {
        #[test]
        fn every_valid_number_survives(sign in 0u128..2, exponent in 0u128..0x7fff,
            significand: u64) {
            let significand = if exponent == 0 { significand & !(1 << 63) } else {
                significand | 1 << 63 };
            let x = x87(sign, exponent, significand);
            prop_assert_eq!(narrow(widen(x)), x);
        }

        #[test]
        fn doubles_keep_their_value(value: f64) {
            prop_assume!(value.is_normal());
            let bits = u128::from(value.to_bits());
            let exponent = (bits >> 52 & 0x7ff) + 0x3fff - 0x3ff;
            let quad = (bits >> 63) << 127 | exponent << 112 | (bits & ((1 << 52) - 1)) << 60;
            let long_double = (bits >> 63) << 79 | exponent << 64 | 1 << 63 |
                (bits & ((1 << 52) - 1)) << 11;
            prop_assert_eq!(narrow(quad), long_double);
            prop_assert_eq!(widen(long_double), quad);
        }
    }
}
