//! What the messages of a collective carry as their tag: the number by which they are matched, and
//! which function they belong to. Ranks that call different functions, or one that blocks where
//! others do not (which never match, MPI 5.0 §6.12), are told by that.

use crate::Comm;
use crate::device::Tags;
use ferry_schedule::Collective;
use std::sync::atomic::Ordering;

/// So many bits of a tag, the lowest ones, decide what matches: the number. The others say the
/// function, which the receiver looks at.
const MATCHED_BITS: u32 = 26;

/// The tags of a collective's messages, whose sender may have called another function: this one's
/// number is in `tag`.
#[inline]
pub(crate) fn of_any_function(tag: u32) -> Tags {
    Tags::alike(tag, (1 << MATCHED_BITS) - 1)
}

/// The function that a message of a collective's belongs to, by its tag.
pub(crate) fn called(tag: u32) -> impl std::fmt::Display {
    Function::of_tag(tag)
}

/// How a collective is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Blocking,
    NonBlocking,
    Persistent,
}

const FORMS: [Form; 3] = [Form::Blocking, Form::NonBlocking, Form::Persistent];

/// What is called: a line for each collective that the schedules know.
macro_rules! called {
    ($($collective:ident $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Called {
            $($collective,)*
            Neighbourhood,
            /// What a communicator arranges by itself: no function.
            OwnAffair,
        }

        impl Called {
            const ALL: &[Called] = &[$(Called::$collective,)* Called::Neighbourhood, Called::OwnAffair];

            fn of(what: &Collective<'_>) -> Called {
                match what {
                    $(Collective::$collective { .. } => Called::$collective,)*
                }
            }

            /// The function's name without `MPI_`, if it is a function's.
            fn name(self) -> Option<&'static str> {
                match self {
                    $(Called::$collective => Some($name),)*
                    Called::Neighbourhood | Called::OwnAffair => None,
                }
            }
        }
    };
}

called! {
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

/// The function that is called, as far as all ranks must agree about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function(u32);

const _: () = assert!(Called::ALL.len() * FORMS.len() <= 1 << (u32::BITS - MATCHED_BITS));

impl Function {
    const fn new(called: Called, form: Form) -> Function {
        Function(called as u32 * FORMS.len() as u32 + form as u32)
    }

    /// The one of this call.
    pub fn of(what: &Collective<'_>, form: Form) -> Function {
        Function::new(Called::of(what), form)
    }

    /// Any neighbourhood collective.
    pub fn neighbourhood(form: Form) -> Function {
        Function::new(Called::Neighbourhood, form)
    }

    /// The function that a message with this tag belongs to; there may be none.
    pub fn of_tag(tag: u32) -> Function {
        Function(tag >> MATCHED_BITS)
    }

    /// `None`: no rank that runs this library has made it.
    fn called(self) -> Option<Called> {
        Called::ALL.get(self.0 as usize / FORMS.len()).copied()
    }

    fn form(self) -> Form {
        FORMS[self.0 as usize % FORMS.len()]
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let called = self.called();
        let name = called.and_then(Called::name);
        match (called, name, self.form()) {
            (_, Some(name), Form::Blocking) => write!(f, "MPI_{name}"),
            (_, Some(name), Form::NonBlocking) => write!(f, "MPI_I{}", name.to_lowercase()),
            (_, Some(name), Form::Persistent) => write!(f, "MPI_{name}_init"),
            (Some(Called::Neighbourhood), _, form) => f.write_str(match form {
                Form::Blocking => "a neighbourhood collective",
                Form::NonBlocking => "a non-blocking neighbourhood collective",
                Form::Persistent => "a persistent neighbourhood collective",
            }),
            _ => f.write_str("another collective"),
        }
    }
}

/// The numbers by which one collective's messages are told from another's.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    /// In the communicator: how many collectives were started before.
    own: u64,
    /// In an intercommunicator's local communicator.
    local: u64,
    function: Function,
}

/// The last number before tags begin anew.
const LAST: u64 = (1 << (MATCHED_BITS - 1)) - 1;
/// Those of persistent collectives stay in use for long: they are apart from the others', which
/// begin anew meanwhile.
const PERSISTENT: u32 = 1 << (MATCHED_BITS - 1);
/// How many numbers, the last ones, are kept for a communicator's own affairs.
const OWN_AFFAIRS: u64 = 2;

impl Number {
    /// The next number; every member takes its numbers in the same order.
    pub fn next(comm: &Comm, function: Function) -> Number {
        let take = |c: &Comm| {
            loop {
                let number = c.collectives.fetch_add(1, Ordering::Relaxed);
                if number & LAST <= LAST - OWN_AFFAIRS {
                    return number;
                }
            }
        };
        Number {
            own: take(comm),
            local: comm.local.as_deref().map_or(0, take),
            function,
        }
    }

    /// How many collectives were started before on its communicator: the same at all members.
    pub fn in_comm(self) -> u64 {
        self.own
    }

    /// For the `which`-th of the collectives (below [`OWN_AFFAIRS`]) with which a communicator
    /// arranges its own affairs, once in its life: no call of the program's has these numbers.
    pub fn own_affair(which: u64) -> Number {
        Number {
            own: LAST - which,
            local: 0,
            function: Function::new(Called::OwnAffair, Form::Blocking),
        }
    }

    /// Which of the program's calls on this communicator it belongs to, from 1 on. An own affair is
    /// arranged by a call that has not taken its number yet.
    pub fn in_program(self, comm: &Comm) -> u64 {
        1 + if self.function == Number::own_affair(0).function {
            comm.collectives.load(Ordering::Relaxed)
        } else {
            self.own
        }
    }

    /// The function.
    pub fn function(self) -> Function {
        self.function
    }

    /// The tag of its messages in its communicator.
    #[inline]
    pub fn tag(self) -> u32 {
        self.tag_of(self.own)
    }

    /// The tag of its messages in an intercommunicator's local communicator.
    #[inline]
    pub fn local_tag(self) -> u32 {
        self.tag_of(self.local)
    }

    #[inline]
    fn tag_of(self, number: u64) -> u32 {
        let apart = if self.function.form() == Form::Persistent {
            PERSISTENT
        } else {
            0
        };
        (number & LAST) as u32 | apart | self.function.0 << MATCHED_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_number_and_function_and_that_it_is_persistent() {
        let mut names = std::collections::HashSet::new();
        for &called in Called::ALL {
            for form in FORMS {
                let function = Function::new(called, form);
                let number = |own| Number {
                    own,
                    local: 7,
                    function,
                };
                let tag = number(LAST + 6).tag();
                assert_eq!(Function::of_tag(tag), function);
                assert_eq!((function.called(), function.form()), (Some(called), form));
                assert_eq!(tag & LAST as u32, 5);
                assert_eq!(tag & PERSISTENT != 0, form == Form::Persistent);
                assert_eq!(number(0).local_tag() & LAST as u32, 7);
                names.insert(function.to_string());
            }
        }
        assert_eq!(names.len(), Called::ALL.len() * FORMS.len() - 2);
        for name in [
            "MPI_Bcast",
            "MPI_Ireduce_scatter_block",
            "MPI_Alltoallw_init",
        ] {
            assert!(names.contains(name), "{name}");
        }
        assert_eq!(Function::of_tag(u32::MAX).to_string(), "another collective");
    }
}
