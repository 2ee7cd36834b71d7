//! One-sided accumulation by the processor's atomic instructions, one for each element.
//!
//! Several processes map the target's memory, and each of them changes it by atomics. Hence no
//! update is lost and none is seen in part: what MPI_Accumulate and its kin promise for each
//! element (MPI 5.0 §12.7.1).
//!
//! An integer sum, a bitwise operation, a replacement is one instruction. The others compute a new
//! value with the rules of reductions (`kernel`, `logical`) and exchange it for the old one, again
//! if another process was faster. Updates are AcqRel, reads are Acquire: programs use elements as
//! flags.

use crate::kernel::{self as rule, Rule};
use crate::logical::{self, Booleans};
use crate::predefined::Predefined::{self, *};
use crate::table::{SLOTS, defined, slot};
use ferry_datatype::{Basic, Class, Form};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The representation of an element that the processor changes by one atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repr {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Logical8,
    Logical16,
    Logical32,
    Logical64,
}

/// What is known of a type.
#[derive(Clone, Copy)]
struct Entry {
    /// A bit for each operation that is defined on it.
    ops: u32,
    repr: Option<Repr>,
}

/// By the type's slot. The compiler makes the table: the first operation needs no initialisation.
static ENTRIES: [Entry; SLOTS] = {
    let none = Entry { ops: 0, repr: None };
    let mut entries = [none; SLOTS];
    let mut i = 0;
    while i < Basic::ALL.len() {
        let basic = Basic::ALL[i];
        let entry = &mut entries[slot(basic)];
        entry.repr = repr(basic);
        if has_compare_and_swap(basic) {
            entry.ops |= COMPARE_AND_SWAP;
        }
        let mut op = 0;
        while op < Predefined::ALL.len() {
            if defined(Predefined::ALL[op], basic) {
                entry.ops |= bit(Predefined::ALL[op]);
            }
            op += 1;
        }
        i += 1;
    }
    entries
};

/// The bit of an operation in [`Entry::ops`]. Handle values are 0x21 to 0x3d.
#[inline]
const fn bit(op: Predefined) -> u32 {
    1 << (op as u8 & 31)
}

/// The bit of MPI_Compare_and_swap in [`Entry::ops`].
const COMPARE_AND_SWAP: u32 = 1;

const fn repr(basic: Basic) -> Option<Repr> {
    let logical = matches!(basic.class(), Class::FortranLogical);
    Some(match basic.form() {
        Form::I8 if logical => Repr::Logical8,
        Form::I16 if logical => Repr::Logical16,
        Form::I32 if logical => Repr::Logical32,
        Form::I64 if logical => Repr::Logical64,
        Form::I8 => Repr::I8,
        Form::I16 => Repr::I16,
        Form::I32 => Repr::I32,
        Form::I64 => Repr::I64,
        Form::U8 => Repr::U8,
        Form::U16 => Repr::U16,
        Form::U32 => Repr::U32,
        Form::U64 => Repr::U64,
        Form::F32 => Repr::F32,
        Form::F64 => Repr::F64,
        _ => return None,
    })
}

/// Integers, logicals and bytes (MPI 5.0 §12.3.4.4), and MPI_CHAR as in the other operations.
const fn has_compare_and_swap(basic: Basic) -> bool {
    let class = matches!(
        basic.class(),
        Class::CInteger
            | Class::FortranInteger
            | Class::MultiLanguage
            | Class::Logical
            | Class::FortranLogical
            | Class::Byte
    );
    basic.exists() && (class || matches!(basic, Basic::Char))
}

/// Returns whether MPI_Compare_and_swap takes the type.
#[inline]
pub(crate) fn is_comparable(basic: Basic) -> bool {
    ENTRIES[slot(basic)].ops & COMPARE_AND_SWAP != 0
}

/// Returns whether elements of this type are accumulated by atomics where they are aligned.
#[inline]
pub(crate) fn is_atomic(basic: Basic) -> bool {
    ENTRIES[slot(basic)].repr.is_some()
}

/// Returns whether `op` is defined on the type. It reads a constant table.
#[inline]
pub(crate) fn is_defined(op: Predefined, basic: Basic) -> bool {
    ENTRIES[slot(basic)].ops & bit(op) != 0
}

/// An atomic integer in shared memory, and what accumulation does with it. Each operation returns
/// the old value.
pub(crate) trait Cell {
    type Bits: Copy + Eq;
    /// # Safety
    /// The pointer is aligned for the integer, and the memory is changed by atomics only.
    unsafe fn at<'a>(target: *mut u8) -> &'a Self;
    fn read(&self) -> Self::Bits;
    fn write(&self, new: Self::Bits);
    fn replace(&self, new: Self::Bits) -> Self::Bits;
    fn add(&self, by: Self::Bits) -> Self::Bits;
    fn and(&self, with: Self::Bits) -> Self::Bits;
    fn or(&self, with: Self::Bits) -> Self::Bits;
    fn xor(&self, with: Self::Bits) -> Self::Bits;
    /// `new` if the value is `expected`.
    fn exchange(&self, expected: Self::Bits, new: Self::Bits) -> Self::Bits;
    /// Whatever `f` makes of the value. A value that stays the same is not written, so that its
    /// cache line stays shared.
    fn update(&self, f: impl Fn(Self::Bits) -> Self::Bits) -> Self::Bits;
}

macro_rules! cells {
    ($($atomic:ident = $bits:ident;)*) => { $(
        impl Cell for $atomic {
            type Bits = $bits;
            #[inline(always)]
            unsafe fn at<'a>(target: *mut u8) -> &'a $atomic {
                debug_assert!(target.cast::<$atomic>().is_aligned());
                // SAFETY: the caller's promise.
                unsafe { $atomic::from_ptr(target.cast()) }
            }
            #[inline(always)]
            fn read(&self) -> $bits { self.load(Ordering::Acquire) }
            #[inline(always)]
            fn write(&self, new: $bits) { self.store(new, Ordering::Release) }
            #[inline(always)]
            fn replace(&self, new: $bits) -> $bits { self.swap(new, Ordering::AcqRel) }
            #[inline(always)]
            fn add(&self, by: $bits) -> $bits { self.fetch_add(by, Ordering::AcqRel) }
            #[inline(always)]
            fn and(&self, with: $bits) -> $bits { self.fetch_and(with, Ordering::AcqRel) }
            #[inline(always)]
            fn or(&self, with: $bits) -> $bits { self.fetch_or(with, Ordering::AcqRel) }
            #[inline(always)]
            fn xor(&self, with: $bits) -> $bits { self.fetch_xor(with, Ordering::AcqRel) }
            #[inline(always)]
            fn exchange(&self, expected: $bits, new: $bits) -> $bits {
                match self.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }
            #[inline(always)]
            fn update(&self, f: impl Fn($bits) -> $bits) -> $bits {
                let mut old = self.load(Ordering::Acquire);
                loop {
                    let new = f(old);
                    if new == old {
                        return old;
                    }
                    match self.compare_exchange_weak(
                        old, new, Ordering::AcqRel, Ordering::Acquire
                    ) {
                        Ok(old) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        }
    )* };
}
cells! { AtomicU8 = u8; AtomicU16 = u16; AtomicU32 = u32; AtomicU64 = u64; }

/// A number that lies in an atomic integer.
trait Number: Copy {
    type Cell: Cell;
    fn of(bits: <Self::Cell as Cell>::Bits) -> Self;
    fn bits(self) -> <Self::Cell as Cell>::Bits;
}

macro_rules! integers {
    ($($t:ty = $cell:ty, $bits:ty;)*) => { $(
        impl Number for $t {
            type Cell = $cell;
            #[inline(always)]
            fn of(bits: $bits) -> $t { bits as $t }
            #[inline(always)]
            fn bits(self) -> $bits { self as $bits }
        }
    )* };
}
integers! {
    i8 = AtomicU8, u8; u8 = AtomicU8, u8; i16 = AtomicU16, u16; u16 = AtomicU16, u16;
    i32 = AtomicU32, u32; u32 = AtomicU32, u32; i64 = AtomicU64, u64; u64 = AtomicU64, u64;
}

macro_rules! floats {
    ($($t:ty = $cell:ty, $bits:ty;)*) => { $(
        impl Number for $t {
            type Cell = $cell;
            #[inline(always)]
            fn of(bits: $bits) -> $t { <$t>::from_bits(bits) }
            #[inline(always)]
            fn bits(self) -> $bits { self.to_bits() }
        }
    )* };
}
floats! { f32 = AtomicU32, u32; f64 = AtomicU64, u64; }

/// The elements of an accumulation.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    /// The origin's values, at any alignment. Not read by MPI_NO_OP.
    pub origin: *const u8,
    /// Aligned to the element's size.
    pub target: *mut u8,
    /// Where the target's old values go, at any alignment.
    pub result: Option<*mut u8>,
    pub count: usize,
}

impl Elements {
    /// Calls `update` with each element of the target and the origin's value for it.
    ///
    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    #[inline(always)]
    unsafe fn each<C: Cell>(self, update: impl Fn(&C, C::Bits) -> C::Bits) {
        let (origin, target) = (self.origin.cast::<C::Bits>(), self.target.cast::<C>());
        // SAFETY: i < count, and the caller vouches for count elements behind each pointer. Each
        // loop is written out: without a result, the compiler takes the shorter instruction.
        unsafe {
            match self.result.map(<*mut u8>::cast::<C::Bits>) {
                None => {
                    for i in 0..self.count {
                        let value = origin.add(i).read_unaligned();
                        update(C::at(target.add(i).cast()), value);
                    }
                }
                Some(result) => {
                    for i in 0..self.count {
                        let value = origin.add(i).read_unaligned();
                        let old = update(C::at(target.add(i).cast()), value);
                        result.add(i).write_unaligned(old);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    #[inline(always)]
    unsafe fn read<C: Cell>(self) {
        let Some(result) = self.result.map(<*mut u8>::cast::<C::Bits>) else {
            return;
        };
        for i in 0..self.count {
            // SAFETY: i < count, and the caller vouches for count elements behind each pointer.
            unsafe {
                let old = C::at(self.target.cast::<C>().add(i).cast()).read();
                result.add(i).write_unaligned(old);
            }
        }
    }

    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    #[inline(always)]
    unsafe fn replace<C: Cell>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.result {
                Some(_) => self.each::<C>(C::replace),
                None => self.each::<C>(|cell, new| {
                    cell.write(new);
                    new
                }),
            }
        }
    }

    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    #[inline(always)]
    unsafe fn add<C: Cell>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.each::<C>(C::add) }
    }

    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    #[inline(always)]
    unsafe fn combine<T: Number, R: Rule<T>>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.each::<T::Cell>(|cell, value| {
                cell.update(|old| R::combine(T::of(value), T::of(old)).bits())
            })
        }
    }

    /// # Safety
    /// As for [`crate::Op::apply_atomic`].
    unsafe fn logical<T: Number + logical::Cell, R: logical::Truth>(self) {
        let booleans = Booleans::<T>::current();
        // SAFETY: the caller's promise.
        unsafe {
            self.each::<T::Cell>(|cell, value| {
                cell.update(|old| booleans.combine::<R>(T::of(value), T::of(old)).bits())
            })
        }
    }
}

/// `target[i] = origin[i] op target[i]`, each by one atomic. Does nothing if `op` is not defined on
/// the type or if the type has no atomics.
///
/// # Safety
/// As for [`crate::Op::apply_atomic`].
#[inline]
pub(crate) unsafe fn apply(op: Predefined, elements: Elements, basic: Basic) {
    let entry = ENTRIES[slot(basic)];
    let Some(repr) = entry.repr else { return };
    if entry.ops & bit(op) == 0 {
        return;
    }
    if elements.count == 1 {
        // The count is a constant from here on: no loop.
        let one = Elements {
            count: 1,
            ..elements
        };
        // SAFETY: the caller's promise.
        unsafe {
            match (op, repr) {
                (Sum, Repr::I64 | Repr::U64) => return one.add::<AtomicU64>(),
                (Sum, Repr::I32 | Repr::U32) => return one.add::<AtomicU32>(),
                (Sum, Repr::F64) => return one.combine::<f64, rule::Sum>(),
                (Replace, Repr::I64 | Repr::U64 | Repr::F64) => return one.replace::<AtomicU64>(),
                (Replace, Repr::I32 | Repr::U32 | Repr::F32) => return one.replace::<AtomicU32>(),
                (NoOp, Repr::I64 | Repr::U64 | Repr::F64) => return one.read::<AtomicU64>(),
                (NoOp, Repr::I32 | Repr::U32 | Repr::F32) => return one.read::<AtomicU32>(),
                _ => {}
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { apply_any(op, elements, repr) }
}

/// # Safety
/// As for [`crate::Op::apply_atomic`].
#[inline(never)]
unsafe fn apply_any(op: Predefined, e: Elements, repr: Repr) {
    macro_rules! integer {
        ($t:ty, $cell:ty) => {
            match op {
                Sum => e.add::<$cell>(),
                Prod => e.combine::<$t, rule::Prod>(),
                Min => e.combine::<$t, rule::Min>(),
                Max => e.combine::<$t, rule::Max>(),
                Band => e.each::<$cell>(<$cell>::and),
                Bor => e.each::<$cell>(<$cell>::or),
                Bxor => e.each::<$cell>(<$cell>::xor),
                Land => e.combine::<$t, rule::And>(),
                Lor => e.combine::<$t, rule::Or>(),
                Lxor => e.combine::<$t, rule::Xor>(),
                Replace => e.replace::<$cell>(),
                NoOp => e.read::<$cell>(),
                Minloc | Maxloc => {}
            }
        };
    }
    macro_rules! float {
        ($t:ty, $cell:ty) => {
            match op {
                Sum => e.combine::<$t, rule::Sum>(),
                Prod => e.combine::<$t, rule::Prod>(),
                Min => e.combine::<$t, rule::Min>(),
                Max => e.combine::<$t, rule::Max>(),
                Replace => e.replace::<$cell>(),
                NoOp => e.read::<$cell>(),
                _ => {}
            }
        };
    }
    macro_rules! logical {
        ($t:ty, $cell:ty) => {
            match op {
                Land => e.logical::<$t, rule::And>(),
                Lor => e.logical::<$t, rule::Or>(),
                Lxor => e.logical::<$t, rule::Xor>(),
                Replace => e.replace::<$cell>(),
                NoOp => e.read::<$cell>(),
                _ => {}
            }
        };
    }
    // SAFETY: the caller's promise; the cell has the element's size.
    unsafe {
        match repr {
            Repr::I8 => integer!(i8, AtomicU8),
            Repr::U8 => integer!(u8, AtomicU8),
            Repr::I16 => integer!(i16, AtomicU16),
            Repr::U16 => integer!(u16, AtomicU16),
            Repr::I32 => integer!(i32, AtomicU32),
            Repr::U32 => integer!(u32, AtomicU32),
            Repr::I64 => integer!(i64, AtomicU64),
            Repr::U64 => integer!(u64, AtomicU64),
            Repr::F32 => float!(f32, AtomicU32),
            Repr::F64 => float!(f64, AtomicU64),
            Repr::Logical8 => logical!(i8, AtomicU8),
            Repr::Logical16 => logical!(i16, AtomicU16),
            Repr::Logical32 => logical!(i32, AtomicU32),
            Repr::Logical64 => logical!(i64, AtomicU64),
        }
    }
}

/// MPI_Compare_and_swap by one atomic: puts `origin`'s element into `target` if `target`'s equals
/// `compare`'s, and the old value into `result` in any case.
///
/// Does nothing if [`crate::check_compare_and_swap`] refuses the type, or if it has no atomics.
///
/// # Safety
/// `target` is an element of the type, aligned to its size, in memory that is changed by atomics
/// only. `compare` and `origin` are readable and `result` is writable, at any alignment.
#[inline]
pub unsafe fn compare_exchange(
    basic: Basic,
    compare: *const u8,
    origin: *const u8,
    target: *mut u8,
    result: *mut u8,
) {
    let entry = ENTRIES[slot(basic)];
    let Some(repr) = entry.repr.filter(|_| entry.ops & COMPARE_AND_SWAP != 0) else {
        return;
    };
    use Repr::*;
    // SAFETY: the caller's promise; the cell has the element's size.
    unsafe {
        match repr {
            I8 | U8 | Logical8 => exchange::<AtomicU8>(compare, origin, target, result),
            I16 | U16 | Logical16 => exchange::<AtomicU16>(compare, origin, target, result),
            I32 | U32 | F32 | Logical32 => exchange::<AtomicU32>(compare, origin, target, result),
            I64 | U64 | F64 | Logical64 => exchange::<AtomicU64>(compare, origin, target, result),
        }
    }
}

/// [`compare_exchange`] of an element that fits the cell `C`.
///
/// # Safety
/// As for [`compare_exchange`].
#[inline(always)]
pub(crate) unsafe fn exchange<C: Cell>(
    compare: *const u8,
    origin: *const u8,
    target: *mut u8,
    result: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let expected = compare.cast::<C::Bits>().read_unaligned();
        let new = origin.cast::<C::Bits>().read_unaligned();
        let old = C::at(target).exchange(expected, new);
        result.cast::<C::Bits>().write_unaligned(old);
    }
}

/// MPI_Compare_and_swap without atomics, for elements that no atomic reaches: 16 bytes, or not
/// aligned. The caller has the target's lock.
///
/// Does nothing if [`crate::check_compare_and_swap`] refuses the type.
///
/// # Safety
/// As for [`compare_exchange`], but `target` may have any alignment, and nobody else uses it during
/// the call.
pub unsafe fn compare_exchange_locked(
    basic: Basic,
    compare: *const u8,
    origin: *const u8,
    target: *mut u8,
    result: *mut u8,
) {
    /// Bytes of the largest type that is compared.
    const ELEMENT_MAX_BYTES: usize = 16;
    if !is_comparable(basic) {
        return;
    }
    let n = basic.form().size();
    let (mut expected, mut new) = ([0; ELEMENT_MAX_BYTES], [0; ELEMENT_MAX_BYTES]);
    let mut old = [0; ELEMENT_MAX_BYTES];
    // SAFETY: the caller's promise; an element has at most so many bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(compare, expected.as_mut_ptr(), n);
        std::ptr::copy_nonoverlapping(origin, new.as_mut_ptr(), n);
        std::ptr::copy_nonoverlapping(target, old.as_mut_ptr(), n);
        if old == expected {
            std::ptr::copy_nonoverlapping(new.as_ptr(), target, n);
        }
        std::ptr::copy_nonoverlapping(old.as_ptr(), result, n);
    }
}

#[cfg(test)]
mod tests;
