//! The modules `mpi` and `mpi_f08` as source text.
//!
//! They hold constants, types and interfaces alone. All procedures are in `libmpifort_abi.so.1`, so
//! a module is compiled for each compiler, and the library once.

use super::argument::{Argument, Base, Intent, Shape};
use super::text::statement;
use super::{Module, Procedure, procedures};
use crate::Returns;
use crate::constants::{ALIASES, Form, GROUPS};
use std::fmt::Write;

/// The handle types of `mpi_f08`: their C names.
pub const HANDLES: [&str; 11] = [
    "MPI_Comm",
    "MPI_Datatype",
    "MPI_Errhandler",
    "MPI_File",
    "MPI_Group",
    "MPI_Info",
    "MPI_Message",
    "MPI_Op",
    "MPI_Request",
    "MPI_Session",
    "MPI_Win",
];

/// Constants of C that Fortran has not.
fn only_in_c(name: &str) -> bool {
    name.starts_with("MPI_T_") || name.starts_with("MPI_F_")
}

/// A constant of Fortran: its name, the C type of a handle or "", the value as a literal.
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// The C type of a handle; empty for a number.
    pub handle: &'static str,
    /// Its value.
    pub value: i64,
}

/// All named constants that are numbers or handles. The lengths of strings are without C's final
/// null (MPI 5.0 §19.3.9).
pub fn constants() -> Vec<Constant> {
    let mut all = Vec::new();
    for group in GROUPS {
        let handle = match group.form {
            Form::Handle("MPI_Offset") | Form::Pointer(_) => continue,
            Form::Handle(c) => c,
            _ => "",
        };
        for &(name, value) in group.constants.iter().filter(|c| !only_in_c(c.0)) {
            let is_length = name.starts_with("MPI_MAX_");
            let value = value - i64::from(is_length);
            all.push(Constant {
                name,
                handle,
                value,
            });
        }
    }
    for &(name, of) in ALIASES {
        if let Some(at) = all.iter().position(|c| c.name == of) {
            let Constant { handle, value, .. } = all[at];
            all.push(Constant {
                name,
                handle,
                value,
            });
        }
    }
    all
}

/// Constants that only Fortran has: kinds, and the fields of a status as an array.
pub const FORTRAN_NUMBERS: [(&str, i64); 8] = [
    ("MPI_INTEGER_KIND", 4),
    ("MPI_ADDRESS_KIND", 8),
    ("MPI_COUNT_KIND", 8),
    ("MPI_OFFSET_KIND", 8),
    ("MPI_STATUS_SIZE", 8),
    ("MPI_SOURCE", 1),
    ("MPI_TAG", 2),
    ("MPI_ERROR", 3),
];

/// A variable whose address has a meaning.
pub struct Sentinel {
    /// Its name in Fortran.
    pub name: &'static str,
    /// The name of its common block. The linker's name has an underscore more; in `mpi_f08` it
    /// begins with `mpif08`.
    pub block: &'static str,
    /// Its type in `mpi` and `mpif.h`, and in `mpi_f08`.
    pub types: [&'static str; 2],
    /// Its shape in `mpi` and `mpif.h`, and in `mpi_f08`.
    pub shapes: [&'static str; 2],
    /// Its size in bytes.
    pub bytes: usize,
}

const fn sentinel(
    name: &'static str,
    block: &'static str,
    types: [&'static str; 2],
    shapes: [&'static str; 2],
    bytes: usize,
) -> Sentinel {
    Sentinel {
        name,
        block,
        types,
        shapes,
        bytes,
    }
}

const INTEGERS: [&str; 2] = ["integer", "integer"];
const CHARACTERS: [&str; 2] = ["character(len=1)", "character(len=1)"];
const STATUSES: [&str; 2] = ["integer", "type(MPI_Status)"];

/// All variables whose address has a meaning (MPI 5.0 §2.5.4).
pub const SENTINELS: [Sentinel; 10] = [
    sentinel("MPI_BOTTOM", "mpifbottom", INTEGERS, ["", ""], 4),
    sentinel("MPI_IN_PLACE", "mpifinplace", INTEGERS, ["", ""], 4),
    sentinel(
        "MPI_BUFFER_AUTOMATIC",
        "mpifautomatic",
        INTEGERS,
        ["", ""],
        4,
    ),
    sentinel(
        "MPI_STATUS_IGNORE",
        "mpifstatus",
        STATUSES,
        ["(MPI_STATUS_SIZE)", ""],
        32,
    ),
    sentinel(
        "MPI_STATUSES_IGNORE",
        "mpifstatuses",
        STATUSES,
        ["(MPI_STATUS_SIZE,1)", "(1)"],
        32,
    ),
    sentinel(
        "MPI_ERRCODES_IGNORE",
        "mpiferrcodes",
        INTEGERS,
        ["(1)", "(1)"],
        4,
    ),
    sentinel(
        "MPI_UNWEIGHTED",
        "mpifunweighted",
        INTEGERS,
        ["(1)", "(1)"],
        4,
    ),
    sentinel(
        "MPI_WEIGHTS_EMPTY",
        "mpifweightsempty",
        INTEGERS,
        ["(1)", "(1)"],
        4,
    ),
    sentinel("MPI_ARGV_NULL", "mpifargv", CHARACTERS, ["(1)", "(1)"], 1),
    sentinel(
        "MPI_ARGVS_NULL",
        "mpifargvs",
        CHARACTERS,
        ["(1,1)", "(1,1)"],
        1,
    ),
];

impl Module {
    fn name(self) -> &'static str {
        match self {
            Module::Mpi => "mpi",
            Module::MpiF08 => "mpi_f08",
        }
    }

    fn index(self) -> usize {
        usize::from(self == Module::MpiF08)
    }

    /// The linker's name of a variable whose address has a meaning.
    pub fn sentinel_symbol(self, sentinel: &Sentinel) -> String {
        match self {
            Module::Mpi => format!("{}_", sentinel.block),
            Module::MpiF08 => format!("{}_", sentinel.block.replacen("mpif", "mpif08", 1)),
        }
    }
}

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
    out +=
        "  use, intrinsic :: iso_c_binding, only: c_ptr\n  implicit none\n  private :: c_ptr\n\n";
    for (name, value) in FORTRAN_NUMBERS {
        let _ = writeln!(out, "  integer, parameter :: {name} = {value}");
    }
    if module == Module::MpiF08 {
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

/// Interfaces of procedures that programs pass: name, arguments, declarations. `@` stands for the
/// type of the object's handle.
const CALLBACKS: &[(&str, &str, &[&str])] = &[
    (
        "User_function",
        "invec, inoutvec, len, datatype",
        &[
            "type(c_ptr), value :: invec, inoutvec",
            "integer :: len",
            "type(MPI_Datatype) :: datatype",
        ],
    ),
    (
        "User_function_c",
        "invec, inoutvec, len, datatype",
        &[
            "type(c_ptr), value :: invec, inoutvec",
            "integer(kind=MPI_COUNT_KIND) :: len",
            "type(MPI_Datatype) :: datatype",
        ],
    ),
    (
        "Grequest_query_function",
        "extra_state, status, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "type(MPI_Status) :: status",
            "integer :: ierror",
        ],
    ),
    (
        "Grequest_free_function",
        "extra_state, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "integer :: ierror",
        ],
    ),
    (
        "Grequest_cancel_function",
        "extra_state, complete, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "logical :: complete",
            "integer :: ierror",
        ],
    ),
    (
        "Datarep_extent_function",
        "datatype, extent, extra_state, ierror",
        &[
            "type(MPI_Datatype) :: datatype",
            "integer(kind=MPI_ADDRESS_KIND) :: extent, extra_state",
            "integer :: ierror",
        ],
    ),
    (
        "Datarep_conversion_function",
        "userbuf, datatype, count, filebuf, position, extra_state, ierror",
        &[
            "type(c_ptr), value :: userbuf, filebuf",
            "type(MPI_Datatype) :: datatype",
            "integer :: count, ierror",
            "integer(kind=MPI_OFFSET_KIND) :: position",
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
        ],
    ),
    (
        "Datarep_conversion_function_c",
        "userbuf, datatype, count, filebuf, position, extra_state, ierror",
        &[
            "type(c_ptr), value :: userbuf, filebuf",
            "type(MPI_Datatype) :: datatype",
            "integer(kind=MPI_COUNT_KIND) :: count",
            "integer(kind=MPI_OFFSET_KIND) :: position",
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "integer :: ierror",
        ],
    ),
];

/// The arguments of a copy and of a delete function of attributes, by the word for the object.
fn attribute_function(word: &str, copy: bool) -> (String, Vec<String>) {
    let names = if copy {
        format!(
            "old{word}, {word}_keyval, extra_state, attribute_val_in, attribute_val_out, flag, \
             ierror"
        )
    } else {
        let object = if word == "type" { "datatype" } else { word };
        format!("{object}, {word}_keyval, attribute_val, extra_state, ierror")
    };
    let object = names.split(',').next().unwrap_or_default();
    let values = match copy {
        true => "extra_state, attribute_val_in, attribute_val_out",
        false => "attribute_val, extra_state",
    };
    let mut declarations = vec![
        format!("@ :: {object}"),
        format!("integer :: {word}_keyval, ierror"),
        format!("integer(kind=MPI_ADDRESS_KIND) :: {values}"),
    ];
    if copy {
        declarations.push("logical :: flag".into());
    }
    (names, declarations)
}

/// Objects that have attributes: the word in names, and the C type of the handle.
const WITH_ATTRIBUTES: [(&str, &str); 3] = [
    ("comm", "MPI_Comm"),
    ("type", "MPI_Datatype"),
    ("win", "MPI_Win"),
];

fn callbacks(out: &mut String) {
    *out += "\n  abstract interface\n";
    for (name, arguments, declarations) in CALLBACKS {
        let lines: Vec<String> = declarations.iter().map(|d| (*d).to_string()).collect();
        subroutine(out, &format!("MPI_{name}"), arguments, &lines, true);
    }
    for (word, handle) in WITH_ATTRIBUTES {
        let ty = format!("type({handle})");
        let mut title = word.to_string();
        title[..1].make_ascii_uppercase();
        for (copy, what) in [(true, "copy"), (false, "delete")] {
            let (names, lines) = attribute_function(word, copy);
            let lines: Vec<String> = lines.iter().map(|l| l.replace('@', &ty)).collect();
            let name = format!("MPI_{title}_{what}_attr_function");
            subroutine(out, &name, &names, &lines, true);
        }
    }
    for object in ["Comm", "Win", "File", "Session"] {
        let word = object.to_lowercase();
        let lines = [
            format!("type(MPI_{object}) :: {word}"),
            "integer :: error_code".into(),
        ];
        let name = format!("MPI_{object}_errhandler_function");
        subroutine(out, &name, &format!("{word}, error_code"), &lines, true);
    }
    *out += "  end interface\n";
}

fn subroutine(out: &mut String, name: &str, arguments: &str, lines: &[String], imports: bool) {
    *out += &statement(4, &format!("subroutine {name}({arguments})"));
    *out += if imports { "      import\n" } else { "" };
    for line in lines {
        *out += &statement(6, line);
    }
    *out += &format!("    end subroutine {name}\n");
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

/// MPI_COMM_DUP_FN and its like: external procedures, which programs pass by name.
fn predefined_functions(out: &mut String, module: Module) {
    let f08 = module == Module::MpiF08;
    *out += "\n  interface\n";
    for (word, handle) in WITH_ATTRIBUTES {
        let ty = if f08 {
            format!("type({handle})")
        } else {
            "integer".into()
        };
        for what in ["DUP", "NULL_COPY", "NULL_DELETE"] {
            let (names, lines) = attribute_function(word, what != "NULL_DELETE");
            let lines: Vec<String> = lines.iter().map(|l| l.replace('@', &ty)).collect();
            let name = format!("MPI_{}_{what}_FN", word.to_uppercase());
            subroutine(out, &name, &names, &lines, true);
        }
    }
    for suffix in ["", "_C"] {
        let of = format!("Datarep_conversion_function{}", suffix.to_lowercase());
        let found = CALLBACKS.iter().find(|c| c.0 == of);
        let Some((_, names, lines)) = found.filter(|_| f08) else {
            continue;
        };
        let lines: Vec<String> = lines.iter().map(|l| (*l).to_string()).collect();
        let name = format!("MPI_CONVERSION_FN_NULL{suffix}");
        subroutine(out, &name, names, &lines, true);
    }
    *out += "  end interface\n";
    if !f08 {
        *out += "  external MPI_CONVERSION_FN_NULL, MPI_DUP_FN, MPI_NULL_COPY_FN, \
                 MPI_NULL_DELETE_FN\n";
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
            Module::Mpi => *out += "\n  interface\n",
        }
        for procedure in &forms {
            procedure_interface(out, procedure, prefix);
        }
        *out += "  end interface\n";
        at += forms.len();
    }
    extras(out, module, prefix);
}

fn procedure_interface(out: &mut String, procedure: &Procedure, prefix: &str) {
    let name = format!("{prefix}{}", procedure.specific());
    let arguments = procedure.arguments();
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
        // The type is that of mpi_f08. In mpi it is the same eight integers.
        let declare = |which: &str, intent: &str| match (which, f08) {
            ("f08_status", true) => format!("type(MPI_Status){intent} :: f08_status"),
            (_, true) => format!("integer{intent} :: f_status(MPI_STATUS_SIZE)"),
            (which, false) => format!("integer :: {which}(MPI_STATUS_SIZE)"),
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
