//! Parts of arrays (MPI 5.0 §5.1.3, §5.1.4), made from simpler constructors.

use crate::constructor::{Dimension, Distribution, Order};
use crate::{Datatype, TypeError};
use std::sync::Arc;

type Result<T> = std::result::Result<T, TypeError>;

/// The dimensions' indices, fastest first.
fn fastest_first(dims: usize, order: Order) -> Vec<usize> {
    match order {
        Order::Fortran => (0..dims).collect(),
        Order::C => (0..dims).rev().collect(),
    }
}

fn wrong<T>(text: String) -> Result<T> {
    Err(TypeError::Argument(text))
}

fn product(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or(TypeError::Overflow("extent"))
}

pub(crate) fn subarray(
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
    order: Order,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let dims = sizes.len();
    if dims == 0 || subsizes.len() != dims || starts.len() != dims {
        return wrong(format!(
            "ndims is {dims}, but must be positive, and the same for sizes, subsizes and starts"
        ));
    }
    for i in 0..dims {
        let (size, sub, start) = (sizes[i], subsizes[i], starts[i]);
        if size < 1 {
            return wrong(format!(
                "array_of_sizes[{i}] is {size}, but must be positive"
            ));
        }
        if sub < 1 || sub > size {
            return wrong(format!(
                "array_of_subsizes[{i}] is {sub}, but must be from 1 to array_of_sizes[{i}], {size}"
            ));
        }
        if start < 0 || start > size - sub {
            return wrong(format!(
                "array_of_starts[{i}] is {start}, but must be from 0 to {}",
                size - sub
            ));
        }
    }
    let mut part = old.clone();
    let mut step = old.extent();
    let mut offset = 0i64;
    for d in fastest_first(dims, order) {
        part = Datatype::hvector(subsizes[d], 1, step, &part)?;
        offset = offset
            .checked_add(product(starts[d], step)?)
            .ok_or(TypeError::Overflow("displacement"))?;
        step = product(step, sizes[d])?;
    }
    Datatype::resized(0, step, &Datatype::hindexed_block(1, &[offset], &part)?)
}

pub(crate) fn darray(
    size: i64,
    rank: i64,
    dimensions: &[Dimension],
    order: Order,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    if size < 1 {
        return wrong(format!("size is {size}, but must be positive"));
    }
    if rank < 0 || rank >= size {
        return wrong(format!(
            "rank is {rank}, but must be from 0 to {}",
            size - 1
        ));
    }
    if dimensions.is_empty() {
        return wrong("ndims is 0, but must be positive".to_owned());
    }
    let mut grid = 1i64;
    for (i, d) in dimensions.iter().enumerate() {
        if d.size < 1 {
            return wrong(format!(
                "array_of_gsizes[{i}] is {}, but must be positive",
                d.size
            ));
        }
        if d.processes < 1 {
            return wrong(format!(
                "array_of_psizes[{i}] is {}, but must be positive",
                d.processes
            ));
        }
        if d.distribution == Distribution::None && d.processes != 1 {
            return wrong(format!(
                "array_of_psizes[{i}] is {}, but must be 1 where the distribution is \
                 MPI_DISTRIBUTE_NONE",
                d.processes
            ));
        }
        grid = grid.saturating_mul(d.processes);
    }
    if grid != size {
        return wrong(format!(
            "the product of array_of_psizes is {grid}, but size is {size}"
        ));
    }
    // The grid of processes is always in C order, whatever the array's order is.
    let mut coordinates = vec![0; dimensions.len()];
    let mut left = rank;
    for (i, d) in dimensions.iter().enumerate().rev() {
        coordinates[i] = left % d.processes;
        left /= d.processes;
    }
    let mut part = old.clone();
    let mut step = old.extent();
    for i in fastest_first(dimensions.len(), order) {
        part = dealt(&dimensions[i], i, coordinates[i], step, &part)?;
        step = product(step, dimensions[i].size)?;
    }
    Datatype::resized(0, step, &part)
}

/// The part of one dimension that the process at `coordinate` has. Its elements are `one` and lie
/// `step` bytes apart.
fn dealt(
    d: &Dimension,
    i: usize,
    coordinate: i64,
    step: i64,
    one: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let block = match (d.distribution, d.block) {
        (Distribution::None, _) => d.size,
        (Distribution::Block, None) => (d.size - 1) / d.processes + 1,
        (Distribution::Cyclic, None) => 1,
        (_, Some(b)) if b < 1 => {
            return wrong(format!("array_of_dargs[{i}] is {b}, but must be positive"));
        }
        (Distribution::Block, Some(b)) if b.saturating_mul(d.processes) < d.size => {
            return wrong(format!(
                "array_of_dargs[{i}] is {b}, but {} processes with blocks of it do not cover {} \
                 elements",
                d.processes, d.size
            ));
        }
        (_, Some(b)) => b,
    };
    let start = block.saturating_mul(coordinate);
    // Elements from this process's first one on. It has one block in every `round` elements.
    let remaining = d.size.saturating_sub(start).max(0);
    let round = block.saturating_mul(d.processes);
    let (rounds, rest) = (remaining / round, (remaining % round).min(block));
    let one = Datatype::resized(0, step, one)?;
    let whole = Datatype::hvector(
        rounds,
        block,
        if rounds > 1 { product(round, step)? } else { 0 },
        &one,
    )?;
    let mut blocklengths = Vec::new();
    let mut displacements = Vec::new();
    let mut types = Vec::new();
    let mut put = |blocklength: i64, at: i64, t: &Arc<Datatype>| -> Result<()> {
        blocklengths.push(blocklength);
        displacements.push(product(at, step)?);
        types.push(t.clone());
        Ok(())
    };
    if rounds > 0 {
        put(1, start, &whole)?;
    }
    if rest > 0 {
        put(rest, start + rounds * round, &one)?;
    }
    Datatype::structure(&blocklengths, &displacements, &types)
}
