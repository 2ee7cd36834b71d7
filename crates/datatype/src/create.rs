//! The constructors of datatypes (MPI 5.0 §5.1.2 to §5.1.4, §5.1.7, §5.1.10).
//!
//! Each is a short way to [`Datatype::new`]. Counts and block lengths are numbers of elements of
//! `old`. Types are not committed, but for a dup of a committed one.

use crate::constructor::{Constructor, Expansion, Order, Width};
use crate::shape::Shape;
use crate::{Basic, Datatype, TypeError, array};
use std::sync::Arc;

type Result<T> = std::result::Result<T, TypeError>;

impl Datatype {
    /// Makes the type of a constructor call. It is not committed, unless it is MPI_Type_dup of a
    /// committed type. Unnamed predefined types are shared, and have functions of their own
    /// ([`Datatype::f90_real`] and others). `width`: which form of the call it was, int or
    /// MPI_Count, as MPI_Type_get_envelope tells it.
    ///
    /// # Errors
    /// [`TypeError::Negative`] for a negative count or block length, [`TypeError::Overflow`] if a
    /// size or a bound does not fit 64 bits, [`TypeError::Argument`] for arrays of different
    /// lengths or a part outside of its array, [`TypeError::Unusable`] if `old` does not exist
    /// here.
    pub fn new(constructor: Constructor, width: Width) -> Result<Arc<Datatype>> {
        check(&constructor)?;
        let body = match &constructor {
            Constructor::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            } => Some(array::subarray(sizes, subsizes, starts, *order, old)?),
            Constructor::Darray {
                size,
                rank,
                dimensions,
                order,
                old,
            } => Some(array::darray(*size, *rank, dimensions, *order, old)?),
            Constructor::Named(basic) => return Ok(Datatype::basic(*basic).clone()),
            Constructor::F90Real { precision, range } => {
                return Datatype::f90_real(*precision, *range);
            }
            Constructor::F90Complex { precision, range } => {
                return Datatype::f90_complex(*precision, *range);
            }
            Constructor::F90Integer { range } => return Datatype::f90_integer(*range),
            _ => None,
        };
        let shape = measure(&constructor, body.as_ref())?;
        let committed = matches!(&constructor, Constructor::Dup(old) if old.is_committed());
        let t = Datatype::assemble(constructor, width, body, None, shape)?;
        if committed {
            t.commit();
        }
        Ok(Arc::new(t))
    }

    /// MPI_Type_dup: a copy of `old`, with its bounds and commit state. Name and attributes are not
    /// copied.
    pub fn dup(old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(Constructor::Dup(old.clone()), Width::Int)
    }

    /// MPI_Type_contiguous: `count` elements, an extent of `old` from one to the next.
    pub fn contiguous(count: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(
            Constructor::Contiguous {
                count,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// MPI_Type_vector: `count` blocks of `blocklength` elements, `stride` extents of `old` from
    /// one block to the next.
    pub fn vector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        Datatype::new(
            Constructor::Vector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// MPI_Type_create_hvector: `count` blocks of `blocklength` elements, `stride` bytes from one
    /// block to the next.
    pub fn hvector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        Datatype::new(
            Constructor::Hvector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// MPI_Type_indexed: blocks of various lengths. Displacements are extents of `old`.
    pub fn indexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, old) =
            (blocklengths.into(), displacements.into(), old.clone());
        Datatype::new(
            Constructor::Indexed {
                blocklengths,
                displacements,
                old,
            },
            Width::Int,
        )
    }

    /// MPI_Type_create_hindexed: blocks of various lengths. Displacements are bytes.
    pub fn hindexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, old) =
            (blocklengths.into(), displacements.into(), old.clone());
        Datatype::new(
            Constructor::Hindexed {
                blocklengths,
                displacements,
                old,
            },
            Width::Int,
        )
    }

    /// MPI_Type_create_indexed_block: blocks of one length. Displacements are extents of `old`.
    pub fn indexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let constructor = Constructor::IndexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Datatype::new(constructor, Width::Int)
    }

    /// MPI_Type_create_hindexed_block: blocks of one length. Displacements are bytes.
    pub fn hindexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let constructor = Constructor::HindexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Datatype::new(constructor, Width::Int)
    }

    /// MPI_Type_create_struct: blocks of various lengths and types. Displacements are bytes.
    pub fn structure(
        blocklengths: &[i64],
        displacements: &[i64],
        types: &[Arc<Datatype>],
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, types) =
            (blocklengths.into(), displacements.into(), types.into());
        Datatype::new(
            Constructor::Struct {
                blocklengths,
                displacements,
                types,
            },
            Width::Int,
        )
    }

    /// MPI_Type_create_subarray: the part of an array of `sizes` that begins at `starts` and has
    /// `subsizes`, all numbers of elements, one for each dimension. Its extent is the whole
    /// array's.
    pub fn subarray(
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: Order,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let (sizes, subsizes, starts, old) =
            (sizes.into(), subsizes.into(), starts.into(), old.clone());
        Datatype::new(
            Constructor::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            },
            Width::Int,
        )
    }

    /// MPI_Type_create_resized: `old` with other bounds, bytes.
    pub fn resized(lb: i64, extent: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(
            Constructor::Resized {
                lb,
                extent,
                old: old.clone(),
            },
            Width::Int,
        )
    }
}

/// Checks the values of a constructor's arguments.
fn check(constructor: &Constructor) -> Result<()> {
    let exists = |t: &Arc<Datatype>| match t.leaf {
        Some(b) if !b.exists() => Err(TypeError::Unusable(format!(
            "oldtype is {}, which does not exist in this library",
            b.name()
        ))),
        _ => Ok(()),
    };
    let count = |count: &i64| not_negative("count", *count);
    let block = |block: &i64| not_negative("blocklength", *block);
    let same_length = |a: usize, b: usize| match a == b {
        true => Ok(()),
        false => Err(TypeError::Argument(format!(
            "{a} blocklengths, but {b} displacements"
        ))),
    };
    match constructor {
        Constructor::Dup(old) | Constructor::Resized { old, .. } => exists(old),
        Constructor::Contiguous { count: n, old } => count(n).and(exists(old)),
        Constructor::Vector {
            count: n,
            blocklength,
            old,
            ..
        }
        | Constructor::Hvector {
            count: n,
            blocklength,
            old,
            ..
        } => count(n).and(block(blocklength)).and(exists(old)),
        Constructor::Indexed {
            blocklengths,
            displacements,
            old,
        }
        | Constructor::Hindexed {
            blocklengths,
            displacements,
            old,
        } => {
            same_length(blocklengths.len(), displacements.len())?;
            none_negative("array_of_blocklengths", blocklengths)?;
            exists(old)
        }
        Constructor::IndexedBlock {
            blocklength, old, ..
        }
        | Constructor::HindexedBlock {
            blocklength, old, ..
        } => block(blocklength).and(exists(old)),
        Constructor::Struct {
            blocklengths,
            displacements,
            types,
        } => {
            same_length(blocklengths.len(), displacements.len())?;
            same_length(types.len(), displacements.len())?;
            none_negative("array_of_blocklengths", blocklengths)?;
            types.iter().try_for_each(exists)
        }
        Constructor::Subarray { old, .. } | Constructor::Darray { old, .. } => exists(old),
        Constructor::Named(_)
        | Constructor::F90Real { .. }
        | Constructor::F90Complex { .. }
        | Constructor::F90Integer { .. }
        | Constructor::ValueIndex { .. } => Ok(()),
    }
}

fn not_negative(argument: &str, value: i64) -> Result<()> {
    match value {
        0.. => Ok(()),
        _ => Err(TypeError::Negative {
            argument: argument.to_owned(),
            value,
        }),
    }
}

pub(crate) fn none_negative(argument: &str, values: &[i64]) -> Result<()> {
    match values.iter().position(|v| *v < 0) {
        None => Ok(()),
        Some(i) => Err(TypeError::Negative {
            argument: format!("{argument}[{i}]"),
            value: values[i],
        }),
    }
}

/// Computes size and bounds of the type that a constructor makes. Every sum and product is checked
/// for overflow. `body`: the type map of a subarray or darray.
fn measure(constructor: &Constructor, body: Option<&Arc<Datatype>>) -> Result<Shape> {
    match constructor {
        Constructor::Resized { lb, extent, old } => return old.shape.resized(*lb, *extent),
        Constructor::Vector { stride, old, .. } => {
            stride
                .checked_mul(old.extent())
                .ok_or(TypeError::Overflow("stride"))?;
        }
        Constructor::Indexed {
            blocklengths,
            displacements,
            old,
        } => {
            // The displacement of an empty block means nothing.
            let extent = old.extent();
            if displacements
                .iter()
                .zip(blocklengths)
                .any(|(d, b)| *b > 0 && d.checked_mul(extent).is_none())
            {
                return Err(TypeError::Overflow("displacement"));
            }
        }
        Constructor::IndexedBlock {
            blocklength,
            displacements,
            old,
        } => {
            let extent = old.extent();
            if *blocklength > 0
                && displacements
                    .iter()
                    .any(|d| d.checked_mul(extent).is_none())
            {
                return Err(TypeError::Overflow("displacement"));
            }
        }
        Constructor::ValueIndex { value, index } => {
            let index_at = value.form().size().next_multiple_of(index.align());
            return Shape::basic(*value).then(Shape::basic(*index).shifted(index_at as i64)?);
        }
        _ => {}
    }
    match constructor.expansion(None, body) {
        Expansion::Leaf(basic) => Ok(Shape::basic(basic)),
        Expansion::Repeat {
            count,
            stride,
            block,
            old,
        } => old.shape.block(block)?.repeated(count, stride),
        Expansion::List(blocks) => {
            // Most lists have blocks of one length and type. Such a block is measured once.
            let mut last: Option<(i64, *const Datatype, Shape)> = None;
            let mut all = Shape::EMPTY;
            for (at, block, old) in blocks {
                let one = match last {
                    Some((b, t, shape)) if b == block && std::ptr::eq(t, Arc::as_ptr(old)) => shape,
                    _ => old.shape.block(block)?,
                };
                last = Some((block, Arc::as_ptr(old), one));
                if block > 0 {
                    all = all.then(one.shifted(at)?)?;
                }
            }
            Ok(all)
        }
    }
}

/// The type map of an unnamed pair: a structure of the two.
pub(crate) fn pair_body(value: Basic, index: Basic) -> Result<Arc<Datatype>> {
    let index_at = value.form().size().next_multiple_of(index.align()) as i64;
    let types = [
        Datatype::basic(value).clone(),
        Datatype::basic(index).clone(),
    ];
    Datatype::structure(&[1, 1], &[0, index_at], &types)
}
