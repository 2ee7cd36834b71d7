//! The envelope: how a datatype was made, for the program (MPI 5.0 §5.1.13).

use crate::constructor::{Constructor, DEFAULT_BLOCK, Width};
use crate::{Datatype, Order};
use std::sync::Arc;

/// The constructor that made a type. The numbers are the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)] // each is the MPI_COMBINER_ constant of the same name
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
    ValueIndex = 117,
}

/// A constructor's arguments, sorted by kind as MPI_Type_get_contents gives them.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The constructor.
    pub combiner: Combiner,
    /// Arguments of type int.
    pub integers: Vec<i64>,
    /// Arguments of type MPI_Aint.
    pub addresses: Vec<i64>,
    /// Arguments of type MPI_Count. Empty unless the large form of the constructor was called.
    pub counts: Vec<i64>,
    /// The datatypes.
    pub datatypes: Vec<Arc<Datatype>>,
}

/// MPI_UNDEFINED.
const UNDEFINED: i64 = -32766;

impl Datatype {
    /// The constructor.
    pub fn combiner(&self) -> Combiner {
        match &self.constructor {
            Constructor::Named(_) => Combiner::Named,
            Constructor::Dup(_) => Combiner::Dup,
            Constructor::Contiguous { .. } => Combiner::Contiguous,
            Constructor::Vector { .. } => Combiner::Vector,
            Constructor::Hvector { .. } => Combiner::Hvector,
            Constructor::Indexed { .. } => Combiner::Indexed,
            Constructor::Hindexed { .. } => Combiner::Hindexed,
            Constructor::IndexedBlock { .. } => Combiner::IndexedBlock,
            Constructor::HindexedBlock { .. } => Combiner::HindexedBlock,
            Constructor::Struct { .. } => Combiner::Struct,
            Constructor::Subarray { .. } => Combiner::Subarray,
            Constructor::Darray { .. } => Combiner::Darray,
            Constructor::F90Real { .. } => Combiner::F90Real,
            Constructor::F90Complex { .. } => Combiner::F90Complex,
            Constructor::F90Integer { .. } => Combiner::F90Integer,
            Constructor::Resized { .. } => Combiner::Resized,
            Constructor::ValueIndex { .. } => Combiner::ValueIndex,
        }
    }

    /// Returns whether it was made by the large form of a constructor that has counts. Then only
    /// the large forms of the queries can return its arguments.
    pub fn is_large(&self) -> bool {
        self.width == Width::Large
            && !matches!(
                self.constructor,
                Constructor::Named(_) | Constructor::Dup(_)
            )
    }

    /// The numbers of integers, addresses, large counts and datatypes in [`Datatype::contents`],
    /// without making them.
    pub fn envelope(&self) -> [usize; 4] {
        let large = self.is_large();
        // Arguments that the large form has as counts: those that are int in the other form, and
        // those that are MPI_Aint.
        let (mut integers, was_int, was_aint, datatypes) = match &self.constructor {
            Constructor::Named(_) => (0, 0, 0, 0),
            Constructor::Dup(_) => (0, 0, 0, 1),
            Constructor::Contiguous { .. } => (0, 1, 0, 1),
            Constructor::Vector { .. } => (0, 3, 0, 1),
            Constructor::Hvector { .. } => (0, 2, 1, 1),
            Constructor::Indexed { displacements, .. } => (0, 1 + 2 * displacements.len(), 0, 1),
            Constructor::Hindexed { displacements, .. } => {
                (0, 1 + displacements.len(), displacements.len(), 1)
            }
            Constructor::IndexedBlock { displacements, .. } => (0, 2 + displacements.len(), 0, 1),
            Constructor::HindexedBlock { displacements, .. } => (0, 2, displacements.len(), 1),
            Constructor::Struct { types, .. } => (0, 1 + types.len(), types.len(), types.len()),
            Constructor::Subarray { sizes, .. } => (2, 3 * sizes.len(), 0, 1),
            Constructor::Darray { dimensions, .. } => {
                (4 + 3 * dimensions.len(), dimensions.len(), 0, 1)
            }
            Constructor::F90Real { .. } | Constructor::F90Complex { .. } => (2, 0, 0, 0),
            Constructor::F90Integer { .. } => (1, 0, 0, 0),
            Constructor::Resized { .. } => (0, 0, 2, 1),
            Constructor::ValueIndex { .. } => (0, 0, 0, 2),
        };
        if large {
            return [integers, 0, was_int + was_aint, datatypes];
        }
        integers += was_int;
        [integers, was_aint, 0, datatypes]
    }

    /// The constructor's arguments, in the standard's order. A named type has none.
    pub fn contents(&self) -> Contents {
        let large = self.is_large();
        let (mut integers, mut addresses, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut datatypes = Vec::new();
        let mut old = |t: &Arc<Datatype>| datatypes.push(t.clone());
        {
            // In the large form every count, stride and displacement is an MPI_Count.
            let mut int = |list: &[i64]| {
                if large {
                    counts.extend(list)
                } else {
                    integers.extend(list)
                }
            };
            match &self.constructor {
                Constructor::Named(_) => {}
                Constructor::Dup(t) => old(t),
                Constructor::Contiguous { count, old: t } => {
                    int(&[*count]);
                    old(t);
                }
                Constructor::Vector {
                    count,
                    blocklength,
                    stride,
                    old: t,
                } => {
                    int(&[*count, *blocklength, *stride]);
                    old(t);
                }
                Constructor::Hvector {
                    count,
                    blocklength,
                    stride,
                    old: t,
                } => {
                    int(&[*count, *blocklength]);
                    aint(large, &mut counts, &mut addresses, &[*stride]);
                    old(t);
                }
                Constructor::Indexed {
                    blocklengths,
                    displacements,
                    old: t,
                } => {
                    int(&[displacements.len() as i64]);
                    int(blocklengths);
                    int(displacements);
                    old(t);
                }
                Constructor::Hindexed {
                    blocklengths,
                    displacements,
                    old: t,
                } => {
                    int(&[displacements.len() as i64]);
                    int(blocklengths);
                    aint(large, &mut counts, &mut addresses, displacements);
                    old(t);
                }
                Constructor::IndexedBlock {
                    blocklength,
                    displacements,
                    old: t,
                } => {
                    int(&[displacements.len() as i64, *blocklength]);
                    int(displacements);
                    old(t);
                }
                Constructor::HindexedBlock {
                    blocklength,
                    displacements,
                    old: t,
                } => {
                    int(&[displacements.len() as i64, *blocklength]);
                    aint(large, &mut counts, &mut addresses, displacements);
                    old(t);
                }
                Constructor::Struct {
                    blocklengths,
                    displacements,
                    types,
                } => {
                    int(&[types.len() as i64]);
                    int(blocklengths);
                    aint(large, &mut counts, &mut addresses, displacements);
                    types.iter().for_each(old);
                }
                Constructor::Resized { lb, extent, old: t } => {
                    aint(large, &mut counts, &mut addresses, &[*lb, *extent]);
                    old(t);
                }
                Constructor::Subarray {
                    sizes,
                    subsizes,
                    starts,
                    order,
                    old: t,
                } => {
                    integers.push(sizes.len() as i64);
                    let arrays = [&sizes[..], subsizes, starts].concat();
                    if large {
                        counts.extend(arrays)
                    } else {
                        integers.extend(arrays)
                    }
                    integers.push(number(*order));
                    old(t);
                }
                Constructor::Darray {
                    size,
                    rank,
                    dimensions,
                    order,
                    old: t,
                } => {
                    integers.extend([*size, *rank, dimensions.len() as i64]);
                    let sizes = dimensions.iter().map(|d| d.size);
                    if large {
                        counts.extend(sizes)
                    } else {
                        integers.extend(sizes)
                    }
                    integers.extend(dimensions.iter().map(|d| i64::from(d.distribution as i32)));
                    integers.extend(dimensions.iter().map(|d| d.block.unwrap_or(DEFAULT_BLOCK)));
                    integers.extend(dimensions.iter().map(|d| d.processes));
                    integers.push(number(*order));
                    old(t);
                }
                Constructor::F90Real { precision, range }
                | Constructor::F90Complex { precision, range } => {
                    integers.extend([precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED)]);
                }
                Constructor::F90Integer { range } => integers.push(*range),
                Constructor::ValueIndex { value, index } => {
                    old(Datatype::basic(*value));
                    old(Datatype::basic(*index));
                }
            }
        }
        Contents {
            combiner: self.combiner(),
            integers,
            addresses,
            counts,
            datatypes,
        }
    }
}

fn number(order: Order) -> i64 {
    i64::from(order as i32)
}

fn aint(large: bool, counts: &mut Vec<i64>, addresses: &mut Vec<i64>, list: &[i64]) {
    if large {
        counts.extend(list)
    } else {
        addresses.extend(list)
    }
}
