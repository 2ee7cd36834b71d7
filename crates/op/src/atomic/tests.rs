//! Atomics against the plain reading of the standard, and under threads that update one element.

use super::*;
use crate::reference::{compare, elements};
use crate::{Op, check_compare_and_swap};
use ferry_datatype::Datatype;
use proptest::prelude::*;
use std::collections::HashSet;

/// The bytes, at an address that is a multiple of 16.
struct Aligned(Vec<u128>);

impl Aligned {
    fn copy(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned(vec![0; bytes.len().div_ceil(16) + 1]);
        // SAFETY: there is room for all bytes.
        unsafe { std::ptr::copy(bytes.as_ptr(), aligned.address(), bytes.len()) };
        aligned
    }
    fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

fn atomic_types() -> impl Iterator<Item = Basic> {
    Basic::ALL.iter().copied().filter(|b| Op::is_atomic(*b))
}

#[test]
fn atomic_types_are_those_of_the_rule() {
    use Basic::*;
    let others = [
        Real2,
        Complex4,
        CFloatComplex,
        Complex8,
        CDoubleComplex,
        LongDouble,
        Integer16,
        Logical16,
        Real16,
        FloatInt,
        TwoInt,
        ShortInt,
    ];
    for basic in others {
        assert!(!Op::is_atomic(basic), "{}", basic.name());
    }
    for &basic in Basic::ALL {
        if Op::is_atomic(basic) {
            let size = basic.form().size();
            assert!([1, 2, 4, 8].contains(&size) && basic.align() == size);
        }
    }
    let some = [
        Int,
        UnsignedLong,
        Byte,
        Char,
        CBool,
        Logical,
        Logical8,
        Double,
        Real4,
        Aint,
    ];
    assert!(some.into_iter().all(Op::is_atomic));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_operation_on_every_type(elements in elements(), shift in (0usize..16, 0usize..16),
        results: bool) {
        for op in Predefined::ALL {
            for basic in atomic_types().filter(|b| is_defined(op, *b)) {
                let mut wrong_result = false;
                compare(op, basic, basic.form(), &elements, shift, |input, inout, n| {
                    let bytes = n * basic.form().size();
                    // SAFETY: both buffers hold n elements, and so do the copies.
                    unsafe {
                        let before = std::slice::from_raw_parts_mut(inout, bytes);
                        let mut target = Aligned::copy(before);
                        let mut result = vec![0x77; bytes + 1];
                        // An odd address, and a null origin where none is read.
                        let at = results.then_some(result[1..].as_mut_ptr());
                        let input = if op == NoOp { std::ptr::null() } else { input };
                        Op::of(op).apply_atomic(input, target.address(), at, n, basic);
                        wrong_result = results && result[1..] != *before;
                        std::ptr::copy(target.address(), inout, bytes);
                    }
                })?;
                prop_assert!(!wrong_result, "old values of {} on {}", op.name(), basic.name());
            }
        }
    }

    #[test]
    fn single_elements_take_the_same_way(elements in elements()) {
        for op in [Sum, Replace, NoOp, Max] {
            for basic in atomic_types().filter(|b| is_defined(op, *b)) {
                for element in elements.chunks(1).take(8) {
                    compare(op, basic, basic.form(), element, (3, 0), |input, inout, n| {
                        let bytes = n * basic.form().size();
                        // SAFETY: both buffers hold an element, and so does the copy.
                        unsafe {
                            let before = std::slice::from_raw_parts(inout, bytes);
                            let mut target = Aligned::copy(before);
                            Op::of(op).apply_atomic(input, target.address(), None, n, basic);
                            std::ptr::copy(target.address(), inout, bytes);
                        }
                    })?;
                }
            }
        }
    }
}

#[test]
fn undefined_operations_change_nothing() {
    for op in Predefined::ALL {
        for &basic in Basic::ALL {
            if is_defined(op, basic) && Op::is_atomic(basic) {
                continue;
            }
            let mut target = Aligned::copy(&[0x5a; 32]);
            let mut result = [0x33u8; 32];
            // SAFETY: each has 32 bytes, as many as the largest element.
            unsafe {
                let at = Some(result.as_mut_ptr());
                let origin = [0xc3u8; 32];
                Op::of(op).apply_atomic(origin.as_ptr(), target.address(), at, 1, basic);
            }
            assert_eq!(target.0[..2], Aligned::copy(&[0x5a; 32]).0[..2]);
            assert_eq!(result, [0x33; 32]);
        }
    }
}

const THREADS: u64 = 4;
const TIMES: u64 = 20_000;

/// Runs the closure in all threads at once, with each thread's number.
fn in_threads<T: Send>(f: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|i| {
                scope.spawn({
                    let f = &f;
                    move || f(i)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[derive(Clone, Copy)]
struct Shared(*mut u8);
// SAFETY: the threads reach the memory by atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
impl Shared {
    fn address(self) -> *mut u8 {
        self.0
    }
}

/// One thread's update of one element. Returns the old value.
fn one<T: Copy + Default>(op: Predefined, shared: Shared, value: T, basic: Basic) -> T {
    let mut old = T::default();
    // SAFETY: the shared memory holds an element, aligned.
    unsafe {
        let (origin, result) = ((&raw const value).cast(), (&raw mut old).cast());
        Op::of(op).apply_atomic(origin, shared.address(), Some(result), 1, basic);
    }
    old
}

#[test]
fn no_sum_is_lost_and_no_old_value_seen_twice() {
    let mut memory = Aligned::copy(&[0; 16]);
    let shared = Shared(memory.address());
    let olds = in_threads(|_| {
        let each = (0..TIMES).map(|_| one(Sum, shared, 1u64, Basic::Uint64));
        each.collect::<Vec<_>>()
    });
    let distinct: HashSet<u64> = olds.into_iter().flatten().collect();
    assert_eq!(distinct.len() as u64, THREADS * TIMES);
    assert_eq!(memory.0[0], u128::from(THREADS * TIMES));
}

#[test]
fn loops_of_exchanges_lose_nothing_either() {
    let mut memory = Aligned::copy(&[0; 16]);
    let at = memory.address();
    let (double, float, byte) = (
        Shared(at),
        Shared(at.wrapping_add(8)),
        Shared(at.wrapping_add(12)),
    );
    let greatest = Shared(at.wrapping_add(14));
    in_threads(|i| {
        for k in 0..TIMES {
            one(Sum, double, 1.0f64, Basic::Double);
            one(Sum, float, 1.0f32, Basic::Float);
            one(Sum, byte, 1u8, Basic::Uint8);
            one(Max, greatest, (k % 1000 * THREADS + i) as i16, Basic::Short);
        }
    });
    let all = THREADS * TIMES;
    let bytes = memory.0[0].to_ne_bytes();
    assert_eq!(
        f64::from_ne_bytes(bytes[..8].try_into().unwrap()),
        all as f64
    );
    assert_eq!(
        f32::from_ne_bytes(bytes[8..12].try_into().unwrap()),
        all as f32
    );
    assert_eq!(
        (bytes[12], bytes[13]),
        (all as u8, 0),
        "the neighbour is untouched"
    );
    assert_eq!(i16::from_ne_bytes(bytes[14..].try_into().unwrap()), 3999);
}

#[test]
fn swaps_hand_each_value_on_once() {
    let mut memory = Aligned::copy(&[0; 16]);
    let shared = Shared(memory.address());
    let olds = in_threads(|i| {
        let each = (0..TIMES).map(|k| one(Replace, shared, 1 + i * TIMES + k, Basic::Uint64));
        each.collect::<Vec<_>>()
    });
    let mut all: Vec<u64> = olds.into_iter().flatten().collect();
    all.push(memory.0[0] as u64);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..=THREADS * TIMES));
}

#[test]
fn a_lock_made_of_compare_and_swap_excludes() {
    let mut memory = Aligned::copy(&[0; 16]);
    let lock = Shared(memory.address());
    let counter = Shared(memory.address().wrapping_add(8));
    let swap = |compare: i32, origin: i32| {
        let mut old = -1i32;
        // SAFETY: the shared memory holds an int, aligned.
        unsafe {
            let (compare, origin) = ((&raw const compare).cast(), (&raw const origin).cast());
            let result = (&raw mut old).cast();
            compare_exchange(Basic::Int, compare, origin, lock.address(), result);
        }
        old
    };
    in_threads(|_| {
        for _ in 0..TIMES / 20 {
            while swap(0, 1) != 0 {
                std::thread::yield_now();
            }
            // SAFETY: only the thread that has the lock is here.
            unsafe { *counter.address().cast::<u64>() += 1 };
            assert_eq!(swap(1, 0), 1);
        }
    });
    assert_eq!((memory.0[0] >> 64) as u64, THREADS * (TIMES / 20));
}

type CompareAndSwap = unsafe fn(Basic, *const u8, *const u8, *mut u8, *mut u8);

#[test]
fn compare_and_swap_of_every_type_with_and_without_atomics() {
    for &basic in Basic::ALL {
        let checked = check_compare_and_swap(Datatype::basic(basic));
        assert_eq!(checked.is_ok(), is_comparable(basic), "{}", basic.name());
        if checked.is_err() {
            continue;
        }
        let n = basic.form().size();
        for (equal, locked) in [(false, false), (true, false), (false, true), (true, true)] {
            if !locked && n > 8 {
                continue;
            }
            let old: Vec<u8> = (1..=16).collect();
            let mut compare = old.clone();
            compare[n - 1] ^= if equal { 0 } else { 0x80 };
            let new = [0x99; 16];
            let (mut target, mut result) = (Aligned::copy(&old), [0; 17]);
            // The odd addresses are read and written as they are.
            // SAFETY: each has 16 bytes.
            unsafe {
                let (f, at): (CompareAndSwap, _) = if locked {
                    (compare_exchange_locked, target.address().add(1))
                } else {
                    (compare_exchange, target.address())
                };
                std::ptr::copy(old.as_ptr(), at, 16);
                f(
                    basic,
                    compare.as_ptr(),
                    new.as_ptr(),
                    at,
                    result[1..].as_mut_ptr(),
                );
                let now = std::slice::from_raw_parts(at, 16);
                assert_eq!(now[..n], if equal { &new[..n] } else { &old[..n] }[..]);
                assert_eq!(now[n..], old[n..]);
            }
            assert_eq!(result[1..1 + n], old[..n]);
            assert_eq!(result[1 + n..], [0; 16][n..]);
        }
    }
    let text = check_compare_and_swap(Datatype::basic(Basic::Double))
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("MPI_Compare_and_swap is not defined on MPI_DOUBLE"),
        "{text}"
    );
}
