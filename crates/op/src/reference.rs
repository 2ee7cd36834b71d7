//! Every kernel against a plain reading of the standard, one element at a time.

use crate::half::Half;
use crate::kernel::Kernel;
use crate::long_double::convert::*;
use crate::pair::AnyPair;
use crate::predefined::Predefined::{self, *};
use crate::table::Table;
use ferry_datatype::{Basic, Class, Form};
use proptest::prelude::*;

/// One element's value, whatever its width.
#[derive(Clone, Debug)]
enum Value {
    Integer(i128),
    Real(f64),
    Complex(f64, f64),
    Pair(Box<Value>, Box<Value>),
}
use Value::*;

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
        match (self, other) {
            (Integer(a), Integer(b)) => a == b,
            (Real(a), Real(b)) => same(*a, *b),
            (Complex(a, b), Complex(c, d)) => same(*a, *c) && same(*b, *d),
            (Value::Pair(a, b), Value::Pair(c, d)) => a == c && b == d,
            _ => false,
        }
    }
}

/// A choice of value that every type can turn into one of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw {
    Small(i8),
    Wild(u64),
}

fn raw() -> impl Strategy<Value = Raw> {
    prop_oneof![3 => (-4i8..5).prop_map(Raw::Small), 1 => any::<i8>().prop_map(Raw::Small),
        3 => any::<u64>().prop_map(Raw::Wild)]
}

/// Writes an element; padding stays as it is.
fn encode(form: Form, raw: [Raw; 2], out: &mut [u8]) {
    let integer = |raw: Raw| match raw {
        Raw::Small(v) => i128::from(v),
        Raw::Wild(v) => i128::from(v) << 61 ^ i128::from(v),
    };
    // What any floating type can hold exactly, with sums and products of it.
    let real = |raw: Raw| match raw {
        Raw::Small(v) => f64::from(v),
        Raw::Wild(v) => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.5][(v % 5) as usize],
    };
    let finite = |raw: Raw| match raw {
        Raw::Small(v) => f64::from(v),
        Raw::Wild(v) => f64::from(v as i8) / 4.0,
    };
    match form {
        Form::F32 => match raw[0] {
            Raw::Wild(v) => out[..4].copy_from_slice(&f32::from_bits(v as u32).to_ne_bytes()),
            small => out[..4].copy_from_slice(&(real(small) as f32).to_ne_bytes()),
        },
        Form::F64 => match raw[0] {
            Raw::Wild(v) => out[..8].copy_from_slice(&f64::from_bits(v).to_ne_bytes()),
            small => out[..8].copy_from_slice(&real(small).to_ne_bytes()),
        },
        // SAFETY: `out` holds an element of this form.
        Form::LongDouble => unsafe { ferry_long_double_from(real(raw[0]), out.as_mut_ptr()) },
        // SAFETY: `out` holds an element of this form, 16 bytes.
        Form::F128 => unsafe { ferry_binary128_from(real(raw[0]), out.as_mut_ptr()) },
        Form::C32 | Form::C64 | Form::CLongDouble | Form::C128 => {
            let (re, im) = out.split_at_mut(form.size() / 2);
            write_real(part(form), finite(raw[0]), re);
            write_real(part(form), finite(raw[1]), im);
        }
        Form::Pair(value, index) => {
            let (v, i) = out.split_at_mut(form.index_offset());
            encode(value.form(), [raw[0], raw[0]], v);
            encode(index.form(), [raw[1], raw[1]], i);
        }
        _ => {
            let n = form.size();
            out[..n].copy_from_slice(&integer(raw[0]).to_le_bytes()[..n]);
        }
    }
}

fn part(form: Form) -> Form {
    match form {
        Form::C32 => Form::F32,
        Form::C64 => Form::F64,
        Form::CLongDouble => Form::LongDouble,
        _ => Form::F128,
    }
}

fn write_real(form: Form, v: f64, out: &mut [u8]) {
    match form {
        Form::F32 => out[..4].copy_from_slice(&(v as f32).to_ne_bytes()),
        Form::F64 => out[..8].copy_from_slice(&v.to_ne_bytes()),
        // SAFETY: `out` holds an element of this form.
        Form::LongDouble => unsafe { ferry_long_double_from(v, out.as_mut_ptr()) },
        // SAFETY: `out` holds an element of this form, 16 bytes.
        _ => unsafe { ferry_binary128_from(v, out.as_mut_ptr()) },
    }
}

fn decode(form: Form, bytes: &[u8]) -> Value {
    let unsigned = || {
        let mut wide = [0; 16];
        wide[..form.size()].copy_from_slice(&bytes[..form.size()]);
        i128::from_le_bytes(wide)
    };
    match form {
        Form::U8 | Form::U16 | Form::U32 | Form::U64 | Form::I128 => Integer(unsigned()),
        Form::I8 | Form::I16 | Form::I32 | Form::I64 => {
            let spare = 128 - 8 * form.size() as u32;
            Integer(unsigned() << spare >> spare)
        }
        Form::F32 => Real(f32::from_ne_bytes(bytes[..4].try_into().unwrap()).into()),
        Form::F64 => Real(f64::from_ne_bytes(bytes[..8].try_into().unwrap())),
        // SAFETY: `bytes` holds an element of this form.
        Form::LongDouble => Real(unsafe { ferry_long_double_to(bytes.as_ptr()) }),
        // SAFETY: `bytes` holds an element of this form, 16 bytes.
        Form::F128 => Real(unsafe { ferry_binary128_to(bytes.as_ptr()) }),
        Form::C32 | Form::C64 | Form::CLongDouble | Form::C128 => {
            let (re, im) = bytes.split_at(form.size() / 2);
            match (decode(part(form), re), decode(part(form), im)) {
                (Real(re), Real(im)) => Complex(re, im),
                _ => unreachable!("parts of complex numbers are real"),
            }
        }
        Form::Pair(value, index) => Value::Pair(
            Box::new(decode(value.form(), bytes)),
            Box::new(decode(index.form(), &bytes[form.index_offset()..])),
        ),
        Form::F16 => Real(half(bytes[..2].try_into().unwrap()).into()),
        Form::C16 => unreachable!("no such type here"),
    }
}

/// The value of a binary16.
fn half(bytes: [u8; 2]) -> f32 {
    Half::from_ne_bytes(bytes).value()
}

/// An integer as its type holds it after wrapping.
fn wrapped(form: Form, v: i128) -> Value {
    decode(form, &v.to_le_bytes())
}

/// A real as its type rounds it.
fn rounded(form: Form, v: f64) -> Value {
    Real(match form {
        Form::F32 => f64::from(v as f32),
        Form::F16 => f64::from(Half::nearest(v as f32).value()),
        _ => v,
    })
}

/// Does `a` win against `b`? A NaN never does, and always loses against a number.
fn beats(op: Predefined, a: &Value, b: &Value) -> bool {
    let least = matches!(op, Min | Minloc);
    match (a, b) {
        (Integer(a), Integer(b)) => {
            if least {
                a < b
            } else {
                a > b
            }
        }
        (Real(a), Real(b)) if a.is_nan() || b.is_nan() => b.is_nan() && !a.is_nan(),
        (Real(a), Real(b)) => {
            if least {
                a < b
            } else {
                a > b
            }
        }
        _ => panic!("no order between {a:?} and {b:?}"),
    }
}

/// Is index `a` lower? (An index that is no number is not.)
fn lower(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Integer(a), Integer(b)) => a < b,
        (Real(a), Real(b)) => a < b,
        _ => panic!("no order between {a:?} and {b:?}"),
    }
}

/// What the standard says of one element.
fn expected(op: Predefined, basic: Basic, form: Form, a: &Value, b: &Value) -> Value {
    let truth = |v: &Value| *v != Integer(0);
    match (op, a, b) {
        (NoOp, _, b) => b.clone(),
        (Replace, a, _) => a.clone(),
        (Land, a, b) => Integer((truth(a) && truth(b)).into()),
        (Lor, a, b) => Integer((truth(a) || truth(b)).into()),
        (Lxor, a, b) => Integer((truth(a) != truth(b)).into()),
        (Sum, Integer(a), Integer(b)) => wrapped(form, a.wrapping_add(*b)),
        (Prod, Integer(a), Integer(b)) => wrapped(form, a.wrapping_mul(*b)),
        (Band, Integer(a), Integer(b)) => wrapped(form, a & b),
        (Bor, Integer(a), Integer(b)) => wrapped(form, a | b),
        (Bxor, Integer(a), Integer(b)) => wrapped(form, a ^ b),
        (Sum, Real(a), Real(b)) => rounded(form, a + b),
        (Prod, Real(a), Real(b)) => rounded(form, a * b),
        (Sum, Complex(a, b), Complex(c, d)) => Complex(a + c, b + d),
        (Prod, Complex(a, b), Complex(c, d)) => Complex(a * c - b * d, a * d + b * c),
        (Min | Max, a, b) => {
            if beats(op, a, b) {
                a.clone()
            } else {
                b.clone()
            }
        }
        (Minloc | Maxloc, Value::Pair(v, i), Value::Pair(w, j)) => {
            if beats(op, v, w) || (!beats(op, w, v) && lower(i, j)) {
                a.clone()
            } else {
                b.clone()
            }
        }
        _ => panic!("{} on {}: not in the reference", op.name(), basic.name()),
    }
}

/// Which combinations the standard's table allows (§6.9.2), written out once more in another way.
fn allowed(op: Predefined, basic: Basic) -> bool {
    let groups: &[Class] = match op {
        Min | Max => &[
            Class::CInteger,
            Class::FortranInteger,
            Class::Float,
            Class::MultiLanguage,
        ],
        Sum | Prod => &[
            Class::CInteger,
            Class::FortranInteger,
            Class::Float,
            Class::Complex,
            Class::MultiLanguage,
        ],
        Land | Lor | Lxor => &[Class::CInteger, Class::Logical, Class::FortranLogical],
        Band | Bor | Bxor => &[
            Class::CInteger,
            Class::FortranInteger,
            Class::Byte,
            Class::MultiLanguage,
        ],
        Minloc | Maxloc => &[Class::Pair],
        Replace | NoOp => return basic.exists() && basic != Basic::Packed,
    };
    basic.exists() && groups.contains(&basic.class())
}

/// Allowed beyond the standard, as the crate's documentation says.
fn extension(op: Predefined, basic: Basic) -> bool {
    match op {
        Minloc | Maxloc | Replace | NoOp => false,
        Land | Lor | Lxor if basic.class() == Class::MultiLanguage => true,
        _ => basic == Basic::Char,
    }
}

#[test]
fn the_table_is_the_standards() {
    for op in Predefined::ALL {
        let table = Table::new(op);
        for &basic in Basic::ALL {
            let found = table.find(basic).is_some();
            assert_eq!(found, crate::atomic::is_defined(op, basic));
            assert_eq!(
                found,
                allowed(op, basic) || extension(op, basic),
                "{} on {}",
                op.name(),
                basic.name()
            );
        }
    }
}

/// Runs `kernel` on odd addresses and compares every byte with what should be there.
pub(crate) fn compare(
    op: Predefined,
    basic: Basic,
    form: Form,
    elements: &[([Raw; 2], [Raw; 2])],
    shift: (usize, usize),
    kernel: impl FnOnce(*const u8, *mut u8, usize),
) -> Result<(), TestCaseError> {
    let (extent, n) = (form.extent(), elements.len());
    let bytes = n * extent;
    let mut input = vec![0x5a; bytes + 16];
    let mut inout = vec![0xa5; bytes + 16];
    for (i, (a, b)) in elements.iter().enumerate() {
        encode(form, *a, &mut input[shift.0 + i * extent..][..extent]);
        encode(form, *b, &mut inout[shift.1 + i * extent..][..extent]);
    }
    let (before_in, before) = (input.clone(), inout.clone());
    kernel(input[shift.0..].as_ptr(), inout[shift.1..].as_mut_ptr(), n);
    prop_assert_eq!(&input, &before_in, "the input buffer changed");
    prop_assert_eq!(&inout[..shift.1], &before[..shift.1]);
    prop_assert_eq!(&inout[shift.1 + bytes..], &before[shift.1 + bytes..]);
    for i in 0..n {
        let a = decode(form, &before_in[shift.0 + i * extent..]);
        let at = shift.1 + i * extent;
        let b = decode(form, &before[at..]);
        let want = expected(op, basic, form, &a, &b);
        let got = decode(form, &inout[at..]);
        prop_assert_eq!(
            &got,
            &want,
            "{} on {}: {:?} with {:?}",
            op.name(),
            basic.name(),
            a,
            b
        );
        if let (Form::Pair(value, _), false) = (form, op == Replace) {
            let padding = value.form().size()..form.index_offset();
            prop_assert_eq!(
                &inout[at..][padding.clone()],
                &before[at..][padding],
                "padding between the parts"
            );
            let data = form.index_offset() + form.size() - value.form().size();
            prop_assert_eq!(
                &inout[at + data..at + extent],
                &before[at + data..at + extent],
                "padding at the end"
            );
        }
    }
    Ok(())
}

pub(crate) fn elements() -> impl Strategy<Value = Vec<([Raw; 2], [Raw; 2])>> {
    let pair = || [raw(), raw()];
    prop::collection::vec((pair(), pair()), 0..70)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_operation_on_every_type(elements in elements(), shift in (0usize..16, 0usize..16)) {
        for op in Predefined::ALL {
            let table = Table::new(op);
            for &basic in Basic::ALL {
                let Some(kernel): Option<Kernel> = table.find(basic) else { continue };
                compare(op, basic, basic.form(), &elements, shift, |a, b, n| {
                    // SAFETY: both buffers hold n elements of this type.
                    unsafe { kernel(a, b, n) }
                })?;
            }
        }
    }

    #[test]
    fn pairs_of_any_two_types(elements in elements(), shift in (0usize..16, 0usize..16)) {
        let types = [Basic::Int8, Basic::Uint16, Basic::Unsigned, Basic::Count, Basic::UnsignedLong,
            Basic::Integer16,
            Basic::Float, Basic::Real8, Basic::LongDouble, Basic::Real16];
        for value in types {
            for index in types {
                let pair = AnyPair::new(value, index).expect("numbers can be compared");
                for op in [Minloc, Maxloc] {
                    compare(op, value, Form::Pair(value, index), &elements, shift, |a, b, n| {
                        // SAFETY: both buffers hold n pairs of these types.
                        unsafe { pair.run(op, a, b, n) }
                    })?;
                }
            }
        }
    }
}

#[test]
fn complex_numbers_have_no_order() {
    assert!(AnyPair::new(Basic::CDoubleComplex, Basic::Int).is_none());
    assert!(AnyPair::new(Basic::Double, Basic::Logical).is_none());
}

#[test]
fn a_nan_loses_from_either_side() {
    let table = Table::new(Max);
    let kernel = table.find(Basic::Double).unwrap();
    for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
        let mut inout = [b; 33];
        // SAFETY: 33 doubles behind either pointer.
        unsafe { kernel([a; 33].as_ptr().cast(), inout.as_mut_ptr().cast(), 33) };
        assert_eq!(inout, [1.0; 33]);
    }
}
