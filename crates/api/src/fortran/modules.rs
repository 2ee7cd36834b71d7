//! The modules `mpi` and `mpi_f08` as source text.
//!
//! They hold constants, types and interfaces alone. All procedures are in `libmpifort_abi.so.1`, so
//! a module is compiled for each compiler, and the library once.

use super::argument::{Argument, Base, Intent, Shape};
use super::callbacks::{callbacks, predefined_functions};
use super::constants::{Constant, FORTRAN_NUMBERS, HANDLES, SENTINELS, constants};
use super::text::statement;
use super::{Module, Procedure, procedures};
use crate::Returns;
use std::fmt::Write;

/// The source of a module.
pub fn source(module: Module) -> String {
    let name = module.name();
    let mut out = format!(
        "! The module {name} of Ferry MPI, for the MPI 5.0 standard ABI.\n\
         !\n\
         ! Made from crates/api/mpi.api; do not edit. It has constants, types and interfaces; the\n\
         ! procedures are in libmpifort_abi.so.1.\n\
         module {name}\n"
    );
    out += "  use, intrinsic :: iso_c_binding, only: c_ptr\n";
    if module == Module::MpiF08 {
        let types = [&["MPI_Status"][..], &HANDLES].concat().join(", ");
        out += &statement(2, &format!("use mpi, only: {types}"));
    }
    out += "  implicit none\n  private :: c_ptr\n\n";
    for (name, value) in FORTRAN_NUMBERS {
        let _ = writeln!(out, "  integer, parameter :: {name} = {value}");
    }
    if module == Module::Mpi {
        types(&mut out);
    }
    named_constants(&mut out, module);
    variables(&mut out, module);
    if module == Module::MpiF08 {
        callbacks(&mut out);
        operators(&mut out);
    }
    predefined_functions(&mut out, module);
    for prefix in ["", "P"] {
        interfaces(&mut out, module, prefix);
    }
    let _ = writeln!(out, "end module {name}");
    out
}

/// The types that both modules have (MPI 5.0 §A.1.2): `mpi_f08` has them from `mpi`, so they are
/// the same where a program uses both.
fn types(out: &mut String) {
    *out += "\n  type, bind(C) :: MPI_Status\n    integer :: MPI_SOURCE\n    integer :: MPI_TAG\n";
    *out += "    integer :: MPI_ERROR\n    integer, private :: MPI_internal(5)\n";
    *out += "  end type MPI_Status\n";
    for name in HANDLES {
        let _ = writeln!(
            out,
            "  type, bind(C) :: {name}\n    integer :: MPI_VAL\n  end type {name}"
        );
    }
}

fn named_constants(out: &mut String, module: Module) {
    *out += "\n";
    for c in constants() {
        let Constant {
            name,
            handle,
            value,
        } = c;
        let _ = match (module, handle) {
            (Module::MpiF08, of) if !of.is_empty() => {
                writeln!(out, "  type({of}), parameter :: {name} = {of}({value})")
            }
            _ => writeln!(out, "  integer, parameter :: {name} = {value}"),
        };
    }
    *out += "  integer(kind=MPI_OFFSET_KIND), parameter :: MPI_DISPLACEMENT_CURRENT = &\n      \
             -1_MPI_OFFSET_KIND\n";
    // In `mpi` a section is copied by the compiler, as with an implicit interface.
    let sections = match module {
        Module::MpiF08 => ".true.",
        Module::Mpi => ".false.",
    };
    let _ = writeln!(
        out,
        "  logical, parameter :: MPI_SUBARRAYS_SUPPORTED = {sections}\n  logical, parameter :: \
         MPI_ASYNC_PROTECTS_NONBLOCKING = {sections}"
    );
}

fn variables(out: &mut String, module: Module) {
    *out += "\n  ! Their addresses have a meaning, their values have none.\n";
    for s in &SENTINELS {
        let (ty, shape) = (s.types[module.index()], s.shapes[module.index()]);
        let symbol = module.sentinel_symbol(s);
        *out += &statement(
            2,
            &format!("{ty}, bind(C, name=\"{symbol}\") :: {}{shape}", s.name),
        );
    }
}

/// Operators == and /= of handles (MPI 5.0 §2.5.1): functions of the library.
fn operators(out: &mut String) {
    for (operator, word) in [("==", "eq"), ("/=", "ne")] {
        let _ = writeln!(out, "\n  interface operator({operator})");
        for handle in HANDLES {
            let name = format!("{handle}_{word}_f08");
            let _ = writeln!(
                out,
                "    elemental function {name}(a, b)\n      import :: {handle}\n      \
                 type({handle}), intent(in) :: a, b\n      logical :: {name}\n    end function \
                 {name}"
            );
        }
        *out += "  end interface\n";
    }
}

fn interfaces(out: &mut String, module: Module, prefix: &str) {
    let all: Vec<Procedure> = procedures(module).collect();
    let mut at = 0;
    while at < all.len() {
        let generic = all[at].generic();
        let forms = all[at..].iter().take_while(|p| p.generic() == generic);
        let forms: Vec<_> = forms.collect();
        match module {
            Module::MpiF08 => {
                let _ = writeln!(out, "\n  interface {prefix}{generic}");
            }
            Module::Mpi if forms[0].has_pointer_form() => {
                let _ = writeln!(out, "\n  interface {prefix}{generic}");
                procedure_interface(out, forms[0], prefix, true);
            }
            Module::Mpi => *out += "\n  interface\n",
        }
        for procedure in &forms {
            procedure_interface(out, procedure, prefix, false);
        }
        *out += "  end interface\n";
        at += forms.len();
    }
    extras(out, module, prefix);
}

/// The interface of a procedure, or of its form with TYPE(C_PTR).
fn procedure_interface(out: &mut String, procedure: &Procedure, prefix: &str, pointer: bool) {
    let form = if pointer { "_cptr" } else { "" };
    let name = format!("{prefix}{}{form}", procedure.specific());
    let mut arguments = procedure.arguments();
    for base in arguments
        .iter_mut()
        .filter(|a| pointer && a.parameter.name == "baseptr")
    {
        base.base = Base::Pointer;
    }
    let mut names: Vec<String> = arguments.iter().map(|a| a.name.clone()).collect();
    if procedure.has_error() {
        names.push("ierror".into());
    }
    let f08 = procedure.module == Module::MpiF08;
    let bind = match f08 && procedure.has_choice() {
        true => format!(" bind(C, name=\"{}_\")", name.to_lowercase()),
        false => String::new(),
    };
    let result = match procedure.function.returns {
        Returns::Double => Some("double precision"),
        Returns::Aint => Some("integer(kind=MPI_ADDRESS_KIND)"),
        _ => None,
    };
    let word = if result.is_some() {
        "function"
    } else {
        "subroutine"
    };
    *out += &statement(4, &format!("{word} {name}({}){bind}", names.join(", ")));
    *out += "      import\n";
    for a in &arguments {
        declaration(out, a, procedure.module);
    }
    if procedure.has_error() {
        *out += match f08 {
            true => "      integer, optional, intent(out) :: ierror\n",
            false => "      integer :: ierror\n",
        };
    }
    if let Some(ty) = result {
        let _ = writeln!(out, "      {ty} :: {name}");
    }
    let _ = writeln!(out, "    end {word} {name}");
}

/// The declaration of an argument.
fn declaration(out: &mut String, a: &Argument, module: Module) {
    let f08 = module == Module::MpiF08;
    if a.base == Base::Choice && !f08 {
        // No check of type, kind and rank, as with an implicit interface.
        let name = &a.name;
        let _ = writeln!(
            out,
            "      !GCC$ ATTRIBUTES NO_ARG_CHECK :: {name}\n      !DIR$ IGNORE_TKR {name}\n      \
             type(*) :: {name}(*)"
        );
        return;
    }
    let (ty, status_shape) = match &a.base {
        Base::Integer => ("integer".into(), ""),
        Base::Logical => ("logical".into(), ""),
        Base::Address => ("integer(kind=MPI_ADDRESS_KIND)".into(), ""),
        Base::Count => ("integer(kind=MPI_COUNT_KIND)".into(), ""),
        Base::Offset => ("integer(kind=MPI_OFFSET_KIND)".into(), ""),
        Base::Handle(c) if f08 => (format!("type({c})"), ""),
        Base::Handle(_) => ("integer".into(), ""),
        Base::Choice => ("type(*), dimension(..)".into(), ""),
        Base::Text => ("character(len=*)".into(), ""),
        Base::Status if f08 => ("type(MPI_Status)".into(), ""),
        Base::Status => ("integer".into(), "MPI_STATUS_SIZE"),
        Base::Pointer => ("type(c_ptr)".into(), ""),
        Base::Procedure(of) if f08 => (format!("procedure(MPI_{of})"), ""),
        Base::Procedure(_) => {
            let _ = writeln!(out, "      external :: {}", a.name);
            return;
        }
    };
    let shape = match (a.shape, status_shape) {
        (Shape::Scalar, "") => String::new(),
        (Shape::Scalar, first) => format!("({first})"),
        (Shape::Array, "") => "(*)".into(),
        (Shape::Array, first) => format!("({first},*)"),
        (Shape::Ranges, _) => "(3,*)".into(),
        (Shape::Arguments, _) => "(count,*)".into(),
    };
    let intent = match a.intent {
        _ if !f08 => "",
        Intent::Any => "",
        Intent::In => ", intent(in)",
        Intent::Out => ", intent(out)",
        Intent::InOut => ", intent(inout)",
    };
    let asynchronous = if a.asynchronous && f08 {
        ", asynchronous"
    } else {
        ""
    };
    let line = format!("{ty}{intent}{asynchronous} :: {}{shape}", a.name);
    *out += &statement(6, &line);
}

/// Procedures that only Fortran has.
fn extras(out: &mut String, module: Module, prefix: &str) {
    let f08 = module == Module::MpiF08;
    let error = match f08 {
        true => "integer, optional, intent(out) :: ierror",
        false => "integer :: ierror",
    };
    let lower = prefix.to_lowercase();
    // The size comes from the descriptor, so one procedure serves all types and ranks.
    let (size, label) = match f08 {
        true => ("MPI_Sizeof_f08ts", "mpi_sizeof_f08ts_"),
        false => ("MPI_Sizeof_fts", "mpi_sizeof_fts_"),
    };
    let head =
        format!("subroutine {prefix}{size}(x, size, ierror) bind(C, name=\"{lower}{label}\")");
    let _ = writeln!(out, "\n  interface {prefix}MPI_Sizeof");
    *out += &statement(4, &head);
    let _ = writeln!(
        out,
        "      type(*), dimension(..), intent(in) :: x\n      integer, intent(out) :: size\n      \
         {error}\n    end subroutine\n  end interface"
    );
    let suffix = if f08 { "_f08" } else { "" };
    let intent = |text: &'static str| if f08 { text } else { "" };
    for (name, from, to) in [
        ("MPI_Status_f2f08", "f_status", "f08_status"),
        ("MPI_Status_f082f", "f08_status", "f_status"),
    ] {
        let declare = |which: &str, intent: &str| match which {
            "f08_status" => format!("type(MPI_Status){intent} :: f08_status"),
            _ => format!("integer{intent} :: f_status(MPI_STATUS_SIZE)"),
        };
        let _ = write!(
            out,
            "\n  interface {prefix}{name}\n    subroutine {prefix}{name}{suffix}({from}, {to}, \
             ierror)\n      import\n      {}\n      {}\n      {error}\n    end subroutine\n  end \
             interface\n",
            declare(from, intent(", intent(in)")),
            declare(to, intent(", intent(out)")),
        );
    }
    if f08 {
        let name = format!("{prefix}MPI_F_sync_reg_f08ts");
        let _ = writeln!(out, "\n  interface {prefix}MPI_F_sync_reg");
        let _ = writeln!(out, "    subroutine {name}(buf) &");
        let _ = writeln!(out, "        bind(C, name=\"{}_\")", name.to_lowercase());
        *out += "      type(*), dimension(..), asynchronous :: buf\n";
        *out += "    end subroutine\n  end interface\n";
    } else {
        let _ = write!(
            out,
            "\n  interface\n    subroutine {prefix}MPI_F_sync_reg(buf)\n      !GCC$ ATTRIBUTES \
             NO_ARG_CHECK :: buf\n      !DIR$ IGNORE_TKR buf\n      type(*) :: buf(*)\n    end \
             subroutine\n  end interface\n"
        );
    }
}
