//! Fortran LOGICAL. The representation of .TRUE. and .FALSE. depends on the Fortran compiler, so
//! the program sets it (MPI_Abi_set_fortran_booleans, MPI 5.0 §20.5).

use crate::kernel::{And, Kernel, Or, Xor};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// The two values of a Fortran LOGICAL, as integers. Other kinds of LOGICAL hold the same numbers
/// in their own width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FortranBooleans {
    /// Bytes of a default LOGICAL.
    pub size: usize,
    /// .TRUE.
    pub true_value: i64,
    /// .FALSE.
    pub false_value: i64,
}

static TRUE: AtomicI64 = AtomicI64::new(1);
static FALSE: AtomicI64 = AtomicI64::new(0);
static SET: OnceLock<FortranBooleans> = OnceLock::new();

impl FortranBooleans {
    /// Makes these the process's values. Returns false if values have been set before: they stay,
    /// because the standard allows it only once.
    pub fn set(self) -> bool {
        if SET.set(self).is_err() {
            return false;
        }
        TRUE.store(self.true_value, Ordering::Relaxed);
        FALSE.store(self.false_value, Ordering::Relaxed);
        true
    }

    /// The values that were set. `None`: none were, and reductions use 1 and 0.
    pub fn current() -> Option<FortranBooleans> {
        SET.get().copied()
    }
}

/// An integer that a LOGICAL is stored in.
pub(crate) trait Cell: Copy + PartialEq {
    fn narrow(v: i64) -> Self;
}
macro_rules! cells {
    ($($t:ty)*) => { $( impl Cell for $t { #[inline(always)] fn narrow(v: i64) -> $t {
        v as $t } } )* };
}
cells!(i8 i16 i32 i64 i128);

/// A logical operation on truth values.
pub(crate) trait Truth {
    fn holds(a: bool, b: bool) -> bool;
}
impl Truth for And {
    #[inline(always)]
    fn holds(a: bool, b: bool) -> bool {
        a & b
    }
}
impl Truth for Or {
    #[inline(always)]
    fn holds(a: bool, b: bool) -> bool {
        a | b
    }
}
impl Truth for Xor {
    #[inline(always)]
    fn holds(a: bool, b: bool) -> bool {
        a ^ b
    }
}

/// The truth values' numbers, narrowed to `T`.
#[derive(Clone, Copy)]
pub(crate) struct Booleans<T> {
    yes: T,
    no: T,
}

impl<T: Cell> Booleans<T> {
    /// The values that this process uses.
    #[inline]
    pub(crate) fn current() -> Booleans<T> {
        Booleans {
            yes: T::narrow(TRUE.load(Ordering::Relaxed)),
            no: T::narrow(FALSE.load(Ordering::Relaxed)),
        }
    }

    /// Combines two LOGICALs. Any value but .FALSE. is true.
    #[inline(always)]
    pub(crate) fn combine<R: Truth>(self, a: T, b: T) -> T {
        if R::holds(a != self.no, b != self.no) {
            self.yes
        } else {
            self.no
        }
    }
}

/// Any value but .FALSE. is true. Results are the exact .TRUE. and .FALSE. values.
///
/// # Safety
/// As for [`Kernel`].
unsafe fn run<T: Cell, R: Truth>(input: *const u8, inout: *mut u8, count: usize) {
    let booleans = Booleans::<T>::current();
    let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
    for i in 0..count {
        // SAFETY: i < count, and the caller vouches for count elements behind either pointer.
        unsafe {
            let a = input.add(i).read_unaligned();
            let b = inout.add(i).read_unaligned();
            inout.add(i).write_unaligned(booleans.combine::<R>(a, b));
        }
    }
}

/// The kernel of `R` on LOGICALs stored as `T`.
pub(crate) fn kernel<T: Cell, R: Truth>() -> Kernel {
    run::<T, R>
}
