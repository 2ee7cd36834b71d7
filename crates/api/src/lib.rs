//! The single description of every MPI function, and the generators that use it.
//!
//! ```text
//! mpi.api ── parse ── kind (what each sort of argument is in C and in Rust)
//!              ├ entries    the MPI_ and PMPI_ symbols of libmpi_abi.so.1
//!              ├ glue       the signature that each function's glue must have
//!              ├ header     mpi.h, with constants
//!              ├ abis       the functions of libmpi.so.12 and libmpi.so.40
//!              └ fortran    mpif.h, the modules mpi and mpi_f08, the C sources behind them
//! variables: the environment variables that Ferry reads
//! ```
//!
//! ```
//! let functions = ferry_api::parse::parse("[coll]\nBarrier(comm: comm)").unwrap();
//! assert_eq!(functions[0].prototype("P", false), "int PMPI_Barrier(MPI_Comm comm)");
//! ```

pub mod abis;
pub mod constants;
pub mod entries;
pub mod fortran;
pub mod glue;
pub mod header;
pub mod kind;
pub mod parse;
pub mod variables;

use kind::Kind;
use std::sync::OnceLock;

/// The description itself.
pub const DESCRIPTION: &str = include_str!("../mpi.api");

/// An MPI function, together with its large-count form if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// The chapter. It is the module of its glue.
    pub chapter: String,
    /// Its name without `MPI_`.
    pub name: String,
    /// Its number, from 1; the large-count form has the next one.
    pub number: u32,
    /// Does it have a large-count form `MPI_…_c`?
    pub large: bool,
    /// Its parameters, including those of the large-count form alone.
    pub parameters: Vec<Parameter>,
    /// What it returns.
    pub returns: Returns,
    /// May it be called before MPI_Init and after MPI_Finalize?
    pub anytime: bool,
    /// Does its glue get the arguments behind the first as one `Result`? It is collective, and a
    /// rank with bad arguments takes part.
    pub joint: bool,
    /// Do its symbols try `fast_path::NAME` first? It does the call, or nothing at all.
    pub fast: bool,
    /// The version of MPI that deprecated it.
    pub deprecated: Option<String>,
    /// It is not implemented.
    pub todo: bool,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The parameter or constant that gives its length.
    pub argument: Option<String>,
    /// Where it is significant.
    pub significance: Significance,
    /// Only the large-count form has it.
    pub large_only: bool,
}

/// The processes of a rooted collective at which a parameter is significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Significance {
    /// Everywhere.
    Always,
    /// At the root.
    Root,
    /// At the processes that the root sends to or receives from: all of an intracommunicator, or
    /// the remote group of an intercommunicator.
    Leaf,
    /// At both.
    Any,
}

/// What a function returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Returns {
    /// An error code.
    Code,
    /// An int that is not an error code.
    Int,
    /// A double.
    Double,
    /// An MPI_Aint.
    Aint,
    /// A handle of this C type.
    Handle(String),
}

impl Returns {
    /// The C type.
    pub fn c(&self) -> &str {
        match self {
            Returns::Code | Returns::Int => "int",
            Returns::Double => "double",
            Returns::Aint => "MPI_Aint",
            Returns::Handle(name) => name,
        }
    }
}

impl Function {
    /// The C names of its forms. The flag is true for the form with `_c`, if there is one.
    pub fn forms(&self) -> impl Iterator<Item = (String, bool)> {
        let large = self.large.then(|| (format!("MPI_{}_c", self.name), true));
        std::iter::once((format!("MPI_{}", self.name), false)).chain(large)
    }

    /// The parameters of one of its forms.
    pub fn parameters_of(&self, large: bool) -> impl Iterator<Item = &Parameter> {
        self.parameters
            .iter()
            .filter(move |p| large || !p.large_only)
    }

    /// Does the function's entry point exist for each ABI? So it is for the functions of messages,
    /// of which programs call thousands: the entry takes requests in the ABI's form and returns its
    /// error codes, so that the ABI's library need not convert them.
    pub fn is_per_abi(&self) -> bool {
        matches!(
            self.name.as_str(),
            "Send"
                | "Recv"
                | "Isend"
                | "Ibsend"
                | "Issend"
                | "Irsend"
                | "Irecv"
                | "Parrived"
                | "Pready"
                | "Pready_list"
                | "Pready_range"
                | "Test"
                | "Testall"
                | "Testany"
                | "Testsome"
                | "Wait"
                | "Waitall"
                | "Waitany"
                | "Waitsome"
        )
    }

    /// Has its entry point for another ABI no status? A status after six other arguments would be
    /// passed on the stack, and the ABI's library could not jump there. For who wants one, it calls
    /// the standard ABI's entry point.
    pub fn is_without_status(&self) -> bool {
        let last = self.parameters.last();
        self.is_per_abi()
            && self.parameters.len() > 6
            && last.is_some_and(|p| p.kind.is("new status"))
    }

    /// The C prototype of one form, without semicolon. `prefix` is empty or `P`.
    pub fn prototype(&self, prefix: &str, large: bool) -> String {
        let parameters: Vec<String> = self
            .parameters_of(large)
            .map(|p| p.kind.c(&p.name, large))
            .collect();
        let parameters = if parameters.is_empty() {
            "void".into()
        } else {
            parameters.join(", ")
        };
        let suffix = if large { "_c" } else { "" };
        format!(
            "{} {prefix}MPI_{}{suffix}({parameters})",
            self.returns.c(),
            self.name
        )
    }
}

/// All functions, in the order of `mpi.api`.
pub fn functions() -> &'static [Function] {
    static ALL: OnceLock<Vec<Function>> = OnceLock::new();
    // The description is part of this crate and a test parses it, so it is valid here.
    ALL.get_or_init(|| parse::parse(DESCRIPTION).expect("mpi.api is well formed"))
}

/// The functions whose entry points exist for each ABI, with the C names of their forms, in the
/// order in which the table for the libraries of other ABIs has them.
pub fn per_abi() -> impl Iterator<Item = (&'static Function, String)> {
    let all = functions().iter().filter(|f| f.is_per_abi());
    all.flat_map(|f| f.forms().map(move |(name, _)| (f, name)))
}

/// The C name of function `number`. Entry points record that number.
pub fn name_of(number: u32) -> Option<String> {
    let all = functions();
    let at = all.partition_point(|f| f.number <= number).checked_sub(1)?;
    all[at]
        .forms()
        .nth((number - all[at].number) as usize)
        .map(|(name, _)| name)
}

/// The C names of all functions that are not implemented.
pub fn missing() -> Vec<String> {
    functions()
        .iter()
        .filter(|f| f.todo)
        .flat_map(|f| f.forms().map(|(name, _)| name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_abi_has_664_functions() {
        assert_eq!(functions().iter().flat_map(Function::forms).count(), 664);
        assert_eq!(functions().iter().filter(|f| f.large).count(), 161);
        assert_eq!(
            functions()
                .iter()
                .filter(|f| f.name.starts_with("T_"))
                .count(),
            51
        );
    }

    #[test]
    fn numbers_and_names_agree() {
        assert_eq!(name_of(0), None);
        assert_eq!(name_of(665), None);
        for f in functions() {
            for (at, (name, _)) in f.forms().enumerate() {
                assert_eq!(name_of(f.number + at as u32), Some(name));
            }
        }
    }

    #[test]
    fn prototypes_in_both_forms() {
        let f = functions().iter().find(|f| f.name == "Allgatherv").unwrap();
        assert_eq!(
            f.prototype("", false),
            "int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void \
             *recvbuf, \
             const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm)"
        );
        assert_eq!(
            f.prototype("P", true),
            "int PMPI_Allgatherv_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype \
             sendtype, void *recvbuf, \
             const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype, \
             MPI_Comm comm)"
        );
    }
}
