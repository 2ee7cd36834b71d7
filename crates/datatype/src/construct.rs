//! The constructors (MPI 5.0 §5.1.2 to §5.1.4, §5.1.7, §5.1.10).

use crate::recipe::{Expansion, Order, Recipe, Width};
use crate::shape::Shape;
use crate::{Basic, Datatype, TypeError, array};
use std::sync::Arc;

type Result<T> = std::result::Result<T, TypeError>;

impl Datatype {
    /// Makes the type that `recipe` describes. It is not committed, unless it is MPI_Type_dup of a
    /// committed type. Unnamed predefined types are shared, and have functions of their own
    /// ([`Datatype::f90_real`] and others).
    pub fn new(recipe: Recipe, width: Width) -> Result<Arc<Datatype>> {
        check(&recipe)?;
        let body = match &recipe {
            Recipe::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            } => Some(array::subarray(sizes, subsizes, starts, *order, old)?),
            Recipe::Darray {
                size,
                rank,
                dimensions,
                order,
                old,
            } => Some(array::darray(*size, *rank, dimensions, *order, old)?),
            Recipe::Named(basic) => return Ok(Datatype::basic(*basic).clone()),
            Recipe::F90Real { precision, range } => return Datatype::f90_real(*precision, *range),
            Recipe::F90Complex { precision, range } => {
                return Datatype::f90_complex(*precision, *range);
            }
            Recipe::F90Integer { range } => return Datatype::f90_integer(*range),
            _ => None,
        };
        let shape = measure(&recipe, body.as_ref())?;
        let committed = matches!(&recipe, Recipe::Dup(old) if old.is_committed());
        let t = Datatype::assemble(recipe, width, body, None, shape)?;
        if committed {
            t.commit();
        }
        Ok(Arc::new(t))
    }

    /// A copy of `old`, with its bounds and commit state. Name and attributes are not copied.
    pub fn dup(old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(Recipe::Dup(old.clone()), Width::Int)
    }

    /// `count` contiguous elements.
    pub fn contiguous(count: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(
            Recipe::Contiguous {
                count,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// Blocks of `blocklength` elements, `stride` extents of `old` from one to the next.
    pub fn vector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        Datatype::new(
            Recipe::Vector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// Blocks of `blocklength` elements, `stride` bytes from one to the next.
    pub fn hvector(
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        Datatype::new(
            Recipe::Hvector {
                count,
                blocklength,
                stride,
                old: old.clone(),
            },
            Width::Int,
        )
    }

    /// Blocks of various lengths. Displacements count extents of `old`.
    pub fn indexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, old) =
            (blocklengths.into(), displacements.into(), old.clone());
        Datatype::new(
            Recipe::Indexed {
                blocklengths,
                displacements,
                old,
            },
            Width::Int,
        )
    }

    /// Blocks of various lengths. Displacements count bytes.
    pub fn hindexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, old) =
            (blocklengths.into(), displacements.into(), old.clone());
        Datatype::new(
            Recipe::Hindexed {
                blocklengths,
                displacements,
                old,
            },
            Width::Int,
        )
    }

    /// Blocks of one length. Displacements count extents of `old`.
    pub fn indexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let recipe = Recipe::IndexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Datatype::new(recipe, Width::Int)
    }

    /// Blocks of one length. Displacements count bytes.
    pub fn hindexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        let recipe = Recipe::HindexedBlock {
            blocklength,
            displacements: displacements.into(),
            old: old.clone(),
        };
        Datatype::new(recipe, Width::Int)
    }

    /// Blocks of various types. Displacements count bytes.
    pub fn structure(
        blocklengths: &[i64],
        displacements: &[i64],
        types: &[Arc<Datatype>],
    ) -> Result<Arc<Datatype>> {
        let (blocklengths, displacements, types) =
            (blocklengths.into(), displacements.into(), types.into());
        Datatype::new(
            Recipe::Struct {
                blocklengths,
                displacements,
                types,
            },
            Width::Int,
        )
    }

    /// A part of an array.
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
            Recipe::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            },
            Width::Int,
        )
    }

    /// `old` with other bounds, bytes.
    pub fn resized(lb: i64, extent: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        Datatype::new(
            Recipe::Resized {
                lb,
                extent,
                old: old.clone(),
            },
            Width::Int,
        )
    }
}

/// Checks the values of a constructor's arguments.
fn check(recipe: &Recipe) -> Result<()> {
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
    match recipe {
        Recipe::Dup(old) | Recipe::Resized { old, .. } => exists(old),
        Recipe::Contiguous { count: n, old } => count(n).and(exists(old)),
        Recipe::Vector {
            count: n,
            blocklength,
            old,
            ..
        }
        | Recipe::Hvector {
            count: n,
            blocklength,
            old,
            ..
        } => count(n).and(block(blocklength)).and(exists(old)),
        Recipe::Indexed {
            blocklengths,
            displacements,
            old,
        }
        | Recipe::Hindexed {
            blocklengths,
            displacements,
            old,
        } => {
            same_length(blocklengths.len(), displacements.len())?;
            none_negative("array_of_blocklengths", blocklengths)?;
            exists(old)
        }
        Recipe::IndexedBlock {
            blocklength, old, ..
        }
        | Recipe::HindexedBlock {
            blocklength, old, ..
        } => block(blocklength).and(exists(old)),
        Recipe::Struct {
            blocklengths,
            displacements,
            types,
        } => {
            same_length(blocklengths.len(), displacements.len())?;
            same_length(types.len(), displacements.len())?;
            none_negative("array_of_blocklengths", blocklengths)?;
            types.iter().try_for_each(exists)
        }
        Recipe::Subarray { old, .. } | Recipe::Darray { old, .. } => exists(old),
        Recipe::Named(_)
        | Recipe::F90Real { .. }
        | Recipe::F90Complex { .. }
        | Recipe::F90Integer { .. }
        | Recipe::ValueIndex { .. } => Ok(()),
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

/// Computes size and bounds. Every sum and product is checked for overflow.
fn measure(recipe: &Recipe, body: Option<&Arc<Datatype>>) -> Result<Shape> {
    match recipe {
        Recipe::Resized { lb, extent, old } => return old.shape.resized(*lb, *extent),
        Recipe::Vector { stride, old, .. } => {
            stride
                .checked_mul(old.extent())
                .ok_or(TypeError::Overflow("stride"))?;
        }
        Recipe::Indexed {
            blocklengths,
            displacements,
            old,
        } => {
            // The displacement of an empty block means nothing.
            let unit = old.extent();
            if displacements
                .iter()
                .zip(blocklengths)
                .any(|(d, b)| *b > 0 && d.checked_mul(unit).is_none())
            {
                return Err(TypeError::Overflow("displacement"));
            }
        }
        Recipe::IndexedBlock {
            blocklength,
            displacements,
            old,
        } => {
            let unit = old.extent();
            if *blocklength > 0 && displacements.iter().any(|d| d.checked_mul(unit).is_none()) {
                return Err(TypeError::Overflow("displacement"));
            }
        }
        Recipe::ValueIndex { value, index } => {
            let index_at = value.form().size().next_multiple_of(index.align());
            return Shape::basic(*value).then(Shape::basic(*index).shifted(index_at as i64)?);
        }
        _ => {}
    }
    match recipe.expansion(None, body) {
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
