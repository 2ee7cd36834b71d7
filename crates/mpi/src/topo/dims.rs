//! Balanced factors (MPI_Dims_create, MPI 5.0 §8.5.2).

use crate::{Result, err};
use std::collections::HashMap;

/// Fills in the zeros of `dims` so that the product of all is `nodes`: as close to each other as they can be, the largest first.
///
/// Errors: Dims if a fixed dimension is negative, or the product of those given does not divide `nodes`.
pub fn dims_create(nodes: i64, dims: &mut [i64]) -> Result<()> {
    if nodes < 1 {
        return Err(err!(Arg, "nnodes is {nodes}: it has to be positive"));
    }
    let mut left = nodes;
    for (i, &d) in dims.iter().enumerate() {
        if d < 0 {
            return Err(err!(Dims, "dims[{i}] is {d}"));
        }
        if d > 0 {
            if left % d != 0 {
                return Err(err!(
                    Dims,
                    "nnodes is {nodes}, which the product of the dimensions given does not divide (dims[{i}] is {d})"
                ));
            }
            left /= d;
        }
    }
    let free = dims.iter().filter(|&&d| d == 0).count();
    if free == 0 {
        if left != 1 {
            return Err(err!(
                Dims,
                "the product of the dimensions is {}, but nnodes is {nodes}",
                nodes / left
            ));
        }
        return Ok(());
    }
    let mut factors = balanced(left, free).into_iter();
    for d in dims.iter_mut().filter(|d| **d == 0) {
        *d = factors.next().unwrap_or(1);
    }
    Ok(())
}

/// `parts` factors of `n`, not rising: the largest as small as possible, then the second, and so on.
fn balanced(n: i64, parts: usize) -> Vec<i64> {
    let divisors = divisors(n);
    let mut known = HashMap::new();
    let mut factors = Vec::with_capacity(parts);
    let (mut left, mut cap) = (n, n);
    for part in (1..=parts).rev() {
        let fits = |&&d: &&i64| {
            d <= cap && left % d == 0 && splits(left / d, part - 1, d, &divisors, &mut known)
        };
        let d = divisors.iter().find(fits).copied().unwrap_or(left);
        factors.push(d);
        (left, cap) = (left / d, d);
    }
    factors
}

/// Can `n` be split into `parts` factors, none above `cap`?
fn splits(
    n: i64,
    parts: usize,
    cap: i64,
    divisors: &[i64],
    known: &mut HashMap<(i64, usize, i64), bool>,
) -> bool {
    if n <= cap && parts > 0 || n == 1 {
        return true;
    }
    if (cap as f64).powf(parts as f64) < n as f64 * 0.999 {
        return false;
    }
    if let Some(&answer) = known.get(&(n, parts, cap)) {
        return answer;
    }
    let answer = divisors
        .iter()
        .rev()
        .any(|&d| d > 1 && d <= cap && n % d == 0 && splits(n / d, parts - 1, d, divisors, known));
    known.insert((n, parts, cap), answer);
    answer
}

/// All divisors of `n`, rising.
fn divisors(n: i64) -> Vec<i64> {
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut d = 1;
    while d * d <= n {
        if n % d == 0 {
            low.push(d);
            if d * d != n {
                high.push(n / d);
            }
        }
        d += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(n: i64, dims: &[i64]) -> Vec<i64> {
        let mut dims = dims.to_vec();
        dims_create(n, &mut dims).unwrap();
        dims
    }

    #[test]
    fn examples() {
        assert_eq!(made(6, &[0, 0]), [3, 2]);
        assert_eq!(made(7, &[0, 0]), [7, 1]);
        assert_eq!(made(6, &[0, 3, 0]), [2, 3, 1]);
        assert_eq!(made(16, &[0, 0, 0]), [4, 2, 2]);
        assert_eq!(made(60, &[0, 0, 0]), [5, 4, 3]);
        assert_eq!(made(72, &[0, 0, 0]), [6, 4, 3]);
        assert_eq!(made(12 * 5, &[0, 0]), [10, 6]);
        assert_eq!(made(1 << 30, &[0; 30]), [2; 30]);
        assert_eq!(made(1, &[0, 0]), [1, 1]);
        assert_eq!(made(4, &[2, 2]), [2, 2]);
        assert_eq!(made(1, &[]), Vec::<i64>::new());
        assert_eq!(made(2147483647, &[0, 0]), [2147483647, 1]);
        assert_eq!(made(735134400, &[0; 8]).iter().product::<i64>(), 735134400);
    }

    #[test]
    fn impossible() {
        for (n, dims) in [
            (7, vec![2, 0]),
            (6, vec![-1, 0]),
            (6, vec![2, 2]),
            (6, vec![]),
        ] {
            assert_eq!(
                dims_create(n, &mut dims.clone()).unwrap_err().kind(),
                crate::Kind::Dims,
                "{n} {dims:?}"
            );
        }
        assert!(dims_create(0, &mut [0]).is_err());
    }

    /// Against every way to split small numbers.
    #[test]
    fn nothing_is_more_balanced() {
        fn all(n: i64, parts: usize, cap: i64) -> Vec<Vec<i64>> {
            if parts == 0 {
                return if n == 1 { vec![vec![]] } else { vec![] };
            }
            let mut found = Vec::new();
            for d in (1..=cap.min(n)).filter(|d| n % d == 0) {
                for mut rest in all(n / d, parts - 1, d) {
                    rest.insert(0, d);
                    found.push(rest);
                }
            }
            found
        }
        for n in 1..200 {
            for parts in 1..5 {
                let every = all(n, parts, n);
                assert_eq!(
                    balanced(n, parts),
                    *every.iter().min().unwrap(),
                    "{n} in {parts}"
                );
            }
        }
    }
}
