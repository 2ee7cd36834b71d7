//! Atomics on one integer of 4 or 8 bytes, found by handles: what one-sided operations do on their
//! fast path. The results are those of `atomic`, which has all other types and operations.

use crate::atomic::{Cell, exchange};
use crate::predefined::Predefined;
use ferry_datatype::{Basic, Class, Form};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// By the lowest eight bits of a type's handle value: the bytes of an integer of 4 or 8 bytes,
/// otherwise 0.
static INTEGER_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < Basic::ALL.len() {
        let basic = Basic::ALL[i];
        let is_integer = matches!(
            basic.class(),
            Class::CInteger | Class::FortranInteger | Class::MultiLanguage
        );
        let bytes = match basic.form() {
            Form::I32 | Form::U32 => 4,
            Form::I64 | Form::U64 => 8,
            _ => 0,
        };
        if is_integer && basic.exists() {
            table[(basic.value() & 0xff) as usize] = bytes;
        }
        i += 1;
    }
    table
};

/// Bytes of the integer type with this handle, if they are 4 or 8; 0 for all other types and
/// handles. MPI_Compare_and_swap, MPI_SUM, MPI_REPLACE and MPI_NO_OP are defined on such a type.
#[inline(always)]
pub fn integer_bytes(handle: u64) -> u64 {
    if handle >> 8 != 2 {
        return 0;
    }
    INTEGER_BYTES[(handle & 0xff) as usize].into()
}

/// `target = origin op target` by one atomic, for the operation with the handle `op`. The old value
/// goes to `result`, if there is one. `bytes` is an answer of [`integer_bytes`]. Returns false, and
/// does nothing, if that takes more than one instruction, or if it is MPI_NO_OP without a result.
///
/// # Safety
/// `target` is an integer of `bytes` bytes, aligned, in memory that is changed by atomics only.
/// `origin` is readable, but MPI_NO_OP does not read it, and `result` is writable; at any
/// alignment.
#[inline(always)]
pub unsafe fn fetch_apply_integer(
    op: u64,
    bytes: u64,
    origin: *const u8,
    target: *mut u8,
    result: Option<*mut u8>,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            8 => fetch_apply::<AtomicU64>(op, origin, target, result),
            4 => fetch_apply::<AtomicU32>(op, origin, target, result),
            _ => false,
        }
    }
}

/// # Safety
/// As for [`fetch_apply_integer`].
#[inline(always)]
unsafe fn fetch_apply<C: Cell>(
    op: u64,
    origin: *const u8,
    target: *mut u8,
    result: Option<*mut u8>,
) -> bool {
    const SUM: u64 = Predefined::Sum as u64;
    const REPLACE: u64 = Predefined::Replace as u64;
    const NO_OP: u64 = Predefined::NoOp as u64;
    // SAFETY: the caller's promise.
    unsafe {
        let cell = C::at(target);
        let value = || origin.cast::<C::Bits>().read_unaligned();
        match (op, result) {
            (SUM, None) => {
                cell.add(value());
            }
            (REPLACE, None) => cell.write(value()),
            (SUM, Some(result)) => result.cast::<C::Bits>().write_unaligned(cell.add(value())),
            (REPLACE, Some(result)) => result
                .cast::<C::Bits>()
                .write_unaligned(cell.replace(value())),
            (NO_OP, Some(result)) => result.cast::<C::Bits>().write_unaligned(cell.read()),
            _ => return false,
        }
    }
    true
}

/// MPI_Compare_and_swap by one atomic. `bytes` is an answer of [`integer_bytes`]. Returns false,
/// and does nothing, if it is 0.
///
/// # Safety
/// As for [`crate::compare_exchange`].
#[inline(always)]
pub unsafe fn compare_exchange_integer(
    bytes: u64,
    compare: *const u8,
    origin: *const u8,
    target: *mut u8,
    result: *mut u8,
) -> bool {
    // SAFETY: the caller's promise; the cell has the element's size.
    unsafe {
        match bytes {
            8 => exchange::<AtomicU64>(compare, origin, target, result),
            4 => exchange::<AtomicU32>(compare, origin, target, result),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, check_compare_and_swap};
    use ferry_datatype::Datatype;

    #[test]
    fn all_that_the_fast_path_takes_is_defined_and_atomic() {
        let mut found = 0;
        for handle in 0..0x500 {
            let bytes = integer_bytes(handle.into());
            let basic = Basic::of_value(handle);
            if bytes == 0 {
                assert_ne!(handle, Basic::Int64.value());
                continue;
            }
            let basic = basic.expect("only predefined types have bytes");
            let t = Datatype::basic(basic);
            assert_eq!((bytes as i64, bytes as i64), (basic.size(), basic.extent()));
            assert!(Op::is_atomic(basic), "{}", basic.name());
            check_compare_and_swap(t).unwrap();
            for op in [Predefined::Sum, Predefined::Replace, Predefined::NoOp] {
                Op::of(op).check_accumulate(t).unwrap();
            }
            found += 1;
        }
        assert!(found > 10, "{found}");
        assert_eq!(integer_bytes(u64::from(Basic::Int.value()) | 1 << 32), 0);
        assert_eq!(integer_bytes(Basic::Double.value().into()), 0);
        assert_eq!(integer_bytes(Basic::Byte.value().into()), 0);
    }

    #[test]
    fn results_are_those_of_the_other_path() {
        let word = |basic: Basic, op: Predefined, fetch: bool, fast: bool| {
            let (mut target, origin, mut old) = (0xffff_fffa_ffff_fffau64, 7u64, 99u64);
            let bytes = integer_bytes(basic.value().into());
            let at = (&raw mut target).cast::<u8>();
            let (from, to) = ((&raw const origin).cast(), (&raw mut old).cast::<u8>());
            let to = fetch.then_some(to);
            // SAFETY: local variables of 8 bytes.
            let done = unsafe {
                if fast {
                    fetch_apply_integer(op as u64, bytes, from, at, to)
                } else {
                    Op::of(op).apply_atomic(from, at, to, 1, basic);
                    true
                }
            };
            (done, target, old)
        };
        use Predefined::{Bor, Max, NoOp, Replace, Sum};
        for basic in [Basic::Int32, Basic::Uint32, Basic::Int64, Basic::Aint] {
            for (op, fetch) in [
                (Sum, false),
                (Sum, true),
                (Replace, false),
                (Replace, true),
                (NoOp, true),
            ] {
                let (fast, other) = (word(basic, op, fetch, true), word(basic, op, fetch, false));
                assert_eq!(fast, other, "{} {op:?}", basic.name());
            }
            for (op, fetch) in [(Max, true), (Bor, false), (NoOp, false)] {
                let unchanged = (false, 0xffff_fffa_ffff_fffa, 99);
                assert_eq!(word(basic, op, fetch, true), unchanged, "{op:?}");
            }
        }
    }

    #[test]
    fn only_an_equal_value_is_swapped() {
        let swap = |bytes, compare: u64| {
            let (mut target, origin, mut old) = (5u64, 7u64, 0u64);
            // SAFETY: local variables of 8 bytes.
            let done = unsafe {
                compare_exchange_integer(
                    bytes,
                    (&raw const compare).cast(),
                    (&raw const origin).cast(),
                    (&raw mut target).cast(),
                    (&raw mut old).cast(),
                )
            };
            (done, target, old)
        };
        assert_eq!(swap(8, 5), (true, 7, 5));
        assert_eq!(swap(8, 6), (true, 5, 5));
        assert_eq!(swap(4, 5), (true, 7, 5));
        assert_eq!(swap(0, 5), (false, 5, 0));
    }
}
