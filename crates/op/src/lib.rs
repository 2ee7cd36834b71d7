//! MPI reduction operations on every predefined type (MPI 5.0 §6.9).
//!
//! ```text
//!   Op::apply ─► table    which kernel an operation has for a type
//!                  │
//!                  ├─ kernel       arithmetic and bitwise loops, by the processor's vector width
//!                  ├─ logical      MPI_LAND and its kin, C and Fortran truth values
//!                  ├─ pair         MPI_MINLOC, MPI_MAXLOC
//!                  └─ long_double  the C compiler's long double
//!
//!   Op::apply_atomic ─► atomic      one-sided accumulation by atomics, element by element
//!   Op::accumulate ───► accumulate  the same with derived types, and under the target's lock
//! ```
//!
//! [`Op::apply`] is one indirect call of a loop for this type and this processor. The loops of an
//! operation are looked up when it is first used.
//!
//! The standard's table (§6.9.2) says on which types an operation is defined. There are two
//! additions, because other libraries allow them and programs rely on it: MPI_CHAR counts as an
//! integer, and the logical operations take MPI_AINT, MPI_COUNT and MPI_OFFSET.
//!
//! The standard leaves some results open. Here they do not depend on the order of ranks: integers
//! wrap, and MIN, MAX, MINLOC and MAXLOC prefer any number to a NaN.
//!
//! # Example
//! ```
//! use ferry_datatype::{Basic, Datatype};
//! use ferry_op::{Op, Predefined};
//!
//! let (sum, int) = (Op::of(Predefined::Sum), Datatype::basic(Basic::Int));
//! sum.check(int).unwrap();
//! let (a, mut b) = ([1, 2, 3i32], [10, 20, 30i32]);
//! // SAFETY: both arrays hold three elements.
//! unsafe { sum.apply(a.as_ptr().cast(), b.as_mut_ptr().cast(), 3, int) };
//! assert_eq!(b, [11, 22, 33]);
//! ```

mod accumulate;
mod atomic;
mod half;
mod integer;
mod kernel;
mod logical;
mod long_double;
mod pair;
mod predefined;
#[cfg(test)]
mod reference;
mod table;

pub use atomic::{compare_exchange, compare_exchange_locked};
pub use integer::{compare_exchange_integer, fetch_apply_integer, integer_bytes};
pub use logical::FortranBooleans;
pub use predefined::Predefined;

use ferry_datatype::{Basic, Datatype, Form};
use pair::AnyPair;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, OnceLock};
use table::Table;

/// A user's function: `inout[i] = in[i] op inout[i]` for a number of elements of the type.
pub type UserFunction = Box<dyn Fn(*const u8, *mut u8, i64, &Arc<Datatype>) + Send + Sync>;

/// A reduction operation.
pub struct Op {
    /// The handle under which programs know this operation, kept here by the abi layer. 0 if there
    /// is none.
    pub handle: AtomicU64,
    commutes: bool,
    action: Action,
}

enum Action {
    /// The kernels are looked up when the operation is first used.
    Predefined(Predefined, OnceLock<Box<Table>>),
    User(UserFunction),
}

/// The type of an element, as far as it matters to a predefined operation.
enum Element {
    Basic(Basic),
    /// A value and its index, made by MPI_Type_get_value_index, without a name.
    Pair(Basic, Basic),
    Derived,
}

impl Element {
    #[inline]
    fn of(t: &Datatype) -> Element {
        match t.basic_kind() {
            Some(basic) => Element::Basic(basic),
            None => t.pair().map_or(Element::Derived, |(value, index)| {
                Element::Pair(value, index)
            }),
        }
    }
}

/// Why an operation cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The standard does not define this operation on this type.
    #[error("{op} is not defined on {datatype} (MPI 5.0 §6.9.2 allows it on {allowed})")]
    Undefined {
        /// The operation's name.
        op: &'static str,
        /// The type's name.
        datatype: &'static str,
        /// What it is defined on.
        allowed: &'static str,
    },
    /// An optional Fortran type that does not exist here.
    #[error("{datatype} does not exist on this system")]
    NoSuchType {
        /// The type's name.
        datatype: &'static str,
    },
    /// A predefined operation cannot be applied to a derived type.
    #[error(
        "{op} is not defined on derived datatypes; use a predefined datatype, or MPI_Op_create for \
         an operation of your own"
    )]
    Derived {
        /// The operation's name.
        op: &'static str,
    },
    /// MPI_REPLACE or MPI_NO_OP in a reduction.
    #[error("{op} is for MPI_Accumulate and its kin only, not for reductions")]
    AccumulateOnly {
        /// The operation's name.
        op: &'static str,
    },
    /// A user's operation in an accumulate.
    #[error(
        "one-sided accumulation takes predefined operations only, not one made by MPI_Op_create"
    )]
    UserInAccumulate,
    /// MPI_Compare_and_swap of a type that has no equality of bits.
    #[error(
        "MPI_Compare_and_swap is not defined on {datatype} (MPI 5.0 §12.3.4 allows it on \
         predefined integers, logicals and MPI_BYTE)"
    )]
    NotComparable {
        /// The type's name.
        datatype: &'static str,
    },
}

static PREDEFINED: LazyLock<[Arc<Op>; 14]> = LazyLock::new(|| {
    Predefined::ALL.map(|op| {
        Arc::new(Op {
            handle: AtomicU64::new(op as u64),
            commutes: !op.is_accumulate_only(),
            action: Action::Predefined(op, OnceLock::new()),
        })
    })
});

impl Op {
    /// The predefined operation with this ABI handle value (0x21 … 0x3d).
    pub fn predefined(value: u32) -> Option<&'static Arc<Op>> {
        let at = Predefined::ALL.iter().position(|op| *op as u32 == value)?;
        Some(&PREDEFINED[at])
    }

    /// The shared object of a predefined operation.
    pub fn of(op: Predefined) -> &'static Arc<Op> {
        Op::predefined(op as u32).expect("every predefined operation is in the list")
    }

    /// A user's operation. `commutes`: the operands' order does not matter. It must be associative
    /// in any case.
    pub fn user(f: UserFunction, commutes: bool) -> Arc<Op> {
        Arc::new(Op {
            handle: AtomicU64::new(0),
            commutes,
            action: Action::User(f),
        })
    }

    /// Returns whether the order of operands does not matter.
    #[inline]
    pub fn is_commutative(&self) -> bool {
        self.commutes
    }

    /// The predefined operation that it is, if it is one.
    pub fn predefined_kind(&self) -> Option<Predefined> {
        match &self.action {
            Action::Predefined(op, _) => Some(*op),
            Action::User(_) => None,
        }
    }

    /// Checks that this operation can be used in a reduction of elements of type `t`.
    pub fn check(&self, t: &Datatype) -> Result<(), OpError> {
        match &self.action {
            Action::User(_) => Ok(()),
            Action::Predefined(op, _) if op.is_accumulate_only() => {
                Err(OpError::AccumulateOnly { op: op.name() })
            }
            Action::Predefined(op, _) => defined(*op, t),
        }
    }

    /// Checks that this operation can be used in a one-sided accumulation of elements of the
    /// predefined type `t` (MPI 5.0 §12.3.4).
    #[inline]
    pub fn check_accumulate(&self, t: &Datatype) -> Result<(), OpError> {
        match (&self.action, t.basic_kind()) {
            (Action::Predefined(op, _), Some(basic)) if atomic::is_defined(*op, basic) => {
                return Ok(());
            }
            _ => {}
        }
        match &self.action {
            Action::User(_) => Err(OpError::UserInAccumulate),
            Action::Predefined(op, _) => defined(*op, t),
        }
    }

    /// Returns whether each element of this type that lies at a multiple of its size is accumulated
    /// by one CPU atomic: integers, floating-point numbers, logicals, bytes and characters of 1, 2,
    /// 4 and 8 bytes. Not pairs, complex numbers, long double and whatever has 16 bytes.
    #[inline]
    pub fn is_atomic(basic: Basic) -> bool {
        atomic::is_atomic(basic)
    }

    /// `target[i] = origin[i] op target[i]` for `count` elements, each by one atomic. The old
    /// values go to `result`, if there is one. The results are those of reductions.
    ///
    /// Does nothing if [`Op::check_accumulate`] or [`Op::is_atomic`] refuses the type.
    ///
    /// # Safety
    /// `target` is writable for `count` elements, aligned to their size, in memory that is changed
    /// by atomics only. `origin` is readable and `result` writable, at any alignment. MPI_NO_OP
    /// does not read `origin`.
    #[inline]
    pub unsafe fn apply_atomic(
        &self,
        origin: *const u8,
        target: *mut u8,
        result: Option<*mut u8>,
        count: usize,
        basic: Basic,
    ) {
        let Action::Predefined(op, _) = &self.action else {
            return;
        };
        let elements = atomic::Elements {
            origin,
            target,
            result,
            count,
        };
        // SAFETY: the caller's promise.
        unsafe { atomic::apply(*op, elements, basic) }
    }

    /// `inout[i] = invec[i] op inout[i]` for `count` elements of type `t`. Does nothing if
    /// [`Op::check_accumulate`] refuses the type, or if `count` is negative.
    ///
    /// # Safety
    /// `invec` must be readable and `inout` writable for `count` elements of `t`, at any alignment.
    /// A user's function may require more.
    #[inline]
    pub unsafe fn apply(&self, invec: *const u8, inout: *mut u8, count: i64, t: &Arc<Datatype>) {
        match &self.action {
            Action::Predefined(op, table) => {
                let Ok(count) = usize::try_from(count) else {
                    return;
                };
                match Element::of(t) {
                    Element::Basic(basic) => {
                        if let Some(kernel) = kernels(*op, table).find(basic) {
                            // SAFETY: the caller's promise; the table's kernel goes with the type's
                            // layout.
                            unsafe { kernel(invec, inout, count) }
                        }
                    }
                    Element::Pair(value, index) if *op == Predefined::Replace => {
                        let bytes = count * Form::Pair(value, index).extent();
                        // SAFETY: the caller's promise.
                        unsafe { std::ptr::copy(invec, inout, bytes) }
                    }
                    Element::Pair(value, index) => {
                        if let (Predefined::Minloc | Predefined::Maxloc, Some(pair)) =
                            (op, AnyPair::new(value, index))
                        {
                            // SAFETY: the caller's promise; the pair is laid out as the type is.
                            unsafe { pair.run(*op, invec, inout, count) }
                        }
                    }
                    Element::Derived => {}
                }
            }
            Action::User(f) => f(invec, inout, count, t),
        }
    }
}

#[inline]
fn kernels(op: Predefined, table: &OnceLock<Box<Table>>) -> &Table {
    table.get_or_init(|| Box::new(Table::new(op)))
}

/// Checks that MPI_Compare_and_swap takes elements of the type `t` (MPI 5.0 §12.3.4.4).
pub fn check_compare_and_swap(t: &Datatype) -> Result<(), OpError> {
    match t.basic_kind() {
        Some(basic) if atomic::is_comparable(basic) => Ok(()),
        Some(basic) if !basic.exists() => Err(OpError::NoSuchType {
            datatype: basic.name(),
        }),
        Some(basic) => Err(OpError::NotComparable {
            datatype: basic.name(),
        }),
        None => Err(OpError::NotComparable {
            datatype: "a derived datatype",
        }),
    }
}

fn defined(op: Predefined, t: &Datatype) -> Result<(), OpError> {
    match Element::of(t) {
        Element::Basic(basic) if atomic::is_defined(op, basic) => Ok(()),
        Element::Basic(basic) if !basic.exists() => Err(OpError::NoSuchType {
            datatype: basic.name(),
        }),
        Element::Basic(basic) => Err(OpError::Undefined {
            op: op.name(),
            datatype: basic.name(),
            allowed: table::allowed(op),
        }),
        Element::Pair(value, index)
            if op.is_accumulate_only()
                || matches!(op, Predefined::Minloc | Predefined::Maxloc)
                    && AnyPair::new(value, index).is_some() =>
        {
            Ok(())
        }
        Element::Pair(..) => Err(OpError::Undefined {
            op: op.name(),
            datatype: "a value and index pair",
            allowed: table::allowed(op),
        }),
        Element::Derived => Err(OpError::Derived { op: op.name() }),
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            self.predefined_kind()
                .map_or("user operation", Predefined::name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn apply<T: Copy>(op: &Op, a: &[T], b: &mut [T], t: &Arc<Datatype>) {
        assert_eq!(size_of_val(a), size_of_val(b));
        let count = size_of_val(a) as i64 / t.extent();
        // SAFETY: both slices hold count elements of the type, by the tests' choice of T.
        unsafe { op.apply(a.as_ptr().cast(), b.as_mut_ptr().cast(), count, t) }
    }

    #[test]
    fn predefined_operations_are_found_by_handle() {
        assert_eq!(
            Op::predefined(0x21).unwrap().predefined_kind(),
            Some(Predefined::Sum)
        );
        assert_eq!(
            Op::predefined(0x3d).unwrap().predefined_kind(),
            Some(Predefined::NoOp)
        );
        assert!(
            Op::predefined(0x20).is_none()
                && Op::predefined(0x25).is_none()
                && Op::predefined(0).is_none()
        );
        assert!(Op::of(Predefined::Minloc).is_commutative());
        assert!(!Op::of(Predefined::Replace).is_commutative());
    }

    #[test]
    fn sums_are_sums() {
        let mut b = [0.5, 1.5, -2.0];
        apply(
            Op::of(Predefined::Sum),
            &[1.0, 2.0, 3.0],
            &mut b,
            Datatype::basic(Basic::Double),
        );
        assert_eq!(b, [1.5, 3.5, 1.0]);
    }

    #[test]
    fn refusals_name_operation_and_type() {
        let said = |op, t: &Datatype| Op::of(op).check(t).unwrap_err().to_string();
        let text = said(Predefined::Band, Datatype::basic(Basic::Double));
        assert!(
            text.starts_with("MPI_BAND is not defined on MPI_DOUBLE"),
            "{text}"
        );
        let text = said(Predefined::Minloc, Datatype::basic(Basic::Int));
        assert!(
            text.contains("MPI_MINLOC") && text.contains("MPI_INT ") && text.contains("MPI_2INT"),
            "{text}"
        );
        let text = said(Predefined::Sum, Datatype::basic(Basic::Complex4));
        assert_eq!(text, "MPI_COMPLEX4 does not exist on this system");
        let text = said(Predefined::Replace, Datatype::basic(Basic::Int));
        assert!(text.contains("MPI_Accumulate"), "{text}");
        assert!(
            Op::of(Predefined::Replace)
                .check_accumulate(Datatype::basic(Basic::Int))
                .is_ok()
        );
        let derived = Datatype::contiguous(2, Datatype::basic(Basic::Int)).unwrap();
        assert_eq!(
            Op::of(Predefined::Sum).check(&derived),
            Err(OpError::Derived { op: "MPI_SUM" })
        );
    }

    #[test]
    fn pairs_without_a_name_have_minloc_and_nothing_else() {
        let (value, index) = (Datatype::basic(Basic::Int64), Datatype::basic(Basic::Int64));
        let pair = Datatype::value_index(value, index)
            .unwrap()
            .expect("MPI_INT64_T with MPI_INT64_T");
        let minloc = Op::of(Predefined::Minloc);
        assert_eq!(minloc.check(&pair), Ok(()));
        assert!(Op::of(Predefined::Sum).check(&pair).is_err());
        let mut b = [5i64, 3, -2, 1];
        apply(minloc, &[5, 1, 7, 0], &mut b, &pair);
        assert_eq!(b, [5, 1, -2, 1]);
    }

    #[test]
    fn a_users_function_gets_what_apply_was_given() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let derived = Datatype::contiguous(2, Datatype::basic(Basic::Int)).unwrap();
        let inner = derived.clone();
        let op = Op::user(
            Box::new(move |a, b, count, t| {
                CALLS.fetch_add(1, Ordering::Relaxed);
                assert!(count == 2 && Arc::ptr_eq(t, &inner));
                // SAFETY: the test passes four ints on either side.
                unsafe { *b.cast::<i32>() -= *a.cast::<i32>() }
            }),
            false,
        );
        assert!(
            op.check(&derived).is_ok() && !op.is_commutative() && op.predefined_kind().is_none()
        );
        assert_eq!(
            op.check_accumulate(&derived),
            Err(OpError::UserInAccumulate)
        );
        let mut b = [10, 20, 30, 40];
        apply(&op, &[1, 2, 3, 4], &mut b, &derived);
        assert_eq!((b, CALLS.load(Ordering::Relaxed)), ([9, 20, 30, 40], 1));
    }

    #[test]
    fn a_negative_count_is_nothing_to_do() {
        let mut b = [1];
        // SAFETY: a negative count touches nothing.
        unsafe {
            Op::of(Predefined::Sum).apply(
                [1].as_ptr().cast(),
                b.as_mut_ptr().cast(),
                -1,
                Datatype::basic(Basic::Int),
            )
        };
        assert_eq!(b, [1]);
    }
}
