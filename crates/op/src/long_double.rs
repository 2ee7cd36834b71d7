//! long double and binary128. Their kernels are in C (long_double.c), because Rust has no such
//! types.

use crate::kernel::Kernel;
use crate::pair::Comparison;
use crate::predefined::Predefined::{self, *};
use ferry_datatype::Form;

macro_rules! kernels {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $( fn $name(input: *const u8, inout: *mut u8, count: usize); )*
        }
        /// The C functions under Rust's calling convention.
        mod kernels {
            $(
                /// # Safety
                /// As for [`super::Kernel`].
                pub(super) unsafe fn $name(input: *const u8, inout: *mut u8, count: usize) {
                    // SAFETY: the caller's promise; the C function touches just these elements, at
                    // any alignment.
                    unsafe { super::$name(input, inout, count) }
                }
            )*
        }
    };
}

kernels! {
    ferry_long_double_sum ferry_long_double_prod ferry_long_double_min ferry_long_double_max
    ferry_long_double_complex_sum ferry_long_double_complex_prod
    ferry_long_double_minloc ferry_long_double_maxloc
    ferry_binary128_sum ferry_binary128_prod ferry_binary128_min ferry_binary128_max
    ferry_binary128_complex_sum ferry_binary128_complex_prod
}

/// The kernel of an arithmetic operation on long double, binary128 or complex numbers of these.
pub(crate) fn kernel(op: Predefined, form: Form) -> Option<Kernel> {
    use kernels::*;
    Some(match (form, op) {
        (Form::LongDouble, Sum) => ferry_long_double_sum,
        (Form::LongDouble, Prod) => ferry_long_double_prod,
        (Form::LongDouble, Min) => ferry_long_double_min,
        (Form::LongDouble, Max) => ferry_long_double_max,
        (Form::CLongDouble, Sum) => ferry_long_double_complex_sum,
        (Form::CLongDouble, Prod) => ferry_long_double_complex_prod,
        (Form::F128, Sum) => ferry_binary128_sum,
        (Form::F128, Prod) => ferry_binary128_prod,
        (Form::F128, Min) => ferry_binary128_min,
        (Form::F128, Max) => ferry_binary128_max,
        (Form::C128, Sum) => ferry_binary128_complex_sum,
        (Form::C128, Prod) => ferry_binary128_complex_prod,
        _ => return None,
    })
}

/// The kernel of MPI_MINLOC or MPI_MAXLOC on MPI_LONG_DOUBLE_INT.
pub(crate) fn loc(op: Predefined) -> Option<Kernel> {
    match op {
        Minloc => Some(kernels::ferry_long_double_minloc),
        Maxloc => Some(kernels::ferry_long_double_maxloc),
        _ => None,
    }
}

unsafe extern "C" {
    fn ferry_long_double_compare(a: *const u8, b: *const u8) -> i32;
    fn ferry_binary128_compare(a: *const u8, b: *const u8) -> i32;
}

/// # Safety
/// Both pointers must be readable for a long double, at any alignment.
pub(crate) unsafe fn compare(a: *const u8, b: *const u8) -> Comparison {
    // SAFETY: the caller's promise.
    comparison(unsafe { ferry_long_double_compare(a, b) })
}

/// # Safety
/// Both pointers must be readable for a binary128, at any alignment.
pub(crate) unsafe fn compare128(a: *const u8, b: *const u8) -> Comparison {
    // SAFETY: the caller's promise.
    comparison(unsafe { ferry_binary128_compare(a, b) })
}

/// What the C functions return.
fn comparison(answer: i32) -> Comparison {
    match answer {
        2 => Comparison::FirstIsNan,
        3 => Comparison::SecondIsNan,
        4 => Comparison::BothAreNan,
        order => Comparison::Numbers(order.cmp(&0)),
    }
}

/// A value converted from and to double by the C compiler.
#[cfg(test)]
pub(crate) mod convert {
    unsafe extern "C" {
        pub(crate) fn ferry_long_double_from(v: f64, out: *mut u8);
        pub(crate) fn ferry_long_double_to(from: *const u8) -> f64;
        pub(crate) fn ferry_binary128_from(v: f64, out: *mut u8);
        pub(crate) fn ferry_binary128_to(from: *const u8) -> f64;
    }
}
