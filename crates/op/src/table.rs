//! Which operations go with which types (MPI 5.0 §6.9.2), and the kernel for each pair.

use crate::half::Half;
use crate::kernel::{self as rule, Complex, Kernel, kernel, no_op};
use crate::predefined::Predefined::{self, *};
use crate::{logical, long_double, pair};
use ferry_datatype::{Basic, Class, Form};

/// The kernels of one operation, by type.
pub(crate) struct Table([Option<Kernel>; SLOTS]);

/// The first handle value of a predefined type (MPI 5.0 §20.3).
const FIRST: u32 = 0x200;
/// More than there are predefined types.
pub(crate) const SLOTS: usize = 256;

impl Table {
    /// The kernels of `op`.
    pub(crate) fn new(op: Predefined) -> Table {
        let mut table = [None; SLOTS];
        for &basic in Basic::ALL {
            table[slot(basic)] = choose(op, basic);
        }
        Table(table)
    }

    /// The kernel for this type, if the operation is defined on it.
    #[inline]
    pub(crate) fn find(&self, basic: Basic) -> Option<Kernel> {
        self.0[slot(basic)]
    }
}

/// The place of a type in a table of all types.
#[inline]
pub(crate) const fn slot(basic: Basic) -> usize {
    (basic.value() - FIRST) as usize % SLOTS
}

/// The types that an operation is defined on, as text for error messages.
pub(crate) fn allowed(op: Predefined) -> &'static str {
    match op {
        Min | Max => "integers, floating-point numbers, MPI_AINT, MPI_COUNT and MPI_OFFSET",
        Sum | Prod => {
            "integers, floating-point and complex numbers, MPI_AINT, MPI_COUNT and MPI_OFFSET"
        }
        Land | Lor | Lxor => "C integers, Fortran logicals, MPI_C_BOOL and MPI_CXX_BOOL",
        Band | Bor | Bxor => "integers, MPI_BYTE, MPI_AINT, MPI_COUNT and MPI_OFFSET",
        Minloc | Maxloc => "pairs of a value and an index, such as MPI_DOUBLE_INT and MPI_2INT",
        Replace | NoOp => "predefined datatypes",
    }
}

/// Returns whether `op` is defined on this type. The additions to the standard's table are
/// explained on the crate's front page.
pub(crate) const fn defined(op: Predefined, basic: Basic) -> bool {
    if !basic.exists() {
        return false;
    }
    let class = match basic {
        Basic::Char => Class::CInteger,
        _ => basic.class(),
    };
    let integer = matches!(
        class,
        Class::CInteger | Class::FortranInteger | Class::MultiLanguage
    );
    match op {
        Min | Max => integer || matches!(class, Class::Float),
        Sum | Prod => integer || matches!(class, Class::Float | Class::Complex),
        Band | Bor | Bxor => integer || matches!(class, Class::Byte),
        Land | Lor | Lxor => {
            matches!(
                class,
                Class::CInteger | Class::MultiLanguage | Class::Logical | Class::FortranLogical
            )
        }
        Minloc | Maxloc => matches!(class, Class::Pair),
        Replace | NoOp => !matches!(class, Class::Packed),
    }
}

/// The kernel of `op` on `basic`.
fn choose(op: Predefined, basic: Basic) -> Option<Kernel> {
    if !defined(op, basic) {
        return None;
    }
    if op == NoOp {
        return Some(no_op());
    }
    if op == Replace {
        return replace(basic.form().extent());
    }
    match (basic.class(), basic.form()) {
        (Class::FortranLogical, form) => fortran_logical(op, form),
        (_, Form::Pair(value, index)) => loc(op, value.form(), index.form()),
        (_, form) => arithmetic(op, form),
    }
}

fn arithmetic(op: Predefined, form: Form) -> Option<Kernel> {
    macro_rules! integer {
        ($t:ty) => {
            match op {
                Sum => kernel::<$t, rule::Sum>(),
                Prod => kernel::<$t, rule::Prod>(),
                Min => kernel::<$t, rule::Min>(),
                Max => kernel::<$t, rule::Max>(),
                Band => kernel::<$t, rule::BitAnd>(),
                Bor => kernel::<$t, rule::BitOr>(),
                Bxor => kernel::<$t, rule::BitXor>(),
                Land => kernel::<$t, rule::And>(),
                Lor => kernel::<$t, rule::Or>(),
                Lxor => kernel::<$t, rule::Xor>(),
                _ => return None,
            }
        };
    }
    macro_rules! float {
        ($t:ty) => {
            match op {
                Sum => kernel::<$t, rule::Sum>(),
                Prod => kernel::<$t, rule::Prod>(),
                Min => kernel::<$t, rule::Min>(),
                Max => kernel::<$t, rule::Max>(),
                _ => return None,
            }
        };
    }
    macro_rules! complex {
        ($t:ty) => {
            match op {
                Sum => kernel::<Complex<$t>, rule::Sum>(),
                Prod => kernel::<Complex<$t>, rule::Prod>(),
                _ => return None,
            }
        };
    }
    Some(match form {
        Form::I8 => integer!(i8),
        Form::U8 => integer!(u8),
        Form::I16 => integer!(i16),
        Form::U16 => integer!(u16),
        Form::I32 => integer!(i32),
        Form::U32 => integer!(u32),
        Form::I64 => integer!(i64),
        Form::U64 => integer!(u64),
        Form::I128 => integer!(i128),
        Form::F32 => float!(f32),
        Form::F64 => float!(f64),
        Form::C32 => complex!(f32),
        Form::C64 => complex!(f64),
        Form::LongDouble | Form::F128 | Form::CLongDouble | Form::C128 => {
            long_double::kernel(op, form)?
        }
        Form::F16 => float!(Half),
        Form::C16 | Form::Pair(..) => return None,
    })
}

fn fortran_logical(op: Predefined, form: Form) -> Option<Kernel> {
    macro_rules! logical {
        ($t:ty) => {
            match op {
                Land => logical::kernel::<$t, rule::And>(),
                Lor => logical::kernel::<$t, rule::Or>(),
                Lxor => logical::kernel::<$t, rule::Xor>(),
                _ => return None,
            }
        };
    }
    Some(match form {
        Form::I8 => logical!(i8),
        Form::I16 => logical!(i16),
        Form::I32 => logical!(i32),
        Form::I64 => logical!(i64),
        Form::I128 => logical!(i128),
        _ => return None,
    })
}

/// The kernels of the pair types with names. [`pair::AnyPair`] does the others.
fn loc(op: Predefined, value: Form, index: Form) -> Option<Kernel> {
    macro_rules! loc {
        ($v:ty, $i:ty) => {
            if op == Minloc {
                pair::kernel::<$v, $i, pair::Least>()
            } else {
                pair::kernel::<$v, $i, pair::Greatest>()
            }
        };
    }
    Some(match (value, index) {
        (Form::F32, Form::I32) => loc!(f32, i32),
        (Form::F64, Form::I32) => loc!(f64, i32),
        (Form::I64, Form::I32) => loc!(i64, i32),
        (Form::I32, Form::I32) => loc!(i32, i32),
        (Form::I16, Form::I32) => loc!(i16, i32),
        (Form::F32, Form::F32) => loc!(f32, f32),
        (Form::F64, Form::F64) => loc!(f64, f64),
        (Form::LongDouble, Form::I32) => long_double::loc(op)?,
        _ => return None,
    })
}

/// Copies whole elements of `N` bytes, including their padding.
///
/// # Safety
/// As for [`Kernel`].
unsafe fn copy<const N: usize>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller vouches for both runs; `copy` allows them to overlap.
    unsafe { std::ptr::copy(input, inout, count * N) }
}

fn replace(extent: usize) -> Option<Kernel> {
    Some(match extent {
        1 => copy::<1>,
        2 => copy::<2>,
        4 => copy::<4>,
        8 => copy::<8>,
        16 => copy::<16>,
        32 => copy::<32>,
        _ => return None,
    })
}
