//! The loops: `inout[i] = in[i] op inout[i]` over elements that may lie at any address.
//!
//! A kernel reads and writes its elements as unaligned values. So an unaligned pointer of the user
//! is not undefined behaviour, and the vector code is the same. Buffers that overlap give the
//! results of some order of reads and writes, nothing worse.

/// Combines `count` elements at the first pointer into those at the second.
///
/// # Safety
/// The first run must be readable and the second writable, `count` elements each, at any alignment.
pub(crate) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// What an operation does to two values of type `T`: `a` comes from the input, `b` from the in-out
/// buffer.
pub(crate) trait Rule<T> {
    /// It selects one of its operands, and the processor has no instruction for that. With AVX2 the
    /// compiler makes masked stores of it, which some processors do element by element. SSE 4.2 is
    /// then three times as fast (measured on an AMD EPYC).
    const IS_SELECTION: bool = false;
    fn combine(a: T, b: T) -> T;
}

pub(crate) struct Sum;
pub(crate) struct Prod;
pub(crate) struct Min;
pub(crate) struct Max;
pub(crate) struct BitAnd;
pub(crate) struct BitOr;
pub(crate) struct BitXor;
pub(crate) struct And;
pub(crate) struct Or;
pub(crate) struct Xor;

/// The loop, inlined into each version for a processor.
///
/// # Safety
/// As for [`Kernel`].
#[inline(always)]
unsafe fn each<T: Copy, R: Rule<T>>(input: *const u8, inout: *mut u8, count: usize) {
    let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
    for i in 0..count {
        // SAFETY: i < count, and the caller vouches for count elements behind either pointer.
        unsafe {
            let a = input.add(i).read_unaligned();
            let b = inout.add(i).read_unaligned();
            inout.add(i).write_unaligned(R::combine(a, b));
        }
    }
}

/// # Safety
/// As for [`Kernel`].
unsafe fn baseline<T: Copy, R: Rule<T>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<T, R>(input, inout, count) }
}

/// # Safety
/// As for [`Kernel`]; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<T: Copy, R: Rule<T>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<T, R>(input, inout, count) }
}

/// # Safety
/// As for [`Kernel`]; and the processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn sse42<T: Copy, R: Rule<T>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<T, R>(input, inout, count) }
}

/// The kernel of `R` on `T`, in the best version that this processor runs.
pub(crate) fn kernel<T: Copy, R: Rule<T>>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return if R::IS_SELECTION {
            sse42::<T, R>
        } else {
            avx2::<T, R>
        };
    }
    baseline::<T, R>
}

/// The kernel of MPI_NO_OP.
pub(crate) fn no_op() -> Kernel {
    /// # Safety
    /// Does nothing.
    unsafe fn nothing(_: *const u8, _: *mut u8, _: usize) {}
    nothing
}

// Integers wrap, as in C on these processors. A reduction must not end the program.
macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Rule<$t> for Sum {
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.wrapping_add(b) }
        }
        impl Rule<$t> for Prod {
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.wrapping_mul(b) }
        }
        impl Rule<$t> for Min {
            const IS_SELECTION: bool = size_of::<$t>() == 8;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.min(b) }
        }
        impl Rule<$t> for Max {
            const IS_SELECTION: bool = size_of::<$t>() == 8;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.max(b) }
        }
        impl Rule<$t> for BitAnd { #[inline(always)] fn combine(a: $t, b: $t) -> $t { a & b } }
        impl Rule<$t> for BitOr { #[inline(always)] fn combine(a: $t, b: $t) -> $t { a | b } }
        impl Rule<$t> for BitXor { #[inline(always)] fn combine(a: $t, b: $t) -> $t { a ^ b } }
        impl Rule<$t> for And {
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { ((a != 0) & (b != 0)).into() }
        }
        impl Rule<$t> for Or {
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { ((a != 0) | (b != 0)).into() }
        }
        impl Rule<$t> for Xor {
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { ((a != 0) ^ (b != 0)).into() }
        }
    )* };
}
integers!(i8 u8 i16 u16 i32 u32 i64 u64 i128);

// A number wins against a NaN, so the result does not depend on the order of ranks. MPI 5.0 says
// nothing about NaN.
macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Rule<$t> for Sum { #[inline(always)] fn combine(a: $t, b: $t) -> $t { a + b } }
        impl Rule<$t> for Prod { #[inline(always)] fn combine(a: $t, b: $t) -> $t { a * b } }
        impl Rule<$t> for Min {
            const IS_SELECTION: bool = true;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.min(b) }
        }
        impl Rule<$t> for Max {
            const IS_SELECTION: bool = true;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a.max(b) }
        }
    )* };
}
floats!(f32 f64);

/// A complex number as C and Fortran lay it out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Complex<T> {
    pub re: T,
    pub im: T,
}

// The product is the plain formula, which is Fortran's rule. An infinite factor may give NaN parts.
macro_rules! complexes {
    ($($t:ty)*) => { $(
        impl Rule<Complex<$t>> for Sum {
            #[inline(always)]
            fn combine(a: Complex<$t>, b: Complex<$t>) -> Complex<$t> {
                Complex { re: a.re + b.re, im: a.im + b.im }
            }
        }
        impl Rule<Complex<$t>> for Prod {
            #[inline(always)]
            fn combine(a: Complex<$t>, b: Complex<$t>) -> Complex<$t> {
                Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
            }
        }
    )* };
}
complexes!(f32 f64);
