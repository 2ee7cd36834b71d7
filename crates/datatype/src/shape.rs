//! A datatype's measures: size, bounds, alignment (MPI 5.0 §5.1.6 to §5.1.8).
//!
//! An extent is rounded up to a multiple of the strictest alignment, by the letter of §5.1.6. Data
//! end with their last byte: padding at the end of a member does not count. Other libraries differ
//! where members lie at odd displacements (docs/using.md, "Extents of derived datatypes").

use crate::signature::Signature;
use crate::{Basic, Form, TypeError};

type Result<T> = std::result::Result<T, TypeError>;

/// What is known of a type map without walking through it. It is computed from those of its parts,
/// by concatenation, repetition and displacement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// Data bytes.
    pub size: i64,
    /// Lowest data byte, and the byte after the highest. `None` without data.
    pub data: Option<(i64, i64)>,
    /// The lower bound that MPI_Type_create_resized has set somewhere inside, the standard's lb
    /// marker. It outweighs the data.
    lb_marker: Option<i64>,
    /// The same for the upper bound.
    ub_marker: Option<i64>,
    /// The strictest alignment of its elements, bytes.
    align: i64,
    /// The data are one run of bytes, in the type map's order.
    pub run: bool,
    pub signature: Signature,
    pub uniform: Uniform,
}

/// Whether all elements are of one basic type. A pair counts as one type here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Uniform {
    Empty,
    All(Basic),
    Mixed,
}

fn add(a: i64, b: i64) -> Result<i64> {
    a.checked_add(b).ok_or(TypeError::Overflow("displacement"))
}

fn mul(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or(TypeError::Overflow("extent"))
}

impl Shape {
    /// No elements at all.
    pub const EMPTY: Shape = Shape {
        size: 0,
        data: None,
        lb_marker: None,
        ub_marker: None,
        align: 1,
        run: true,
        signature: Signature::EMPTY,
        uniform: Uniform::Empty,
    };

    /// One element of a basic type.
    pub fn basic(basic: Basic) -> Shape {
        let form = basic.form();
        let (end, run) = match form {
            Form::Pair(value, index) => (
                form.index_offset() + index.form().size(),
                form.index_offset() == value.form().size(),
            ),
            _ => (form.size(), true),
        };
        Shape {
            size: form.size() as i64,
            data: Some((0, end as i64)),
            align: form.align() as i64,
            run,
            signature: Signature::of(basic),
            uniform: Uniform::All(basic),
            ..Shape::EMPTY
        }
    }

    /// Lower bound, bytes.
    pub fn lb(&self) -> i64 {
        self.lb_marker.or(self.data.map(|d| d.0)).unwrap_or(0)
    }

    /// Upper bound, bytes. Unless it was set, it makes the extent a multiple of the alignment.
    pub fn ub(&self) -> Result<i64> {
        match (self.ub_marker, self.data) {
            (Some(ub), _) => Ok(ub),
            (None, None) => Ok(self.lb()),
            (None, Some((_, end))) => {
                let extent = end
                    .checked_sub(self.lb())
                    .ok_or(TypeError::Overflow("extent"))?;
                // An extent can be negative only if a marker set the lower bound.
                let rounded = add(
                    extent,
                    (self.align - extent.rem_euclid(self.align)) % self.align,
                )?;
                add(self.lb(), rounded)
            }
        }
    }

    /// Upper bound minus lower bound, bytes.
    pub fn extent(&self) -> Result<i64> {
        self.ub()?
            .checked_sub(self.lb())
            .ok_or(TypeError::Overflow("extent"))
    }

    /// The same elements, `by` bytes further.
    pub fn shifted(self, by: i64) -> Result<Shape> {
        let data = match self.data {
            Some((a, b)) => Some((add(a, by)?, add(b, by)?)),
            None => None,
        };
        Ok(Shape {
            data,
            ..self.markers(by, by)?
        })
    }

    fn markers(self, lb_by: i64, ub_by: i64) -> Result<Shape> {
        Ok(Shape {
            lb_marker: self.lb_marker.map(|lb| add(lb, lb_by)).transpose()?,
            ub_marker: self.ub_marker.map(|ub| add(ub, ub_by)).transpose()?,
            ..self
        })
    }

    /// `count` copies, `stride` bytes from one to the next.
    pub fn repeated(self, count: i64, stride: i64) -> Result<Shape> {
        match count {
            ..=0 => return Ok(Shape::EMPTY),
            1 => return Ok(self),
            _ => {}
        }
        let span = mul(count - 1, stride)?;
        let (low, high) = (span.min(0), span.max(0));
        let data = match self.data {
            Some((a, b)) => Some((add(a, low)?, add(b, high)?)),
            None => None,
        };
        Ok(Shape {
            size: self
                .size
                .checked_mul(count)
                .ok_or(TypeError::Overflow("size"))?,
            data,
            run: self.run && (stride == self.size || self.size == 0),
            signature: self.signature.times(count),
            ..self.markers(low, high)?
        })
    }

    /// `count` copies, one extent apart.
    pub fn block(self, count: i64) -> Result<Shape> {
        self.repeated(count, self.extent()?)
    }

    /// These elements, then `other`'s.
    pub fn then(self, other: Shape) -> Result<Shape> {
        let run = match (self.data, other.data) {
            (Some(a), Some(b)) => self.run && other.run && a.1 == b.0,
            (Some(_), None) => self.run,
            _ => other.run,
        };
        Ok(Shape {
            size: self
                .size
                .checked_add(other.size)
                .ok_or(TypeError::Overflow("size"))?,
            data: either(self.data, other.data, |a, b| (a.0.min(b.0), a.1.max(b.1))),
            lb_marker: either(self.lb_marker, other.lb_marker, i64::min),
            ub_marker: either(self.ub_marker, other.ub_marker, i64::max),
            align: self.align.max(other.align),
            run,
            signature: self.signature.then(other.signature),
            uniform: match (self.uniform, other.uniform) {
                (Uniform::Empty, u) | (u, Uniform::Empty) => u,
                (Uniform::All(a), Uniform::All(b)) if a == b => Uniform::All(a),
                _ => Uniform::Mixed,
            },
        })
    }

    /// The same elements with these bounds.
    pub fn resized(self, lb: i64, extent: i64) -> Result<Shape> {
        Ok(Shape {
            lb_marker: Some(lb),
            ub_marker: Some(add(lb, extent)?),
            ..self
        })
    }
}

fn either<T>(a: Option<T>, b: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_rounds_up_to_the_strictest_alignment() {
        let double_char = Shape::basic(Basic::Double)
            .then(Shape::basic(Basic::Char).shifted(8).unwrap())
            .unwrap();
        assert_eq!((double_char.size, double_char.extent().unwrap()), (9, 16));
        assert!(double_char.run);
    }

    /// Cases on which MPICH 5.0 and Open MPI 5.0 agree, then some on which they do not: there the
    /// standard's letter holds.
    #[test]
    fn extents_at_odd_displacements() {
        let at = |basic, displacement| Shape::basic(basic).shifted(displacement).unwrap();
        let pair = |a: Shape, b: Shape| a.then(b).unwrap().extent().unwrap();
        let (double, int, char) = (Basic::Double, Basic::Int, Basic::Char);
        assert_eq!(pair(at(double, -4), at(int, 100)), 112);
        assert_eq!(pair(at(double, 4), at(char, 12)), 16);
        assert_eq!(pair(at(char, 3), at(double, 8)), 16);
        assert_eq!(pair(at(char, 1), at(int, 4)), 8);
        let double_int = Shape::basic(Basic::DoubleInt);
        assert_eq!(double_int.repeated(3, 20).unwrap().extent(), Ok(56));
        // MPICH does not round: 26 and 30. Open MPI rounds: 32.
        assert_eq!(pair(at(double, 3), at(double, 21)), 32);
        let doubles = Shape::basic(double).repeated(3, 11).unwrap();
        assert_eq!(doubles.extent(), Ok(32));
        // Both count the padding of MPI_DOUBLE_INT. MPICH has 244, and Open MPI rounds it to 248.
        let far = double_int.shifted(224).unwrap();
        assert_eq!(pair(double_int.shifted(-4).unwrap(), far), 240);
    }

    #[test]
    fn markers_outweigh_data_and_stay_when_nested() {
        let int = Shape::basic(Basic::Int);
        let wide = int.resized(-4, 16).unwrap();
        let both = wide.then(int.shifted(100).unwrap()).unwrap();
        assert_eq!(
            (both.lb(), both.ub().unwrap(), both.data),
            (-4, 12, Some((0, 104)))
        );
    }

    #[test]
    fn overflow_is_an_error() {
        let int = Shape::basic(Basic::Int);
        assert_eq!(int.block(i64::MAX), Err(TypeError::Overflow("extent")));
        assert_eq!(int.repeated(i64::MAX, 0), Err(TypeError::Overflow("size")));
        assert!(int.shifted(i64::MAX).is_err());
    }
}
