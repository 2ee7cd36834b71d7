//! Cartesian grids (MPI 5.0 §8.5): rank and coordinates, row-major.

use crate::{Result, err};

/// A grid, which may be periodic in some dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<u32>,
    periodic: Vec<bool>,
}

impl Cart {
    /// A grid of `dims`, slowest dimension first.
    ///
    /// Errors: Dims if a dimension is not positive or the grid has more than `limit` ranks.
    pub fn new(dims: &[i32], periodic: &[bool], limit: u32) -> Result<Cart> {
        if Cart::grid_size(dims, limit)? == 0 {
            let i = dims.iter().position(|&d| d == 0).unwrap_or_default();
            return Err(err!(Dims, "dims[{i}] is 0: it has to be positive"));
        }
        Ok(Cart {
            dims: dims.iter().map(|&d| d as u32).collect(),
            periodic: periodic.to_vec(),
        })
    }

    /// Number of ranks in a grid of `dims`. It may be 0: a program that asks for dims\[0\] = 2,
    /// dims\[1\] = size / 4 gets that on few ranks. MPI_Cart_map then places no process. No
    /// communicator can have such a grid.
    ///
    /// Errors: Dims if a dimension is negative or the grid has more than `limit` ranks.
    pub fn grid_size(dims: &[i32], limit: u32) -> Result<u32> {
        let mut size = 1u64;
        for (i, &d) in dims.iter().enumerate() {
            let Ok(d) = u64::try_from(d) else {
                return Err(err!(Dims, "dims[{i}] is {d}: it has to be positive"));
            };
            size = size.saturating_mul(d);
        }
        if size > u64::from(limit) {
            return Err(err!(
                Dims,
                "the grid {dims:?} has {size} places, but the communicator has {limit} ranks"
            ));
        }
        Ok(size as u32)
    }

    /// Size of each dimension.
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Is each dimension periodic?
    pub fn periodic(&self) -> &[bool] {
        &self.periodic
    }

    /// Number of ranks in the grid. 1 without dimensions.
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// The coordinates of `rank` (MPI_Cart_coords).
    pub fn coords(&self, rank: u32) -> Vec<u32> {
        let mut coords = vec![0; self.dims.len()];
        let mut rest = rank;
        for (c, d) in coords.iter_mut().zip(&self.dims).rev() {
            (*c, rest) = (rest % d, rest / d);
        }
        coords
    }

    /// The rank at `coords`, which may be out of range in periodic dimensions (MPI_Cart_rank).
    ///
    /// Errors: Arg if they are out of range in another dimension.
    pub fn rank(&self, coords: &[i64]) -> Result<u32> {
        let mut rank = 0;
        for (i, (&c, &d)) in coords.iter().zip(&self.dims).enumerate() {
            if !self.periodic[i] && !(0..i64::from(d)).contains(&c) {
                return Err(err!(
                    Arg,
                    "coords[{i}] is {c}, but dimension {i} has {d} {} and is not periodic",
                    if d == 1 { "place" } else { "places" }
                ));
            }
            rank = rank * d + c.rem_euclid(i64::from(d)) as u32;
        }
        Ok(rank)
    }

    /// Source and destination of a shift by `displacement` in dimension `dim` (MPI_Cart_shift).
    /// `None` beyond the edge.
    pub fn shift(&self, rank: u32, dim: usize, displacement: i64) -> (Option<u32>, Option<u32>) {
        let d = i64::from(self.dims[dim]);
        let stride: i64 = self.dims[dim + 1..].iter().map(|&d| i64::from(d)).product();
        let here = i64::from(rank) / stride % d;
        let at = |there: i64| {
            let there = if self.periodic[dim] {
                there.rem_euclid(d)
            } else {
                there
            };
            (0..d)
                .contains(&there)
                .then(|| (i64::from(rank) + (there - here) * stride) as u32)
        };
        (at(here - displacement), at(here + displacement))
    }

    /// The subgrid of the dimensions in `keep`, and the ranks of this grid that form it. These
    /// share `rank`'s coordinates in the other dimensions and are in the subgrid's order.
    pub fn slice(&self, rank: u32, keep: &[bool]) -> (Cart, Vec<u32>) {
        let kept = |i: &usize| keep[*i];
        let sub = Cart {
            dims: (0..self.dims.len())
                .filter(kept)
                .map(|i| self.dims[i])
                .collect(),
            periodic: (0..self.dims.len())
                .filter(kept)
                .map(|i| self.periodic[i])
                .collect(),
        };
        let mut here = self.coords(rank);
        let ranks = (0..sub.size())
            .map(|r| {
                for (i, c) in (0..self.dims.len()).filter(kept).zip(sub.coords(r)) {
                    here[i] = c;
                }
                here.iter()
                    .zip(&self.dims)
                    .fold(0, |rank, (c, d)| rank * d + c)
            })
            .collect();
        (sub, ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn carts() -> impl Strategy<Value = Cart> {
        proptest::collection::vec((1i32..5, any::<bool>()), 0..5).prop_map(|d| {
            let (dims, periodic): (Vec<_>, Vec<_>) = d.into_iter().unzip();
            Cart::new(&dims, &periodic, 1 << 20).unwrap()
        })
    }

    proptest! {
        #[test]
        fn coordinates_and_ranks_are_inverse(cart in carts()) {
            let mut last = None;
            for r in 0..cart.size() {
                let coords = cart.coords(r);
                prop_assert!(last < Some(coords.clone()), "row-major order");
                let wide: Vec<i64> = coords.iter().zip(cart.dims()).zip(cart.periodic())
                    .map(|((&c, &d), &p)| i64::from(c) - if p { 3 * i64::from(d) } else { 0
                        }).collect();
                prop_assert_eq!(cart.rank(&wide).unwrap(), r);
                last = Some(coords);
            }
        }

        #[test]
        fn shifts_move_one_coordinate(cart in carts(), by in -6i64..7) {
            for r in 0..cart.size() {
                for dim in 0..cart.dims().len() {
                    let mut coords: Vec<i64> = cart.coords(r).iter().map(|&c| i64::from(c))
                        .collect();
                    let here = coords[dim];
                    let mut at = |c| { coords[dim] = c; cart.rank(&coords).ok() };
                    prop_assert_eq!(cart.shift(r, dim, by), (at(here - by), at(here + by)));
                }
            }
        }

        #[test]
        fn slices_part_the_grid(cart in carts(), keep in proptest::collection::vec(any::<bool>(),
            5)) {
            let keep = &keep[..cart.dims().len()];
            for r in 0..cart.size() {
                let (sub, ranks) = cart.slice(r, keep);
                prop_assert_eq!(ranks.len() as u32, sub.size());
                prop_assert!(ranks.is_sorted());
                prop_assert!(ranks.contains(&r));
                for (i, &member) in ranks.iter().enumerate() {
                    let (whole, part) = (cart.coords(member), sub.coords(i as u32));
                    let kept: Vec<u32> = (0..keep.len()).filter(|&d| keep[d]).map(|d|
                        whole[d]).collect();
                    prop_assert_eq!(kept, part);
                    prop_assert_eq!(&cart.slice(member, keep).1, &ranks);
                }
            }
        }
    }

    #[test]
    fn impossible_grids() {
        let kind = |dims: &[i32]| {
            Cart::new(dims, &vec![false; dims.len()], 12)
                .unwrap_err()
                .kind()
        };
        assert_eq!(kind(&[3, 0]), crate::Kind::Dims);
        assert_eq!(kind(&[-1]), crate::Kind::Dims);
        assert_eq!(kind(&[3, 5]), crate::Kind::Dims);
        assert_eq!(kind(&[1 << 20, 1 << 20, 1 << 20]), crate::Kind::Dims);
        assert_eq!(Cart::new(&[], &[], 12).unwrap().size(), 1);
        assert_eq!(Cart::grid_size(&[3, 0], 12).unwrap(), 0);
        assert_eq!(Cart::grid_size(&[3, 4], 12).unwrap(), 12);
        assert!(Cart::grid_size(&[0, -1], 12).is_err());
    }
}
