//! Constants of Fortran: numbers, handles, and variables whose address has a meaning.

use super::Module;
use crate::constants::{ALIASES, Form, GROUPS};

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
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Module::Mpi => "mpi",
            Module::MpiF08 => "mpi_f08",
        }
    }

    /// The place of the module in the pairs of a [`Sentinel`].
    pub fn index(self) -> usize {
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
