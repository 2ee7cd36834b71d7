//! Fortran, made from the description of the functions (MPI 5.0 chapter 19).
//!
//! ```text
//! argument   what each parameter is in Fortran: type, shape, intent
//! constants  numbers, handles, variables whose address has a meaning
//! callbacks  interfaces of procedures that programs pass
//! modules    mpi_f08.F90 and mpi.F90: constants, types and the interface of every procedure
//! include    mpif.h
//! header     what mpi.h has for programs in C that speak to Fortran
//! entries    the C sources of libmpifort_abi.so.1: one function for each procedure
//! lower      how a parameter of Fortran becomes an argument in C, and back
//! section    array sections in choice buffers of mpi_f08
//! ```
//!
//! The library uses the functions of the C library's public ABI alone, so it runs over any library
//! of the standard ABI. What is the same for all procedures stands in `crates/api/fortran`.

pub mod argument;
mod callbacks;
pub mod constants;
pub mod entries;
pub mod header;
pub mod include;
mod lower;
pub mod modules;
mod section;
mod text;

use crate::{Function, functions};
use argument::{Argument, Base};

/// One of the two sets of procedures. `mpif.h` has those of the module `mpi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// The module `mpi`: handles are INTEGERs.
    Mpi,
    /// The module `mpi_f08`: handles are derived types, choice buffers are descriptors.
    MpiF08,
}

/// A procedure of Fortran: one form of a function.
#[derive(Clone, Copy, Debug)]
pub struct Procedure {
    /// The function.
    pub function: &'static Function,
    /// Is it the large-count form?
    pub large: bool,
    /// Whose procedure it is.
    pub module: Module,
}

/// Chapters of functions that exist in C alone (MPI 5.0 chapters 15 and 20).
const C_ONLY: [&str; 2] = ["convert", "tool"];

/// All procedures of a module. The large-count form of a function is one of its own in `mpi_f08`
/// alone, and only where a call can tell it from the other form.
pub fn procedures(module: Module) -> impl Iterator<Item = Procedure> {
    let in_fortran = move |f: &&'static Function| {
        let is_old = f.deprecated.as_deref() == Some("2.0");
        let only_in_mpi = is_old && module == Module::MpiF08;
        !C_ONLY.contains(&f.chapter.as_str()) && !only_in_mpi
    };
    functions()
        .iter()
        .filter(in_fortran)
        .flat_map(move |function| {
            let form = move |large| Procedure {
                function,
                large,
                module,
            };
            let large = (module == Module::MpiF08 && form(true).is_distinct()).then(|| form(true));
            std::iter::once(form(false)).chain(large)
        })
}

/// Every source for compilers: names and texts. `mpif.h` is for programs; the modules are for the
/// Fortran compiler; the rest is the library's, for the C compiler.
pub fn files() -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("mpif.h", include::mpif_h()),
        ("mpi.F90", modules::source(Module::Mpi)),
        ("mpi_f08.F90", modules::source(Module::MpiF08)),
        ("generated.h", entries::header()),
        ("procedures.c", entries::source()),
    ];
    all.extend(entries::SOURCES.map(|(name, text)| (name, text.to_string())));
    all
}

/// The library's sources that are compiled once.
pub const COMPILED_ONCE: [&str; 6] = [
    "convert.c",
    "section.c",
    "copies.c",
    "callback.c",
    "attribute.c",
    "register.c",
];
/// The library's sources that are compiled twice, the second time with `MPIFORT_PROFILE`.
pub const COMPILED_TWICE: [&str; 4] = ["procedures.c", "special.c", "removed.c", "sizes.c"];
/// The Fortran sources, each of one module.
pub const MODULES: [&str; 2] = ["mpi.F90", "mpi_f08.F90"];

impl Procedure {
    /// Its arguments without `ierror` and without those that only C has.
    pub fn arguments(&self) -> Vec<Argument> {
        let parameters = self.function.parameters_of(self.large);
        parameters.filter_map(|p| Argument::new(self, p)).collect()
    }

    /// The name by which programs call it.
    pub fn generic(&self) -> String {
        match self.large && self.has_name_of_its_own() {
            true => format!("MPI_{}_c", self.function.name),
            false => format!("MPI_{}", self.function.name),
        }
    }

    /// The specific name (MPI 5.0 §19.1.5).
    pub fn specific(&self) -> String {
        let large = if self.large { "_c" } else { "" };
        let suffix = match self.module {
            Module::Mpi => "",
            Module::MpiF08 if self.has_choice() => "_f08ts",
            Module::MpiF08 => "_f08",
        };
        format!("MPI_{}{large}{suffix}", self.function.name)
    }

    /// Has the function a choice buffer?
    pub fn has_choice(&self) -> bool {
        self.arguments().iter().any(|a| a.base == Base::Choice)
    }

    /// Has the function, in the module `mpi`, a second form whose `baseptr` is a TYPE(C_PTR)? Its
    /// specific name ends with `_CPTR` (MPI 5.0 §9.2, §12.2).
    pub fn has_pointer_form(&self) -> bool {
        let is_base = |a: &Argument| a.parameter.name == "baseptr" && a.base == Base::Address;
        self.module == Module::Mpi && self.arguments().iter().any(is_base)
    }

    /// Is its last argument `ierror`?
    pub fn has_error(&self) -> bool {
        self.function.returns == crate::Returns::Code && self.function.name != "Pcontrol"
    }

    /// Procedures whose forms differ in an argument that is a procedure: a generic name cannot tell
    /// them apart (MPI 5.0 §19.1.5).
    fn has_name_of_its_own(&self) -> bool {
        matches!(
            self.function.name.as_str(),
            "Op_create" | "Register_datarep"
        )
    }

    /// Is there a large-count form with another interface? Kinds for addresses, counts and offsets
    /// are the same in this ABI. Functions with an `MPI_Count` in both forms have one in Fortran.
    fn is_distinct(&self) -> bool {
        let small = Procedure {
            large: false,
            ..*self
        };
        let shape = |p: &Procedure| -> Vec<_> {
            let arguments = p.arguments().into_iter();
            arguments.map(|a| (a.base.width(), a.shape)).collect()
        };
        self.function.large && (self.has_name_of_its_own() || shape(self) != shape(&small))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(module: Module, specific: &str) -> Option<Procedure> {
        procedures(module).find(|p| p.specific() == specific)
    }

    #[test]
    fn names_of_the_standard() {
        for name in [
            "MPI_Isend_f08ts",
            "MPI_Isend_c_f08ts",
            "MPI_Comm_rank_f08",
            "MPI_Type_contiguous_c_f08",
        ] {
            assert!(find(Module::MpiF08, name).is_some(), "{name}");
        }
        let op = find(Module::MpiF08, "MPI_Op_create_c_f08").unwrap();
        assert_eq!(op.generic(), "MPI_Op_create_c");
        assert_eq!(
            find(Module::MpiF08, "MPI_Send_c_f08ts").unwrap().generic(),
            "MPI_Send"
        );
    }

    #[test]
    fn forms_that_a_call_cannot_tell_apart_are_one() {
        assert!(find(Module::MpiF08, "MPI_Type_get_extent_c_f08").is_none());
        assert!(find(Module::MpiF08, "MPI_Psend_init_c_f08ts").is_none());
        assert!(find(Module::Mpi, "MPI_Send_c").is_none());
    }

    #[test]
    fn what_only_c_or_only_old_fortran_has() {
        assert!(find(Module::MpiF08, "MPI_Comm_toint_f08").is_none());
        assert!(find(Module::Mpi, "MPI_T_init_thread").is_none());
        assert!(find(Module::Mpi, "MPI_Attr_get").is_some());
        assert!(find(Module::MpiF08, "MPI_Attr_get_f08").is_none());
    }
}
