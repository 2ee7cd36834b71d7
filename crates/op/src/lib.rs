//! MPI reduction operations on every predefined type (MPI 5.0 §6.9).
//!
//! [`Op::apply`] is one indirect call into a loop that was chosen for the type (and for this processor) when the
//! operation was made. Which pairs of operation and type exist is the standard's table (§6.9.2), with two additions that
//! programs rely on, since the other libraries allow them: MPI_CHAR counts as an integer, and the logical operations
//! take MPI_AINT, MPI_COUNT and MPI_OFFSET.
//!
//! What the standard leaves open is defined here so that results do not depend on the order of ranks: integers wrap, and
//! MIN, MAX, MINLOC and MAXLOC prefer any number to a NaN.

mod kernel;
mod logical;
mod long_double;
mod pair;
mod predefined;
#[cfg(test)]
mod reference;
mod table;

pub use logical::FortranBooleans;
pub use predefined::Predefined;

use ferry_datatype::{Basic, Datatype};
use pair::AnyPair;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, OnceLock};
use table::Table;

/// A user's function: `inout[i] = in[i] op inout[i]` for so many elements of the type.
pub type UserFunction = Box<dyn Fn(*const u8, *mut u8, i64, &Arc<Datatype>) + Send + Sync>;

/// A reduction operation.
pub struct Op {
    /// Where the abi floor notes the handle under which programs know this operation; 0 while there is none.
    pub handle: AtomicU64,
    commutes: bool,
    action: Action,
}

enum Action {
    /// The kernels are looked up when the operation is first used.
    Predefined(Predefined, OnceLock<Box<Table>>),
    User(UserFunction),
}

/// What a type is to a predefined operation.
enum Element {
    Basic(Basic),
    /// A value and its index, made by MPI_Type_get_value_index and without a name.
    Pair(Basic, Basic),
    Derived,
}

impl Element {
    #[inline]
    fn of(t: &Datatype) -> Element {
        match t.basic_kind() {
            Some(basic) => Element::Basic(basic),
            None => t.value_index().map_or(Element::Derived, |(value, index)| {
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
    /// A predefined operation met a derived type.
    #[error(
        "{op} is not defined on derived datatypes; use a predefined datatype, or MPI_Op_create for an operation of your own"
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

    /// A user's operation. `commutes`: the operands' order does not matter. It must be associative in any case.
    pub fn user(f: UserFunction, commutes: bool) -> Arc<Op> {
        Arc::new(Op {
            handle: AtomicU64::new(0),
            commutes,
            action: Action::User(f),
        })
    }

    /// Does the operands' order not matter?
    #[inline]
    pub fn is_commutative(&self) -> bool {
        self.commutes
    }

    /// Which predefined operation it is, if it is one.
    pub fn predefined_kind(&self) -> Option<Predefined> {
        match &self.action {
            Action::Predefined(op, _) => Some(*op),
            Action::User(_) => None,
        }
    }

    /// May this operation be used in a reduction of elements of type `t`?
    pub fn check(&self, t: &Datatype) -> Result<(), OpError> {
        match &self.action {
            Action::User(_) => Ok(()),
            Action::Predefined(op, _) if op.is_accumulate_only() => {
                Err(OpError::AccumulateOnly { op: op.name() })
            }
            Action::Predefined(op, table) => defined(*op, table, t),
        }
    }

    /// May this operation be used in a one-sided accumulation of elements of the predefined type `t` (MPI 5.0 §12.3.4)?
    pub fn check_accumulate(&self, t: &Datatype) -> Result<(), OpError> {
        match &self.action {
            Action::User(_) => Err(OpError::UserInAccumulate),
            Action::Predefined(op, table) => defined(*op, table, t),
        }
    }

    /// `inout[i] = invec[i] op inout[i]` for `count` elements of type `t`. Does nothing if [`Op::check_accumulate`]
    /// refuses the type, or if `count` is negative.
    ///
    /// # Safety
    /// `invec` must be readable and `inout` writable for `count` elements of `t`; any alignment will do. A user's function
    /// may ask for more.
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
                            // SAFETY: the caller's promise; the table's kernel goes with the type's layout.
                            unsafe { kernel(invec, inout, count) }
                        }
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

fn defined(op: Predefined, table: &OnceLock<Box<Table>>, t: &Datatype) -> Result<(), OpError> {
    match Element::of(t) {
        Element::Basic(basic) if kernels(op, table).find(basic).is_some() => Ok(()),
        Element::Basic(basic) if !basic.exists() => Err(OpError::NoSuchType {
            datatype: basic.name(),
        }),
        Element::Basic(basic) => Err(OpError::Undefined {
            op: op.name(),
            datatype: basic.name(),
            allowed: table::allowed(op),
        }),
        Element::Pair(value, index)
            if matches!(op, Predefined::Minloc | Predefined::Maxloc)
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
