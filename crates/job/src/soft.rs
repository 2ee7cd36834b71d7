//! Soft numbers of processes: the info key "soft" of MPI_Comm_spawn and mpiexec's `-soft` say how
//! many processes a program can do with (MPI 5.0 §11.8.4, §11.5).

/// Why a soft number gives no number of processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SoftError {
    /// It is not such a list.
    #[error("it should be a list of numbers and of triplets first:last:stride")]
    NoList,
    /// No number in it is at most this one.
    #[error("it allows no number of processes up to {0}")]
    NoneUpTo(u32),
}

/// The largest number of processes that `soft` allows, at most `max`. It can be 0.
///
/// `soft` is a list of numbers and of triplets a:b:c, which stand for a, a + c, … up to b (MPI 5.0
/// §11.8.4).
pub fn soft_count(soft: &str, max: u32) -> Result<u32, SoftError> {
    let mut largest = None;
    for item in soft.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let numbers = item
            .split(':')
            .map(|n| n.trim().parse::<i64>().map(i128::from));
        let numbers: Vec<i128> = numbers
            .collect::<Result<_, _>>()
            .map_err(|_| SoftError::NoList)?;
        let (first, last, stride) = match numbers[..] {
            [n] => (n, n, 1),
            [first, last] => (first, last, 1),
            [first, last, stride] if stride != 0 => (first, last, stride),
            _ => return Err(SoftError::NoList),
        };
        largest = largest.max(largest_of_triplet(first, last, stride, max.into()));
    }
    match largest {
        Some(count) => Ok(count as u32),
        None => Err(SoftError::NoneUpTo(max)),
    }
}

/// The largest of first, first + stride, … that is not beyond last and lies in 0..=max.
///
/// In 128 bits, as the difference of two numbers of 64 bits may not fit 64.
fn largest_of_triplet(first: i128, last: i128, stride: i128, max: i128) -> Option<i128> {
    let best = if stride > 0 {
        let end = last.min(max);
        (first <= end).then(|| first + (end - first) / stride * stride)
    } else if first <= max {
        (first >= last).then_some(first)
    } else {
        let next = first - (first - max + -stride - 1) / -stride * -stride;
        (next >= last).then_some(next)
    };
    best.filter(|n| (0..=max).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_means_the_largest_number_that_it_allows() {
        for (soft, max, count) in [
            ("3", 5, 3),
            ("1:10", 5, 5),
            ("1:10:3", 5, 4),
            ("2,4, 8", 6, 4),
            ("10:1:-4", 7, 6),
            ("0", 3, 0),
            ("8,1:3", 9, 8),
            ("5:1:-1", 3, 3),
            ("-9223372036854775808:9223372036854775807", 4, 4),
            ("-9223372036854775807:5:4", 5, 5),
            ("9223372036854775807:-9223372036854775808:-1", 6, 6),
            ("2:-9223372036854775808:-9223372036854775808", 3, 2),
        ] {
            assert_eq!(soft_count(soft, max), Ok(count), "{soft}");
        }
        for wrong in ["x", "1:2:0", "1:2:3:4"] {
            assert_eq!(soft_count(wrong, 5), Err(SoftError::NoList), "{wrong:?}");
        }
        for none in ["", "7", "-3"] {
            assert_eq!(soft_count(none, 5), Err(SoftError::NoneUpTo(5)), "{none:?}");
        }
    }
}
