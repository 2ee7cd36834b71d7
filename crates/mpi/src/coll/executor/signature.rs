//! What all ranks must agree about in a collective call: the function and the root.

use crate::Kind;
use ferry_schedule::{Collective, NeighbourExchange};
use std::fmt::{Display, Formatter};

/// How a collective is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// MPI_X.
    Blocking,
    /// MPI_IX.
    NonBlocking,
    /// MPI_X_init.
    Persistent,
}

const FORMS: [Form; 3] = [Form::Blocking, Form::NonBlocking, Form::Persistent];

/// Declares a variant for each collective that the schedules know.
macro_rules! names {
    ($($collective:ident $name:literal,)*) => {
        /// A collective's name, without its form.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Name {
            $($collective,)*
            NeighborAllgather,
            NeighborAlltoall,
            /// Any other neighbourhood collective.
            Neighbourhood,
        }

        impl Name {
            const ALL: &[Name] = &[
                $(Name::$collective,)*
                Name::NeighborAllgather,
                Name::NeighborAlltoall,
                Name::Neighbourhood,
            ];

            #[inline]
            fn of(collective: &Collective<'_>) -> Name {
                match collective {
                    $(Collective::$collective { .. } => Name::$collective,)*
                }
            }

            /// The function's name without `MPI_`. `None`: it does not say which function it is.
            fn text(self) -> Option<&'static str> {
                match self {
                    $(Name::$collective => Some($name),)*
                    Name::NeighborAllgather => Some("Neighbor_allgather"),
                    Name::NeighborAlltoall => Some("Neighbor_alltoall"),
                    Name::Neighbourhood => None,
                }
            }
        }
    };
}

names! {
    Barrier "Barrier",
    Bcast "Bcast",
    Reduce "Reduce",
    Allreduce "Allreduce",
    Gather "Gather",
    Gatherv "Gatherv",
    Scatter "Scatter",
    Scatterv "Scatterv",
    Allgather "Allgather",
    Allgatherv "Allgatherv",
    Alltoall "Alltoall",
    Alltoallv "Alltoallv",
    Alltoallw "Alltoallw",
    ReduceScatterBlock "Reduce_scatter_block",
    ReduceScatter "Reduce_scatter",
    Scan "Scan",
    Exscan "Exscan",
}

/// An MPI function, as a number below 2^[`FUNCTION_BITS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function(u32);

const FUNCTION_BITS: u32 = 6;

/// The place behind the last name: what a rank sends that has given up a call
/// ([`Signature::gave_up`]).
const GAVE_UP: u32 = (1 << FUNCTION_BITS) / FORMS.len() as u32 - 1;

const _: () = assert!(Name::ALL.len() as u32 <= GAVE_UP);

impl Function {
    #[inline]
    pub(crate) const fn new(name: Name, form: Form) -> Function {
        Function(name as u32 * FORMS.len() as u32 + form as u32)
    }

    #[inline]
    pub(crate) fn of(collective: &Collective<'_>, form: Form) -> Function {
        Function::new(Name::of(collective), form)
    }

    #[inline]
    pub(crate) fn of_exchange(exchange: &NeighbourExchange, form: Form) -> Function {
        let name = match exchange {
            NeighbourExchange::Allgather(_) => Name::NeighborAllgather,
            NeighbourExchange::Alltoall(_) => Name::NeighborAlltoall,
        };
        Function::new(name, form)
    }

    /// `None`: no rank that runs this library has made it.
    fn name(self) -> Option<Name> {
        Name::ALL.get(self.0 as usize / FORMS.len()).copied()
    }

    #[inline]
    pub(super) fn form(self) -> Form {
        FORMS[self.0 as usize % FORMS.len()]
    }

    fn is_rooted(self) -> bool {
        use Name::{Bcast, Gather, Gatherv, Reduce, Scatter, Scatterv};
        let rooted = [Bcast, Gather, Gatherv, Reduce, Scatter, Scatterv];
        self.name().is_some_and(|name| rooted.contains(&name))
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        let text = name.and_then(Name::text);
        match (name, text, self.form()) {
            (_, Some(text), Form::Blocking) => write!(f, "MPI_{text}"),
            (_, Some(text), Form::NonBlocking) => write!(f, "MPI_I{}", text.to_lowercase()),
            (_, Some(text), Form::Persistent) => write!(f, "MPI_{text}_init"),
            (Some(Name::Neighbourhood), _, form) => f.write_str(match form {
                Form::Blocking => "a neighbourhood collective",
                Form::NonBlocking => "a non-blocking neighbourhood collective",
                Form::Persistent => "a persistent neighbourhood collective",
            }),
            _ => f.write_str("another collective"),
        }
    }
}

/// A function and, of its root, the lowest [`ROOT_BITS`] bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Signature(u32);

/// What a tag has room for. Two roots of a group of up to 32 ranks always differ in them.
const ROOT_BITS: u32 = 5;

/// The root of an MPI_Allreduce that the program has not called: it is part of a call that makes a
/// window.
pub(crate) const NEW_WINDOW: i32 = -2;

/// What a signature has of a root: 0 for none, 1 for [`NEW_WINDOW`].
#[inline]
pub(crate) fn root_bits(root: i32) -> u32 {
    (if root < 0 { !root } else { root }) as u32
}

impl Signature {
    pub(super) const BITS: u32 = FUNCTION_BITS + ROOT_BITS;

    /// A `root` of -1 is none.
    #[inline]
    pub(crate) fn new(function: Function, root: i32) -> Signature {
        let root = root_bits(root) & ((1 << ROOT_BITS) - 1);
        Signature(function.0 << ROOT_BITS | root)
    }

    /// What a rank sends that will not go on in a call of this form, since the members disagree
    /// about their lengths (`Kind::Truncate`) or about the call.
    pub(super) fn gave_up(form: Form, kind: Kind) -> Signature {
        let function = Function(GAVE_UP * FORMS.len() as u32 + form as u32);
        Signature(function.0 << ROOT_BITS | u32::from(kind == Kind::Truncate))
    }

    /// The error class of a rank that has given up. `None`: it is in a call.
    pub(super) fn kind_of_gave_up(self) -> Option<Kind> {
        let gave_up = self.function().0 / FORMS.len() as u32 == GAVE_UP;
        gave_up.then_some(match self.0 & 1 {
            1 => Kind::Truncate,
            _ => Kind::Other,
        })
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn from_bits(bits: u32) -> Signature {
        Signature(bits)
    }

    #[inline]
    pub(super) fn function(self) -> Function {
        Function(self.0 >> ROOT_BITS)
    }

    /// In words, for a call on a communicator of `size` ranks: `MPI_Bcast with root 1`.
    pub(crate) fn text(self, size: u32) -> String {
        let function = self.function();
        let root = self.0 & ((1 << ROOT_BITS) - 1);
        if function.name() == Some(Name::Allreduce) && root == root_bits(NEW_WINDOW) {
            return "a call that makes a window".to_owned();
        }
        if !function.is_rooted() {
            return function.to_string();
        }
        let values = 1 << ROOT_BITS;
        if size <= values {
            format!("{function} with root {root}")
        } else {
            format!("{function} with a root that is {root} modulo {values}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_a_number_and_a_name() {
        let mut names = std::collections::HashSet::new();
        for &name in Name::ALL {
            for form in FORMS {
                let function = Function::new(name, form);
                assert_eq!((function.name(), function.form()), (Some(name), form));
                let signature = Signature::new(function, 9);
                assert_eq!(signature.function(), function);
                assert!(signature.bits() < 1 << Signature::BITS);
                names.insert(function.to_string());
            }
        }
        assert_eq!(names.len(), Name::ALL.len() * FORMS.len());
        for name in [
            "MPI_Bcast",
            "MPI_Ireduce_scatter_block",
            "MPI_Alltoallw_init",
            "MPI_Ineighbor_alltoall",
        ] {
            assert!(names.contains(name), "{name}");
        }
        assert_eq!(Function(63).to_string(), "another collective");
    }

    #[test]
    fn who_has_given_up_is_in_no_function() {
        for form in FORMS {
            for kind in [Kind::Truncate, Kind::Other] {
                let signature = Signature::gave_up(form, kind);
                assert_eq!(signature.kind_of_gave_up(), Some(kind));
                assert_eq!(signature.function().form(), form);
                assert!(signature.bits() < 1 << Signature::BITS);
                for &name in Name::ALL {
                    let call = Signature::new(Function::new(name, form), 1);
                    assert_eq!(call.kind_of_gave_up(), None);
                }
            }
        }
    }

    #[test]
    fn roots_are_told_where_there_are_any() {
        let text =
            |name, root, size| Signature::new(Function::new(name, Form::Blocking), root).text(size);
        assert_eq!(text(Name::Gather, 3, 4), "MPI_Gather with root 3");
        assert_eq!(
            text(Name::Bcast, 33, 64),
            "MPI_Bcast with a root that is 1 modulo 32"
        );
        assert_eq!(text(Name::Barrier, -1, 4), "MPI_Barrier");
        assert_eq!(text(Name::Allreduce, -1, 4), "MPI_Allreduce");
        assert_eq!(
            text(Name::Allreduce, NEW_WINDOW, 4),
            "a call that makes a window"
        );
    }
}
