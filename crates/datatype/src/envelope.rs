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
        let mut contents = Contents {
            combiner: self.combiner(),
            integers: Vec::new(),
            addresses: Vec::new(),
            counts: Vec::new(),
            datatypes: Vec::new(),
        };
        // In the large form, where all are counts, those that were int come first.
        self.push_integers(&mut contents);
        self.push_addresses(&mut contents);
        self.push_datatypes(&mut contents);
        contents
    }

    /// Adds the arguments that are of type int in the constructor's smaller form.
    fn push_integers(&self, contents: &mut Contents) {
        let large = self.is_large();
        match &self.constructor {
            Constructor::Named(_)
            | Constructor::Dup(_)
            | Constructor::Resized { .. }
            | Constructor::ValueIndex { .. } => {}
            Constructor::Contiguous { count, .. } => contents.push_counts(large, &[*count]),
            Constructor::Vector {
                count,
                blocklength,
                stride,
                ..
            } => contents.push_counts(large, &[*count, *blocklength, *stride]),
            Constructor::Hvector {
                count, blocklength, ..
            } => contents.push_counts(large, &[*count, *blocklength]),
            Constructor::Indexed {
                blocklengths,
                displacements,
                ..
            } => {
                contents.push_counts(large, &[displacements.len() as i64]);
                contents.push_counts(large, blocklengths);
                contents.push_counts(large, displacements);
            }
            Constructor::Hindexed {
                blocklengths,
                displacements,
                ..
            }
            | Constructor::Struct {
                blocklengths,
                displacements,
                ..
            } => {
                contents.push_counts(large, &[displacements.len() as i64]);
                contents.push_counts(large, blocklengths);
            }
            Constructor::IndexedBlock {
                blocklength,
                displacements,
                ..
            } => {
                contents.push_counts(large, &[displacements.len() as i64, *blocklength]);
                contents.push_counts(large, displacements);
            }
            Constructor::HindexedBlock {
                blocklength,
                displacements,
                ..
            } => contents.push_counts(large, &[displacements.len() as i64, *blocklength]),
            Constructor::Subarray { .. } | Constructor::Darray { .. } => {
                self.push_array_integers(contents);
            }
            Constructor::F90Real { precision, range }
            | Constructor::F90Complex { precision, range } => {
                let both = [precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED)];
                contents.integers.extend(both);
            }
            Constructor::F90Integer { range } => contents.integers.push(*range),
        }
    }

    /// As [`Datatype::push_integers`], for a part of an array.
    fn push_array_integers(&self, contents: &mut Contents) {
        let large = self.is_large();
        match &self.constructor {
            Constructor::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                ..
            } => {
                contents.integers.push(sizes.len() as i64);
                for list in [sizes, subsizes, starts] {
                    contents.push_counts(large, list);
                }
                contents.integers.push(order_constant(*order));
            }
            Constructor::Darray {
                size,
                rank,
                dimensions,
                order,
                ..
            } => {
                let number = dimensions.len() as i64;
                contents.integers.extend([*size, *rank, number]);
                for dimension in dimensions {
                    contents.push_counts(large, &[dimension.size]);
                }
                let integers = &mut contents.integers;
                integers.extend(dimensions.iter().map(|d| i64::from(d.distribution as i32)));
                integers.extend(dimensions.iter().map(|d| d.block.unwrap_or(DEFAULT_BLOCK)));
                integers.extend(dimensions.iter().map(|d| d.processes));
                integers.push(order_constant(*order));
            }
            _ => {}
        }
    }

    /// Adds the arguments that are of type MPI_Aint in the constructor's smaller form. In the large
    /// form they are MPI_Count.
    fn push_addresses(&self, contents: &mut Contents) {
        let addresses = if self.is_large() {
            &mut contents.counts
        } else {
            &mut contents.addresses
        };
        match &self.constructor {
            Constructor::Hvector { stride, .. } => addresses.push(*stride),
            Constructor::Hindexed { displacements, .. }
            | Constructor::HindexedBlock { displacements, .. }
            | Constructor::Struct { displacements, .. } => addresses.extend(displacements),
            Constructor::Resized { lb, extent, .. } => addresses.extend([*lb, *extent]),
            _ => {}
        }
    }

    /// Adds the old types, or those of the elements.
    fn push_datatypes(&self, contents: &mut Contents) {
        let datatypes = &mut contents.datatypes;
        match &self.constructor {
            Constructor::Named(_)
            | Constructor::F90Real { .. }
            | Constructor::F90Complex { .. }
            | Constructor::F90Integer { .. } => {}
            Constructor::Dup(old)
            | Constructor::Contiguous { old, .. }
            | Constructor::Vector { old, .. }
            | Constructor::Hvector { old, .. }
            | Constructor::Indexed { old, .. }
            | Constructor::Hindexed { old, .. }
            | Constructor::IndexedBlock { old, .. }
            | Constructor::HindexedBlock { old, .. }
            | Constructor::Resized { old, .. }
            | Constructor::Subarray { old, .. }
            | Constructor::Darray { old, .. } => datatypes.push(old.clone()),
            Constructor::Struct { types, .. } => datatypes.extend(types.iter().cloned()),
            Constructor::ValueIndex { value, index } => {
                datatypes.extend([*value, *index].map(|b| Datatype::basic(b).clone()));
            }
        }
    }
}

impl Contents {
    /// Adds arguments that are int in the constructor's smaller form, and MPI_Count in the large
    /// one.
    fn push_counts(&mut self, is_large: bool, list: &[i64]) {
        if is_large {
            self.counts.extend(list)
        } else {
            self.integers.extend(list)
        }
    }
}

/// MPI_ORDER_C or MPI_ORDER_FORTRAN.
fn order_constant(order: Order) -> i64 {
    i64::from(order as i32)
}
