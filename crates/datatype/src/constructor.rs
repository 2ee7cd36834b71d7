//! The constructor call that made a datatype, with its arguments (MPI 5.0 §5.1.2 to §5.1.4).

use crate::{Basic, Datatype, TypeError};
use std::iter::repeat;
use std::sync::Arc;

/// The order of an array's elements in memory. The numbers are the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Order {
    /// The last dimension runs fastest.
    C = 12,
    /// The first dimension runs fastest.
    Fortran = 15,
}

/// How a dimension is distributed to processes. The numbers are the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Distribution {
    /// Not at all.
    None = 16,
    /// One block each.
    Block = 17,
    /// Blocks, cyclically.
    Cyclic = 18,
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dimension {
    /// Elements in the whole array.
    pub size: i64,
    /// How they are distributed.
    pub distribution: Distribution,
    /// Elements in a block. `None`: MPI_DISTRIBUTE_DFLT_DARG.
    pub block: Option<i64>,
    /// Processes.
    pub processes: i64,
}

/// MPI_DISTRIBUTE_DFLT_DARG.
pub(crate) const DEFAULT_BLOCK: i64 = 19;

impl Order {
    /// The order with this number in the ABI.
    pub fn of_value(value: i64) -> Result<Order, TypeError> {
        match value {
            12 => Ok(Order::C),
            15 => Ok(Order::Fortran),
            _ => Err(TypeError::Argument(format!(
                "order is {value}, but must be MPI_ORDER_C or MPI_ORDER_FORTRAN"
            ))),
        }
    }
}

impl Dimension {
    /// A dimension from the ABI's numbers. `at` is its index, for the error's text.
    pub fn of_values(
        at: usize,
        size: i64,
        distribution: i64,
        block: i64,
        processes: i64,
    ) -> Result<Dimension, TypeError> {
        let distribution = match distribution {
            16 => Distribution::None,
            17 => Distribution::Block,
            18 => Distribution::Cyclic,
            _ => {
                return Err(TypeError::Argument(format!(
                    "array_of_distribs[{at}] is {distribution}, but must be MPI_DISTRIBUTE_NONE, \
                     _BLOCK or _CYCLIC"
                )));
            }
        };
        Ok(Dimension {
            size,
            distribution,
            block: (block != DEFAULT_BLOCK).then_some(block),
            processes,
        })
    }
}

/// A constructor call with its arguments. Strides of `Vector` and displacements of `Indexed` and
/// `IndexedBlock` count extents of the old type. All others count bytes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are the standard's arguments
pub enum Constructor {
    /// A predefined type.
    Named(Basic),
    /// MPI_Type_dup.
    Dup(Arc<Datatype>),
    /// MPI_Type_contiguous.
    Contiguous { count: i64, old: Arc<Datatype> },
    /// MPI_Type_vector.
    Vector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_hvector.
    Hvector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Arc<Datatype>,
    },
    /// MPI_Type_indexed.
    Indexed {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_hindexed.
    Hindexed {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_indexed_block.
    IndexedBlock {
        blocklength: i64,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_hindexed_block.
    HindexedBlock {
        blocklength: i64,
        displacements: Box<[i64]>,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_struct.
    Struct {
        blocklengths: Box<[i64]>,
        displacements: Box<[i64]>,
        types: Box<[Arc<Datatype>]>,
    },
    /// MPI_Type_create_subarray.
    Subarray {
        sizes: Box<[i64]>,
        subsizes: Box<[i64]>,
        starts: Box<[i64]>,
        order: Order,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_darray.
    Darray {
        size: i64,
        rank: i64,
        dimensions: Box<[Dimension]>,
        order: Order,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_resized.
    Resized {
        lb: i64,
        extent: i64,
        old: Arc<Datatype>,
    },
    /// MPI_Type_create_f90_real: decimal digits and decimal exponent range. `None`: MPI_UNDEFINED.
    F90Real {
        precision: Option<i64>,
        range: Option<i64>,
    },
    /// MPI_Type_create_f90_complex.
    F90Complex {
        precision: Option<i64>,
        range: Option<i64>,
    },
    /// MPI_Type_create_f90_integer.
    F90Integer { range: i64 },
    /// MPI_Type_get_value_index of types that have no named pair type.
    ValueIndex { value: Basic, index: Basic },
}

/// The form of a constructor that was called. Only the envelope (MPI 5.0 §5.1.13) depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// The one with int counts.
    Int,
    /// The one with MPI_Count counts, named `_c` in C.
    Large,
}

/// A type's content one level down, in the same form for all constructors.
pub(crate) enum Expansion<'a> {
    /// No further content.
    Leaf(Basic),
    /// Blocks of `block` elements, `stride` bytes from one to the next.
    Repeat {
        count: i64,
        stride: i64,
        block: i64,
        old: &'a Arc<Datatype>,
    },
    /// Blocks: displacement in bytes, elements, their type.
    List(Box<dyn Iterator<Item = (i64, i64, &'a Arc<Datatype>)> + 'a>),
}

impl<'a> Expansion<'a> {
    /// `elements` elements without gaps.
    fn run(elements: i64, old: &'a Arc<Datatype>) -> Expansion<'a> {
        Expansion::repeat(1, elements, 0, old)
    }

    /// `count` blocks of `block` elements, which begin `stride` bytes apart.
    fn repeat(count: i64, block: i64, stride: i64, old: &'a Arc<Datatype>) -> Expansion<'a> {
        Expansion::Repeat {
            count,
            stride,
            block,
            old,
        }
    }

    /// Blocks of one type, whose displacements count `unit` bytes.
    fn blocks(
        displacements: &'a [i64],
        unit: i64,
        blocklengths: impl Iterator<Item = i64> + 'a,
        old: &'a Arc<Datatype>,
    ) -> Expansion<'a> {
        let blocks = displacements.iter().zip(blocklengths);
        Expansion::List(Box::new(
            blocks.map(move |(d, block)| (d.wrapping_mul(unit), block, old)),
        ))
    }
}

impl Constructor {
    /// The content. Displacements were checked when the type was made. `body` is the content of
    /// types that are made of simpler ones.
    pub(crate) fn expansion<'a>(
        &'a self,
        leaf: Option<Basic>,
        body: Option<&'a Arc<Datatype>>,
    ) -> Expansion<'a> {
        if let Some(body) = body {
            return Expansion::run(1, body);
        }
        match self {
            Constructor::Dup(old) | Constructor::Resized { old, .. } => Expansion::run(1, old),
            Constructor::Contiguous { count, old } => Expansion::run(*count, old),
            Constructor::Vector {
                count,
                blocklength,
                stride,
                old,
            } => {
                let stride = stride.wrapping_mul(old.extent());
                Expansion::repeat(*count, *blocklength, stride, old)
            }
            Constructor::Hvector {
                count,
                blocklength,
                stride,
                old,
            } => Expansion::repeat(*count, *blocklength, *stride, old),
            Constructor::Indexed {
                blocklengths,
                displacements,
                old,
            } => Expansion::blocks(
                displacements,
                old.extent(),
                blocklengths.iter().copied(),
                old,
            ),
            Constructor::Hindexed {
                blocklengths,
                displacements,
                old,
            } => Expansion::blocks(displacements, 1, blocklengths.iter().copied(), old),
            Constructor::IndexedBlock {
                blocklength,
                displacements,
                old,
            } => Expansion::blocks(displacements, old.extent(), repeat(*blocklength), old),
            Constructor::HindexedBlock {
                blocklength,
                displacements,
                old,
            } => Expansion::blocks(displacements, 1, repeat(*blocklength), old),
            Constructor::Struct {
                blocklengths,
                displacements,
                types,
            } => {
                let blocks = displacements.iter().zip(blocklengths).zip(types);
                Expansion::List(Box::new(blocks.map(|((d, b), t)| (*d, *b, t))))
            }
            Constructor::Named(_)
            | Constructor::F90Real { .. }
            | Constructor::F90Complex { .. }
            | Constructor::F90Integer { .. }
            | Constructor::ValueIndex { .. }
            | Constructor::Subarray { .. }
            | Constructor::Darray { .. } => match leaf {
                Some(basic) => Expansion::Leaf(basic),
                None => Expansion::List(Box::new(std::iter::empty())),
            },
        }
    }
}
