//! Balanced factors (MPI_Dims_create, MPI 5.0 §8.5.2).

use crate::{Result, err};

/// Replaces the zeros of `dims` so that the product of all is `nodes`. The factors are as close to
/// each other as possible, the largest first.
///
/// Errors: Dims if a given dimension is negative, or if the product of those given does not divide
/// `nodes`.
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
                    "nnodes is {nodes}, which the product of the dimensions given does not divide \
                     (dims[{i}] is {d})"
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

/// `parts` factors of `n`, not rising. The difference between the largest and the smallest is
/// minimal. Ties are broken by the largest smallest factor, then by the smallest surface of the
/// grid's blocks, over which neighbours exchange data.
fn balanced(n: i64, parts: usize) -> Vec<i64> {
    let mut search = Search {
        n,
        divisors: divisors(n),
        best: None,
        chosen: Vec::with_capacity(parts),
    };
    search.choose(n, parts);
    search.best.map_or_else(|| vec![n], |(_, factors)| factors)
}

/// A search over the factorisations of `n`.
struct Search {
    n: i64,
    divisors: Vec<i64>,
    /// The best so far: difference, smallest factor (negative) and surface, with the factors.
    best: Option<([i64; 3], Vec<i64>)>,
    chosen: Vec<i64>,
}

impl Search {
    /// Splits `left` into `parts` more factors, none greater than the last one chosen.
    fn choose(&mut self, left: i64, parts: usize) {
        if parts == 0 {
            if left == 1 {
                self.weigh();
            }
            return;
        }
        // The largest of the remaining factors is at least their mean.
        let mean = (left as f64).powf(1.0 / parts as f64);
        let from = self
            .divisors
            .partition_point(|&d| (d as f64) < mean * (1.0 - 1e-9));
        for at in from..self.divisors.len() {
            let d = self.divisors[at];
            if self.chosen.last().is_some_and(|&last| d > last) {
                return;
            }
            if left % d != 0 {
                continue;
            }
            if let Some(([difference, ..], _)) = &self.best {
                let least = self.chosen.first().unwrap_or(&d) - difference;
                // The smallest factor is at most the mean of those left. Any larger first factor is
                // less even than the best so far.
                let rest = left / d;
                if (least as f64) > mean * (1.0 + 1e-9) || d < least {
                    if self.chosen.is_empty() {
                        return;
                    }
                    continue;
                }
                if least > 1
                    && parts > 1
                    && (rest as f64) < (least as f64).powi(parts as i32 - 1) * (1.0 - 1e-9)
                {
                    return;
                }
            }
            self.chosen.push(d);
            self.choose(left / d, parts - 1);
            self.chosen.pop();
        }
    }

    fn weigh(&mut self) {
        let (Some(first), Some(last)) = (self.chosen.first(), self.chosen.last()) else {
            return;
        };
        let difference = first - last;
        let surface = self.chosen.iter().map(|d| self.n / d).sum();
        let score = [difference, -last, surface];
        if self.best.as_ref().is_none_or(|(best, _)| score < *best) {
            self.best = Some((score, self.chosen.clone()));
        }
    }
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
        assert_eq!(made(5040, &[0, 0, 0]), [21, 16, 15]);
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
        let score = |v: &[i64]| {
            let n: i64 = v.iter().product();
            [
                v[0] - v[v.len() - 1],
                -v[v.len() - 1],
                v.iter().map(|d| n / d).sum(),
            ]
        };
        for n in 1..500 {
            for parts in 1..5 {
                let every = all(n, parts, n);
                assert_eq!(
                    balanced(n, parts),
                    *every.iter().min_by_key(|v| score(v)).unwrap(),
                    "{n} in {parts}"
                );
            }
        }
    }
}
