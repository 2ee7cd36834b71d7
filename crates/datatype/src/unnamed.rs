//! Predefined types without a name: Fortran kinds by precision and range (MPI 5.0 §19.1.5), and
//! pairs of value and index (§5.1.12).

use crate::constructor::{Constructor, Width};
use crate::shape::Shape;
use crate::{Basic, Class, Datatype, Form, TypeError, create};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Result<T> = std::result::Result<T, TypeError>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Real(Option<i64>, Option<i64>),
    Complex(Option<i64>, Option<i64>),
    Integer(i64),
    ValueIndex(Basic, Basic),
}

/// Equal arguments give the same object, as the standard asks.
static CREATED: Mutex<BTreeMap<Key, Arc<Datatype>>> = Mutex::new(BTreeMap::new());

fn shared(key: Key, make: impl FnOnce() -> Result<Datatype>) -> Result<Arc<Datatype>> {
    let mut created = CREATED.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(t) = created.get(&key) {
        return Ok(t.clone());
    }
    let t = make()?;
    t.commit();
    Ok(created.entry(key).or_insert(Arc::new(t)).clone())
}

fn leaf(constructor: Constructor, basic: Basic) -> Result<Datatype> {
    Datatype::assemble(
        constructor,
        Width::Int,
        None,
        Some(basic),
        Shape::basic(basic),
    )
}

/// Decimal digits, decimal exponent range, and the real and complex types that have them, smallest
/// first.
const REALS: [(i64, i64, Basic, Basic); 4] = [
    (6, 37, Basic::Real4, Basic::Complex8),
    (15, 307, Basic::Real8, Basic::Complex16),
    // The kind that gfortran calls 10.
    #[cfg(target_arch = "x86_64")]
    (18, 4931, Basic::LongDouble, Basic::CLongDoubleComplex),
    #[cfg(not(target_arch = "x86_64"))]
    (15, 307, Basic::Real8, Basic::Complex16),
    (33, 4931, Basic::Real16, Basic::Complex32),
];

fn real_kind(precision: Option<i64>, range: Option<i64>) -> Result<(Basic, Basic)> {
    if precision.is_none() && range.is_none() {
        return Err(TypeError::Argument(
            "p and r are both MPI_UNDEFINED; give at least one".to_owned(),
        ));
    }
    let (p, r) = (precision.unwrap_or(0), range.unwrap_or(0));
    match REALS
        .iter()
        .find(|(digits, exponent, ..)| *digits >= p && *exponent >= r)
    {
        Some((.., real, complex)) => Ok((*real, *complex)),
        None => Err(TypeError::Argument(format!(
            "p is {p} and r is {r}, but no real kind has more than 33 digits or an exponent range \
             beyond 4931"
        ))),
    }
}

impl Datatype {
    /// The type of Fortran's `real(selected_real_kind(p, r))`. `None` stands for MPI_UNDEFINED. The
    /// type is committed, must not be freed, and is the same object for the same arguments.
    pub fn f90_real(precision: Option<i64>, range: Option<i64>) -> Result<Arc<Datatype>> {
        let basic = real_kind(precision, range)?.0;
        shared(Key::Real(precision, range), || {
            leaf(Constructor::F90Real { precision, range }, basic)
        })
    }

    /// The type of `complex(selected_real_kind(p, r))`, as [`Datatype::f90_real`].
    pub fn f90_complex(precision: Option<i64>, range: Option<i64>) -> Result<Arc<Datatype>> {
        let basic = real_kind(precision, range)?.1;
        shared(Key::Complex(precision, range), || {
            leaf(Constructor::F90Complex { precision, range }, basic)
        })
    }

    /// The type of `integer(selected_int_kind(r))`, as [`Datatype::f90_real`].
    pub fn f90_integer(range: i64) -> Result<Arc<Datatype>> {
        let basic = match range {
            ..=2 => Basic::Integer1,
            3..=4 => Basic::Integer2,
            5..=9 => Basic::Integer4,
            10..=18 => Basic::Integer8,
            19..=38 => Basic::Integer16,
            _ => {
                return Err(TypeError::Argument(format!(
                    "r is {range}, but no integer kind has more than 38 digits"
                )));
            }
        };
        shared(Key::Integer(range), || {
            leaf(Constructor::F90Integer { range }, basic)
        })
    }

    /// The predefined pair type of this value and index, named if there is one. `None`: there is
    /// none.
    pub fn value_index(value: &Datatype, index: &Datatype) -> Result<Option<Arc<Datatype>>> {
        let (Some(value), Some(index)) = (value.basic_kind(), index.basic_kind()) else {
            return Ok(None);
        };
        let named = |b: &&Basic| b.form() == Form::Pair(value, index);
        if let Some(basic) = Basic::ALL.iter().find(named) {
            return Ok(Some(Datatype::basic(*basic).clone()));
        }
        let integer = |b: Basic| {
            matches!(
                b.class(),
                Class::CInteger | Class::FortranInteger | Class::MultiLanguage
            )
        };
        let has_order = integer(value) || value.class() == Class::Float;
        if !has_order || !integer(index) || !value.exists() || !index.exists() {
            return Ok(None);
        }
        shared(Key::ValueIndex(value, index), || {
            let body = create::pair_body(value, index)?;
            let shape = body.shape;
            Datatype::assemble(
                Constructor::ValueIndex { value, index },
                Width::Int,
                Some(body),
                None,
                shape,
            )
        })
        .map(Some)
    }

    /// The named type of this class and size in bytes (MPI_Type_match_size). `None`: there is none.
    pub fn match_size(class: MatchClass, size: i64) -> Option<&'static Arc<Datatype>> {
        use Basic::*;
        let kinds: &[Basic] = match class {
            MatchClass::Integer => &[Integer1, Integer2, Integer4, Integer8, Integer16],
            MatchClass::Real => &[Real2, Real4, Real8, Real16],
            MatchClass::Complex => &[Complex8, Complex16, Complex32],
            MatchClass::Logical => &[Logical1, Logical2, Logical4, Logical8, Logical16],
        };
        kinds
            .iter()
            .find(|b| b.size() == size)
            .map(|b| Datatype::basic(*b))
    }
}

/// Fortran's families of types (MPI_TYPECLASS_…). The numbers are the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum MatchClass {
    Logical = 191,
    Integer = 192,
    Real = 193,
    Complex = 194,
}

impl MatchClass {
    /// The class with this number in the ABI.
    pub fn of_value(value: i64) -> Option<MatchClass> {
        match value {
            191 => Some(MatchClass::Logical),
            192 => Some(MatchClass::Integer),
            193 => Some(MatchClass::Real),
            194 => Some(MatchClass::Complex),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fortran_kinds_are_the_smallest_that_do_and_shared() {
        let kind = |p, r| Datatype::f90_real(p, r).unwrap().basic_kind().unwrap();
        assert_eq!(kind(Some(6), None), Basic::Real4);
        assert_eq!(kind(Some(7), Some(37)), Basic::Real8);
        assert_eq!(kind(None, Some(38)), Basic::Real8);
        assert_eq!(kind(Some(33), None), Basic::Real16);
        assert!(Datatype::f90_real(Some(34), None).is_err());
        assert!(Datatype::f90_complex(None, None).is_err());
        assert_eq!(Datatype::f90_integer(9).unwrap().size(), 4);
        assert_eq!(Datatype::f90_integer(10).unwrap().size(), 8);
        let (a, b) = (
            Datatype::f90_integer(9).unwrap(),
            Datatype::f90_integer(9).unwrap(),
        );
        assert!(Arc::ptr_eq(&a, &b) && a.is_committed() && a.is_predefined());
    }

    #[test]
    fn pairs_are_named_where_there_is_a_name() {
        let of = |v, i| Datatype::value_index(Datatype::basic(v), Datatype::basic(i)).unwrap();
        assert_eq!(
            of(Basic::Float, Basic::Int).unwrap().basic_kind(),
            Some(Basic::FloatInt)
        );
        let unnamed = of(Basic::Double, Basic::Int64).unwrap();
        assert_eq!(
            (unnamed.size(), unnamed.extent(), unnamed.pair()),
            (16, 16, Some((Basic::Double, Basic::Int64)))
        );
        assert!(Arc::ptr_eq(
            &unnamed,
            &of(Basic::Double, Basic::Int64).unwrap()
        ));
        assert!(of(Basic::Int8, Basic::Int64).unwrap().extent() == 16);
        assert!(
            of(Basic::CDoubleComplex, Basic::Int).is_none(),
            "complex numbers have no order"
        );
    }

    #[test]
    fn sizes_match() {
        assert_eq!(
            Datatype::match_size(MatchClass::Real, 8)
                .unwrap()
                .basic_kind(),
            Some(Basic::Real8)
        );
        assert!(Datatype::match_size(MatchClass::Complex, 4).is_none());
    }
}
