//! Random nested datatypes, each with its type map.

use ferry_datatype::{Basic, Constructor, Datatype, Dimension, Distribution, Order, Width};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// One entry of a type map (MPI 5.0 §5.1): a basic element (pairs are two), or one of the markers
/// that resizing leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    Data(Basic, i64),
    Lb(i64),
    Ub(i64),
}

pub type Map = Vec<Entry>;

fn at(e: Entry, by: i64) -> Entry {
    match e {
        Entry::Data(b, d) => Entry::Data(b, d + by),
        Entry::Lb(d) => Entry::Lb(d + by),
        Entry::Ub(d) => Entry::Ub(d + by),
    }
}

pub fn data(map: &Map) -> impl Iterator<Item = (Basic, i64)> + '_ {
    map.iter().filter_map(|e| match e {
        Entry::Data(b, d) => Some((*b, *d)),
        _ => None,
    })
}

pub fn lb(map: &Map) -> i64 {
    let markers = map
        .iter()
        .filter_map(|e| if let Entry::Lb(d) = e { Some(*d) } else { None });
    markers
        .min()
        .or_else(|| data(map).map(|(_, d)| d).min())
        .unwrap_or(0)
}

fn ub(map: &Map) -> i64 {
    let markers = map
        .iter()
        .filter_map(|e| if let Entry::Ub(d) = e { Some(*d) } else { None });
    if let Some(ub) = markers.max() {
        return ub;
    }
    let Some(end) = data(map).map(|(b, d)| d + b.size()).max() else {
        return lb(map);
    };
    let align = data(map).map(|(b, _)| b.align() as i64).max().unwrap_or(1);
    let mut ub = end;
    while (ub - lb(map)) % align != 0 {
        ub += 1;
    }
    ub
}

pub fn extent(map: &Map) -> i64 {
    ub(map) - lb(map)
}

fn place(out: &mut Map, map: &Map, by: i64) {
    out.extend(map.iter().map(|e| at(*e, by)));
}

fn block(out: &mut Map, map: &Map, by: i64, n: i64) {
    for i in 0..n {
        place(out, map, by + i * extent(map));
    }
}

/// A datatype under test with its reference.
#[derive(Clone, Debug)]
pub struct Pair {
    pub t: Arc<Datatype>,
    pub map: Map,
}

fn basic() -> impl Strategy<Value = Pair> {
    let some = [
        Basic::Char,
        Basic::Short,
        Basic::Int,
        Basic::Double,
        Basic::CDoubleComplex,
        Basic::LongDouble,
        Basic::DoubleInt,
        Basic::ShortInt,
        Basic::FloatInt,
    ];
    proptest::sample::select(some.to_vec()).prop_map(|b| {
        let map = match b.form() {
            ferry_datatype::Form::Pair(v, i) => {
                vec![
                    Entry::Data(v, 0),
                    Entry::Data(i, b.form().index_offset() as i64),
                ]
            }
            _ => vec![Entry::Data(b, 0)],
        };
        Pair {
            t: Datatype::basic(b).clone(),
            map,
        }
    })
}

fn vector(old: Pair, count: i64, blocklength: i64, stride: i64, bytes: bool) -> Pair {
    let step = if bytes {
        stride
    } else {
        stride * extent(&old.map)
    };
    let mut map = Map::new();
    for i in 0..count {
        block(&mut map, &old.map, i * step, blocklength);
    }
    let t = match bytes {
        true => Datatype::hvector(count, blocklength, stride, &old.t),
        false => Datatype::vector(count, blocklength, stride, &old.t),
    };
    Pair { t: t.unwrap(), map }
}

fn indexed(old: Pair, blocks: &[(i64, i64)], bytes: bool, same: bool) -> Pair {
    let unit = if bytes { 1 } else { extent(&old.map) };
    let lengths: Vec<i64> = blocks
        .iter()
        .map(|b| if same { blocks[0].0 } else { b.0 })
        .collect();
    let places: Vec<i64> = blocks.iter().map(|b| b.1).collect();
    let mut map = Map::new();
    for (n, d) in lengths.iter().zip(&places) {
        block(&mut map, &old.map, d * unit, *n);
    }
    let t = match (bytes, same) {
        (false, false) => Datatype::indexed(&lengths, &places, &old.t),
        (true, false) => Datatype::hindexed(&lengths, &places, &old.t),
        (false, true) => {
            Datatype::indexed_block(lengths.first().copied().unwrap_or(0), &places, &old.t)
        }
        (true, true) => {
            Datatype::hindexed_block(lengths.first().copied().unwrap_or(0), &places, &old.t)
        }
    };
    Pair { t: t.unwrap(), map }
}

fn structure(parts: Vec<(Pair, i64, i64)>) -> Pair {
    let mut map = Map::new();
    for (old, n, d) in &parts {
        block(&mut map, &old.map, *d, *n);
    }
    let lengths: Vec<i64> = parts.iter().map(|p| p.1).collect();
    let places: Vec<i64> = parts.iter().map(|p| p.2).collect();
    let types: Vec<_> = parts.iter().map(|p| p.0.t.clone()).collect();
    Pair {
        t: Datatype::structure(&lengths, &places, &types).unwrap(),
        map,
    }
}

fn resized(old: Pair, lb: i64, extent: i64) -> Pair {
    let mut map: Map = data(&old.map).map(|(b, d)| Entry::Data(b, d)).collect();
    map.extend([Entry::Lb(lb), Entry::Ub(lb + extent)]);
    Pair {
        t: Datatype::resized(lb, extent, &old.t).unwrap(),
        map,
    }
}

/// The elements of an array whose indices `chosen` picks, in memory order.
fn picked(old: &Pair, sizes: &[i64], order: Order, chosen: impl Fn(usize, i64) -> bool) -> Map {
    let ext = extent(&old.map);
    let total: i64 = sizes.iter().product();
    let mut map = Map::new();
    for place_at in 0..total {
        let mut left = place_at;
        let mut index = vec![0; sizes.len()];
        let dims: Vec<usize> = match order {
            Order::Fortran => (0..sizes.len()).collect(),
            Order::C => (0..sizes.len()).rev().collect(),
        };
        for d in dims {
            index[d] = left % sizes[d];
            left /= sizes[d];
        }
        if index.iter().enumerate().all(|(d, i)| chosen(d, *i)) {
            place(&mut map, &old.map, place_at * ext);
        }
    }
    let mut map: Map = data(&map).map(|(b, d)| Entry::Data(b, d)).collect();
    map.extend([Entry::Lb(0), Entry::Ub(total * ext)]);
    map
}

fn subarray(old: Pair, dims: &[(i64, i64, i64)], order: Order) -> Pair {
    // Each: extra size before, size of the part, extra size after.
    let sizes: Vec<i64> = dims.iter().map(|d| d.0 + d.1 + d.2).collect();
    let subsizes: Vec<i64> = dims.iter().map(|d| d.1).collect();
    let starts: Vec<i64> = dims.iter().map(|d| d.0).collect();
    let map = picked(&old, &sizes, order, |d, i| {
        i >= starts[d] && i < starts[d] + subsizes[d]
    });
    Pair {
        t: Datatype::subarray(&sizes, &subsizes, &starts, order, &old.t).unwrap(),
        map,
    }
}

fn darray(old: Pair, dims: &[(i64, u8, i64, i64)], rank: i64, order: Order) -> Pair {
    let dimensions: Vec<Dimension> = dims
        .iter()
        .map(|&(size, kind, block, processes)| match kind {
            0 => Dimension {
                size,
                distribution: Distribution::None,
                block: None,
                processes: 1,
            },
            1 => Dimension {
                size,
                distribution: Distribution::Block,
                block: None,
                processes,
            },
            2 => Dimension {
                size,
                distribution: Distribution::Cyclic,
                block: None,
                processes,
            },
            3 => Dimension {
                size,
                distribution: Distribution::Cyclic,
                block: Some(block),
                processes,
            },
            _ => {
                let block = Some((size - 1) / processes + block);
                Dimension {
                    size,
                    distribution: Distribution::Block,
                    block,
                    processes,
                }
            }
        })
        .collect();
    let size: i64 = dimensions.iter().map(|d| d.processes).product();
    let rank = rank % size;
    // The process's coordinates, in C order.
    let mut coordinates = vec![0; dims.len()];
    let (mut left, mut rest) = (rank, size);
    for (i, d) in dimensions.iter().enumerate() {
        rest /= d.processes;
        coordinates[i] = left / rest;
        left %= rest;
    }
    let sizes: Vec<i64> = dimensions.iter().map(|d| d.size).collect();
    let map = picked(&old, &sizes, order, |d, i| {
        let dim = &dimensions[d];
        let block = match (dim.distribution, dim.block) {
            (Distribution::None, _) => dim.size,
            (_, Some(b)) => b,
            (Distribution::Block, None) => (dim.size + dim.processes - 1) / dim.processes,
            (Distribution::Cyclic, None) => 1,
        };
        i / block % dim.processes == coordinates[d]
    });
    let constructor = Constructor::Darray {
        size,
        rank,
        dimensions: dimensions.into(),
        order,
        old: old.t.clone(),
    };
    Pair {
        t: Datatype::new(constructor, Width::Int).unwrap(),
        map,
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::C), Just(Order::Fortran)]
}

pub fn nested() -> impl Strategy<Value = Pair> {
    basic()
        .prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                (inner.clone(), 0i64..4).prop_map(|(old, n)| vector(old, 1, n, 0, true)),
                (inner.clone(), 0i64..5).prop_map(|(old, n)| {
                    let mut map = Map::new();
                    block(&mut map, &old.map, 0, n);
                    Pair {
                        t: Datatype::contiguous(n, &old.t).unwrap(),
                        map,
                    }
                }),
                (inner.clone(), 0i64..5, 0i64..4, -3i64..6)
                    .prop_map(|(old, n, b, s)| vector(old, n, b, s, false)),
                // A table's columns, many and side by side.
                (inner.clone(), 1i64..12, 1i64..20, 1i64..40).prop_map(
                    |(old, rows, columns, row)| {
                        let e = extent(&old.map);
                        let column = resized(vector(old, rows, 1, row, false), 0, e);
                        vector(column, 1, columns, 0, true)
                    }
                ),
                (inner.clone(), 0i64..5, 0i64..4, -40i64..90)
                    .prop_map(|(old, n, b, s)| vector(old, n, b, s, true)),
                (inner.clone(), vec((0i64..4, -4i64..9), 0..5), any::<bool>())
                    .prop_map(|(old, blocks, same)| indexed(old, &blocks, false, same)),
                (
                    inner.clone(),
                    vec((0i64..4, -50i64..99), 0..5),
                    any::<bool>()
                )
                    .prop_map(|(old, blocks, same)| indexed(old, &blocks, true, same)),
                vec((inner.clone(), 0i64..3, -60i64..120), 0..4).prop_map(structure),
                (inner.clone(), -20i64..20, -10i64..60)
                    .prop_map(|(old, lb, e)| resized(old, lb, e)),
                inner.clone().prop_map(|old| Pair {
                    t: Datatype::dup(&old.t).unwrap(),
                    map: old.map
                }),
                (
                    inner.clone(),
                    vec((0i64..3, 1i64..4, 0i64..3), 1..4),
                    order()
                )
                    .prop_map(|(old, dims, order)| subarray(old, &dims, order)),
                (
                    inner,
                    vec((1i64..6, 0u8..5, 1i64..4, 1i64..4), 1..3),
                    0i64..27,
                    order()
                )
                    .prop_map(|(old, dims, rank, order)| darray(old, &dims, rank, order)),
            ]
        })
        // Keep the reference small enough to walk through.
        .prop_filter("type map too long", |p| p.map.len() < 3000)
}

/// Where each packed byte lies, by the reference.
pub fn bytes(map: &Map, count: i64) -> Vec<i64> {
    let ext = extent(map);
    (0..count)
        .flat_map(|i| data(map).flat_map(move |(b, d)| (0..b.size()).map(move |k| i * ext + d + k)))
        .collect()
}

/// Memory of a user's buffer that has all those bytes; the address of offset 0 lies at `base`.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub base: i64,
}

impl Memory {
    pub fn over(places: &[i64]) -> Memory {
        let low = places.iter().min().copied().unwrap_or(0).min(0);
        let high = places.iter().max().copied().unwrap_or(0).max(0);
        let bytes = (0..high - low + 1)
            .map(|i| (i * 7 + i / 256 * 3) as u8)
            .collect();
        Memory { bytes, base: -low }
    }
    pub fn address(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_offset(self.base as isize)
    }
    pub fn at(&self, place: i64) -> u8 {
        self.bytes[(self.base + place) as usize]
    }
}
