//! MPI_MINLOC and MPI_MAXLOC (MPI 5.0 §6.9.4): the extreme value, and the lowest index of equal
//! ones.

use crate::half::Half;
use crate::kernel::Kernel;
use crate::long_double;
use crate::predefined::Predefined;
use ferry_datatype::{Basic, Class, Form};
use std::cmp::Ordering;
use std::marker::PhantomData;

/// The C structure of a pair type. MPI_SHORT_INT has padding in its middle, MPI_DOUBLE_INT at its
/// end.
#[repr(C)]
pub(crate) struct Pair<V, I> {
    value: V,
    index: I,
}

/// A value that can be compared, and may be a NaN.
pub(crate) trait Ordered: Copy + PartialOrd {
    /// Returns whether this is a NaN.
    fn is_nan(self) -> bool;
}

macro_rules! ordered {
    ($($t:ty)*) => { $( impl Ordered for $t { #[inline(always)] fn is_nan(self) -> bool {
        false } } )* };
}
ordered!(i8 u8 i16 u16 i32 u32 i64 u64 i128);

impl Ordered for f32 {
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
}
impl Ordered for Half {
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.value().is_nan()
    }
}
impl Ordered for f64 {
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}

/// The rule by which one of two values wins.
pub(crate) trait Wins {
    /// Returns whether number `a` wins against number `b`.
    fn wins<V: PartialOrd>(a: V, b: V) -> bool;
}
pub(crate) struct Least;
pub(crate) struct Greatest;
impl Wins for Least {
    #[inline(always)]
    fn wins<V: PartialOrd>(a: V, b: V) -> bool {
        a < b
    }
}
impl Wins for Greatest {
    #[inline(always)]
    fn wins<V: PartialOrd>(a: V, b: V) -> bool {
        a > b
    }
}

struct Loc<V, I, W>(PhantomData<(V, I, W)>);

impl<V: Ordered, I: Ordered, W: Wins> Loc<V, I, W> {
    /// # Safety
    /// As for [`Kernel`].
    unsafe fn run(input: *const u8, inout: *mut u8, count: usize) {
        let (input, inout) = (input.cast::<Pair<V, I>>(), inout.cast::<Pair<V, I>>());
        for i in 0..count {
            // SAFETY: i < count, and the caller vouches for count pairs behind either pointer.
            // Fields are reached by address only, so neither alignment nor what lies in
            // the padding matters.
            unsafe {
                let a = (&raw const (*input.add(i)).value).read_unaligned();
                let ai = (&raw const (*input.add(i)).index).read_unaligned();
                let to = inout.add(i);
                let b = (&raw const (*to).value).read_unaligned();
                let bi = (&raw const (*to).index).read_unaligned();
                // As for MPI_MIN, a NaN loses against any number; two NaN are equal.
                if W::wins(a, b) || (b.is_nan() && !a.is_nan()) {
                    (&raw mut (*to).value).write_unaligned(a);
                    (&raw mut (*to).index).write_unaligned(ai);
                } else if (a == b || (a.is_nan() && b.is_nan())) && ai < bi {
                    (&raw mut (*to).index).write_unaligned(ai);
                }
            }
        }
    }
}

/// The kernel for pairs of a value `V` and an index `I`.
pub(crate) fn kernel<V: Ordered, I: Ordered, W: Wins>() -> Kernel {
    Loc::<V, I, W>::run
}

/// Compares the values behind two pointers.
type Compare = unsafe fn(*const u8, *const u8) -> Comparison;

/// The order of two values. One of them may be a NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Numbers(Ordering),
    FirstIsNan,
    SecondIsNan,
    BothAreNan,
}

/// # Safety
/// Both pointers must be readable for a `T`, at any alignment.
unsafe fn compare<T: Ordered>(a: *const u8, b: *const u8) -> Comparison {
    // SAFETY: the caller's promise.
    let (a, b) = unsafe {
        (
            a.cast::<T>().read_unaligned(),
            b.cast::<T>().read_unaligned(),
        )
    };
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Comparison::BothAreNan,
        (true, false) => Comparison::FirstIsNan,
        (false, true) => Comparison::SecondIsNan,
        (false, false) => Comparison::Numbers(a.partial_cmp(&b).unwrap_or(Ordering::Equal)),
    }
}

fn comparison(form: Form) -> Option<Compare> {
    Some(match form {
        Form::I8 => compare::<i8>,
        Form::U8 => compare::<u8>,
        Form::I16 => compare::<i16>,
        Form::U16 => compare::<u16>,
        Form::I32 => compare::<i32>,
        Form::U32 => compare::<u32>,
        Form::I64 => compare::<i64>,
        Form::U64 => compare::<u64>,
        Form::I128 => compare::<i128>,
        Form::F32 => compare::<f32>,
        Form::F64 => compare::<f64>,
        Form::LongDouble => long_double::compare,
        Form::F128 => long_double::compare128,
        Form::F16 => compare::<Half>,
        Form::C16 | Form::C32 | Form::C64 | Form::CLongDouble | Form::C128 | Form::Pair(..) => {
            return None;
        }
    })
}

/// A pair that MPI_Type_get_value_index makes of any value and index type. There are too many to
/// have a kernel each.
pub(crate) struct AnyPair {
    value: Compare,
    index: Compare,
    value_size: usize,
    index_size: usize,
    index_offset: usize,
    extent: usize,
}

impl AnyPair {
    /// The pair of these types, if both can be compared.
    pub(crate) fn new(value: Basic, index: Basic) -> Option<AnyPair> {
        let comparable = |b: Basic| {
            b.exists()
                && matches!(
                    b.class(),
                    Class::CInteger | Class::FortranInteger | Class::MultiLanguage | Class::Float
                )
        };
        if !comparable(value) || !comparable(index) {
            return None;
        }
        let pair = Form::Pair(value, index);
        Some(AnyPair {
            value: comparison(value.form())?,
            index: comparison(index.form())?,
            value_size: value.form().size(),
            index_size: index.form().size(),
            index_offset: pair.index_offset(),
            extent: pair.extent(),
        })
    }

    /// MPI_MINLOC or MPI_MAXLOC.
    ///
    /// # Safety
    /// As for [`Kernel`].
    pub(crate) unsafe fn run(
        &self,
        op: Predefined,
        input: *const u8,
        inout: *mut u8,
        count: usize,
    ) {
        let wins = if op == Predefined::Minloc {
            Ordering::Less
        } else {
            Ordering::Greater
        };
        for i in 0..count {
            // SAFETY: i < count, and the caller vouches for count pairs behind either pointer.
            unsafe {
                let (a, b) = (input.add(i * self.extent), inout.add(i * self.extent));
                let (ai, bi) = (a.add(self.index_offset), b.add(self.index_offset));
                let (value, index) = match (self.value)(a, b) {
                    Comparison::Numbers(Ordering::Equal) | Comparison::BothAreNan => (
                        false,
                        (self.index)(ai, bi) == Comparison::Numbers(Ordering::Less),
                    ),
                    Comparison::Numbers(order) => (order == wins, order == wins),
                    Comparison::FirstIsNan => (false, false),
                    Comparison::SecondIsNan => (true, true),
                };
                if value {
                    std::ptr::copy(a, b, self.value_size);
                }
                if index {
                    std::ptr::copy(ai, bi, self.index_size);
                }
            }
        }
    }
}
